#include "tests/support/ref_model.h"

#include <math.h>

#include "format/fill.h"
#include "kernels/panel.h"
#include "tests/support/naive_quant.h"
#include "tests/support/test.h"

#define PAGE 4096

/* ---- making one ---- */

/* What is subtracted in units of d, so that integers without a sign have the mean 0; below 0: it
 * is stored as what is added. */
static double mean_of(enum kern_type type)
{
    return type == KERN_Q2_K     ? 1.5
           : type == KERN_W4G128 ? 7.5
           : type == KERN_Q5_K   ? 15.5
           : type == KERN_Q4_K   ? 7.5
           : type == KERN_Q5_1   ? -15.5
                                 : -7.5;
}

/* Rows of blocks of random integers, with scales that give the weights about this deviation, and
 * mins that take away the mean of integers without a sign. */
static size_t put_blocks(uint8_t *dst, enum kern_type type, double *values, int64_t rows,
                         int64_t cols, struct rng *rng, double scale)
{
    static const double spread[KERN_N_TYPES] = {
        [KERN_Q8_0] = 73,       [KERN_Q4_0] = 4.6,      [KERN_Q4_1] = 4.6,
        [KERN_Q5_0] = 9.2,      [KERN_Q5_1] = 9.2,      [KERN_W4C] = 4.6,
        [KERN_Q4_K] = 4.6 * 36, [KERN_Q5_K] = 9.2 * 36, [KERN_Q6_K] = 18.4 * 74,
        [KERN_Q2_K] = 14,       [KERN_Q3_K] = 2.3 * 18, [KERN_IQ4_NL] = 67,
        [KERN_W4G128] = 4.6,    [KERN_W8G128] = 73,     [KERN_MXFP4] = 5.9,
        [KERN_IQ4_XS] = 67 * 18};
    const size_t bytes = kern_type_bytes(type);
    const int block = kern_type_block(type);
    double d = 0;

    for (int64_t i = 0; i < rows * cols; i += block, dst += bytes) {
        if (i % cols == 0 || type != KERN_W4C)
            d = scale / spread[type] * (0.5 + rng_f64(rng));
        for (size_t k = 0; k < bytes; k++)
            dst[k] = (uint8_t)rng_u64(rng);
        naive_set_scales(type, dst, (float)d, (float)(d * mean_of(type)));
        for (int k = 0; k < block; k++)
            values[i + k] = (double)(float)naive_weight(type, dst, k);
    }
    return (size_t)(rows * cols / block) * bytes;
}

static size_t put(void *dst, enum kern_type type, double *values, int64_t n,
                  struct rng *rng, double mean, double scale)
{
    for (int64_t i = 0; i < n; i++) {
        float x = (float)(mean + scale * rng_normal(rng));
        uint16_t h = type == KERN_BF16 ? kern_bf16_of(x) : kern_f16_of(x);

        if (type == KERN_F32) {
            memcpy((char *)dst + 4 * i, &x, 4);
        } else {
            memcpy((char *)dst + 2 * i, &h, 2);
            x = type == KERN_BF16 ? kern_bf16_to(h) : kern_f16_to(h);
        }
        values[i] = (double)x; /* what was stored, after rounding */
    }
    return (size_t)n * kern_type_bytes(type);
}

struct maker {
    struct ref_model *r;
    struct rng rng;
    size_t used;
    enum ref_mixed mixed;
    bool flat_router;
    int n_made;
};

/* Mixed plain types differ from tensor to tensor. Mixed quantised types are those that
 * published files have: more bits for the head, and in some layers for V and down. */
static enum kern_type type_of(struct maker *k, enum format_role role, int layer)
{
    enum kern_type type = k->r->f.config.weight_type;
    bool more = role < FORMAT_ATTN_NORM ||
                (layer % 2 == 0 && (role == FORMAT_V || role == FORMAT_DOWN));

    if (!k->mixed)
        return type;
    if (!kern_type_quantised(type))
        return (enum kern_type)(k->n_made++ % KERN_N_PLAIN_TYPES);
    k->n_made++;
    if (k->mixed == REF_MIXED_KEYS)
        return role == FORMAT_K || role == FORMAT_V ? KERN_Q8_0 : type;
    return more ? KERN_Q6_K : type;
}

/* As a mean: a matrix of one row is no vector. */
#define MATRIX 1e9

