/* Attention: every variant against float64 over the whole range, over partial ranges
 * merged by their log-sum-exp, and over empty ones; with the keys and values in blocks,
 * which give the same bits; and its error against that of activations in bf16. */
#include <float.h>

#include "kernels/kv_type.h"
#include "tests/kernels/check.h"

/* Regression: a NaN score was lost in the maximum of an attention block. */
enum slot { SLOT_Q, SLOT_K, SLOT_V, SLOT_OUT, SLOT_LSE, SLOT_SCRATCH, SLOT_TABLE };

#define KV_MAX    1300
#define ROWS_MAX  KERN_ATTN_ROWS_MAX
#define FLOAT_MAX (KV_MAX * KERN_HEAD_DIM_MAX)
#define BF16_EPS  0x1p-9 /* half a unit in the last place of a bf16 */

static float keys[FLOAT_MAX], values[FLOAT_MAX]; /* what the KV type holds */
static double want[ROWS_MAX * KERN_HEAD_DIM_MAX], want_lse[ROWS_MAX];
static double bound[ROWS_MAX * KERN_HEAD_DIM_MAX], bound_lse[ROWS_MAX];
/* The largest element before its scale, which a weight takes first. */
static double code_max;
/* 2^-9 for each factor of a product that may be rounded to bf16 (denormals to 0). */
static double rounding;

struct shape {
    int n_tok, g, head_dim;
    int64_t pos0, kv_lo, kv_hi;
    int pad; /* floats between tokens of q and of out, beyond the group */
    enum fill fill;
    double amplitude; /* of the queries: large ones make the softmax a choice */
};

static void describe(const struct shape *s)
{
    AT("n_tok=%d g=%d head_dim=%d pos0=%d keys [%d, %d) pad=%d %s x%g", s->n_tok, s->g,
       s->head_dim, (int)s->pos0, (int)s->kv_lo, (int)s->kv_hi, s->pad,
       fill_names[s->fill], s->amplitude);
}

static int row_floats(const struct shape *s)
{
    return s->g * s->head_dim + s->pad;
}

/* Floats from the first to the last of q or out. */
static size_t tok_floats(const struct shape *s)
{
    return (size_t)(s->n_tok - 1) * (size_t)row_floats(s) + (size_t)(s->g * s->head_dim);
}

static enum kern_kv_type kv_type_of(const struct kern_variant *v)
{
    return (enum kern_kv_type)(v->op - KERN_ATTN_F32);
}

static size_t vec_bytes(const struct kern_variant *v, const struct shape *s)
{
    return kern_kv_bytes(kv_type_of(v), s->head_dim);
}

/* What the vector at p stands for. */
static void read_vector(float *x, const char *p, enum kern_kv_type type, int hd)
{
    const int8_t *codes = (const int8_t *)p;

    for (int d = 0; d < hd; d++) {
        if (type == KERN_KV_F32)
            memcpy(&x[d], p + 4 * d, 4);
        if (type == KERN_KV_F16)
            x[d] = kern_f16_to(((const uint16_t *)p)[d]);
        if (type == KERN_KV_BF16)
            x[d] = kern_bf16_to(((const uint16_t *)p)[d]);
        if (type == KERN_KV_Q8)
            x[d] = (float)codes[d] * kern_q8_scale(codes, hd);
    }
}

/* Random vectors of n tokens in the KV type (f16: none huge) at the end of a guarded slot, keys
 * from there downwards, and what they stand for in `as_f32`. Returns the first token's. */
