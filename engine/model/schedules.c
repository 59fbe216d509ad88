/* The matrices' shapes, and which schedule multiplies which, step by step. */
#include "base/mem.h"
#include "model/impl.h"

void model_shapes(const struct model_config *c, struct model_shape out[MODEL_N_MATS])
{
    int64_t dim = c->dim, group = c->n_heads / c->n_kv_heads, hd = c->head_dim;
    int64_t qkv_unit = model_pad16((group + 2) * hd);

    out[MODEL_MAT_QKV] = (struct model_shape){"qkv", qkv_unit * c->n_kv_heads, dim, 0};
    out[MODEL_MAT_O] = (struct model_shape){"o", dim, c->n_heads * hd, group * hd};
    out[MODEL_MAT_GATE_UP] =
        (struct model_shape){"gate_up", 2 * model_pad16(c->hidden), dim, 0};
    out[MODEL_MAT_DOWN] = (struct model_shape){"down", dim, c->hidden, MODEL_FFN_UNIT};
    out[MODEL_MAT_HEAD] = (struct model_shape){"head", c->vocab, dim, 0};
}

const struct kern_mat *model_mat(const struct model *m, enum model_mat which)
{
    const struct model_layer *l = &m->layers[0];

    switch (which) {
    case MODEL_MAT_QKV:
        return &l->qkv;
    case MODEL_MAT_O:
        return &l->o;
    case MODEL_MAT_GATE_UP:
        return &l->gate_up;
    case MODEL_MAT_DOWN:
        return &l->down;
    default:
        return &m->head;
    }
}

/* The table for so many threads; -1: none was set. */
static int find(const struct model *m, int n_threads)
{
    for (int i = 0; i < MODEL_TABLES_MAX; i++)
        if (m->tables[i].n_threads == n_threads)
            return i;
    return -1;
}

void model_schedules(const struct model *m, int64_t rows, int n_threads,
                     struct kern_schedule out[MODEL_N_MATS])
{
    int table = find(m, n_threads);

    for (int i = 0; i < MODEL_N_MATS; i++) {
        const struct kern_mat *w = model_mat(m, (enum model_mat)i);

        if (table >= 0)
            out[i] = m->tables[table].all[i * m->max_step_tok + rows - 1];
        else
            kern_schedule_default(&out[i], model_gemm(m, w, rows), w, rows, n_threads);
    }
}

/* Does the model have what the schedule needs beside the product itself? */
static bool fits(const struct kern_schedule *s, enum model_mat which,
                 const struct kern_mat *w, int64_t rows)
{
    const struct kern_gemm_job j = {.w = w, .s = *s, .m = rows};

    return s->pk == 1 || (which != MODEL_MAT_HEAD &&
                          kern_gemm_partial_bytes(&j) <= MODEL_PARTIAL_BYTES);
}

static int fill(const struct model *m, int n_threads, model_schedule_fn fn, void *ctx,
                struct kern_schedule *all)
{
    int64_t few = m->few_rows - 1 < m->max_step_tok ? m->few_rows - 1 : m->max_step_tok;
    int rc = OK;

    for (int i = 0; i < MODEL_N_MATS && rc == OK; i++) {
        const struct kern_mat *w = model_mat(m, (enum model_mat)i);
        struct kern_schedule *row = all + i * m->max_step_tok;

        rc = fn(ctx, model_gemm(m, w, INT64_MAX), w, m->max_step_tok, n_threads, row);
        if (rc == OK && few > 0)
            rc = fn(ctx, model_gemm(m, w, 1), w, few, n_threads, row);
        for (int64_t n = 1; n <= m->max_step_tok && rc == OK; n++) {
            const struct kern_variant *v = model_gemm(m, w, n);

            rc = kern_schedule_check(&row[n - 1], v, w, n, n_threads);
            if (!fits(&row[n - 1], (enum model_mat)i, w, n))
                kern_schedule_default(&row[n - 1], v, w, n, n_threads);
        }
    }
    return rc;
}

int model_schedules_set(struct model *m, int n_threads, model_schedule_fn fn, void *ctx)
{
    int table = find(m, n_threads), rc;
    struct kern_schedule *all;

    if (table < 0)
        table = find(m, 0); /* a free one */
    if (table < 0)
        return err_set(ERR_LIMIT, "schedules for a third number of threads, %d",
                       n_threads);
    all = mem_new(MEM_OTHER, (size_t)(MODEL_N_MATS * m->max_step_tok), sizeof(*all));
    if (!all)
        return ERR_NOMEM;
    rc = fill(m, n_threads, fn, ctx, all);
    if (rc != OK) {
        mem_free(all);
        return rc;
    }
    mem_free(m->tables[table].all);
    m->tables[table] = (struct model_table){.n_threads = n_threads, .all = all};
    return OK;
}

int model_block_rows(const struct model *m)
{
    int rows = 1;

    for (int t = 0; t <= KERN_N_TYPES; t++) {
        const struct kern_variant *v =
            t < KERN_N_TYPES ? m->kern.v[KERN_GEMM_F32 + t] : m->few;

        for (int np = 1; v && np <= KERN_NP_MAX; np++)
            rows = kern_gemm_rows(v, np) > rows ? kern_gemm_rows(v, np) : rows;
    }
    return rows;
}