static void make_tensor(struct maker *k, struct format_tensor *t, double **values,
                        int64_t rows, int64_t cols, double mean, enum kern_type type)
{
    bool vector = rows == 1 && mean != MATRIX;

    t->type = vector ? KERN_F32 : type;
    t->rows = rows;
    t->cols = cols;
    /* Odd addresses: nothing may assume that a file's tensors are aligned. A page each:
     * packing may give a tensor's pages back. */
    k->used = (k->used + PAGE - 1) / PAGE * PAGE + 2 * (size_t)(k->n_made & 1);
    t->data = (char *)k->r->map + k->used;
    *values = mem_new(MEM_TEST, (size_t)(rows * cols), sizeof(double));
    if (!*values)
        fail_msg("%s", err_msg());
    if (kern_type_quantised(t->type))
        k->used += put_blocks((uint8_t *)k->r->map + k->used, t->type, *values, rows,
                              cols, &k->rng, 1.5 / sqrt((double)cols));
    else
        k->used +=
            put((char *)k->r->map + k->used, t->type, *values, rows * cols, &k->rng,
                mean == MATRIX ? 0 : mean, vector ? 0.2 : 1.5 / sqrt((double)cols));
    if (k->used + PAGE > k->r->map_bytes)
        fail_msg("the test's model is larger than planned");
}

/* Real files have a plain type here, whatever the others have. */
static void make_router(struct maker *k, int i)
{
    const struct model_config *c = &k->r->f.config;
    enum kern_type type = type_of(k, FORMAT_ROUTER, i);
    double **values = &k->r->layer[i][FORMAT_ROUTER - FORMAT_ATTN_NORM];
    struct format_tensor *t = &k->r->f.layer[i][FORMAT_ROUTER - FORMAT_ATTN_NORM];

    make_tensor(k, t, values, c->n_experts, c->dim, MATRIX,
                kern_type_quantised(type) ? KERN_F32 : type);
    if (!k->flat_router)
        return;
    memset((void *)t->data, 0, kern_type_size(t->type, c->dim) * (size_t)c->n_experts);
    memset(*values, 0, (size_t)(c->n_experts * c->dim) * sizeof(**values));
}

static void make_experts(struct maker *k, int i)
{
    const struct model_config *c = &k->r->f.config;

    for (int e = i * c->n_experts; e < (i + 1) * c->n_experts; e++)
        for (int r = 0; r < FORMAT_N_EXPERT_ROLES; r++) {
            enum format_role role = FORMAT_EXPERT_GATE + (enum format_role)r;
            int64_t rows, cols;

            if (!format_role_needed(c, role, i))
                continue;
            format_role_shape(c, role, &rows, &cols);
            make_tensor(k, &k->r->f.expert[e][r], &k->r->expert[e][r], rows, cols,
                        role < FORMAT_EXPERT_GATE_BIAS ? MATRIX : 0, type_of(k, role, i));
        }
}