static void *make_kv(int slot, struct rng *r, enum fill f, const struct kern_variant *v,
                     const struct shape *s, float *as_f32, int64_t n)
{
    const size_t bytes = vec_bytes(v, s);
    char *p = guard_get(slot, (size_t)n * bytes);
    struct kern_table ref;

    kern_table_choose(&ref, 0, KERN_EXACT);
    fill_f32(r, f == FILL_HUGE && v->op == KERN_ATTN_F16 ? FILL_MIXED : f, as_f32,
             n * s->head_dim);
    for (int64_t t = 0; t < n; t++) {
        float *x = as_f32 + t * s->head_dim;
        char *to = p + (size_t)(slot == SLOT_K ? n - 1 - t : t) * bytes;

        kern_kv_store(&ref, kv_type_of(v), to, x, s->head_dim);
        read_vector(x, to, kv_type_of(v), s->head_dim);
    }
    return slot == SLOT_K ? p + (size_t)(n - 1) * bytes : p;
}

static struct kern_attn_args make_args(const struct kern_variant *v, struct rng *r,
                                       const struct shape *s)
{
    const int64_t n = s->pos0 + s->n_tok;
    size_t bytes = tok_floats(s) * 4;
    float *q = guard_get(SLOT_Q, bytes);

    code_max = v->op == KERN_ATTN_Q8 ? 127 : 0;
    rounding =
        v->precision == KERN_RELAXED ? BF16_EPS * (1 + (v->op == KERN_ATTN_F32)) : 0;
    fill_f32(r, FILL_NORMAL, q, (int64_t)tok_floats(s));
    for (size_t i = 0; i < tok_floats(s); i++)
        q[i] *= (float)s->amplitude;
    return (struct kern_attn_args){
        .q = q,
        .q_stride = row_floats(s),
        .k = make_kv(SLOT_K, r, FILL_NORMAL, v, s, keys, n),
        .v = make_kv(SLOT_V, r, s->fill, v, s, values, n),
        .out = guard_get(SLOT_OUT, bytes),
        .out_stride = row_floats(s),
        .lse = guard_get(SLOT_LSE, (size_t)(s->n_tok * s->g) * 4),
        .scratch = guard_get_aligned(SLOT_SCRATCH, KERN_ATTN_SCRATCH_BYTES(s->head_dim)),
        .kv_lo = s->kv_lo,
        .kv_hi = s->kv_hi,
        .pos0 = s->pos0,
        .n_tok = s->n_tok,
        .g = s->g,
        .head_dim = s->head_dim,
        .scale = (float)(1 / sqrt(s->head_dim)),
    };
}

static const float *q_row(const struct kern_attn_args *a, int row)
{
    return a->q + row / a->g * a->q_stride + row % a->g * a->head_dim;
}

static float *out_row(const struct kern_attn_args *a, int row)
{
    return a->out + row / a->g * a->out_stride + row % a->g * a->head_dim;
}

/* Row `row` in float64, and the error its scores' rounding may cause: a score is off by
 * at most e = hd eps scale sum|q||k| (and a few roundings of its own size), so a weight
 * by a factor exp(2e). What relaxed precision rounds adds to it, and to products of values. */
static void expect_row(const struct kern_attn_args *a, int row)
{
    static double score[KV_MAX];
    const int hd = a->head_dim;
    int64_t end = a->pos0 + row / a->g + 1;
    int64_t lo = a->kv_lo, hi = a->kv_hi < end ? a->kv_hi : end;
    double max = -INFINITY, sum = 0, e = 0;

    for (int64_t t = lo; t < hi; t++) {
        double mass = 0;

        score[t] = 0;
        for (int d = 0; d < hd; d++) {
            double x = (double)q_row(a, row)[d] * keys[t * hd + d] * a->scale;

            score[t] += x;
            mass += fabs(x);
        }
        e = fmax(e, ((hd + 6) * EPS + rounding) * mass);
        max = fmax(max, score[t]);
    }
    for (int64_t t = lo; t < hi; t++)
        sum += score[t] = exp(score[t] - max);
    want_lse[row] = lo < hi ? max + log(sum) : -INFINITY;
    bound_lse[row] =
        2 * e + EPS * (8 * fabs(want_lse[row]) + (double)(hi - lo) + 16) + rounding;
    for (int d = 0; d < hd; d++) {
        double o = 0, mass = 0, underflow = 1e-43;

        for (int64_t t = lo; t < hi; t++) {
            o += score[t] / sum * values[t * hd + d];
            mass += score[t] / sum * fabs(values[t * hd + d]);
            underflow += FLT_MIN * fabs(values[t * hd + d]) + code_max * 0x1p-149 +
                         (rounding > 0 ? FLT_MIN * (1 + code_max) : 0);
        }
        want[row * hd + d] = o;
        bound[row * hd + d] =
            mass * (expm1(4 * e) + EPS * (2 * (double)(hi - lo) + 32) + 3 * rounding) +
            underflow;
    }
}

