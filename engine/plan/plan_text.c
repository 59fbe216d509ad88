/* A plan in words, and for shells. */
#include "plan/plan.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

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

/* Where a text is written; `list` is room for a list of CPUs. */
struct writer {
    FILE *f;
    char *buf, *list;
    size_t n;
};

static int writer_open(struct writer *w)
{
    *w = (struct writer){.list = mem_new(MEM_OTHER, LIST_BYTES, 1)};
    if (!w->list)
        return ERR_NOMEM;
    w->f = open_memstream(&w->buf, &w->n);
    return w->f ? OK : err_set(ERR_NOMEM, "no memory for a plan's text");
}

static int writer_close(struct writer *w, int rc, char **text)
{
    *text = NULL;
    if (w->f && fclose(w->f) != 0 && rc == OK)
        rc = err_set(ERR_NOMEM, "no memory for a plan's text");
    if (rc == OK)
        *text = mem_strdup(MEM_OTHER, w->buf);
    if (rc == OK && !*text)
        rc = ERR_NOMEM;
    free(w->buf); /* open_memstream's own */
    mem_free(w->list);
    return rc;
}

/* ---- for people ---- */

/* How ranks sum, where the plan says so. */
static void sums_text(struct writer *w, const struct plan_phase *f)
{
    const struct par_choice *c = &f->allreduce;

    if (c->n == 0)
        return;
    fputs("  ranks sum by", w->f);
    for (int i = 0; i < c->n; i++) {
        fprintf(w->f, "%s %s", i ? "," : "", par_colls[c->row[i].coll]->name);
        if (i + 1 < c->n)
            fprintf(w->f, " up to %zu bytes", c->row[i].bytes);
    }
    fputc('\n', w->f);
}

static void phase_text(struct writer *w, const char *name, const struct plan_phase *f)
{
    fprintf(w->f, "%s: %d rank%s of %d thread%s", name, f->n_ranks,
            f->n_ranks > 1 ? "s" : "", f->n_threads, f->n_threads > 1 ? "s" : "");
    if (isfinite(f->expected_s))
        fprintf(w->f, ", %.4g ms a step expected", 1e3 * f->expected_s);
    fputc('\n', w->f);
    for (int r = 0; r < f->n_ranks && r < RANKS_SHOWN; r++) {
        print_cpus(f, r, w->list, LIST_BYTES);
        fprintf(w->f, "  rank %d: CPUs %s", r, w->list);
        print_nodes(f, r, w->list, LIST_BYTES);
        fprintf(w->f, "%s%s\n", *w->list ? "; memory node " : "", w->list);
    }
    if (f->n_ranks > RANKS_SHOWN)
        fprintf(w->f, "  ... %d more ranks\n", f->n_ranks - RANKS_SHOWN);
    if (f->costs.n > 0)
        fputs("  ms a step:", w->f);
    for (int i = 0; i < f->costs.n; i++)
        fprintf(w->f, "%s %lld row%s %.4g", i ? "," : "", (long long)f->costs.rows[i],
                f->costs.rows[i] > 1 ? "s" : "", 1e3 * f->costs.seconds[i]);
    if (f->costs.n > 0)
        fputc('\n', w->f);
    sums_text(w, f);
    if (*f->why)
        fprintf(w->f, "  why: %s\n", f->why);
}

/* What was replayed before this plan was chosen. */
static void tries_text(struct writer *w, const struct plan *p)
{
    if (p->n_tries == 0)
        return;
    fputs("tried on the trace, seconds of a request with 95 % interval:\n", w->f);
    for (int i = 0; i < p->n_tries; i++) {
        const struct plan_replay *t = &p->tries[i];

        fprintf(w->f, "  %s ", i == p->chosen_try ? "->" : "  ");
        if (isfinite(t->seconds))
            fprintf(w->f, "%10.4f [%.4f, %.4f] of %-3d", t->seconds, t->lo, t->hi, t->n);
        else
            fprintf(w->f, "%-35s", "not measured");
        fprintf(w->f, "  %s; %s\n", t->name,
                t->tuned ? "tuned schedules" : "default schedules");
    }
    if (*p->why)
        fprintf(w->f, "  why: %s\n", p->why);
}

/* Which phase a mixed batch is cheaper under, where both tables are there. */
static void crossover_text(struct writer *w, const struct plan *p)
{
    const struct plan_costs *a = &p->decode.costs, *b = &p->prefill.costs;
    int64_t last, n;

    if (a->n < 1 || b->n < 1)
        return;
    last = a->rows[a->n - 1] > b->rows[b->n - 1] ? a->rows[a->n - 1] : b->rows[b->n - 1];
    n = plan_costs_most_rows(a, b, 0, last);
    if (n == 0)
        fputs("a step of any rows costs less as prefill's\n", w->f);
    else if (n == last)
        fprintf(w->f, "a step of %lld rows still costs no more as decode's\n",
                (long long)n);
    else
        fprintf(w->f, "a step of more than %lld row%s costs less as prefill's\n",
                (long long)n, n > 1 ? "s" : "");
}

int plan_text(const struct plan *p, char **text)
{
    struct writer w;
    int rc = writer_open(&w);

    if (rc == OK) {
        fprintf(w.f, "plan for %s (%s), from %s\n",
                *p->machine ? p->machine : "an unknown machine",
                *p->evidence ? p->evidence : "not searched", p->source);
        if (*p->method && strcmp(p->method, p->source) != 0)
            fprintf(w.f, "method: %s\n", p->method);
        phase_text(&w, "prefill", &p->prefill);
        phase_text(&w, "decode", &p->decode);
        crossover_text(&w, p);
        if (p->schedules)
            fprintf(w.f, "schedules of %d matrix shapes, tuned for this plan\n",
                    tune_cache_n(p->schedules));
        tries_text(&w, p);
    }
    return writer_close(&w, rc, text);
}

/* ---- for shells ---- */

/* A list a rank; '|' means a pipe to a shell, so the whole is quoted. */
static void render_lists(struct writer *w, const char *name, const char *what,
                         const struct plan_phase *f,
                         void (*print)(const struct plan_phase *f, int rank, char *out,
                                       int out_n))
{
    fprintf(w->f, "%s_%s='", name, what);
    for (int r = 0; r < f->n_ranks; r++) {
        print(f, r, w->list, LIST_BYTES);
        fprintf(w->f, "%s%s", r ? "|" : "", w->list);
    }
    fprintf(w->f, "'\n");
}

static void render_phase(struct writer *w, const char *name, const struct plan_phase *f)
{
    fprintf(w->f, "%s_RANKS=%d\n%s_THREADS=%d\n", name, f->n_ranks, name, f->n_threads);
    render_lists(w, name, "CPUS", f, print_cpus);
    render_lists(w, name, "NODES", f, print_nodes);
    if (f->costs.n < 1)
        return;
    fprintf(w->f, "%s_STEP_S='", name);
    for (int i = 0; i < f->costs.n; i++)
        fprintf(w->f, "%s%lld:%.9g", i ? "|" : "", (long long)f->costs.rows[i],
                f->costs.seconds[i]);
    fprintf(w->f, "'\n");
}

int plan_render(const struct plan *p, char **text)
{
    struct writer w;
    int rc = writer_open(&w);

    if (rc == OK) {
        render_phase(&w, "PREFILL", &p->prefill);
        render_phase(&w, "DECODE", &p->decode);
    }
    return writer_close(&w, rc, text);
}
