/* From tensors of a file to panels: where each row goes, in which type, by which thread.
 */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "model/impl.h"

/* File pages kept at most per thread while copying. */
#define EMBED_STEP_BYTES (4 << 20)

/* Hands out pieces of one mapping; with base == NULL it only counts. */
struct arena {
    char *base;
    size_t used;
};

static void *take(struct arena *a, size_t bytes)
{
    void *p = a->base ? a->base + a->used : NULL;

    a->used += (bytes + 63) & ~(size_t)63;
    return p;
}

/* ---- types ---- */

static size_t row_bytes(const struct model_tensor *t)
{
    return (size_t)t->cols * kern_type_bytes(t->type);
}

/* The type to keep a matrix in that is built from n tensors. */
static int kept_type(enum kern_type *out, enum kern_type want,
                     const struct model_tensor *const *t, int n, const char *what)
{
    bool same = true;

    for (int i = 1; i < n; i++)
        same &= t[i]->type == t[0]->type;
    *out = want == KERN_N_TYPES ? (same ? t[0]->type : KERN_F32) : want;
    for (int i = 0; i < n && *out != KERN_F32; i++) {
        if (t[i]->type != *out)
            return err_set(ERR_UNSUPPORTED,
                           "weight_type: %s is stored as %s and cannot be kept as %s "
                           "without losing precision",
                           what, kern_type_name(t[i]->type), kern_type_name(*out));
    }
    return OK;
}

/* One row of a vector tensor as f32. */
static void vector_f32(float *out, const struct model_tensor *t)
{
    const char *p = t->data;

    for (int64_t i = 0; i < t->cols; i++) {
        uint16_t half;

        if (t->type == KERN_F32) {
            memcpy(&out[i], p + 4 * i, 4);
            continue;
        }
        memcpy(&half, p + 2 * i, 2);
        out[i] = t->type == KERN_BF16 ? kern_bf16_to(half) : kern_f16_to(half);
    }
}

/* ---- which row of which tensor is column `col` of a packed matrix ---- */

struct source {
    const struct model *m;
    const struct model_tensor *t[3];
    bool interleaved;
    const void *(*row)(const struct source *s, int64_t col, enum kern_type *type);
};

static const void *tensor_row(const struct model_tensor *t, int64_t row,
                              enum kern_type *type)
{
    *type = t->type;
    return (const char *)t->data + (size_t)row * row_bytes(t);
}

static const void *plain_row(const struct source *s, int64_t col, enum kern_type *type)
{
    return col < s->t[0]->rows ? tensor_row(s->t[0], col, type) : NULL;
}

/* Panels alternate: 16 columns of gate, the same 16 of up. */
static const void *gate_up_row(const struct source *s, int64_t col, enum kern_type *type)
{
    const struct model_tensor *t = s->t[col / KERN_PANEL & 1];
    int64_t row = col / (2 * KERN_PANEL) * KERN_PANEL + col % KERN_PANEL;

    return row < t->rows ? tensor_row(t, row, type) : NULL;
}

/* Where in a head of the file the half-split position r lies. */
static int64_t unrotate(const struct source *s, int64_t r)
{
    int64_t half = s->m->c.head_dim / 2;

    if (!s->interleaved)
        return r;
    return r < half ? 2 * r : 2 * (r - half) + 1;
}

/* A packed QKV column: 0 Q, 1 K, 2 V and its row there; false for padding. */
static bool qkv_column(const struct source *s, int64_t col, int *which, int64_t *row)
{
    int64_t hd = s->m->c.head_dim, unit = col / s->m->qkv_unit;
    int64_t in_unit = col % s->m->qkv_unit;
    int64_t head = in_unit / hd, r = in_unit % hd;

    if (head >= s->m->group + 2)
        return false;
    if (head < s->m->group) {
        *which = 0;
        *row = (unit * s->m->group + head) * hd + unrotate(s, r);
    } else {
        *which = (int)(head - s->m->group) + 1;
        *row = unit * hd + (*which == 1 ? unrotate(s, r) : r);
    }
    return true;
}

static const void *qkv_row(const struct source *s, int64_t col, enum kern_type *type)
{
    int64_t row;
    int which;

    return qkv_column(s, col, &which, &row) ? tensor_row(s->t[which], row, type) : NULL;
}

/* ---- packing ---- */