static void make_layer(struct maker *k, int i)
{
    const struct model_config *c = &k->r->f.config;
    struct format_tensor *t = k->r->f.layer[i];
    double **v = k->r->layer[i];
    int64_t q = (int64_t)c->n_heads * c->head_dim,
            kv = (int64_t)c->n_kv_heads * c->head_dim;
    int64_t heads = c->n_heads;
#define MAKE(role, rows, cols, mean)                                                     \
    make_tensor(k, &t[(role)-FORMAT_ATTN_NORM], &v[(role)-FORMAT_ATTN_NORM], rows, cols, \
                mean, (rows) == 1 ? KERN_F32 : type_of(k, role, i))

    if (c->norms != MODEL_NORM_AFTER)
        MAKE(FORMAT_ATTN_NORM, 1, c->dim, 1);
    if (c->latent_dim > 0) {
        int64_t qd = heads * (c->nope_dim + c->rope_dims);

        if (c->q_rank > 0) {
            MAKE(FORMAT_Q_A, c->q_rank, c->dim, 0);
            MAKE(FORMAT_Q_A_NORM, 1, c->q_rank, 1);
            MAKE(FORMAT_Q_B, qd, c->q_rank, 0);
        } else {
            MAKE(FORMAT_Q, qd, c->dim, 0);
        }
        MAKE(FORMAT_KV_A, c->latent_dim + c->rope_dims, c->dim, 0);
        MAKE(FORMAT_KV_A_NORM, 1, c->latent_dim, 1);
        MAKE(FORMAT_K_B, heads * c->latent_dim, c->nope_dim, 0);
        MAKE(FORMAT_V_B, heads * c->value_dim, c->latent_dim, 0);
        MAKE(FORMAT_O, c->dim, heads * c->value_dim, 0);
    } else {
        MAKE(FORMAT_Q, q, c->dim, 0);
        MAKE(FORMAT_K, kv, c->dim, 0);
        MAKE(FORMAT_V, kv, c->dim, 0);
        MAKE(FORMAT_O, c->dim, q, 0);
    }
    if (c->qkv_bias) {
        MAKE(FORMAT_Q_BIAS, 1, q, 0);
        MAKE(FORMAT_K_BIAS, 1, kv, 0);
        MAKE(FORMAT_V_BIAS, 1, kv, 0);
    }
    if (c->o_bias)
        MAKE(FORMAT_O_BIAS, 1, c->dim, 0);
    if (c->qk_norm) {
        MAKE(FORMAT_Q_NORM, 1, c->qk_norm_row ? q : c->head_dim, 1);
        MAKE(FORMAT_K_NORM, 1, c->qk_norm_row ? kv : c->head_dim, 1);
    }
    if (c->sinks)
        MAKE(FORMAT_SINKS, 1, c->n_heads, 0);
    if (c->expert_bias)
        MAKE(FORMAT_ROUTER_BIAS, 1, c->n_experts, 0);
    if (c->norms != MODEL_NORM_AFTER && !c->parallel)
        MAKE(FORMAT_FFN_NORM, 1, c->dim, 1);
    if (c->norm_bias) {
        MAKE(FORMAT_ATTN_NORM_BIAS, 1, c->dim, 0);
        MAKE(FORMAT_FFN_NORM_BIAS, 1, c->dim, 0);
    }
    if (c->norms != MODEL_NORM_BEFORE) {
        MAKE(FORMAT_ATTN_AFTER, 1, c->dim, 1);
        MAKE(FORMAT_FFN_AFTER, 1, c->dim, 1);
    }
    if (c->n_experts == 0 || i < c->n_dense) {
        int hidden = c->n_experts > 0 ? c->dense_hidden : c->hidden;

        if (!c->no_gate)
            MAKE(FORMAT_GATE, hidden, c->dim, 0);
        MAKE(FORMAT_UP, hidden, c->dim, 0);
        MAKE(FORMAT_DOWN, c->dim, hidden, 0);
        if (c->mlp_bias) {
            MAKE(FORMAT_UP_BIAS, 1, c->hidden, 0);
            MAKE(FORMAT_DOWN_BIAS, 1, c->dim, 0);
        }
        return;
    }
    make_router(k, i);
    if (c->router_choice)
        MAKE(FORMAT_ROUTER_CHOICE, 1, c->n_experts, 0);
    if (c->hidden > 0) {
        if (!c->shared_plain)
            MAKE(FORMAT_SHARED_SCALE, 1, c->dim, 0);
        MAKE(FORMAT_SHARED_GATE, c->hidden, c->dim, 0);
        MAKE(FORMAT_SHARED_UP, c->hidden, c->dim, 0);
        MAKE(FORMAT_SHARED_DOWN, c->dim, c->hidden, 0);
    }
#undef MAKE
    make_experts(k, i);
}

void ref_model_init(struct ref_model *r, const struct model_config *c, bool interleaved,
                    enum ref_mixed mixed, bool flat_router, uint64_t seed)
{
    struct maker k = {.r = r, .mixed = mixed, .flat_router = flat_router};
    size_t n_experts = (size_t)(c->n_layers * c->n_experts);

    memset(r, 0, sizeof(*r));
    rng_init(&k.rng, seed, "ref_model");
    r->f.config = *c;
    r->f.rope_interleaved = interleaved;
    snprintf(r->f.format, sizeof(r->f.format), "memory");
    r->map_bytes = 8 << 20;
    r->map = mem_map(MEM_TEST, r->map_bytes, MEM_NODE_ANY);
    r->f.layer = mem_new(MEM_TEST, (size_t)c->n_layers, sizeof(r->f.layer[0]));
    r->layer = mem_new(MEM_TEST, (size_t)c->n_layers, sizeof(r->layer[0]));
    r->f.expert = mem_new(MEM_TEST, n_experts, sizeof(r->f.expert[0]));
    r->expert = mem_new(MEM_TEST, n_experts, sizeof(r->expert[0]));
    r->margin = INFINITY;
    if (!r->map || !r->f.layer || !r->layer || !r->f.expert || !r->expert)
        fail_msg("%s", err_msg());
    make_tensor(&k, &r->f.global[FORMAT_EMBED], &r->global[FORMAT_EMBED], c->vocab,
                c->dim, 0, type_of(&k, FORMAT_EMBED, 0));
    if (!c->tied)
        make_tensor(&k, &r->f.global[FORMAT_HEAD], &r->global[FORMAT_HEAD], c->vocab,
                    c->dim, 0, type_of(&k, FORMAT_HEAD, 0));
    make_tensor(&k, &r->f.global[FORMAT_OUT_NORM], &r->global[FORMAT_OUT_NORM], 1, c->dim,
                1, KERN_F32);
    if (c->norm_bias)
        make_tensor(&k, &r->f.global[FORMAT_OUT_NORM_BIAS],
                    &r->global[FORMAT_OUT_NORM_BIAS], 1, c->dim, 0, KERN_F32);
    for (int i = 0; i < c->n_layers; i++)
        make_layer(&k, i);
    format_fill_types(&r->f);
}

