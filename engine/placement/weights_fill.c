/* From tensors of a file to panels: the tensor and row that each column is from, and the thread
 * that packs it. */
#include <string.h>

#include "base/clock.h"
#include "placement/placement.h"
#include "placement/weights.h"

/* File pages kept at most per thread while copying. */
#define STEP_BYTES (4 << 20)
/* Read by a thread, and then packed: what stays in a second-level cache. */
#define READ_BYTES (256 << 10)
/* Bytes of the file, asked for before they are packed: some tens of milliseconds of a fast disk,
 * and little enough that the system does not drop what is to come. */
#define AHEAD_BYTES (64 << 20)

/* ---- tensors ---- */

int model_mat_tensors(const struct model *m, const struct format_file *f, int layer,
                      int i, const struct format_tensor *out[3])
{
    static const struct {
        enum format_role from[3];
        int n;
    } roles[MODEL_MAT_HEAD] = {
        [MODEL_MAT_QKV] = {{FORMAT_Q, FORMAT_K, FORMAT_V}, 3},
        [MODEL_MAT_V] = {{FORMAT_K, FORMAT_V}, 2}, /* or V alone */
        [MODEL_MAT_Q_A] = {{FORMAT_Q_A}, 1},
        [MODEL_MAT_LATENT_K] = {{FORMAT_K_B}, 1},
        [MODEL_MAT_LATENT_V] = {{FORMAT_V_B}, 1},
        [MODEL_MAT_O] = {{FORMAT_O}, 1},
        [MODEL_MAT_ROUTER] = {{FORMAT_ROUTER, FORMAT_SHARED_SCALE}, 2},
        [MODEL_MAT_GATE_UP] = {{FORMAT_GATE, FORMAT_UP}, 2},
        [MODEL_MAT_DOWN] = {{FORMAT_DOWN}, 1},
        [MODEL_MAT_DENSE_GATE_UP] = {{FORMAT_GATE, FORMAT_UP}, 2},
        [MODEL_MAT_DENSE_DOWN] = {{FORMAT_DOWN}, 1},
        [MODEL_MAT_EXPERT_GATE_UP] = {{FORMAT_EXPERT_GATE, FORMAT_EXPERT_UP}, 2},
        [MODEL_MAT_EXPERT_DOWN] = {{FORMAT_EXPERT_DOWN}, 1},
    };
    enum model_mat which = model_layer_mat_kind(i);
    bool moe = model_has_experts(&m->c, layer), mlp = m->c.hidden > 0;
    bool dense = which == MODEL_MAT_DENSE_GATE_UP || which == MODEL_MAT_DENSE_DOWN;
    bool latent = m->c.latent_dim > 0;
    static const enum format_role latent_key[] = {FORMAT_KV_A}, low_rank[] = {FORMAT_Q_B};
    const enum format_role *from = roles[which].from;
    int n = roles[which].n;

    if (which == MODEL_MAT_QKV)
        n -= m->c.v_split + m->c.k_split;
    if (which == MODEL_MAT_V) {
        from += !m->c.k_split;
        n = m->c.v_split + m->c.k_split;
    }
    if (latent && which == MODEL_MAT_QKV)
        from = m->c.q_rank > 0 ? low_rank : from, n = 1;
    if (which == MODEL_MAT_Q_A && m->c.q_rank == 0)
        n = 0;
    if (latent && which == MODEL_MAT_V)
        from = latent_key, n = 1;
    if (!latent && (which == MODEL_MAT_LATENT_K || which == MODEL_MAT_LATENT_V))
        n = 0;
    if (which == MODEL_MAT_GATE_UP && m->c.no_gate)
        from++, n--;
    if (which == MODEL_MAT_ROUTER)
        n = moe ? 1 + (mlp && !m->c.shared_plain) : 0;
    if ((which == MODEL_MAT_GATE_UP || which == MODEL_MAT_DOWN) &&
        (!mlp || (m->c.n_experts > 0 && !moe)))
        n = 0;
    if (i >= MODEL_MAT_EXPERT_GATE_UP && !moe)
        n = 0;
    if (dense && (m->c.n_experts == 0 || moe))
        n = 0;
    for (int k = 0; k < n; k++) {
        enum format_role role = from[k];

        if (moe && role >= FORMAT_GATE && role <= FORMAT_DOWN)
            role += FORMAT_SHARED_GATE - FORMAT_GATE;
        out[k] = role < FORMAT_N_ROLES
                     ? format_layer_tensor(f, layer, role)
                     : format_expert_tensor(f, layer, (i - MODEL_MAT_EXPERT_GATE_UP) / 2,
                                            role);
    }
    return n;
}

