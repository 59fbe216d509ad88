#include "experiments/study/support/unfused.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "kernels/gemm.h"

/* Vectors that every target has without further flags. */
typedef float v4 __attribute__((vector_size(16)));
typedef int32_t v4i __attribute__((vector_size(16)));
#define LANES 4

struct study_unfused {
    const struct kern_variant *gemm; /* f32 */
    int64_t rows_max, max_tok, hd;
    int n_heads, n_kv_heads;
    int64_t hd_pad; /* floats of a row of a product with values: whole panels */
    /* [n_kv_heads, max_tok, hd] */
    float *keys, *values;
    char *packed_keys,
        *packed_values; /* panels, key_bytes and value_bytes for each KV head */
    size_t key_bytes, value_bytes;
    float *q;                  /* [n_heads, rows, hd] */
    float *scores;             /* [n_heads, rows, keys in whole panels] */
    float *mixed;              /* [n_heads, rows, hd_pad] */
    struct model_attend_by by; /* what the operator calls */
    char *scratch;             /* [threads], each scratch_bytes */
    size_t scratch_bytes;
};

/* The step of a layer, for one thread. */
struct job {
    const struct study_unfused *u;
    const struct model_attend_args *a;
    struct par_self *self;
    int64_t rows, n_keys, ld; /* ld: floats of a row of scores */
};

static int64_t pad16(int64_t n)
{
    return (n + KERN_PANEL - 1) / KERN_PANEL * KERN_PANEL;
}

/* ---- buffers ---- */

static void keys_mat(const struct study_unfused *u, int64_t n_keys, int64_t head,
                     struct kern_mat *out)
{
    kern_mat_layout(out, KERN_F32, n_keys, u->hd, 0);
    out->data = u->packed_keys + (size_t)head * u->key_bytes;
}

static void values_mat(const struct study_unfused *u, int64_t n_keys, int64_t head,
                       struct kern_mat *out)
{
    kern_mat_layout(out, KERN_F32, u->hd, n_keys, 0);
    out->data = u->packed_values + (size_t)head * u->value_bytes;
}

static size_t packed_bytes(int64_t n, int64_t k)
{
    struct kern_mat w;

    kern_mat_layout(&w, KERN_F32, n, k, 0);
    return w.bytes;
}

struct study_unfused *study_unfused_open(const struct model *m, int64_t rows_max,
                                         int64_t max_tok, int n_threads)
{
    const struct model_config *c = model_config_of(m);
    struct study_unfused *u = mem_new(MEM_OTHER, 1, sizeof(*u));
    size_t hd = (size_t)c->head_dim, heads = (size_t)c->n_heads,
           kv_heads = (size_t)c->n_kv_heads, rows = (size_t)rows_max,
           ld = (size_t)pad16(max_tok);

    u->gemm = model_kern(m)->v[KERN_GEMM_F32];
    u->rows_max = rows_max;
    u->max_tok = max_tok;
    u->hd = c->head_dim;
    u->hd_pad = pad16(c->head_dim);
    u->n_heads = c->n_heads;
    u->n_kv_heads = c->n_kv_heads;
    u->key_bytes = packed_bytes(max_tok, u->hd);
    u->value_bytes = packed_bytes(u->hd, max_tok);
    u->scratch_bytes =
        KERN_GEMM_SCRATCH_BYTES +
        (kern_a_bytes(u->gemm->a_format, rows_max, (int64_t)ld + u->hd) + 63) / 64 * 64;
    u->keys = mem_new(MEM_OTHER, kv_heads * (size_t)max_tok, hd * sizeof(float));
    u->values = mem_new(MEM_OTHER, kv_heads * (size_t)max_tok, hd * sizeof(float));
    u->packed_keys = mem_new(MEM_OTHER, kv_heads, u->key_bytes);
    u->packed_values = mem_new(MEM_OTHER, kv_heads, u->value_bytes);
    u->q = mem_new(MEM_OTHER, heads * rows, hd * sizeof(float));
    u->scores = mem_new(MEM_OTHER, heads * rows, ld * sizeof(float));
    u->mixed = mem_new(MEM_OTHER, heads * rows, (size_t)u->hd_pad * sizeof(float));
    u->scratch = mem_new(MEM_OTHER, (size_t)n_threads, u->scratch_bytes);
    return u;
}

void study_unfused_close(struct study_unfused **up)
{
    struct study_unfused *u = *up;

    if (!u)
        return;
    mem_free(u->keys);
    mem_free(u->values);
    mem_free(u->packed_keys);
    mem_free(u->packed_values);
    mem_free(u->q);
    mem_free(u->scores);
    mem_free(u->mixed);
    mem_free(u->scratch);
    mem_free(u);
    *up = NULL;
}

/* ---- the operators, each for one head ---- */