static double *as_f64(const struct format_tensor *t)
{
    int64_t n = t->rows * t->cols;
    double *out;

    if (!t->data)
        return NULL;
    out = mem_new(MEM_TEST, (size_t)n, sizeof(double));
    assert_non_null(out);
    for (int64_t i = 0; i < n; i++) {
        const int block = kern_type_block(t->type);
        const char *p =
            (const char *)t->data + (size_t)(i / block) * kern_type_bytes(t->type);
        uint16_t h;
        float x;

        if (kern_type_quantised(t->type)) {
            out[i] = (double)(float)naive_weight(t->type, (const uint8_t *)p,
                                                 (int)(i % block));
            continue;
        }
        memcpy(&h, p, sizeof(h));
        if (t->type == KERN_F32)
            memcpy(&x, p, sizeof(x));
        else
            x = t->type == KERN_BF16 ? kern_bf16_to(h) : kern_f16_to(h);
        out[i] = (double)x;
    }
    return out;
}

void ref_model_of_file(struct ref_model *r, const struct format_file *f)
{
    int n_experts = f->config.n_layers * f->config.n_experts;

    memset(r, 0, sizeof(*r));
    r->f.config = f->config;
    r->f.rope_interleaved = f->rope_interleaved;
    r->layer = mem_new(MEM_TEST, (size_t)f->config.n_layers, sizeof(r->layer[0]));
    r->expert = mem_new(MEM_TEST, (size_t)n_experts, sizeof(r->expert[0]));
    r->margin = INFINITY;
    assert_non_null(r->layer);
    assert_non_null(r->expert);
    for (int i = 0; i < FORMAT_ATTN_NORM; i++)
        r->global[i] = as_f64(&f->global[i]);
    for (int i = 0; i < f->config.n_layers; i++)
        for (int role = 0; role < FORMAT_N_ROLES - FORMAT_ATTN_NORM; role++)
            r->layer[i][role] = as_f64(&f->layer[i][role]);
    for (int i = 0; i < n_experts; i++)
        for (int role = 0; role < FORMAT_N_EXPERT_ROLES; role++)
            r->expert[i][role] = as_f64(&f->expert[i][role]);
}

void ref_model_fini(struct ref_model *r)
{
    for (int i = 0; i < FORMAT_ATTN_NORM; i++)
        mem_free(r->global[i]);
    for (int i = 0; i < r->f.config.n_layers; i++)
        for (int role = 0; role < FORMAT_N_ROLES - FORMAT_ATTN_NORM; role++)
            mem_free(r->layer[i][role]);
    for (int i = 0; i < r->f.config.n_layers * r->f.config.n_experts; i++)
        for (int role = 0; role < FORMAT_N_EXPERT_ROLES; role++)
            mem_free(r->expert[i][role]);
    mem_free(r->expert);
    mem_free(r->f.expert);
    mem_free(r->layer);
    mem_free(r->f.layer);
    if (r->map)
        mem_unmap(MEM_TEST, r->map, r->map_bytes);
    memset(r, 0, sizeof(*r));
}

/* ---- computing it ---- */

static double *new_f64(int64_t n)
{
    double *p = mem_new(MEM_TEST, (size_t)n, sizeof(double));

    if (!p)
        fail_msg("%s", err_msg());
    return p;
}

/* y[rows] = W[rows, cols] x (+ bias) */
static void matvec(double *y, const double *w, const double *x, int64_t rows,
                   int64_t cols, const double *bias)
{
    for (int64_t r = 0; r < rows; r++) {
        y[r] = bias ? bias[r] : 0;
        for (int64_t i = 0; i < cols; i++)
            y[r] += w[r * cols + i] * x[i];
    }
}

static void rmsnorm(double *y, const double *x, const double *w, int64_t n, double eps)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] * w[i] / sqrt(sum / (double)n + eps);
}