static void compare(const struct kern_attn_args *a, const float *lse)
{
    const int hd = a->head_dim;

    for (int row = 0; row < a->n_tok * a->g; row++) {
        for (int d = 0; d < hd; d++) {
            int at = row * hd + d;

            CHECK(near_to(out_row(a, row)[d], want[at], bound[at]),
                  "token %d head %d [%d]: got %.9g, wanted %.9g +- %.2g", row / a->g,
                  row % a->g, d, out_row(a, row)[d], want[at], bound[at]);
        }
        if (lse)
            CHECK(near_to(lse[row], want_lse[row], bound_lse[row]),
                  "token %d head %d: lse %.9g, wanted %.9g +- %.2g", row / a->g,
                  row % a->g, lse[row], want_lse[row], bound_lse[row]);
    }
}

static void check_guards(const struct kern_attn_args *a, const struct shape *s)
{
    for (int i = 0; i + 1 < s->n_tok; i++)
        for (int d = 0; d < s->pad; d++)
            CHECK(guard_untouched(a->out + i * a->out_stride + s->g * s->head_dim + d),
                  "wrote between tokens %d and %d", i, i + 1);
    guard_check(SLOT_OUT, tok_floats(s) * 4);
    guard_check(SLOT_LSE, (size_t)(s->n_tok * s->g) * 4);
    guard_check(SLOT_SCRATCH, KERN_ATTN_SCRATCH_BYTES(s->head_dim));
}

/* The range of `s` in one call, then in pieces that are merged. */
static void whole_and_merged(const struct kern_variant *v, struct rng *r,
                             const struct shape *s)
{
    static double merged[ROWS_MAX * KERN_HEAD_DIM_MAX], weight[ROWS_MAX];
    struct kern_attn_args a = make_args(v, r, s), part = a;
    const int rows = s->n_tok * s->g;
    int64_t cut = s->kv_lo;

    describe(s);
    for (int row = 0; row < rows; row++)
        expect_row(&a, row);
    v->fn.attn(&a);
    compare(&a, a.lse);
    check_guards(&a, s);
    a.lse = NULL;
    v->fn.attn(&a);
    compare(&a, NULL);

    memset(merged, 0, sizeof(merged));
    memset(weight, 0, sizeof(weight));
    while (cut < s->kv_hi) {
        part.kv_lo = cut;
        part.kv_hi = cut = rng_range(r, cut + 1, s->kv_hi);
        v->fn.attn(&part);
        for (int row = 0; row < rows; row++) {
            double w = exp(part.lse[row] - want_lse[row]);

            weight[row] += w;
            for (int d = 0; d < s->head_dim; d++)
                merged[row * s->head_dim + d] += w * out_row(&part, row)[d];
        }
    }
    for (int row = 0; row < rows; row++) {
        for (int d = 0; d < s->head_dim && isfinite(want_lse[row]); d++) {
            double got = merged[row * s->head_dim + d] / weight[row];

            CHECK(near_to(got, want[row * s->head_dim + d],
                          2 * bound[row * s->head_dim + d]),
                  "merged: row %d [%d]: got %.9g, wanted %.9g", row, d, got,
                  want[row * s->head_dim + d]);
        }
    }
}