/* Past and new keys (v = 0) or values (v = 1) of KV head h become one tensor. */
static void concat(const struct job *j, int h, int v, float *out)
{
    const struct kv_slot *slot = j->a->chunk->kv;
    const size_t bytes = (size_t)j->u->hd * sizeof(float);

    for (int64_t t = 0; t < j->n_keys; t++)
        memcpy(out + t * j->u->hd, kv_token_at(slot, j->a->layer, h, v, t, bytes), bytes);
}

static void concat_keys(const struct job *j, int h)
{
    concat(j, h, 0, j->u->keys + h * j->u->max_tok * j->u->hd);
}

static void concat_values(const struct job *j, int h)
{
    concat(j, h, 1, j->u->values + h * j->u->max_tok * j->u->hd);
}

/* Keys are the columns of a product, in panels of 16. */
static void pack_keys(const struct job *j, int h)
{
    const struct study_unfused *u = j->u;
    const float *keys = u->keys + h * u->max_tok * u->hd;
    struct kern_mat w;

    keys_mat(u, j->n_keys, h, &w);
    for (int64_t p = 0; p < w.n_panels; p++) {
        const void *rows[KERN_PANEL];

        for (int64_t i = 0; i < KERN_PANEL; i++) {
            int64_t t = KERN_PANEL * p + i;

            rows[i] = t < j->n_keys ? keys + t * u->hd : NULL;
        }
        kern_mat_put_panels(&w, p, p + 1, rows, KERN_F32);
    }
}

/* Values are its rows along K already: their columns go into panels. */
static void pack_values(const struct job *j, int h)
{
    const struct study_unfused *u = j->u;
    const float *values = u->values + h * u->max_tok * u->hd;
    struct kern_mat w;

    values_mat(u, j->n_keys, h, &w);
    for (int64_t p = 0; p < w.n_panels; p++) {
        int64_t left = u->hd - KERN_PANEL * p, n = left < KERN_PANEL ? left : KERN_PANEL;
        float *to = kern_mat_at(&w, 0, p);

        for (int64_t t = 0; t < j->n_keys; t++, to += KERN_PANEL) {
            memcpy(to, values + t * u->hd + KERN_PANEL * p, (size_t)n * sizeof(float));
            memset(to + n, 0, (size_t)(KERN_PANEL - n) * sizeof(float));
        }
    }
}

static void transpose_queries(const struct job *j, int h)
{
    const struct model_attend_args *a = j->a;
    const float *from = a->q + h / a->group * a->q_unit + h % a->group * a->head_dim;
    float *to = j->u->q + h * j->u->rows_max * j->u->hd;

    for (int64_t i = 0; i < j->rows; i++)
        memcpy(to + i * j->u->hd, from + i * a->q_stride,
               (size_t)j->u->hd * sizeof(float));
}

/* c[rows, ldc] = x[rows, k] W, with activations packed on the way. */
static void matmul(const struct job *j, const struct kern_mat *w, const float *x,
                   int64_t ldx, float *c, int64_t ldc)
{
    const struct study_unfused *u = j->u;
    char *scratch = u->scratch + (size_t)j->self->id * u->scratch_bytes;
    char *packed = scratch + KERN_GEMM_SCRATCH_BYTES;
    struct kern_gemm_job g = {.v = u->gemm,
                              .w = w,
                              .a_packed = packed,
                              .m = j->rows,
                              .c = c,
                              .ldc = ldc,
                              .epilogue = KERN_STORE,
                              .scratch = scratch};
    int64_t n_blocks;

    kern_schedule_default(&g.s, g.v, w, g.m, 1);
    n_blocks = kern_a_blocks(g.m, g.s.mr);
    for (int64_t i = 0; i < n_blocks; i++) {
        int64_t r0 = kern_a_row(g.m, n_blocks, i), r1 = kern_a_row(g.m, n_blocks, i + 1);

        kern_a_pack(g.v, packed + kern_a_bytes(g.v->a_format, r0, w->k_pad), x + r0 * ldx,
                    ldx, r1 - r0, w->k, w->k_pad);
    }
    kern_gemm_part(&g, 1, 0);
    kern_gemm_run(&g);
}

static float *scores_of(const struct job *j, int h)
{
    return j->u->scores + h * j->rows * j->ld;
}

static void query_key(const struct job *j, int h)
{
    const struct study_unfused *u = j->u;
    struct kern_mat w;

    keys_mat(u, j->n_keys, h / j->a->group, &w);
    matmul(j, &w, u->q + h * u->rows_max * u->hd, u->hd, scores_of(j, h), j->ld);
}

static void scale(const struct job *j, int h)
{
    v4 *x = (v4 *)scores_of(j, h);

    for (int64_t i = 0; i < j->rows * j->ld / LANES; i++)
        x[i] *= j->a->scale;
}

/* b where `which` has ones, else a. */
static v4 choose(v4 a, v4 b, v4i which)
{
    return (v4)(((v4i)b & which) | ((v4i)a & ~which));
}