static void rotate(const struct ref_model *r, double *x, int n_heads, int layer, int pos)
{
    const struct model_config *c = &r->f.config;
    int dims = c->rope_dims > 0 ? c->rope_dims : c->head_dim, half = dims / 2;
    bool slow = c->rope_short_tok > 0 && c->max_tok > c->rope_short_tok;
    bool local = c->rope_local_theta > 0 && c->layer_flags[layer] & MODEL_LAYER_WINDOW;
    double theta = (double)(local ? c->rope_local_theta : c->rope_theta);
    double length = c->rope_length != 0 && !local ? (double)c->rope_length : 1;

    if (!local && c->rope_ntk != 0 && slow) /* the base for the whole context */
        theta *=
            pow(1 + (double)c->rope_ntk * ((double)c->max_tok / c->rope_short_tok - 1),
                dims / (dims - 2.0));

    for (int h = 0; h < n_heads; h++) {
        for (int i = 0; i < half; i++) {
            double *a = x + h * c->head_dim + (r->f.rope_interleaved ? 2 * i : i);
            double *b = a + (r->f.rope_interleaved ? 1 : half);
            double f = pow(theta, -2.0 * i / dims) /
                       (local ? 1 : (double)(slow ? c->rope_long : c->rope_factor)[i]);
            double cs = length * cos(pos * f), sn = length * sin(pos * f);
            double a0 = *a, b0 = *b;

            *a = a0 * cs - b0 * sn;
            *b = a0 * sn + b0 * cs;
        }
    }
}

/* out[heads * head_dim] for the query at `pos`; keys and values [pos][kv heads *
 * head_dim]. */
static void attend(const struct ref_model *r, double *out, const double *q,
                   const double *k, const double *v, int layer, int pos)
{
    const struct model_config *c = &r->f.config;
    int hd = c->head_dim, group = c->n_heads / c->n_kv_heads, ld = c->n_kv_heads * hd;
    double *p = new_f64(pos + 1), cap = (double)c->attn_softcap;
    const double *sinks =
        c->sinks ? r->layer[layer][FORMAT_SINKS - FORMAT_ATTN_NORM] : NULL;
    bool window = c->window > 0 && c->layer_flags[layer] & MODEL_LAYER_WINDOW;
    int first = window && pos >= c->window ? pos - c->window + 1 : 0;

    for (int h = 0; h < c->n_heads; h++) {
        int at = h / group * hd;
        double max = -INFINITY, sum = 0;

        for (int t = first; t <= pos; t++) {
            p[t] = 0;
            for (int i = 0; i < hd; i++)
                p[t] += q[h * hd + i] * k[t * ld + at + i];
            p[t] *= c->attn_scale != 0 ? (double)c->attn_scale : 1 / sqrt((double)hd);
            p[t] = cap > 0 ? cap * tanh(p[t] / cap) : p[t];
            max = p[t] > max ? p[t] : max;
        }
        if (sinks)
            sum = exp(sinks[h] - max);
        for (int t = first; t <= pos; t++)
            sum += p[t] = exp(p[t] - max);
        for (int i = 0; i < hd; i++) {
            out[h * hd + i] = 0;
            for (int t = first; t <= pos; t++)
                out[h * hd + i] += p[t] / sum * v[t * ld + at + i];
        }
    }
    mem_free(p);
}

/* w: gate, up and down. */
static double act(const struct model_config *c, double x)
{
    if (c->activation == MODEL_GELU)
        return x / 2 * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    return x / (1 + exp(-x));
}

static double clamped(double gate, double up)
{
    gate = fmin(gate, 7);
    return gate / (1 + exp(-1.702 * gate)) * (fmax(fmin(up, 7), -7) + 1);
}

/* bias: NULL, or of gate, up and down. */
static void mlp(const struct model_config *c, double *y, const double *x,
                const double *const *w, const double *const *bias, int64_t hidden)
{
    int64_t dim = c->dim;
    double *g = new_f64(hidden), *u = new_f64(hidden);

    matvec(g, w[0], x, hidden, dim, bias ? bias[0] : NULL);
    matvec(u, w[1], x, hidden, dim, bias ? bias[1] : NULL);
    for (int i = 0; i < hidden; i++)
        g[i] =
            c->activation == MODEL_SWIGLU_OAI ? clamped(g[i], u[i]) : act(c, g[i]) * u[i];
    matvec(y, w[2], g, dim, hidden, bias ? bias[2] : NULL);
    mem_free(g), mem_free(u);
}

/* Up and down alone. */
static void plain_mlp(const struct model_config *c, double *y, const double *x,
                      double *const *w)
{
    double *u = new_f64(c->hidden);

    matvec(u, w[FORMAT_UP - FORMAT_ATTN_NORM], x, c->hidden, c->dim,
           w[FORMAT_UP_BIAS - FORMAT_ATTN_NORM]);
    for (int i = 0; i < c->hidden; i++)
        u[i] = act(c, u[i]);
    matvec(y, w[FORMAT_DOWN - FORMAT_ATTN_NORM], u, c->dim, c->hidden,
           w[FORMAT_DOWN_BIAS - FORMAT_ATTN_NORM]);
    mem_free(u);
}

/* The expert with the largest product of those not taken yet, of equal ones the first. */
static int best_expert(const double *p, const bool *taken, int n)
{
    int best = -1;

    for (int e = 0; e < n; e++)
        if (!taken[e] && (best < 0 || p[e] > p[best]))
            best = e;
    return best;
}