/* Nothing visible: out is 0, lse -infinity. */
static void empty_range(const struct kern_variant *v, struct rng *r,
                        const struct shape *s)
{
    struct kern_attn_args a = make_args(v, r, s);

    describe(s);
    v->fn.attn(&a);
    for (int row = 0; row < s->n_tok * s->g; row++) {
        for (int d = 0; d < s->head_dim; d++)
            CHECK(out_row(&a, row)[d] == 0, "row %d [%d]: got %g", row, d,
                  out_row(&a, row)[d]);
        CHECK(a.lse[row] == -INFINITY, "row %d: lse %g", row, a.lse[row]);
    }
    check_guards(&a, s);
}

/* A NaN in one query is that row's answer, and no other row's. */
static void nan_query(const struct kern_variant *v, struct rng *r, int n_tok)
{
    struct shape s = {
        .n_tok = n_tok, .g = 4, .head_dim = 64, .pos0 = 70, .amplitude = 1, .pad = 7};
    struct kern_attn_args a;
    int bad = n_tok; /* any row in the middle */

    s.kv_hi = s.pos0 + n_tok;
    describe(&s);
    a = make_args(v, r, &s);
    ((float *)q_row(&a, bad))[3] = NAN;
    v->fn.attn(&a);
    for (int row = 0; row < s.n_tok * s.g; row++)
        for (int d = 0; d < s.head_dim; d++)
            CHECK(isnan(out_row(&a, row)[d]) == (row == bad), "row %d [%d]: got %g", row,
                  d, out_row(&a, row)[d]);
}

static const int head_dims[19] = {2,  4,  6,  8,  10, 14,  16,  18,  24, 30,
                                  32, 48, 64, 80, 96, 100, 128, 192, 256};

/* A shape of at most KERN_ATTN_ROWS_MAX rows. */
static struct shape any_shape(struct rng *r)
{
    static const int groups[] = {1, 1, 2, 3, 4, 5, 7, 8, 16, 32};
    struct shape s = {.g = groups[rng_below(r, 10)]};

    s.head_dim = rng_below(r, 3) ? head_dims[rng_below(r, 19)] : 64 << rng_below(r, 2);
    s.n_tok = rng_below(r, 2) ? 1 : (int)rng_range(r, 1, ROWS_MAX / s.g);
    if (s.n_tok > 40 && rng_below(r, 3)) /* mostly small: float64 is slow */
        s.n_tok = 1 + s.n_tok % 40;
    s.pos0 = rng_below(r, 3) ? rng_range(r, 0, 200) : 0;
    s.kv_hi = s.pos0 + s.n_tok;
    s.pad = (int)rng_below(r, 3) * 7;
    s.fill = (enum fill)rng_below(r, FILL_N);
    s.amplitude = (const double[]){1, 1, 8, 60, 0, 1e-30}[rng_below(r, 6)];
    return s;
}