struct packer {
    struct model *m;
    const struct model_file *f;
    const struct model_opts *o;
    int64_t done_bytes, all_bytes; /* thread 0 writes */
};

static void pack_panel(struct kern_mat *w, const struct source *s, int64_t p)
{
    const void *rows[KERN_PANEL];
    enum kern_type type[KERN_PANEL], first = w->type;
    bool seen = false, same = true;

    for (int i = 0; i < KERN_PANEL; i++) {
        rows[i] = s->row(s, p * KERN_PANEL + i, &type[i]);
        if (!rows[i])
            continue;
        if (!seen)
            first = type[i];
        seen = true;
        same &= type[i] == first;
    }
    if (same) {
        kern_mat_put_panels(w, p, p + 1, rows, first);
        return;
    }
    for (int i = 0; i < KERN_PANEL; i++) /* tensors of different types meet here */
        kern_mat_put_row(w, p * KERN_PANEL + i, rows[i], rows[i] ? type[i] : w->type);
}

/* The rows [lo, hi) of a tensor are packed. */
static void drop_rows(const struct model_tensor *t, int64_t lo, int64_t hi)
{
    struct model_tensor part = *t;

    if (hi > t->rows)
        hi = t->rows;
    if (hi <= lo)
        return;
    part.data = (const char *)t->data + (size_t)lo * row_bytes(t);
    part.rows = hi - lo;
    model_file_drop(&part);
}

static void pack_mat(struct packer *k, struct par_self *self, struct kern_mat *w,
                     const struct source *s)
{
    int64_t lo, hi, dropped;

    par_share(w->n_panels, self->id, self->n, &lo, &hi);
    dropped = lo;
    for (int64_t p = lo; p < hi; p++) {
        pack_panel(w, s, p);
        /* The vocabulary's matrix is large: let its pages go as they are read. */
        if (s->row == plain_row &&
            (size_t)(p + 1 - dropped) * w->panel_bytes * w->n_units >= EMBED_STEP_BYTES) {
            drop_rows(s->t[0], dropped * KERN_PANEL, (p + 1) * KERN_PANEL);
            dropped = p + 1;
        }
    }
    par_barrier(self);
    if (self->id != 0)
        return;
    for (int i = 0; i < 3 && s->t[i]; i++)
        model_file_drop(s->t[i]);
    k->done_bytes += (int64_t)w->bytes;
    if (k->o->progress)
        k->o->progress(k->o->progress_ctx, k->done_bytes, k->all_bytes);
}

static void pack_qkv_bias(struct model_layer *l, const struct source *s,
                          const struct model_tensor *const bias[3])
{
    /* The source rows of biases follow those of the weights: one column at a time. */
    for (int64_t col = 0; col < l->qkv.n_panels * KERN_PANEL; col++) {
        struct model_tensor one;
        int64_t row;
        int which;

        l->qkv_bias[col] = 0;
        if (!qkv_column(s, col, &which, &row))
            continue;
        one = *bias[which];
        one.data = (const char *)one.data + (size_t)row * kern_type_bytes(one.type);
        one.cols = 1;
        vector_f32(&l->qkv_bias[col], &one);
    }
}

static void pack_layer(struct packer *k, struct par_self *self, int i)
{
    struct model *m = k->m;
    struct model_layer *l = &m->layers[i];
    const struct model_tensor *t = k->f->layer[i];
#define T(role) (&t[(role)-MODEL_ATTN_NORM])
    const struct source qkv = {.m = m,
                               .t = {T(MODEL_Q), T(MODEL_K), T(MODEL_V)},
                               .interleaved = k->f->rope_interleaved,
                               .row = qkv_row};
    const struct source gate_up = {
        .m = m, .t = {T(MODEL_GATE), T(MODEL_UP)}, .row = gate_up_row};
    const struct source o = {.m = m, .t = {T(MODEL_O)}, .row = plain_row};
    const struct source down = {.m = m, .t = {T(MODEL_DOWN)}, .row = plain_row};

    if (self->id == 0) {
        const struct model_tensor *const bias[3] = {T(MODEL_Q_BIAS), T(MODEL_K_BIAS),
                                                    T(MODEL_V_BIAS)};

        vector_f32(l->attn_norm, T(MODEL_ATTN_NORM));
        vector_f32(l->ffn_norm, T(MODEL_FFN_NORM));
        if (l->qkv_bias)
            pack_qkv_bias(l, &qkv, bias);
    }
#undef T
    pack_mat(k, self, &l->qkv, &qkv);
    pack_mat(k, self, &l->o, &o);
    pack_mat(k, self, &l->gate_up, &gate_up);
    pack_mat(k, self, &l->down, &down);
}