/* Which of n values are the `most` largest; `margin` becomes the least gap that decided it. */
static void take_best(const double *p, int n, int most, bool *taken, int *order,
                      double *margin)
{
    double gap;
    int next;

    for (int i = 0; i < most; i++) {
        order[i] = best_expert(p, taken, n);
        taken[order[i]] = true;
    }
    next = best_expert(p, taken, n);
    gap = next < 0 ? INFINITY : p[order[most - 1]] - p[next];
    if (gap > 0 && gap < *margin)
        *margin = gap;
}

/* Leave out the experts of the groups whose two best (without `choice`: whose best) are behind. */
static void leave_groups(const struct model_config *c, const double *choice, double *by,
                         double *margin)
{
    int size = c->n_experts / c->n_groups, order[MODEL_MAX_EXPERTS];
    bool kept[MODEL_MAX_EXPERTS] = {0};
    double *sum = new_f64(c->n_groups);

    for (int g = 0; g < c->n_groups; g++) {
        double first = -INFINITY, second = -INFINITY;

        for (int i = g * size; i < (g + 1) * size; i++) {
            second = by[i] > first ? first : by[i] > second ? by[i] : second;
            first = by[i] > first ? by[i] : first;
        }
        sum[g] = first + (choice && size > 1 ? second : 0);
    }
    take_best(sum, c->n_groups, c->n_active_groups, kept, order, margin);
    for (int i = 0; i < c->n_experts; i++)
        by[i] = kept[i / size] ? by[i] : -INFINITY;
    mem_free(sum);
}

static void experts(struct ref_model *r, int layer, double *y, const double *x)
{
    const struct model_config *c = &r->f.config;
    double **w = r->layer[layer];
    double *p = new_f64(c->n_experts), *by = new_f64(c->n_experts), *d = new_f64(c->dim);
    const double *choice = w[FORMAT_ROUTER_CHOICE - FORMAT_ATTN_NORM];
    double all = 0, chosen = 0, shared = 1;
    bool taken[MODEL_MAX_EXPERTS] = {0};
    int order[MODEL_MAX_EXPERTS];

    matvec(p, w[FORMAT_ROUTER - FORMAT_ATTN_NORM], x, c->n_experts, c->dim,
           w[FORMAT_ROUTER_BIAS - FORMAT_ATTN_NORM]);
    memcpy(by, p,
           (size_t)c->n_experts * sizeof(*by)); /* products have the order of scores */
    for (int e = 0; e < c->n_experts; e++)
        all += exp(p[e]);
    for (int e = 0; e < c->n_experts; e++)
        p[e] = c->router_sigmoid ? 1 / (1 + exp(-p[e])) : exp(p[e]) / all;
    for (int e = 0; (choice || c->n_groups > 0) && e < c->n_experts; e++)
        by[e] = p[e] + (choice ? choice[e] : 0);
    if (c->n_groups > 0)
        leave_groups(c, choice, by, &r->margin);
    take_best(by, c->n_experts, c->n_active, taken, order, &r->margin);
    for (int e = 0; e < c->n_experts; e++)
        chosen += taken[e] ? p[e] : 0;
    memset(y, 0, (size_t)c->dim * sizeof(*y));
    for (int i = 0; i < c->n_active; i++) {
        double weight = p[order[i]] / (c->norm_topk ? chosen : 1) *
                        (c->expert_scale != 0 ? (double)c->expert_scale : 1);

        const double *const *of =
            (const double *const *)r->expert[layer * c->n_experts + order[i]];

        mlp(c, d, x, of, of + FORMAT_EXPERT_GATE_BIAS - FORMAT_EXPERT_GATE,
            c->expert_hidden);
        for (int k = 0; k < c->dim; k++)
            y[k] += weight * d[k];
    }
    if (c->hidden > 0) {
        if (!c->shared_plain) {
            matvec(&shared, w[FORMAT_SHARED_SCALE - FORMAT_ATTN_NORM], x, 1, c->dim,
                   NULL);
            shared = 1 / (1 + exp(-shared));
        }
        mlp(c, d, x, (const double *const *)&w[FORMAT_SHARED_GATE - FORMAT_ATTN_NORM],
            NULL, c->hidden);
        for (int k = 0; k < c->dim; k++)
            y[k] += d[k] * shared;
    }
    mem_free(p), mem_free(by), mem_free(d);
}

/* What goes into a part of a layer; w NULL: as it is. */
static void norm(const struct model_config *c, double *y, const double *x,
                 const double *w, const double *b)
{
    double mean = 0, square = 0;

    for (int i = 0; i < c->dim && c->layer_norm; i++)
        mean += x[i] / c->dim;
    for (int i = 0; i < c->dim; i++)
        square += (x[i] - mean) * (x[i] - mean) / c->dim;
    for (int i = 0; i < c->dim; i++)
        y[i] =
            w ? (x[i] - mean) / sqrt(square + (double)c->norm_eps) * w[i] + (b ? b[i] : 0)
              : x[i];
}