static void test_attn(const struct kern_variant *v, struct rng *r)
{
    for (int n = 0; n < check_cases(160); n++) {
        struct shape s = any_shape(r);

        if (n % 16 >= 14) { /* several tiles, of 512 keys the longest */
            s.n_tok = s.n_tok < 5 ? s.n_tok : 5;
            s.pos0 = rng_range(r, 240, KV_MAX - s.n_tok);
            s.kv_hi = s.pos0 + s.n_tok;
        }
        if (n % 4 == 1) /* a piece, which some tokens may not see at all */
            s.kv_lo = rng_range(r, 0, s.kv_hi - 1);
        if (n % 4 == 2)
            s.kv_hi = rng_range(r, 1, s.kv_hi);
        whole_and_merged(v, r, &s);
    }
    for (int i = 0; i < (int)(sizeof(head_dims) / sizeof(head_dims[0])); i++) {
        struct shape s = {.n_tok = 1, .g = 1, .head_dim = head_dims[i], .amplitude = 1};

        for (s.pos0 = 0; s.pos0 < 4; s.pos0++) {
            s.kv_hi = s.pos0 + 1;
            whole_and_merged(v, r, &s);
        }
        s.n_tok = 3; /* tokens on both sides of a tile's end */
        for (int k = 0; k < 4; k++) {
            static const int64_t tiles[] = {32, 64, 256, 512};

            s.g = tiles[k] <= 64 ? 5 : 1;
            s.pos0 = tiles[k] - 2;
            s.kv_hi = tiles[k] + 1;
            whole_and_merged(v, r, &s);
        }
    }
    for (int n = 0; n < 20; n++) {
        struct shape s = any_shape(r);

        s.kv_lo = s.kv_hi = n % 2 ? 0 : s.kv_hi;
        empty_range(v, r, &s);
    }
    struct shape full = {
        .n_tok = 32, .g = 4, .head_dim = 64, .pos0 = 300, .kv_hi = 332, .amplitude = 1};
    whole_and_merged(v, r, &full);
    for (int n_tok = 1; n_tok < 20; n_tok *= 2)
        nan_query(v, r, n_tok);
}

static double as_bf16(double x, bool round)
{
    return round ? kern_bf16_to(kern_bf16_of((float)x)) : x;
}

/* Row `row` with its scaled query and its weights rounded to bf16, and with `kv` keys and values,
 * too; all else in float64. */
static void round_row(const struct kern_attn_args *a, int row, bool kv, double *out)
{
    static double weight[KV_MAX];
    const int hd = a->head_dim;
    const float scale = a->scale * 1.44269504088896340736f;
    const int64_t hi = a->pos0 + row / a->g + 1;
    double max = -INFINITY, sum = 0;

    for (int64_t t = 0; t < hi; t++) {
        weight[t] = 0;
        for (int d = 0; d < hd; d++)
            weight[t] +=
                as_bf16(scale * q_row(a, row)[d], true) * as_bf16(keys[t * hd + d], kv);
        max = fmax(max, weight[t]);
    }
    memset(out, 0, (size_t)hd * sizeof(*out));
    for (int64_t t = 0; t < hi; t++)
        sum += weight[t] = exp2(weight[t] - max);
    for (int64_t t = 0; t < hi; t++)
        for (int d = 0; d < hd; d++)
            out[d] += as_bf16(weight[t] / sum, true) * as_bf16(values[t * hd + d], kv);
}

/* Add the squared errors of `s` to sum[0], those of such rounding to sum[1]. */
static void add_errors(const struct kern_variant *v, struct rng *r, const struct shape *s,
                       double sum[2])
{
    struct kern_attn_args a = make_args(v, r, s);
    double rounded[KERN_HEAD_DIM_MAX];

    describe(s);
    v->fn.attn(&a);
    for (int row = 0; row < s->n_tok * s->g; row++) {
        const double *w = want + row * s->head_dim;

        expect_row(&a, row);
        round_row(&a, row, v->op == KERN_ATTN_F32, rounded);
        for (int d = 0; d < s->head_dim; d++) {
            sum[0] += pow(out_row(&a, row)[d] - w[d], 2);
            sum[1] += pow(rounded[d] - w[d], 2);
        }
    }
}

/* Be it precise or not, no variant errs more than such rounding does. */
static void test_error(const struct kern_variant *v, struct rng *r)
{
    for (int amplitude = 1; amplitude <= 8; amplitude *= 8) {
        double sum[2] = {0};

        for (int n = 0; n < check_cases(8); n++) {
            struct shape s = {.n_tok = 16 + n, .g = 1 + n % 3, .amplitude = amplitude};

            s.head_dim = 48 + 16 * (n % 6);
            s.pos0 = rng_range(r, 100, 600);
            s.kv_hi = s.pos0 + s.n_tok;
            add_errors(v, r, &s, sum);
        }
        CHECK(sum[0] <= 1.05 * 1.05 * sum[1],
              "%.3g times the error of bf16, queries x %d", sqrt(sum[0] / sum[1]),
              amplitude);
    }
}

