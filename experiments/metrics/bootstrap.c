/* Runs made of blocks of a run's requests. */
#include "experiments/metrics/bootstrap.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

/* Time from each request to the next. What follows the last is not known: the mean; or, where
 * requests never overlapped, what it took. */
static void find_gaps(struct compare_resampler *s)
{
    const struct metrics_row *r = s->rows;
    size_t n = s->n;
    bool overlapped = false;

    for (size_t i = 0; i + 1 < n; i++) {
        s->gap_ns[i] = r[i + 1].intended_ns - r[i].intended_ns;
        overlapped = overlapped || r[i].done_ns > r[i + 1].dispatch_ns;
    }
    if (n > 0)
        s->gap_ns[n - 1] =
            overlapped ? (r[n - 1].intended_ns - r[0].intended_ns) / (int64_t)(n - 1)
                       : r[n - 1].done_ns - r[n - 1].intended_ns;
}

void compare_resampler_open(struct compare_resampler *s, const struct compare_run *run)
{
    size_t n_tok_max = 1;

    *s = (struct compare_resampler){.rows = run->rows, .n = run->n_rows, .slo = run->slo};
    while (s->n > 0 && s->rows->warmup)
        s->rows++, s->n--;
    for (size_t i = 0; i < s->n; i++)
        if ((size_t)s->rows[i].n_tok > n_tok_max)
            n_tok_max = (size_t)s->rows[i].n_tok;
    s->gap_ns = mem_new(MEM_HARNESS, s->n, sizeof(*s->gap_ns));
    s->drawn = mem_new(MEM_HARNESS, s->n, sizeof(*s->drawn));
    s->token_ns = mem_new(MEM_HARNESS, s->n * n_tok_max, sizeof(*s->token_ns));
    find_gaps(s);
}

void compare_resampler_close(struct compare_resampler *s)
{
    mem_free(s->gap_ns);
    mem_free(s->drawn);
    mem_free(s->token_ns);
    *s = (struct compare_resampler){0};
}

int compare_resample(struct compare_resampler *s, const char *metric, size_t block,
                     const size_t *starts, double *value)
{
    int64_t at_ns = 0, *token_ns = s->token_ns;
    const struct metrics_input in = {.rows = s->drawn,
                                     .n_rows = s->n,
                                     .slo = s->slo,
                                     .read_gbps = NAN,
                                     .peak_gflops = NAN,
                                     .read_why = "",
                                     .peak_why = ""};

    for (size_t to = 0; to < s->n; to++) {
        size_t from = (starts[to / block] + to % block) % s->n;

        s->drawn[to] = s->rows[from];
        metrics_row_move(&s->drawn[to], at_ns - s->rows[from].intended_ns, token_ns);
        at_ns += s->gap_ns[from];
        token_ns += s->drawn[to].n_tok;
    }
    return metrics_one(value, &in, metric);
}