/* x += d, what a part of a layer gave. */
static void add(const struct model_config *c, double *x, double *d, const double *after)
{
    if (after)
        norm(c, d, d, after, NULL);
    for (int i = 0; i < c->dim; i++)
        x[i] += d[i] * (c->residual_scale != 0 ? (double)c->residual_scale : 1);
}

/* Latent attention as its paper defines it: a key and a value of each head are made of every
 * token's latent vector. keys [pos]: that vector, normalised, and behind it what is rotated.
 * out [n_heads * value_dim]. */
static void attend_latent(const struct ref_model *r, double *out, const double *n,
                          double *keys, int layer, int pos)
{
    const struct model_config *c = &r->f.config;
    double **w = r->layer[layer];
    int qd = c->nope_dim + c->rope_dims, ld = c->latent_dim + c->rope_dims;
    double *q = new_f64(c->n_heads * qd), *p = new_f64(pos + 1), *key = keys + pos * ld;
    const double *k_b = w[FORMAT_K_B - FORMAT_ATTN_NORM];
    const double *v_b = w[FORMAT_V_B - FORMAT_ATTN_NORM];

    if (c->q_rank > 0) {
        double *low = new_f64(c->q_rank);

        matvec(low, w[FORMAT_Q_A - FORMAT_ATTN_NORM], n, c->q_rank, c->dim, NULL);
        rmsnorm(low, low, w[FORMAT_Q_A_NORM - FORMAT_ATTN_NORM], c->q_rank,
                (double)c->norm_eps);
        matvec(q, w[FORMAT_Q_B - FORMAT_ATTN_NORM], low, c->n_heads * qd, c->q_rank,
               NULL);
        mem_free(low);
    } else {
        matvec(q, w[FORMAT_Q - FORMAT_ATTN_NORM], n, c->n_heads * qd, c->dim, NULL);
    }
    matvec(key, w[FORMAT_KV_A - FORMAT_ATTN_NORM], n, ld, c->dim, NULL);
    rmsnorm(key, key, w[FORMAT_KV_A_NORM - FORMAT_ATTN_NORM], c->latent_dim,
            (double)c->norm_eps);
    rotate(r, key + c->latent_dim, 1, layer, pos);
    for (int h = 0; h < c->n_heads; h++) {
        double max = -INFINITY, sum = 0;

        rotate(r, q + h * qd + c->nope_dim, 1, layer, pos);
        for (int t = 0; t <= pos; t++) {
            p[t] = 0;
            for (int i = 0; i < c->nope_dim; i++) {
                double k = 0;

                for (int j = 0; j < c->latent_dim; j++)
                    k += k_b[((int64_t)h * c->latent_dim + j) * c->nope_dim + i] *
                         keys[t * ld + j];
                p[t] += q[h * qd + i] * k;
            }
            for (int i = 0; i < c->rope_dims; i++)
                p[t] += q[h * qd + c->nope_dim + i] * keys[t * ld + c->latent_dim + i];
            p[t] *= (double)c->attn_scale;
            max = fmax(max, p[t]);
        }
        for (int t = 0; t <= pos; t++)
            sum += p[t] = exp(p[t] - max);
        for (int i = 0; i < c->value_dim; i++) {
            double *o = &out[h * c->value_dim + i];

            *o = 0;
            for (int t = 0; t <= pos; t++)
                for (int j = 0; j < c->latent_dim; j++)
                    *o += p[t] / sum *
                          v_b[((int64_t)h * c->value_dim + i) * c->latent_dim + j] *
                          keys[t * ld + j];
        }
    }
    mem_free(q), mem_free(p);
}

