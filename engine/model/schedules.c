/* The matrices' shapes, and which schedule multiplies which, step by step. */
#include "base/mem.h"
#include "model/impl.h"

void model_shapes(const struct model_config *c, struct model_shape out[MODEL_N_MATS])
{
    int64_t dim = c->dim, group = c->n_heads / c->n_kv_heads, hd = c->head_dim;
    int64_t block = model_k_block(c);

    out[MODEL_MAT_QKV] =
        (struct model_shape){"qkv", model_qkv_unit(c) * c->n_kv_heads, dim, 0};
    out[MODEL_MAT_V] = (struct model_shape){"v", model_v_unit(c) * c->n_kv_heads, dim, 0};
    out[MODEL_MAT_O] = (struct model_shape){"o", dim, c->n_heads * hd,
                                            (group * hd + block - 1) / block * block};
    out[MODEL_MAT_GATE_UP] =
        (struct model_shape){"gate_up", 2 * model_pad16(c->hidden), dim, 0};
    out[MODEL_MAT_DOWN] = (struct model_shape){"down", dim, c->hidden, model_ffn_unit(c)};
    out[MODEL_MAT_HEAD] = (struct model_shape){"head", c->vocab, dim, 0};
}

void model_shapes_join(struct model_shape shapes[MODEL_N_MATS])
{
    for (int i = 0; i < MODEL_N_MATS; i++)
        shapes[i].k_unit = 0;
}

/* Panels [lo, hi) of a matrix that is split along N, as model_view_of() takes them. */
static void shape_of_columns(struct model_shape *s, int64_t lo, int64_t hi)
{
    int64_t all = model_pad16(s->n);

    lo = lo < all ? lo : all;
    hi = hi < all ? hi : all;
    s->n = hi > lo ? (hi < s->n ? hi : s->n) - lo : 0;
}

/* Rows [lo, hi): whole units, or a part of one. */
static void shape_of_rows(struct model_shape *s, int64_t lo, int64_t hi)
{
    s->k = hi - lo;
    if (s->k <= s->k_unit)
        s->k_unit = 0;
}

void model_rank_shapes(const struct model_config *c, int rank, int n_ranks,
                       struct model_shape out[MODEL_N_MATS])
{
    const struct model m = model_of_config(c);
    struct model_tp_shard p;

    model_shapes(c, out);
    model_tp_shard_of(&m, rank, n_ranks, &p);
    shape_of_columns(&out[MODEL_MAT_QKV], p.col_lo / KERN_PANEL * KERN_PANEL,
                     p.col_hi / KERN_PANEL * KERN_PANEL);
    shape_of_columns(&out[MODEL_MAT_V], p.v_lo, p.v_hi);
    shape_of_rows(&out[MODEL_MAT_O], p.attn_lo, p.attn_hi);
    shape_of_columns(&out[MODEL_MAT_GATE_UP], 2 * p.ffn_lo, 2 * model_pad16(p.ffn_hi));
    shape_of_rows(&out[MODEL_MAT_DOWN], p.ffn_lo, p.ffn_hi);
}

const struct kern_mat *model_mat(const struct model *m, enum model_mat which)
{
    const struct model_layer *l = &m->layers[0];

    switch (which) {
    case MODEL_MAT_QKV:
        return &l->qkv;
    case MODEL_MAT_V:
        return &l->v;
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

/* A rank's part of this matrix in the first layer; all of the head. */
static const struct kern_mat *mat_of(const struct model_phase *p, int rank,
                                     enum model_mat which)
{
    const struct model_view *v = &p->ranks[rank].layers[0];

    switch (which) {
    case MODEL_MAT_QKV:
        return &v->qkv;
    case MODEL_MAT_V:
        return &v->v;
    case MODEL_MAT_O:
        return &v->o;
    case MODEL_MAT_GATE_UP:
        return &v->gate_up;
    case MODEL_MAT_DOWN:
        return &v->down;
    default:
        return &p->m->head;
    }
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

    return s->pk == 1 || (!p->m->deterministic && which != MODEL_MAT_HEAD &&
                          kern_gemm_partial_bytes(&j) <= p->partial_bytes);
}

static int ask(const struct model_phase *p, const struct kern_mat *w, int n_threads,
               model_schedule_fn fn, void *ctx, struct kern_schedule *row)
{
    const struct model *m = p->m;
    int64_t small_m = m->variants.small_m_rows - 1 < p->max_step_tok
                          ? m->variants.small_m_rows - 1
                          : p->max_step_tok;
    int rc = fn(ctx, model_gemm(m, w, INT64_MAX), w, p->max_step_tok, n_threads, row);

    if (rc == OK && small_m > 0)
        rc = fn(ctx, model_gemm(m, w, 1), w, small_m, n_threads, row);
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

/* Which table serves a rank's part of a matrix; returns how many there are. */
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

int model_block_rows(const struct model *m)
{
    int rows = 1;

    for (int t = 0; t <= KERN_N_TYPES; t++) {
        const struct kern_variant *v =
            t < KERN_N_TYPES ? m->kern.v[KERN_GEMM_F32 + t] : m->variants.small_m;

        for (int np = 1; v && np <= KERN_NP_MAX; np++)
            rows = kern_gemm_rows(v, np) > rows ? kern_gemm_rows(v, np) : rows;
    }
    return rows;
}