/* A batch-invariant variant's row has the same bits alone as among others. */
static void test_batch_invariant(const struct kern_variant *v, struct rng *r)
{
    for (int n = 0; v->batch_invariant && n < check_cases(60); n++) {
        struct shape s = any_shape(r);
        struct kern_attn_args all = make_args(v, r, &s), one;
        float out[KERN_HEAD_DIM_MAX];
        int row = (int)rng_below(r, (uint64_t)(s.n_tok * s.g));

        describe(&s);
        v->fn.attn(&all);
        one = all;
        one.q = q_row(&all, row);
        one.out = out;
        one.lse = NULL;
        one.n_tok = one.g = 1;
        one.pos0 = all.pos0 + row / all.g;
        one.kv_hi = one.pos0 + 1 < all.kv_hi ? one.pos0 + 1 : all.kv_hi;
        v->fn.attn(&one);
        CHECK(memcmp(out, out_row(&all, row), (size_t)s.head_dim * sizeof(*out)) == 0,
              "row %d has other bits alone", row);
    }
}

/* ---- keys and values in blocks ---- */

/* Blocks of which each holds keys and values that end at a page that cannot be touched, as
 * can none of the blocks that no table names. */
struct arena {
    char *p;
    size_t bytes, page, run_bytes, run_pages, block_bytes;
};

/* Where the keys (v = 0) or values of a block end. */
static char *arena_end(const struct arena *b, int64_t block, int v)
{
    return b->p + (size_t)block * b->block_bytes + (size_t)v * b->block_bytes / 2 +
           b->run_pages;
}

static void arena_open(struct arena *b, size_t run_bytes, int64_t n_blocks)
{
    b->page = (size_t)sysconf(_SC_PAGESIZE);
    b->run_bytes = run_bytes;
    b->run_pages = (run_bytes + b->page - 1) / b->page * b->page;
    b->block_bytes = 2 * (b->run_pages + b->page);
    b->bytes = (size_t)n_blocks * b->block_bytes;
    b->p = mmap(NULL, b->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b->p == MAP_FAILED)
        abort();
}

/* Copy tokens [lo, hi) of a's keys and values to a block; NaN elsewhere. */
static void arena_fill(const struct arena *b, int64_t block,
                       const struct kern_attn_args *a, size_t tok_bytes, int64_t lo,
                       int64_t hi, int64_t block_tok)
{
    size_t first = (size_t)(lo % block_tok) * tok_bytes;
    size_t bytes = (size_t)(hi - lo) * tok_bytes;
    char *keys_end = arena_end(b, block, 0), *values_end = arena_end(b, block, 1);

    for (int v = 0; v < 2; v++) {
        char *from = arena_end(b, block, v) - b->run_pages;

        if (mprotect(from, b->run_pages, PROT_READ | PROT_WRITE) != 0)
            abort();
        memset(from, 0xff, b->run_pages);
    }
    memcpy(keys_end - first - bytes, (const char *)a->k - (size_t)(hi - 1) * tok_bytes,
           bytes);
    memcpy(values_end - b->run_bytes + first, (const char *)a->v + (size_t)lo * tok_bytes,
           bytes);
}

/* The keys and values of `a` in blocks in random order; a table that ends with what may be
 * read, and leads nowhere before kv_lo. */
