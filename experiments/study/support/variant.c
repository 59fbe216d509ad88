#include "experiments/study/support/variant.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static enum kern_op op_of(int mode)
{
    return mode == STUDY_F32 ? KERN_GEMM_F32 : KERN_GEMM_BF16;
}

const struct kern_variant *study_variant_exact(int mode)
{
    struct kern_table table;

    kern_table_choose(&table, cpu_isa_usable(), KERN_EXACT);
    return table.v[op_of(mode)];
}

const struct kern_variant *study_variant_at(const struct study_variants *v, int64_t m)
{
    return m < v->small_m_rows ? v->small_m : v->many;
}

static int time_variant(struct tune_bench *b, const struct tune_shape *s, int n_threads,
                        double *seconds)
{
    struct kern_schedule plan;
    struct tune_time t;
    int rc = tune_bench_shape(b, s);

    if (rc != OK)
        return rc;
    kern_schedule_default(&plan, s->v, tune_bench_mat(b), s->m, n_threads);
    rc = tune_measure(b, &plan, n_threads, &t);
    *seconds = t.median_s;
    return rc;
}

/* The fastest of all that the mode allows: the exact one may be, too. */
static int fastest(struct tune_bench *b, enum kern_op op, int n_threads,
                   struct tune_shape s, const struct kern_variant **out)
{
    double best = INFINITY;
    int rc = OK;

    for (const struct kern_variant *const *v = kern_variants; *v && rc == OK; v++) {
        double seconds = INFINITY;

        if ((*v)->op != op || (*v)->isa == 0 || ((*v)->isa & ~cpu_isa_usable()))
            continue;
        s.v = *v;
        rc = time_variant(b, &s, n_threads, &seconds);
        if (seconds < best) {
            best = seconds;
            *out = *v;
        }
    }
    return rc;
}

int study_variants_choose(struct study_variants *out, struct tune_bench *b, int mode,
                          int n_threads, const struct tune_shape *s)
{
    static const int rows[] = {4, 16, 64};
    const struct kern_variant *best[3], *exact = study_variant_exact(mode);
    struct tune_shape trial = *s;
    int rc = OK;

    *out = (struct study_variants){exact, exact, 0};
    if (mode != STUDY_BF16_RELAXED || exact->isa == 0)
        return OK;
    for (int i = 0; i < 3 && rc == OK; i++) {
        best[i] = exact;
        trial.m = rows[i];
        rc = fastest(b, op_of(mode), n_threads, trial, &best[i]);
    }
    if (rc != OK)
        return rc;
    out->small_m = best[0];
    out->many = best[2];
    if (out->small_m != out->many)
        out->small_m_rows = best[1] == out->many ? rows[1] / 2 : rows[1] * 2;
    return OK;
}

int study_choices_apply(struct study_choices *c, struct tune_bench *b, int mode,
                        const char *matrix, int n_threads, struct tune_shape *s)
{
    struct study_choice *found = NULL;
    char key[sizeof(found->key)];
    int rc;

    snprintf(key, sizeof(key), "%d %s", mode, matrix);
    for (int i = 0; i < STUDY_CHOICES_MAX && !found; i++)
        if (strcmp(c->all[i].key, key) == 0)
            found = &c->all[i];
    if (!found) {
        found = &c->all[c->next++ % STUDY_CHOICES_MAX];
        found->key[0] = 0; /* until it holds a whole choice again */
        rc = study_variants_choose(&found->v, b, mode, n_threads, s);
        if (rc != OK)
            return rc;
        snprintf(found->key, sizeof(found->key), "%s", key);
    }
    s->v = study_variant_at(&found->v, s->m);
    return tune_bench_shape(b, s);
}