static void copy_embed(struct packer *k, struct par_self *self)
{
    const struct model_tensor *t = &k->f->global[MODEL_EMBED];
    int64_t step = EMBED_STEP_BYTES / (int64_t)row_bytes(t) + 1;
    int64_t lo, hi;

    par_share(t->rows, self->id, self->n, &lo, &hi);
    for (int64_t r = lo; r < hi; r += step) {
        int64_t n = r + step < hi ? step : hi - r;

        memcpy((char *)k->m->embed + (size_t)r * row_bytes(t),
               (const char *)t->data + (size_t)r * row_bytes(t),
               (size_t)n * row_bytes(t));
        drop_rows(t, r, r + n);
    }
}

static void pack_all(void *arg, struct par_self *self)
{
    struct packer *k = arg;
    struct model *m = k->m;
    const struct source head = {
        .m = m,
        .t = {&k->f->global[m->c.tied ? MODEL_EMBED : MODEL_HEAD]},
        .row = plain_row};

    if (self->id == 0)
        vector_f32(m->out_norm, &k->f->global[MODEL_OUT_NORM]);
    if (m->embed)
        copy_embed(k, self);
    if (m->embed && self->id == 0)
        k->done_bytes +=
            (int64_t)m->c.vocab * m->c.dim * (int64_t)kern_type_bytes(m->embed_type);
    for (int i = 0; i < m->c.n_layers; i++)
        pack_layer(k, self, i);
    pack_mat(k, self, &m->head, &head);
}

/* ---- layout ---- */

static void layout(struct kern_mat *mat, enum kern_type type, const struct model_shape *x)
{
    kern_mat_layout(mat, type, x->n, x->k, x->k_unit);
}

static int layout_layer(struct model *m, const struct model_file *f, enum kern_type want,
                        int i)
{
    const struct model_tensor *t = f->layer[i];
    struct model_layer *l = &m->layers[i];
    struct model_shape x[MODEL_N_MATS];
    enum kern_type type;
    int rc;
#define T(role) (&t[(role)-MODEL_ATTN_NORM])
    const struct model_tensor *const qkv[] = {T(MODEL_Q), T(MODEL_K), T(MODEL_V)};
    const struct model_tensor *const o[] = {T(MODEL_O)};
    const struct model_tensor *const gate_up[] = {T(MODEL_GATE), T(MODEL_UP)};
    const struct model_tensor *const down[] = {T(MODEL_DOWN)};
#undef T

    model_shapes(&m->c, x);
    rc = kept_type(&type, want, qkv, 3, "the QKV projection");
    if (rc != OK)
        return rc;
    layout(&l->qkv, type, &x[MODEL_MAT_QKV]);
    rc = kept_type(&type, want, o, 1, "the attention output");
    if (rc != OK)
        return rc;
    layout(&l->o, type, &x[MODEL_MAT_O]);
    rc = kept_type(&type, want, gate_up, 2, "gate and up");
    if (rc != OK)
        return rc;
    layout(&l->gate_up, type, &x[MODEL_MAT_GATE_UP]);
    rc = kept_type(&type, want, down, 1, "the down projection");
    if (rc != OK)
        return rc;
    layout(&l->down, type, &x[MODEL_MAT_DOWN]);
    return OK;
}

static int layout_all(struct model *m, const struct model_file *f, enum kern_type want)
{
    const struct model_tensor *head[] = {
        &f->global[m->c.tied ? MODEL_EMBED : MODEL_HEAD]};
    struct model_shape x[MODEL_N_MATS];
    enum kern_type type;
    int rc = OK;

    for (int i = 0; i < m->c.n_layers && rc == OK; i++)
        rc = layout_layer(m, f, want, i);
    if (rc == OK)
        rc = kept_type(&type, want, head, 1, "the output head");
    if (rc != OK)
        return rc;
    model_shapes(&m->c, x);
    layout(&m->head, type, &x[MODEL_MAT_HEAD]);
    m->embed_type = f->global[MODEL_EMBED].type;
    return OK;
}