/* ---- reading ---- */

static size_t row_bytes(const struct format_tensor *t)
{
    return kern_type_size(t->type, t->cols);
}

static int64_t tensor_bytes(const struct format_tensor *t)
{
    return t->rows * (int64_t)row_bytes(t);
}

/* The tensors of the matrix that is packed as the at-th: after the embedding, and before the head.
 * Returns how many; -1: there is no such matrix. */
static int nth_tensors(const struct format_filling *k, int64_t at,
                       const struct format_tensor *t[3])
{
    const struct model_config *c = &k->m->c;
    int64_t n_mats = model_n_layer_mats(c), n = c->n_layers * n_mats;

    t[0] = &k->f->global[at == 0 || c->tied ? FORMAT_EMBED : FORMAT_HEAD];
    if (at == 0)
        return k->m->embed ? 1 : 0;
    if (at <= n)
        return model_mat_tensors(k->m, k->f, (int)((at - 1) / n_mats),
                                 (int)((at - 1) % n_mats), t);
    return at == n + 1 ? 1 : -1;
}

/* Thread 0: have the disk read while all threads pack. */
static void read_ahead(struct format_filling *k)
{
    const struct format_tensor *t[3];

    while (k->ahead_bytes < AHEAD_BYTES) {
        int n = nth_tensors(k, k->ahead, t);

        if (n < 0)
            return;
        k->ahead++;
        for (int i = 0; i < n; i++) {
            format_will_need(t[i]);
            k->ahead_bytes += tensor_bytes(t[i]);
        }
    }
}

/* Wait until these bytes of the file are mapped. */
static void read_bytes(const void *p, size_t bytes)
{
    const size_t page = 4096; /* the smallest of any target */
    const volatile char *at = p;

    for (size_t i = 0; i < bytes; i += page)
        (void)at[i];
    if (bytes > 0)
        (void)at[bytes - 1];
}

/* A thread has read from t0 to t1, and packed since. */
static void count_time(struct format_filling *k, uint64_t t0, uint64_t t1)
{
    k->read_ns += (long long)(t1 - t0);
    k->pack_ns += (long long)(clock_ns() - t1);
}

/* Plus `offset`, and times `scale` where that is not 0. */
static void vector_f32(float *out, const struct format_tensor *t, float offset,
                       float scale)
{
    kern_row_to_f32(t->type, out, t->data, t->cols);
    for (int64_t i = 0; offset != 0 && i < t->cols; i++)
        out[i] += offset;
    for (int64_t i = 0; scale != 0 && i < t->cols; i++)
        out[i] *= scale;
}

/* ---- which row of which tensor is column `col` of a packed matrix ---- */

struct source;
typedef const void *(*row_fn)(const struct source *s, int64_t col, enum kern_type *type);
struct source {
    const struct model *m;
    const struct format_tensor *t[3];
    float norm_offset;
    bool interleaved;
    row_fn row;
};

static const void *tensor_row(const struct format_tensor *t, int64_t row,
                              enum kern_type *type)
{
    *type = t->type;
    return (const char *)t->data + (size_t)row * row_bytes(t);
}

static const void *plain_row(const struct source *s, int64_t col, enum kern_type *type)
{
    return col < s->t[0]->rows ? tensor_row(s->t[0], col, type) : NULL;
}

/* The experts' rows, then the one of a shared expert. */
static const void *router_row(const struct source *s, int64_t col, enum kern_type *type)
{
    if (col < s->t[0]->rows)
        return tensor_row(s->t[0], col, type);
    return col == s->t[0]->rows && s->t[1] ? tensor_row(s->t[1], 0, type) : NULL;
}

/* Panels alternate: 16 columns of gate, the same 16 of up. */
static const void *gate_up_row(const struct source *s, int64_t col, enum kern_type *type)
{
    const struct format_tensor *t = s->t[col / KERN_PANEL & 1];
    int64_t row = col / (2 * KERN_PANEL) * KERN_PANEL + col % KERN_PANEL;

    return row < t->rows ? tensor_row(t, row, type) : NULL;
}