static v4 all(float x)
{
    return (v4){x, x, x, x};
}

/* Keys after the token itself, and those that fill a panel, get no weight. */
static void mask(const struct job *j, int h)
{
    v4 *x = (v4 *)scores_of(j, h);

    for (int64_t i = 0; i < j->rows; i++) {
        const int32_t last = (int32_t)(j->a->chunk->pos0 + i);
        v4i key = {0, 1, 2, 3};

        for (int64_t t = 0; t < j->ld / LANES; t++, x++, key += LANES)
            *x += choose(all(0), all(-INFINITY), key > last);
    }
}

/* e^x for x <= 0, those below -87 as if they were it, to about 2 ulp. */
static v4 exp4(v4 x)
{
    const v4 whole =
        all(0x1.8p23f); /* floats near it are whole numbers: adding it rounds */
    v4 n, f, p;

    x = choose(x, all(-87), x < -87) * 1.44269504088896340736f;
    n = x + whole - whole;
    f = x - n;
    p = f * 1.5403530393e-4f + 1.3333558146e-3f;
    p = p * f + 9.6181291076e-3f;
    p = p * f + 5.5504108665e-2f;
    p = p * f + 2.4022650696e-1f;
    p = p * f + 6.9314718056e-1f;
    p = p * f + 1.0f;
    return (v4)((v4i)p + (__builtin_convertvector(n, v4i) << 23));
}

static void softmax(const struct job *j, int h)
{
    for (int64_t i = 0; i < j->rows; i++) {
        v4 *x = (v4 *)(scores_of(j, h) + i * j->ld), most = x[0], sum = all(0);
        float top = -INFINITY, total = 0;

        for (int64_t t = 1; t < j->ld / LANES; t++)
            most = choose(most, x[t], x[t] > most);
        for (int k = 0; k < LANES; k++)
            top = most[k] > top ? most[k] : top;
        for (int64_t t = 0; t < j->ld / LANES; t++) {
            x[t] = exp4(x[t] - top);
            sum += x[t];
        }
        for (int k = 0; k < LANES; k++)
            total += sum[k];
        for (int64_t t = 0; t < j->ld / LANES; t++)
            x[t] *= 1 / total;
    }
}

static void weight_value(const struct job *j, int h)
{
    const struct study_unfused *u = j->u;
    struct kern_mat w;

    values_mat(u, j->n_keys, h / j->a->group, &w);
    matmul(j, &w, scores_of(j, h), j->ld, u->mixed + h * u->rows_max * u->hd_pad,
           u->hd_pad);
}

static void transpose_result(const struct job *j, int h)
{
    const struct model_attend_args *a = j->a;
    const float *from = j->u->mixed + h * j->u->rows_max * j->u->hd_pad;

    for (int64_t i = 0; i < j->rows; i++)
        memcpy(a->out + i * a->out_stride + h * a->head_dim, from + i * j->u->hd_pad,
               (size_t)a->head_dim * sizeof(float));
}

/* ---- the graph ---- */

static void each_head(const struct job *j, int n, void (*fn)(const struct job *j, int h))
{
    int64_t lo, hi;

    par_share(n, j->self->id, j->self->n, &lo, &hi);
    for (int64_t h = lo; h < hi; h++)
        fn(j, (int)h);
    par_barrier(j->self);
}

static void attend(void *ctx, const struct model_attend_args *a, struct par_self *self)
{
    const struct study_unfused *u = ctx;
    const int64_t n_keys = a->chunk->pos0 + a->chunk->n_tok;
    const struct job j = {.u = u,
                          .a = a,
                          .self = self,
                          .rows = a->chunk->n_tok,
                          .n_keys = n_keys,
                          .ld = pad16(n_keys)};

    assert(j.rows <= u->rows_max && n_keys <= u->max_tok);
    each_head(&j, u->n_kv_heads, concat_keys);
    each_head(&j, u->n_kv_heads, concat_values);
    each_head(&j, u->n_kv_heads, pack_keys);
    each_head(&j, u->n_kv_heads, pack_values);
    each_head(&j, u->n_heads, transpose_queries);
    each_head(&j, u->n_heads, query_key);
    each_head(&j, u->n_heads, scale);
    each_head(&j, u->n_heads, mask);
    each_head(&j, u->n_heads, softmax);
    each_head(&j, u->n_heads, weight_value);
    each_head(&j, u->n_heads, transpose_result);
}

int study_unfused_set(struct model_phase *p, struct study_unfused *u)
{
    if (!u)
        return model_phase_ops_replace(p, "attention_by", "attention", NULL);
    u->by = (struct model_attend_by){attend, u};
    TRY(model_phase_ops_replace(p, "attention_by", "attention", NULL));
    return model_phase_ops_replace(p, "attention", "attention_by", &u->by);
}
