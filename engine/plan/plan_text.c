/* A plan in words, and for shells. */
#include "plan/plan.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/text.h"

#define LIST_BYTES  (CPU_MAX * 5 + 1)
#define RANKS_SHOWN 8

/* The memory nodes of a rank, each once, in thread order; "" where one is unknown. */
static void print_nodes(const struct plan_phase *f, int rank, char *out, int out_n)
{
    const int *nodes = f->nodes + rank * f->n_threads;
    int once[CPU_MAX], n = 0;

    out[0] = '\0';
    for (int i = 0; i < f->n_threads; i++) {
        bool known = false;

        if (nodes[i] < 0)
            return;
        for (int k = 0; k < n && !known; k++)
            known = once[k] == nodes[i];
        if (!known)
            once[n++] = nodes[i];
    }
    cpu_list_print(once, n, out, out_n);
}

static void print_cpus(const struct plan_phase *f, int rank, char *out, int out_n)
{
    cpu_list_print(f->cpus + rank * f->n_threads, f->n_threads, out, out_n);
}

/* ---- for people ---- */

/* How ranks sum, where the plan says so. */
static void sums_text(struct text *t, const struct plan_phase *f)
{
    const struct par_choice *c = &f->allreduce;

    if (c->n == 0)
        return;
    text_puts(t, "  ranks sum by");
    for (int i = 0; i < c->n; i++) {
        text_printf(t, "%s %s", i ? "," : "", par_colls[c->row[i].coll]->name);
        if (i + 1 < c->n)
            text_printf(t, " up to %zu bytes", c->row[i].bytes);
    }
    text_puts(t, "\n");
}

static void phase_text(struct text *t, const char *name, const struct plan_phase *f)
{
    char list[LIST_BYTES];

    text_printf(t, "%s: %d rank%s of %d thread%s", name, f->n_ranks,
                f->n_ranks > 1 ? "s" : "", f->n_threads, f->n_threads > 1 ? "s" : "");
    if (isfinite(f->expected_s))
        text_printf(t, ", %.4g ms a step expected", 1e3 * f->expected_s);
    text_puts(t, "\n");
    for (int r = 0; r < f->n_ranks && r < RANKS_SHOWN; r++) {
        print_cpus(f, r, list, sizeof(list));
        text_printf(t, "  rank %d: CPUs ", r);
        text_puts(t, list);
        print_nodes(f, r, list, sizeof(list));
        text_puts(t, *list ? "; memory node " : "");
        text_puts(t, list);
        text_puts(t, "\n");
    }
    if (f->n_ranks > RANKS_SHOWN)
        text_printf(t, "  ... %d more ranks\n", f->n_ranks - RANKS_SHOWN);
    if (f->costs.n > 0)
        text_puts(t, "  ms a step:");
    for (int i = 0; i < f->costs.n; i++)
        text_printf(t, "%s %lld row%s %.4g", i ? "," : "", (long long)f->costs.rows[i],
                    f->costs.rows[i] > 1 ? "s" : "", 1e3 * f->costs.seconds[i]);
    if (f->costs.n > 0)
        text_puts(t, "\n");
    sums_text(t, f);
    if (*f->why)
        text_printf(t, "  why: %s\n", f->why);
}

/* The configurations that were replayed before this plan was chosen. */
static void tries_text(struct text *t, const struct plan *p)
{
    if (p->n_tries == 0)
        return;
    text_puts(t, "tried on the trace, seconds of a request with 95 % interval:\n");
    for (int i = 0; i < p->n_tries; i++) {
        const struct plan_replay *x = &p->tries[i];

        text_printf(t, "  %s ", i == p->chosen_try ? "->" : "  ");
        if (isfinite(x->seconds))
            text_printf(t, "%10.4f [%.4f, %.4f] of %-3d", x->seconds, x->lo, x->hi, x->n);
        else
            text_printf(t, "%-35s", "not measured");
        text_printf(t, "  %s; %s\n", x->name,
                    x->tuned ? "tuned schedules" : "default schedules");
    }
    if (*p->why)
        text_printf(t, "  why: %s\n", p->why);
}

/* State the phase under which a mixed batch is cheaper, where both tables are there. */
static void crossover_text(struct text *t, const struct plan *p)
{
    const struct plan_costs *a = &p->decode.costs, *b = &p->prefill.costs;
    int64_t last, n;

    if (a->n < 1 || b->n < 1)
        return;
    last = a->rows[a->n - 1] > b->rows[b->n - 1] ? a->rows[a->n - 1] : b->rows[b->n - 1];
    n = plan_costs_most_rows(a, b, 0, last);
    if (n == 0)
        text_puts(t, "a step of any rows costs less as prefill's\n");
    else if (n == last)
        text_printf(t, "a step of %lld rows still costs no more as decode's\n",
                    (long long)n);
    else
        text_printf(t, "a step of more than %lld row%s costs less as prefill's\n",
                    (long long)n, n > 1 ? "s" : "");
}

int plan_text(const struct plan *p, char **text)
{
    struct text t = {0};

    text_printf(&t, "plan for %s (%s), from %s\n",
                *p->machine ? p->machine : "an unknown machine",
                *p->evidence ? p->evidence : "not searched", p->source);
    if (*p->method && strcmp(p->method, p->source) != 0)
        text_printf(&t, "method: %s\n", p->method);
    phase_text(&t, "prefill", &p->prefill);
    phase_text(&t, "decode", &p->decode);
    crossover_text(&t, p);
    if (p->schedules)
        text_printf(&t, "schedules of %d matrix shapes, tuned for this plan\n",
                    tune_cache_n(p->schedules));
    tries_text(&t, p);
    return text_take(&t, text);
}

/* ---- for shells ---- */

/* A list a rank; '|' means a pipe to a shell, so the whole is quoted. */
static void render_lists(struct text *t, const char *name, const char *what,
                         const struct plan_phase *f,
                         void (*print)(const struct plan_phase *f, int rank, char *out,
                                       int out_n))
{
    char list[LIST_BYTES];

    text_printf(t, "%s_%s='", name, what);
    for (int r = 0; r < f->n_ranks; r++) {
        print(f, r, list, sizeof(list));
        text_puts(t, r ? "|" : "");
        text_puts(t, list);
    }
    text_printf(t, "'\n");
}

static void render_phase(struct text *t, const char *name, const struct plan_phase *f)
{
    text_printf(t, "%s_RANKS=%d\n%s_THREADS=%d\n", name, f->n_ranks, name, f->n_threads);
    render_lists(t, name, "CPUS", f, print_cpus);
    render_lists(t, name, "NODES", f, print_nodes);
    if (f->costs.n < 1)
        return;
    text_printf(t, "%s_STEP_S='", name);
    for (int i = 0; i < f->costs.n; i++)
        text_printf(t, "%s%lld:%.9g", i ? "|" : "", (long long)f->costs.rows[i],
                    f->costs.seconds[i]);
    text_printf(t, "'\n");
}

int plan_render(const struct plan *p, char **text)
{
    struct text t = {0};

    render_phase(&t, "PREFILL", &p->prefill);
    render_phase(&t, "DECODE", &p->decode);
    return text_take(&t, text);
}
