#include "experiments/study/support/schedules.h"

#include <math.h>
#include <string.h>

/* --- search */

/* That of the key, with room for one more of m rows and only fewer before it. */
static struct study_known *known_of(struct study_schedules *k, const char *key, int64_t m)
{
    struct study_known *x = NULL;

    for (int i = 0; i < STUDY_MATRICES_MAX && !x; i++)
        if (strcmp(k->all[i].key, key) == 0)
            x = &k->all[i];
    if (!x) {
        x = &k->all[k->next++ % STUDY_MATRICES_MAX];
        x->n = 0;
        snprintf(x->key, sizeof(x->key), "%s", key);
    }
    while (x->n > 0 && x->shapes[x->n - 1].m >= m)
        x->n--;
    if (x->n == STUDY_ROWS_MAX) { /* the fewest rows tell least */
        x->n--;
        memmove(x->shapes, x->shapes + 1, (size_t)x->n * sizeof(*x->shapes));
        memmove(x->s, x->s + 1, (size_t)x->n * sizeof(*x->s));
    }
    return x;
}

int study_schedules_search(struct study_schedules *k, struct tune_bench *b,
                           const char *key, const struct tune_opts *o, int n_threads,
                           const struct tune_shape *shape, struct kern_schedule *out,
                           struct tune_cost *cost)
{
    struct study_known *x = known_of(k, key, shape->m);
    struct kern_schedule found[STUDY_ROWS_MAX];
    struct tune_ctx c = {.bench = b,
                         .n_threads = n_threads,
                         .o = o,
                         .shapes = x->shapes,
                         .n_shapes = x->n + 1,
                         .known = x->s};
    const struct tune_policy *p;

    TRY(tune_policy_find(o->policy, &p));
    x->shapes[x->n] = *shape;
    memset(&x->s[x->n], 0, sizeof(x->s[0])); /* not known */
    tune_cost_take(b, cost);
    TRY(p->run(&c, found));
    tune_cost_take(b, cost);
    x->s[x->n] = *out = found[x->n];
    x->n++;
    return tune_bench_shape(b, shape);
}

/* --- particulars */

static const char *sep(const struct text *t)
{
    return t->n > 0 ? "; " : "";
}

/* The share of all threads' time that passes while they wait for the one with the most. */
static double waits_frac(int64_t items, int parts)
{
    double most = ceil((double)items / parts);

    return 1 - (double)items / (most * parts);
}

#define SHORT_S     2e-4 /* waking threads and a barrier show */
#define WAITS_SHOWN 0.03

void study_schedule_particulars(const struct tune_shape *shape, const struct kern_mat *w,
                                const struct kern_schedule *s, double seconds,
                                struct text *out)
{
    int n_threads = s->pm * s->pn * s->pk, rows = kern_gemm_rows(shape->v, s->np);
    double along_m = waits_frac(kern_a_blocks(shape->m, s->mr), s->pm);
    double along_n = waits_frac((w->n_panels + s->np - 1) / s->np, s->pn);
    double waits = 1 - (1 - along_m) * (1 - along_n);
    double caches = (double)cpu_cache_bytes(2) * n_threads;

    if (shape->m < rows)
        text_printf(out, "few rows: a micro-kernel takes %d", rows);
    if (w->n_units > 1)
        text_printf(out, "%ssplit along K in units of %lld rows", sep(out),
                    (long long)w->k_unit);
    if (s->pk > 1)
        text_printf(out, "%sK divided among %d threads", sep(out), s->pk);
    if (waits > WAITS_SHOWN)
        text_printf(out, "%suneven parts: threads wait for %.0f %% of the time", sep(out),
                    100 * waits);
    if ((double)w->bytes <= caches)
        text_printf(out, "%sweights fit the second-level caches", sep(out));
    if (seconds < SHORT_S)
        text_printf(out, "%sshort: %.0f us", sep(out), seconds * 1e6);
    text_put(out, "", 1);
}