static void to_blocks(struct kern_attn_args *a, struct arena *b, struct rng *r,
                      size_t tok_bytes, int64_t block_tok)
{
    int64_t n = (a->kv_hi + block_tok - 1) / block_tok, n_blocks = 2 * n + 1;
    int32_t *table = guard_get(SLOT_TABLE, (size_t)n * sizeof(*table));
    int32_t free_blocks[2 * KV_MAX / KERN_ATTN_BLOCK_TOK_MIN + 3];

    arena_open(b, (size_t)block_tok * tok_bytes, n_blocks);
    for (int32_t i = 0; i < n_blocks; i++)
        free_blocks[i] = i;
    for (int64_t i = 0; i < n; i++) {
        int64_t k = rng_range(r, i, n_blocks - 1);
        int64_t lo = i * block_tok > a->kv_lo ? i * block_tok : a->kv_lo;
        int64_t hi = (i + 1) * block_tok < a->kv_hi ? (i + 1) * block_tok : a->kv_hi;

        table[i] = free_blocks[k];
        free_blocks[k] = free_blocks[i];
        if (lo < hi)
            arena_fill(b, table[i], a, tok_bytes, lo, hi, block_tok);
    }
    a->k = arena_end(b, 0, 0) - tok_bytes;
    a->v = arena_end(b, 0, 1) - b->run_bytes;
    a->blocks = table;
    a->block_tok = block_tok;
    a->block_bytes = b->block_bytes;
}

/* The same bits, and what float64 gives. */
static void same_in_blocks(const struct kern_variant *v, struct rng *r,
                           const struct shape *s, int64_t block_tok)
{
    static float out[ROWS_MAX * (KERN_HEAD_DIM_MAX + 14)], lse[ROWS_MAX];
    const size_t bytes = tok_floats(s) * 4, rows = (size_t)(s->n_tok * s->g);
    struct kern_attn_args a = make_args(v, r, s);
    struct arena b;
    int words;

    describe(s);
    words = (int)strlen(check_where);
    snprintf(check_where + words, sizeof(check_where) - (size_t)words, " in blocks of %d",
             (int)block_tok);
    for (int row = 0; row < (int)rows; row++)
        expect_row(&a, row);
    v->fn.attn(&a);
    memcpy(out, a.out, bytes);
    memcpy(lse, a.lse, rows * sizeof(*lse));
    a.out = guard_get(SLOT_OUT, bytes);
    a.lse = guard_get(SLOT_LSE, rows * sizeof(*lse));
    a.scratch = guard_get_aligned(SLOT_SCRATCH, KERN_ATTN_SCRATCH_BYTES(s->head_dim));
    to_blocks(&a, &b, r, vec_bytes(v, s), block_tok);
    v->fn.attn(&a);
    munmap(b.p, b.bytes);
    compare(&a, a.lse);
    check_guards(&a, s);
    CHECK(memcmp(out, a.out, bytes) == 0, "other bits than from contiguous keys");
    CHECK(memcmp(lse, a.lse, rows * sizeof(*lse)) == 0,
          "another lse than from contiguous keys");
}

static void test_blocks(const struct kern_variant *v, struct rng *r)
{
    for (int n = 0; n < check_cases(240); n++) {
        int64_t block_tok = KERN_ATTN_BLOCK_TOK_MIN << rng_below(r, 6);
        struct shape s = any_shape(r);

        if (n % 8 == 7) { /* several blocks of any size */
            s.n_tok = s.n_tok < 9 ? s.n_tok : 9;
            s.pos0 = rng_range(r, 600, KV_MAX - s.n_tok);
            s.kv_hi = s.pos0 + s.n_tok;
        }
        if (n % 4 >= 2) /* a range that cuts blocks and the tiles of a kernel */
            s.kv_lo = rng_range(r, 0, s.kv_hi);
        if (n % 4 == 3)
            s.kv_hi = rng_range(r, s.kv_lo, s.kv_hi);
        same_in_blocks(v, r, &s, block_tok);
    }
}

int main(void)
{
    check_init();
    for (enum kern_op op = KERN_ATTN_F32; kern_op_is_attn(op); op++) {
        check_variants(op, test_blocks);
        check_variants(op, test_batch_invariant);
        check_variants(op, test_attn);
        check_variants(op, test_error);
    }
    return check_done();
}
