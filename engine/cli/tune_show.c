/* How far `sandwich tune` is, and what it came to. */
#include "cli/cli.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

#define TERMINAL_NS  UINT64_C(200000000)
#define ELSEWHERE_NS UINT64_C(60000000000)
#define BAR          24

/* Time left, from the work that is left and how long the rest took; the budget may end it
 * sooner. */
static double left_s(const struct cli_tuning *t, double elapsed_s)
{
    double left = NAN;

    if (t->done_work > 0)
        left = elapsed_s * (t->all_work - t->done_work) / t->done_work;
    if (t->budget_s > 0 && !(left < t->budget_s - t->measured_s))
        left = t->budget_s - t->measured_s;
    return left > 0 || isnan(left) ? left : 0;
}

void cli_tune_progress(struct cli_tuning *t)
{
    bool terminal = isatty(STDERR_FILENO);
    uint64_t now = clock_ns();
    double frac = t->all_work > 0 ? t->done_work / t->all_work : 1, left;
    int n = (int)(frac * BAR);
    char eta[32] = "unknown";

    if (now - t->t_shown_ns < (terminal ? TERMINAL_NS : ELSEWHERE_NS))
        return;
    t->t_shown_ns = now;
    left = left_s(t, (double)(now - t->t_start_ns) * 1e-9);
    if (!isnan(left))
        snprintf(eta, sizeof(eta), "%d:%02d", (int)left / 60, (int)left % 60);
    fprintf(stderr, "%s[%.*s%*s] %3.0f %% %s, %lld rows, %lld measurements, %s left%s",
            terminal ? "\r" : "", n, "##############################", BAR - n, "",
            100 * frac, t->matrix, (long long)t->m, (long long)t->n_measurements, eta,
            terminal ? "\033[K" : "\n");
    fflush(stderr);
}

void cli_tune_progress_end(void)
{
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r\033[K");
}

static void print_row(const struct cli_tuned *r)
{
    char speedup[32] = "n/a";

    if (r->n_compared > 0)
        snprintf(speedup, sizeof(speedup), "%.3f",
                 exp(r->log_speedup / (double)r->n_compared));
    printf("%-28s %6lld %6lld %6lld %12lld %9.1f %9s %8lld %10lld\n", r->matrix,
           (long long)r->n_shapes, (long long)r->n_found, (long long)r->n_known,
           (long long)r->n_measurements, r->seconds, speedup, (long long)r->n_compared,
           (long long)r->n_taken_back);
}

void cli_tune_report(const struct cli_tuned *rows, int n)
{
    struct cli_tuned all = {.matrix = "all"};

    printf("%-28s %6s %6s %6s %12s %9s %9s %8s %10s\n", "matrix", "shapes", "found",
           "known", "measurements", "seconds", "speed-up", "compared", "taken back");
    for (int i = 0; i < n; i++) {
        print_row(&rows[i]);
        all.n_shapes += rows[i].n_shapes;
        all.n_found += rows[i].n_found;
        all.n_known += rows[i].n_known;
        all.n_measurements += rows[i].n_measurements;
        all.seconds += rows[i].seconds;
        all.log_speedup += rows[i].log_speedup;
        all.n_compared += rows[i].n_compared;
        all.n_taken_back += rows[i].n_taken_back;
    }
    print_row(&all);
    printf(
        "speed-up: geometric mean of default over tuned, the fastest runs of both when "
        "measured again in turn,\nweights out of cache; "
        "taken back: what lost to the default there keeps the default\n");
}