/* Of keys and values by heads; out [n_heads * head_dim]. */
static void attend_heads(const struct ref_model *r, double *a, const double *n,
                         double *keys, double *values, int layer, int pos)
{
    const struct model_config *c = &r->f.config;
    double **w = r->layer[layer];
    int64_t nq = (int64_t)c->n_heads * c->head_dim,
            nkv = (int64_t)c->n_kv_heads * c->head_dim;
    double *q = new_f64(nq);
#define W(role) w[(role)-FORMAT_ATTN_NORM]

    matvec(q, W(FORMAT_Q), n, nq, c->dim, W(FORMAT_Q_BIAS));
    matvec(keys + pos * nkv, W(FORMAT_K), n, nkv, c->dim, W(FORMAT_K_BIAS));
    matvec(values + pos * nkv, W(FORMAT_V), n, nkv, c->dim, W(FORMAT_V_BIAS));
    if (c->qk_norm_row) {
        rmsnorm(q, q, W(FORMAT_Q_NORM), nq, (double)c->norm_eps);
        rmsnorm(keys + pos * nkv, keys + pos * nkv, W(FORMAT_K_NORM), nkv,
                (double)c->norm_eps);
    } else if (c->qk_norm) {
        for (int h = 0; h < c->n_heads; h++)
            rmsnorm(q + h * c->head_dim, q + h * c->head_dim, W(FORMAT_Q_NORM),
                    c->head_dim, (double)c->norm_eps);
        for (int h = 0; h < c->n_kv_heads; h++)
            rmsnorm(keys + pos * nkv + h * c->head_dim,
                    keys + pos * nkv + h * c->head_dim, W(FORMAT_K_NORM), c->head_dim,
                    (double)c->norm_eps);
    }
    if (!(c->layer_flags[layer] & MODEL_LAYER_NO_ROPE)) {
        rotate(r, q, c->n_heads, layer, pos);
        rotate(r, keys + pos * nkv, c->n_kv_heads, layer, pos);
    }
    attend(r, a, q, keys, values, layer, pos);
#undef W
    mem_free(q);
}

static void layer_forward(struct ref_model *r, int layer, double *x, double *keys,
                          double *values, int pos)
{
    const struct model_config *c = &r->f.config;
    double **w = r->layer[layer];
    int64_t no = (int64_t)c->n_heads * (c->latent_dim > 0 ? c->value_dim : c->head_dim);
    double *n = new_f64(c->dim), *a = new_f64(no), *d = new_f64(c->dim);
#define W(role) w[(role)-FORMAT_ATTN_NORM]

    norm(c, n, x, W(FORMAT_ATTN_NORM), W(FORMAT_ATTN_NORM_BIAS));
    if (c->latent_dim > 0)
        attend_latent(r, a, n, keys, layer, pos);
    else
        attend_heads(r, a, n, keys, values, layer, pos);
    matvec(d, W(FORMAT_O), a, c->dim, no, W(FORMAT_O_BIAS));
    if (!c->parallel) { /* else n stays, and what attention gave is added below */
        add(c, x, d, W(FORMAT_ATTN_AFTER));
        norm(c, n, x, W(FORMAT_FFN_NORM), W(FORMAT_FFN_NORM_BIAS));
    } else {
        add(c, x, d, NULL);
    }
    if (c->n_experts > 0 && layer >= c->n_dense) {
        experts(r, layer, d, n);
    } else if (c->no_gate) {
        plain_mlp(c, d, n, w);
    } else {
        const double *const mlp_w[] = {W(FORMAT_GATE), W(FORMAT_UP), W(FORMAT_DOWN)};

        mlp(c, d, n, mlp_w, NULL, c->n_experts > 0 ? c->dense_hidden : c->hidden);
    }
    add(c, x, d, W(FORMAT_FFN_AFTER));
#undef W
    mem_free(n), mem_free(a), mem_free(d);
}

void ref_model_forward(struct ref_model *r, const int32_t *ids, int n, double *logits)
{
    const struct model_config *c = &r->f.config;
    int64_t nkv = (int64_t)c->n_kv_heads * c->head_dim;
    const double *head = r->global[c->tied ? FORMAT_EMBED : FORMAT_HEAD];
    double *x = new_f64(c->dim), *keys = new_f64(c->n_layers * n * nkv);
    double *values = new_f64(c->n_layers * n * nkv);

    for (int pos = 0; pos < n; pos++) {
        memcpy(x, r->global[FORMAT_EMBED] + (int64_t)ids[pos] * c->dim,
               (size_t)c->dim * sizeof(double));
        for (int i = 0; c->embed_scale != 0 && i < c->dim; i++)
            x[i] *= (double)c->embed_scale;
        for (int l = 0; l < c->n_layers; l++)
            layer_forward(r, l, x, keys + l * n * nkv, values + l * n * nkv, pos);
        norm(c, x, x, r->global[FORMAT_OUT_NORM], r->global[FORMAT_OUT_NORM_BIAS]);
        matvec(logits + (int64_t)pos * c->vocab, head, x, c->vocab, c->dim, NULL);
        for (int i = 0; c->logit_scale != 0 && i < c->vocab; i++)
            logits[(int64_t)pos * c->vocab + i] *= (double)c->logit_scale;
        for (int i = 0; c->logit_softcap != 0 && i < c->vocab; i++) {
            double *x1 = &logits[(int64_t)pos * c->vocab + i];
            double most = (double)c->logit_softcap;

            *x1 = most * tanh(*x1 / most);
        }
    }
    mem_free(x), mem_free(keys), mem_free(values);
}