/* Give every piece its place; the order is the order of use in a step. */
static void place_all(struct model *m, struct arena *a)
{
    size_t dim_bytes = (size_t)m->c.dim * sizeof(float);

    if (!m->c.tied)
        m->embed =
            take(a, (size_t)m->c.vocab * m->c.dim * kern_type_bytes(m->embed_type));
    for (int i = 0; i < m->c.n_layers; i++) {
        struct model_layer *l = &m->layers[i];

        l->attn_norm = take(a, dim_bytes);
        l->qkv.data = take(a, l->qkv.bytes);
        if (m->c.qkv_bias)
            l->qkv_bias = take(a, (size_t)l->qkv.n_panels * KERN_PANEL * sizeof(float));
        l->o.data = take(a, l->o.bytes);
        l->ffn_norm = take(a, dim_bytes);
        l->gate_up.data = take(a, l->gate_up.bytes);
        l->down.data = take(a, l->down.bytes);
    }
    m->out_norm = take(a, dim_bytes);
    m->head.data = take(a, m->head.bytes);
}

/* The last vocabulary panel as a matrix of its own, so that its padding columns never
 * land in the caller's next row of logits. */
static void split_head_tail(struct model *m)
{
    int64_t last = m->head.n_panels - 1;

    m->head_tail = m->head;
    m->head_tail.n = m->head.n - last * KERN_PANEL;
    m->head_tail.n_panels = 1;
    m->head_tail.data = kern_mat_at(&m->head, 0, last);
}

static int64_t mat_tensor_bytes(const struct model *m)
{
    const struct model_config *c = &m->c;
    int64_t qkv = ((int64_t)c->n_heads + 2 * c->n_kv_heads) * c->head_dim;
    int64_t n = 0, norms = 2 * (int64_t)c->dim + (c->qkv_bias ? qkv : 0);

    for (int i = 0; i < c->n_layers; i++) {
        const struct model_layer *l = &m->layers[i];

        n += qkv * c->dim * (int64_t)kern_type_bytes(l->qkv.type);
        n += (int64_t)c->n_heads * c->head_dim * c->dim *
             (int64_t)kern_type_bytes(l->o.type);
        n += 2 * (int64_t)c->hidden * c->dim * (int64_t)kern_type_bytes(l->gate_up.type);
        n += (int64_t)c->hidden * c->dim * (int64_t)kern_type_bytes(l->down.type);
        n += norms * (int64_t)sizeof(float);
    }
    n += (int64_t)c->vocab * c->dim * (int64_t)kern_type_bytes(m->head.type);
    if (!c->tied)
        n += (int64_t)c->vocab * c->dim * (int64_t)kern_type_bytes(m->embed_type);
    return n + (int64_t)c->dim * (int64_t)sizeof(float);
}

int model_weights_pack(struct model *m, const struct model_file *f,
                       const struct model_opts *o)
{
    struct packer k = {.m = m, .f = f, .o = o};
    struct arena a = {0};
    uint64_t t0 = clock_ns();
    int rc;

    if (mem_rss_peak_reset() != OK)
        err_clear(); /* the peak recorded is then that of the whole process */
    rc = layout_all(m, f, o->weight_type);
    if (rc != OK)
        return rc;
    place_all(m, &a);
    m->weights_bytes = a.used;
    m->weights = mem_map(MEM_WEIGHTS, m->weights_bytes, MEM_NODE_ANY);
    if (!m->weights)
        return ERR_NOMEM;
    a = (struct arena){.base = m->weights};
    place_all(m, &a);
    split_head_tail(m);
    k.all_bytes = (int64_t)m->weights_bytes;
    par_team_run(m->team, par_team_size(m->team), pack_all, &k);
    if (o->progress) /* norms and rounding make up the rest */
        o->progress(o->progress_ctx, k.all_bytes, k.all_bytes);
    m->load.tensor_bytes = mat_tensor_bytes(m);
    m->load.packed_bytes = (int64_t)m->weights_bytes;
    m->load.file_bytes = f->file_bytes;
    m->load.load_s = (double)(clock_ns() - t0) * 1e-9;
    m->load.load_gbps = (double)m->load.tensor_bytes / m->load.load_s * 1e-9;
    m->load.rss_peak_bytes = (int64_t)mem_rss_peak_bytes();
    return OK;
}
