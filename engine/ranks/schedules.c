/* The schedules with which a rank multiplies its matrices, for each number of rows. */
#include "base/mem.h"
#include "ranks/phase.h"
#include "step/context.h"

/* A rank's part of this matrix in the first layer; all of the head. */
static const struct kern_mat *mat_of(const struct model_phase *p, int rank,
                                     enum model_mat which)
{
    const struct model_view *layers = p->ranks[rank].layers;

    return which == MODEL_MAT_HEAD
               ? &p->m->head
               : &layers[model_layer_with(&p->m->c, which)].mats[which];
}

static bool same_shape(const struct kern_mat *a, const struct kern_mat *b)
{
    return a->n == b->n && a->n_panels == b->n_panels && a->k == b->k &&
           a->n_units == b->n_units && a->k_unit == b->k_unit;
}

/* The first rank whose part has the shape of this rank's: they share a table. */
static int first_like(const struct model_phase *p, int rank, enum model_mat which)
{
    int r = 0;

    while (!same_shape(mat_of(p, r, which), mat_of(p, rank, which)))
        r++;
    return r;
}

/* Does the phase have the memory that the schedule needs? */
static bool fits(const struct model_phase *p, const struct kern_schedule *s,
                 enum model_mat which, const struct kern_mat *w, int64_t rows)
{
    const struct kern_gemm_job j = {.w = w, .s = *s, .m = rows};

    if (which == MODEL_MAT_EXPERT_GATE_UP || which == MODEL_MAT_EXPERT_DOWN ||
        which == MODEL_MAT_LATENT_K || which == MODEL_MAT_LATENT_V)
        return s->pm == 1 && s->pk == 1; /* threads have columns of all rows */
    return s->pk == 1 || (!p->m->deterministic && which != MODEL_MAT_HEAD &&
                          kern_gemm_partial_bytes(&j) <= p->partial_bytes);
}

static int ask(const struct model_phase *p, const struct kern_mat *w, int n_threads,
               model_schedule_fn fn, void *ctx, struct kern_schedule *row)
{
    const struct kern_variant *before = NULL;
    int64_t most = p->max_step_tok;
    int rc = OK;

    for (int i = MODEL_RANGES - 1; i >= 0 && rc == OK && most > 0; i--) {
        const struct kern_variant *v = model_gemm(p->m, w, model_range_end[i] - 1);

        if (model_range_end[i] - 1 < most)
            most = model_range_end[i] - 1;
        if (v != before)
            rc = fn(ctx, v, w, most, n_threads, row);
        before = v;
    }
    return rc;
}

/* The table of a rank's part of a matrix: row[n - 1] for n rows. */
static int fill(const struct model_phase *p, int rank, enum model_mat which,
                model_schedule_fn fn, void *ctx, struct kern_schedule *row)
{
    const struct kern_mat *w = mat_of(p, rank, which);
    int n_threads = p->n_threads * (which == MODEL_MAT_HEAD ? p->n_ranks : 1), rc = OK;

    if (model_view_empty(w))
        return OK;
    if (fn)
        rc = ask(p, w, n_threads, fn, ctx, row);
    for (int64_t n = 1; n <= p->max_step_tok && rc == OK; n++) {
        const struct kern_variant *v = model_gemm(p->m, w, n);

        if (fn)
            rc = kern_schedule_check(&row[n - 1], v, w, n, n_threads);
        if (!fn || !fits(p, &row[n - 1], which, w, n))
            kern_schedule_default(&row[n - 1], v, w, n, n_threads);
    }
    return rc;
}

/* Number the tables that serve the ranks' parts of matrices; returns how many there are. */
static int number_tables(const struct model_phase *p, int *table)
{
    int n = 0;

    for (int i = 0; i < MODEL_N_MATS; i++) {
        for (int r = 0; r < p->n_ranks; r++) {
            int like = first_like(p, r, (enum model_mat)i);

            table[i * p->n_ranks + r] = like < r ? table[i * p->n_ranks + like] : n++;
        }
    }
    return n;
}

int model_phase_schedules(struct model_phase *p, model_schedule_fn fn, void *ctx)
{
    int table[MODEL_N_MATS * PAR_RANKS_MAX], n = number_tables(p, table), done = 0;
    struct kern_schedule *all =
        mem_new(MEM_OTHER, (size_t)n * (size_t)p->max_step_tok, sizeof(*all));
    int rc = OK;

    if (!all)
        return ERR_NOMEM;
    for (int i = 0; i < MODEL_N_MATS * p->n_ranks && rc == OK; i++) {
        if (table[i] < done)
            continue;
        rc = fill(p, i % p->n_ranks, (enum model_mat)(i / p->n_ranks), fn, ctx,
                  all + done++ * p->max_step_tok);
    }
    if (rc != OK) {
        mem_free(all);
        return rc;
    }
    for (int i = 0; i < MODEL_N_MATS * p->n_ranks; i++)
        p->ranks[i % p->n_ranks].schedules[i / p->n_ranks] =
            all + table[i] * p->max_step_tok;
    mem_free(p->schedules);
    p->schedules = all;
    return OK;
}