/* Where in a head of the file the half-split position r is. */
static int64_t unrotate(const struct source *s, int64_t r)
{
    int64_t half = model_rope_dims(&s->m->c) / 2;

    if (!s->interleaved || r >= 2 * half)
        return r;
    return r < half ? 2 * r : 2 * (r - half) + 1;
}

/* The row of a KV group's head `which`: 0 Q, 1 K, 2 V. */
static int64_t head_row(const struct source *s, int which, int64_t head, int64_t r)
{
    return head * s->m->c.head_dim + (which == 2 ? r : unrotate(s, r));
}

/* A packed column of QKV, or of those of them that are not split off: 0 Q, 1 K, 2 V and its row
 * there; false for padding. */
static bool qkv_column(const struct source *s, int64_t col, int *which, int64_t *row)
{
    int64_t hd = s->m->c.head_dim, unit = col / s->m->qkv_unit;
    int64_t in_unit = col % s->m->qkv_unit;
    int64_t head = in_unit / hd, r = in_unit % hd;

    if (head >= s->m->group + 2 - s->m->c.v_split - s->m->c.k_split)
        return false;
    *which = head < s->m->group ? 0 : (int)(head - s->m->group) + 1;
    *row = head_row(s, *which, *which ? unit : unit * s->m->group + head, r);
    return true;
}

/* The same of a column of the packed V. */
static bool v_column(const struct source *s, int64_t col, int *which, int64_t *row)
{
    int64_t hd = s->m->c.head_dim, in_unit = col % s->m->v_unit;

    *which = (int)(in_unit / hd) + 2 - s->m->c.k_split;
    *row = head_row(s, *which, col / s->m->v_unit, in_unit % hd);
    return *which <= 2;
}

static const void *qkv_row(const struct source *s, int64_t col, enum kern_type *type)
{
    int64_t row;
    int which;

    return qkv_column(s, col, &which, &row) ? tensor_row(s->t[which], row, type) : NULL;
}

static const void *v_row(const struct source *s, int64_t col, enum kern_type *type)
{
    int64_t row;
    int which;

    if (!v_column(s, col, &which, &row))
        return NULL;
    return tensor_row(s->t[which - 2 + s->m->c.k_split], row, type);
}

/* Of latent attention: a head's rotated elements are its last, those of the key its first, and in
 * the file the last, too. */
static const void *latent_q_row(const struct source *s, int64_t col, enum kern_type *type)
{
    const struct model_config *c = &s->m->c;
    int64_t qd = model_q_dim(c), head = col / qd, r = col % qd;

    if (r >= c->nope_dim)
        r = c->nope_dim + unrotate(s, r - c->nope_dim);
    return head < c->n_heads ? tensor_row(s->t[0], head * qd + r, type) : NULL;
}

static const void *latent_key_row(const struct source *s, int64_t col,
                                  enum kern_type *type)
{
    const struct model_config *c = &s->m->c;

    if (col >= c->head_dim)
        return NULL;
    return tensor_row(
        s->t[0],
        col < c->rope_dims ? c->latent_dim + unrotate(s, col) : col - c->rope_dims, type);
}

/* ---- packing ---- */

/* The part of a piece's column that panel p has as its i-th; NULL: padding. */
static const void *column_of(const struct model_piece *x, const struct source *s,
                             int64_t p, int i, enum kern_type *type)
{
    const char *row = s->row(s, (x->p0 + p) * KERN_PANEL + i, type);

    return row ? row + kern_type_size(*type, x->k_lo) : NULL;
}

static void read_panel(const struct model_piece *x, const struct source *s, int64_t p)
{
    for (int i = 0; i < KERN_PANEL; i++) {
        enum kern_type type;
        const void *row = column_of(x, s, p, i, &type);

        if (row)
            read_bytes(row, kern_type_size(type, x->w.k));
    }
}

/* Panel p of a piece. */
static void pack_panel(struct model_piece *x, const struct source *s, int64_t p)
{
    struct kern_mat *w = &x->w;
    const void *rows[KERN_PANEL];
    enum kern_type type[KERN_PANEL], first = w->type;
    bool seen = false, same = true;

    for (int i = 0; i < KERN_PANEL; i++) {
        rows[i] = column_of(x, s, p, i, &type[i]);
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
static void drop_rows(const struct format_tensor *t, int64_t lo, int64_t hi)
{
    struct format_tensor part = *t;

    if (hi > t->rows)
        hi = t->rows;
    if (hi <= lo)
        return;
    part.data = (const char *)t->data + (size_t)lo * row_bytes(t);
    part.rows = hi - lo;
    format_drop(&part);
}

/* A thread's share [lo, hi) of the things of its domain, which come piece by piece. */
struct share {
    int64_t lo, hi, at;
};

static struct share share_of(const struct model *m, const struct par_self *self,
                             int64_t n)
{
    const struct model_helper *h = &m->placement->helpers[self->id];
    struct share s = {0};

    if (h->n > 0)
        par_share(n, h->i, h->n, &s.lo, &s.hi);
    return s;
}

static int64_t within(int64_t x, int64_t n)
{
    return x < 0 ? 0 : x < n ? x : n;
}

/* How much of the next n things is in it. */
static void share_next(struct share *s, int64_t n, int64_t *lo, int64_t *hi)
{
    *lo = within(s->lo - s->at, n);
    *hi = within(s->hi - s->at, n);
    s->at += n;
}

static void pack_panels(struct format_filling *k, struct model_piece *x,
                        const struct source *s, int64_t lo, int64_t hi)
{
    size_t panel = x->w.panel_bytes * (size_t)x->w.n_units;
    bool all_of_k = s->row == plain_row && x->w.k == s->t[0]->cols;
    int64_t dropped = lo, step = (int64_t)(READ_BYTES / panel) + 1;

    for (int64_t p = lo; p < hi; p += step) {
        int64_t end = p + step < hi ? p + step : hi;
        uint64_t t0 = clock_ns(), t1;

        for (int64_t i = p; i < end; i++)
            read_panel(x, s, i);
        t1 = clock_ns();
        for (int64_t i = p; i < end; i++)
            pack_panel(x, s, i);
        count_time(k, t0, t1);
        /* The vocabulary's matrix is large: let its pages go as they are read. */
        if (all_of_k && (size_t)(end - dropped) * panel >= STEP_BYTES) {
            drop_rows(s->t[0], (x->p0 + dropped) * KERN_PANEL,
                      (x->p0 + end) * KERN_PANEL);
            dropped = end;
        }
    }
}

static void pack_mat(struct format_filling *k, struct par_self *self, int layer, int mat,
                     const struct source *s)
{
    const struct model *m = k->m;
    int n = model_n_pieces(m->placement), domain = m->placement->helpers[self->id].domain;
    struct share mine;
    struct model_piece x;
    int64_t all = 0;

    for (int i = 0; i < n; i++) {
        model_piece_of(m, layer, mat, i, &x);
        all += x.domain == domain ? x.p_hi - x.p_lo : 0;
    }
    mine = share_of(m, self, all);
    for (int i = 0; i < n; i++) {
        int64_t lo, hi;

        model_piece_of(m, layer, mat, i, &x);
        if (x.domain != domain)
            continue;
        share_next(&mine, x.p_hi - x.p_lo, &lo, &hi);
        if (lo < hi)
            pack_panels(k, &x, s, x.p_lo + lo, x.p_lo + hi);
    }
}

/* All threads have packed the matrix. */
static void packed(struct format_filling *k, struct par_self *self,
                   const struct kern_mat *w, const struct source *s)
{
    par_barrier(self);
    if (self->id != 0)
        return;
    for (int i = 0; i < 3 && s->t[i]; i++) {
        format_drop(s->t[i]);
        k->ahead_bytes -= tensor_bytes(s->t[i]);
    }
    read_ahead(k);
    k->done_bytes += (int64_t)w->bytes;
    if (k->o->progress)
        k->o->progress(k->o->progress_ctx, k->done_bytes, k->all_bytes);
}

static float element_f32(const struct format_tensor *t, int64_t i)
{
    float x;

    kern_row_to_f32(t->type, &x, (const char *)t->data + kern_type_size(t->type, i), 1);
    return x;
}

static void pack_qkv_bias(struct model_layer *l, const struct source *s,
                          const struct format_tensor *const bias[3])
{
    int64_t row;
    int which;

    /* The source rows of biases follow those of the weights: one column at a time. */
    for (int64_t col = 0; col < l->mats[MODEL_MAT_QKV].n_panels * KERN_PANEL; col++)
        l->qkv_bias[col] =
            qkv_column(s, col, &which, &row) ? element_f32(bias[which], row) : 0;
    for (int64_t col = 0; col < l->mats[MODEL_MAT_V].n_panels * KERN_PANEL; col++)
        l->v_bias[col] =
            v_column(s, col, &which, &row) ? element_f32(bias[which], row) : 0;
}

static void pack_up_bias(struct model_layer *l, const struct format_tensor *bias)
{
    for (int64_t i = 0; i < l->mats[MODEL_MAT_GATE_UP].n_panels * KERN_PANEL; i++)
        l->up_bias[i] = i < bias->cols ? element_f32(bias, i) : 0;
}

/* Columns of gate and up alternate as in gate_up_row(). */
static void pack_expert_biases(const struct model *m, const struct format_file *f,
                               int layer)
{
    struct model_layer *l = &m->layers[layer];
    const int64_t n = l->mats[model_expert_mat(0)].n_panels * KERN_PANEL;
    const struct format_tensor *t = format_layer_tensor(f, layer, FORMAT_ROUTER_BIAS);

    for (int64_t i = 0; i < l->mats[MODEL_MAT_ROUTER].n_panels * KERN_PANEL; i++)
        l->router_bias[i] = i < t->cols ? element_f32(t, i) : 0;
    for (int e = 0; e < m->c.n_experts; e++) {
        const struct format_tensor *both[] = {
            format_expert_tensor(f, layer, e, FORMAT_EXPERT_GATE_BIAS),
            format_expert_tensor(f, layer, e, FORMAT_EXPERT_UP_BIAS)};

        for (int64_t i = 0; i < n; i++) {
            int64_t row = i / (2 * KERN_PANEL) * KERN_PANEL + i % KERN_PANEL;

            t = both[i / KERN_PANEL & 1];
            l->expert_bias[e * n + i] = row < t->cols ? element_f32(t, row) : 0;
        }
        vector_f32(l->expert_down_bias + (int64_t)e * m->c.dim,
                   format_expert_tensor(f, layer, e, FORMAT_EXPERT_DOWN_BIAS), 0, 0);
    }
}

/* The weights of a head's norm, or of all heads', in the order of its packed columns. */
static void pack_head_norm(float *out, const struct source *s,
                           const struct format_tensor *t)
{
    int64_t hd = s->m->c.head_dim;

    for (int64_t r = 0; r < t->cols; r++)
        out[r] = element_f32(t, r / hd * hd + unrotate(s, r % hd)) + s->norm_offset;
}

static void pack_layer(struct format_filling *k, struct par_self *self, int i)
{
    static const row_fn rows[MODEL_MAT_HEAD] = {
        [MODEL_MAT_QKV] = qkv_row,           [MODEL_MAT_V] = v_row,
        [MODEL_MAT_Q_A] = plain_row,         [MODEL_MAT_LATENT_K] = plain_row,
        [MODEL_MAT_LATENT_V] = plain_row,    [MODEL_MAT_O] = plain_row,
        [MODEL_MAT_ROUTER] = router_row,     [MODEL_MAT_GATE_UP] = gate_up_row,
        [MODEL_MAT_DOWN] = plain_row,        [MODEL_MAT_DENSE_GATE_UP] = gate_up_row,
        [MODEL_MAT_DENSE_DOWN] = plain_row,  [MODEL_MAT_EXPERT_GATE_UP] = gate_up_row,
        [MODEL_MAT_EXPERT_DOWN] = plain_row,
    };
    struct model *m = k->m;
    struct model_layer *l = &m->layers[i];
    const struct format_tensor *t = k->f->layer[i];
#define T(role) (&t[(role)-FORMAT_ATTN_NORM])
    struct source s = {
        .m = m, .interleaved = k->f->rope_interleaved, .norm_offset = k->f->norm_offset};
    double centre;

    if (self->id == 0) {
        const struct format_tensor *const bias[3] = {T(FORMAT_Q_BIAS), T(FORMAT_K_BIAS),
                                                     T(FORMAT_V_BIAS)};

        /* What is added behind a product with scaled rows is scaled here. */
        for (int v = 0; model_layer_vectors[v].role != FORMAT_N_ROLES; v++) {
            enum format_role role = model_layer_vectors[v].role;

            (void)format_role_vector(role, &centre);
            if (*model_layer_vector(l, v))
                vector_f32(*model_layer_vector(l, v), T(role),
                           centre == 1 ? k->f->norm_offset : 0,
                           role == FORMAT_O_BIAS || role == FORMAT_DOWN_BIAS
                               ? m->c.residual_scale
                               : 0);
        }
        if (l->qkv_bias)
            pack_qkv_bias(l, &s, bias);
        if (l->up_bias)
            pack_up_bias(l, T(FORMAT_UP_BIAS));
        if (l->sinks)
            vector_f32(l->sinks, T(FORMAT_SINKS), 0, 0);
        if (l->expert_bias)
            pack_expert_biases(m, k->f, i);
        if (l->latent_norm)
            vector_f32(l->latent_norm, T(FORMAT_KV_A_NORM), 0, 0);
        if (l->q_a_norm)
            vector_f32(l->q_a_norm, T(FORMAT_Q_A_NORM), 0, 0);
        if (l->router_choice)
            vector_f32(l->router_choice, T(FORMAT_ROUTER_CHOICE), 0, 0);
        if (l->q_norm) {
            pack_head_norm(l->q_norm, &s, T(FORMAT_Q_NORM));
            pack_head_norm(l->k_norm, &s, T(FORMAT_K_NORM));
        }
    }
#undef T
    for (int mat = 0; mat < model_n_layer_mats(&m->c); mat++) {
        memset(s.t, 0, sizeof(s.t));
        if (model_mat_tensors(m, k->f, i, mat, s.t) == 0)
            continue;
        s.row = mat == MODEL_MAT_GATE_UP && m->c.no_gate      ? plain_row
                : m->c.latent_dim > 0 && mat == MODEL_MAT_QKV ? latent_q_row
                : m->c.latent_dim > 0 && mat == MODEL_MAT_V
                    ? latent_key_row
                    : rows[model_layer_mat_kind(mat)];
        pack_mat(k, self, i, mat, &s);
        packed(k, self, &l->mats[mat], &s);
    }
}

static void copy_rows(struct format_filling *k, const struct format_tensor *t, int64_t lo,
                      int64_t hi)
{
    int64_t step = STEP_BYTES / (int64_t)row_bytes(t) + 1;

    for (int64_t r = lo; r < hi; r += step) {
        int64_t n = r + step < hi ? step : hi - r;
        size_t from = (size_t)r * row_bytes(t), bytes = (size_t)n * row_bytes(t);
        uint64_t t0 = clock_ns(), t1;

        read_bytes((const char *)t->data + from, bytes);
        t1 = clock_ns();
        memcpy((char *)k->m->embed + from, (const char *)t->data + from, bytes);
        count_time(k, t0, t1);
        drop_rows(t, r, r + n);
    }
}

static void copy_embed(struct format_filling *k, struct par_self *self)
{
    const struct model *m = k->m;
    int n = model_n_pieces(m->placement), domain = m->placement->helpers[self->id].domain;
    int64_t all = 0, lo, hi, from, to;
    struct share mine;

    for (int i = 0; i < n; i++)
        if (model_embed_piece(m, i, &lo, &hi) == domain)
            all += hi - lo;
    mine = share_of(m, self, all);
    for (int i = 0; i < n; i++) {
        if (model_embed_piece(m, i, &lo, &hi) != domain)
            continue;
        share_next(&mine, hi - lo, &from, &to);
        copy_rows(k, &k->f->global[FORMAT_EMBED], lo + from, lo + to);
    }
    if (self->id == 0) {
        k->done_bytes += (int64_t)m->c.vocab * (int64_t)m->embed_row_bytes;
        k->ahead_bytes -= (int64_t)m->c.vocab * (int64_t)m->embed_row_bytes;
    }
}

void model_weights_fill(void *arg, struct par_self *self)
{
    struct format_filling *k = arg;
    struct model *m = k->m;
    const struct source head = {
        .m = m,
        .t = {&k->f->global[m->c.tied ? FORMAT_EMBED : FORMAT_HEAD]},
        .row = plain_row};

    if (self->id == 0) {
        read_ahead(k);
        /* Scaled rows give scaled logits. */
        vector_f32(m->out_norm, &k->f->global[FORMAT_OUT_NORM], k->f->norm_offset,
                   m->c.logit_scale);
        if (m->out_norm_bias)
            vector_f32(m->out_norm_bias, &k->f->global[FORMAT_OUT_NORM_BIAS], 0,
                       m->c.logit_scale);
    }
    if (m->embed)
        copy_embed(k, self);
    for (int i = 0; i < m->c.n_layers; i++)
        pack_layer(k, self, i);
    pack_mat(k, self, 0, MODEL_OF_HEAD, &head);
    packed(k, self, &m->head, &head);
}
