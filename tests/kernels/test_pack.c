/* Packed matrices and activations: every element where kern.h and pack.h say it is,
 * padding zero, sources unaligned, nothing read or written outside. */
#include "kernels/pack.h"
#include "tests/kernels/gemm_check.h"

enum slot { SLOT_SRC, SLOT_MAT, SLOT_ROW, SLOT_OUT };

#define N_MAX 80
#define K_MAX 768

static float source[N_MAX * K_MAX]; /* the value of each element, exactly */
static float terms[N_MAX * K_MAX];

/* n rows of k elements of `type` that end at the faulting page. */
static const char *make_source(struct rng *r, enum kern_type type, int64_t n, int64_t k)
{
    const size_t esz = kern_type_bytes(type);
    char *p = guard_get(SLOT_SRC, kern_type_size(type, n * k));

    if (kern_type_quantised(type)) {
        blocks_random(r, FILL_MIXED, type, p, n, k);
        blocks_values(type, p, n * k, source, terms);
        return p;
    }
    for (int64_t i = 0; i < n * k; i++) {
        uint32_t u = (uint32_t)rng_u64(r);
        uint16_t h = (uint16_t)u;

        if (type == KERN_F16 && (h & 0x7c00) == 0x7c00)
            h ^= 0x4000; /* NaN payloads may change on the way through f32 */
        if (type == KERN_BF16 && (h & 0x7f80) == 0x7f80)
            h ^= 0x4000;
        if ((u & 0x7f800000) == 0x7f800000)
            u ^= 0x40000000;
        source[i] = type == KERN_F32    ? float_from(u)
                    : type == KERN_BF16 ? kern_bf16_to(h)
                                        : kern_f16_to(h);
        memcpy(p + (size_t)i * esz, type == KERN_F32 ? (void *)&u : (void *)&h, esz);
    }
    return p;
}

/* Element (k, column n) read by the formulas of kern.h, independently of pack.c. */
static float element(const struct kern_mat *m, int64_t n, int64_t k)
{
    const char *panel = kern_mat_at(m, k / m->k_unit, n / 16);
    int64_t row = k % m->k_unit, c = n % 16;

    if (kern_type_quantised(m->type)) {
        const struct kern_form *f = kern_form(m->type);
        const int64_t rows = f->subs > 0 ? f->subs * KERN_SUB : m->k_unit;
        const uint8_t *b =
            (const uint8_t *)panel + row / rows * (f->head + f->subs * f->sub);

        return kern_form_weight(f, b, b + f->head + row % rows / KERN_SUB * f->sub,
                                (int)(row % KERN_SUB), (int)c);
    }
    if (m->type == KERN_F32)
        return ((const float *)panel)[row * 16 + c];
    if (m->type == KERN_F16)
        return kern_f16_to(((const uint16_t *)panel)[row * 16 + c]);
    return kern_bf16_to(((const uint16_t *)panel)[row / 2 * 32 + c * 2 + row % 2]);
}

static void check_elements(const struct kern_mat *m, const char *how)
{
    for (int64_t n = 0; n < m->n_panels * 16; n++) {
        for (int64_t k = 0; k < m->k_pad; k++) {
            float want = n < m->n && k < m->k ? source[n * m->k + k] : 0;

            CHECK(float_bits(element(m, n, k)) == float_bits(want),
                  "%s: row %d, k %d: got %a, wanted %a", how, (int)n, (int)k,
                  element(m, n, k), want);
        }
    }
}

static void check_get_row(const struct kern_mat *m)
{
    for (int64_t n = 0; n < m->n; n++) {
        float *row = guard_get(SLOT_ROW, (size_t)m->k * 4);

        kern_mat_get_row(m, n, row);
        for (int64_t k = 0; k < m->k; k++)
            CHECK(float_bits(row[k]) == float_bits(source[n * m->k + k]),
                  "get_row %d [%d]: got %a, wanted %a", (int)n, (int)k, row[k],
                  source[n * m->k + k]);
        guard_check(SLOT_ROW, (size_t)m->k * 4);
    }
}

/* What put_panels wrote of a quantised matrix: at most a byte and a half for each weight. */
static char panels[3 * (N_MAX + 16) * K_MAX];

static void matrix_once(struct rng *r, enum kern_type type, enum kern_type src_type,
                        int64_t n, int64_t k, int64_t k_unit)
{
    const void *rows[N_MAX + 16] = {0};
    const char *src = make_source(r, src_type, n, k);
    struct kern_mat m;
    int64_t cut;

    AT("%s from %s, n=%d k=%d k_unit=%d", kern_type_name(type), kern_type_name(src_type),
       (int)n, (int)k, (int)k_unit);
    for (int64_t i = 0; i < n; i++)
        rows[i] = src + kern_type_size(src_type, i * k);
    kern_mat_layout(&m, type, n, k, k_unit);
    m.data = guard_get_aligned(SLOT_MAT, m.bytes);
    cut = rng_range(r, 0, m.n_panels); /* as two threads would */
    kern_mat_put_panels(&m, cut, m.n_panels, rows + cut * 16, src_type);
    kern_mat_put_panels(&m, 0, cut, rows, src_type);
    check_elements(&m, "put_panels");
    guard_check(SLOT_MAT, m.bytes);
    check_get_row(&m);
    memcpy(panels, m.data, kern_type_quantised(type) ? m.bytes : 0);

    m.data = guard_get_aligned(SLOT_MAT, m.bytes);
    for (int64_t i = 0; i < m.n_panels * 16; i++)
        kern_mat_put_row(&m, i, rows[i], src_type);
    check_elements(&m, "put_row");
    guard_check(SLOT_MAT, m.bytes);
    /* MXFP4 has two numbers for 0, of which put_row keeps one. */
    for (int64_t i = 0; i < m.n_panels && kern_type_quantised(type) && type != KERN_MXFP4;
         i++)
        for (int64_t u = 0; u < m.n_units; u++) {
            int64_t left = m.k_pad - u * m.k_unit;
            const char *row = kern_mat_at(&m, u, i);

            CHECK(memcmp(panels + (row - (char *)m.data), row,
                         kern_panel_size(type, left < m.k_unit ? left : m.k_unit)) == 0,
                  "unit %d, panel %d: put_panels and put_row differ", (int)u, (int)i);
        }
}

static void test_matrices(const struct kern_variant *v, struct rng *r)
{
    (void)v;
    for (int i = 0; i < 250; i++) {
        enum kern_type type = (enum kern_type)rng_below(r, KERN_N_TYPES);
        enum kern_type from =
            type == KERN_F32 ? (enum kern_type)rng_below(r, KERN_N_TYPES) : type;
        int64_t n = rng_range(r, 1, N_MAX), k = check_k(from, rng_range(r, 1, 300));

        matrix_once(r, type, from, n, k, rng_below(r, 2) ? 2 * rng_range(r, 1, 80) : 0);
    }
}

/* A panel's pieces in successive units begin at different cache sets: as many as fit into
 * one way of a second-level cache of 1 MiB and 16 ways. */
static void check_spread(const struct kern_mat *m)
{
    const size_t way = 65536;

    for (int64_t i = 1; i < m->n_units && (size_t)i * m->panel_bytes < way; i++)
        for (int64_t j = 0; j < i; j++)
            CHECK((size_t)(i - j) * m->unit_bytes % way != 0,
                  "units %d and %d share their cache sets", (int)j, (int)i);
}

/* The bytes of n weights in panels: of types with sub-blocks by their form, which has at most a
 * fifth more than a file. */
static double panel_bytes(enum kern_type t, int64_t n)
{
    const struct kern_form *f = kern_form(t);
    const double file = (double)kern_type_size(t, n);
    double bytes = file;

    if (kern_type_quantised(t) && f->subs > 0)
        bytes =
            (double)n / (KERN_SUB * f->subs * KERN_PANEL) * (f->head + f->subs * f->sub);
    CHECK(bytes <= 1.2 * file, "%g bytes of %g", bytes, file);
    return bytes;
}

/* Sizes and strides: units do not overlap, panels are aligned, and real shapes cost at
 * most 5 % more than their elements. */
static void test_layout(const struct kern_variant *v, struct rng *r)
{
    static const int64_t real[][3] = {
        {2048, 5504, 32},   {2048, 2048, 128}, {768, 3072, 32},  {768, 768, 64},
        {4096, 14336, 128}, {4096, 4096, 512}, {3072, 8192, 64}, {3584, 18944, 128},
        {1536, 8960, 0},    {32000, 2048, 0},  {64, 172, 0},     {2048, 8192, 64}};

    (void)v;
    (void)r;
    for (int i = 0; i < (int)(sizeof(real) / sizeof(real[0])); i++) {
        for (int t = 0; t < KERN_N_TYPES; t++) {
            int64_t n = real[i][0], k = real[i][1];
            struct kern_mat m;
            double exact;

            if (k % kern_type_block((enum kern_type)t) != 0)
                continue;
            exact = panel_bytes((enum kern_type)t, n * k);
            AT("%s n=%d k=%d k_unit=%d", kern_type_name((enum kern_type)t), (int)n,
               (int)k, (int)real[i][2]);
            kern_mat_layout(&m, (enum kern_type)t, n, k, real[i][2]);
            CHECK(m.n_units * m.k_unit >= m.k_pad, "%d units", (int)m.n_units);
            CHECK(m.n_units == 1 || m.unit_bytes >= (size_t)m.n_panels * m.panel_bytes,
                  "units overlap");
            CHECK((m.panel_bytes % 64 == 0 || kern_type_quantised(m.type)) &&
                      m.unit_bytes % 64 == 0 && m.bytes % 64 == 0,
                  "alignment");
            CHECK((double)m.bytes <= 1.05 * exact, "%.4f times its elements",
                  (double)m.bytes / exact);
            check_spread(&m);
        }
    }
}

/* ---- activations ---- */

static void activation_once(struct rng *r, const struct kern_variant *v, int64_t mr,
                            int64_t k, int64_t pad, int64_t ldx)
{
    const bool f32 = v->a_format == KERN_A_F32, tile = v->a_format == KERN_A_BF16_ROWS;
    const int64_t k_pad = k + pad;
    const size_t x_floats = (size_t)((mr - 1) * ldx + k);
    const size_t bytes = kern_a_bytes(v->a_format, mr, k_pad);
    float *x = guard_get(SLOT_SRC, x_floats * 4);
    const char *out = guard_get(SLOT_OUT, bytes);

    AT("%s mr=%d k=%d k_pad=%d ldx=%d", v->name, (int)mr, (int)k, (int)k_pad, (int)ldx);
    for (size_t i = 0; i < x_floats; i++) {
        uint32_t u = (uint32_t)rng_u64(r);

        x[i] = float_from(i % 3 == 0 ? (u & 0xffff0000) | 0x8000 : u); /* a tie of bf16 */
        if (i % 61 == 60)
            x[i] = NAN;
    }
    kern_a_pack(v, (void *)(uintptr_t)out, x, ldx, mr, k, k_pad);
    for (int64_t i = 0; i < mr; i++) {
        for (int64_t j = 0; j < (tile ? (k_pad + 31) / 32 * 32 : k_pad); j++) {
            float want = j < k ? x[i * ldx + j] : 0, f;
            uint16_t h;

            memcpy(&f, out + 4 * (j * mr + i) * f32, 4);
            memcpy(&h,
                   out + (tile ? (j / 32 * mr + i) * 64 + 2 * (j % 32)
                               : 4 * (j / 2 * mr + i) * !f32 + 2 * (j % 2)),
                   2);
            CHECK(f32 ? float_bits(f) == float_bits(want) : h == kern_bf16_of(want),
                  "row %d, k %d: got %a or 0x%04x from %a", (int)i, (int)j, f, h, want);
        }
    }
    guard_check(SLOT_OUT, bytes);
}

/* Rows of every size, scaled so that no half overflows, and only by powers of two. */
static void halves_once(struct rng *r, const struct kern_variant *v, int64_t mr,
                        int64_t k, int64_t pad)
{
    const size_t bytes = kern_a_bytes(v->a_format, mr, k + pad);
    float *x = guard_get(SLOT_SRC, (size_t)(mr * k) * 4), factor;
    const char *out = guard_get(SLOT_OUT, bytes);

    AT("%s mr=%d k=%d pad=%d", v->name, (int)mr, (int)k, (int)pad);
    for (int64_t i = 0; i < mr; i++)
        fill_f32(r, (enum fill)rng_below(r, FILL_N), x + i * k, k);
    kern_a_pack(v, (void *)(uintptr_t)out, x, k, mr, k, k + pad);
    for (int64_t i = 0; i < mr; i++) {
        float most = 0;
        int e;

        memcpy(&factor, out + 4 * ((k + pad) * mr + i), 4);
        CHECK(frexpf(factor, &e) == 0.5f, "factor %a", factor);
        for (int64_t j = 0; j < k; j++)
            most = fmaxf(most, fabsf(x[i * k + j]));
        for (int64_t j = 0; j < k + pad; j++) {
            float want = j < k ? x[i * k + j] : 0, got;
            uint16_t h[2];

            memcpy(h, out + 4 * (j * mr + i), 4);
            got = kern_f16_to(h[0]);
            CHECK(h[0] == h[1] && fabsf(got) <= 256, "k %d: 0x%04x 0x%04x", (int)j, h[0],
                  h[1]);
            CHECK(fabs((double)got * factor - want) <=
                      fabs(want) * 0x1p-11 + most * 0x1p-32 + 0x1p-149,
                  "k %d: %a x %a from %a", (int)j, got, factor, want);
        }
    }
    guard_check(SLOT_OUT, bytes);
}

static float largest(const float *x, int64_t n)
{
    float most = 0;

    for (int64_t i = 0; i < n; i++)
        most = fmaxf(most, fabsf(x[i]));
    return most;
}

/* Integers nearest to the activations in the steps that `most` needs, in words that are `stride`
 * apart, and the words made of their sums. *before: the sum of the row's integers so far. */
static void bytes_check(const struct kern_variant *v, const int32_t *codes,
                        int64_t stride, const int32_t *words, int64_t mr, const float *x,
                        float most, int32_t *before)
{
    const struct kern_form *f = kern_form(type_of_op(v->op));
    int32_t sum[2] = {0, 0}, word[2];
    const float step = most < KERN_A_I8_MIN ? 0 : most / 127;
    float scale, scaled[2];

    memcpy(&scale, &words[KERN_A_I8_SCALE * mr], 4);
    CHECK(scale == step, "scale %a of %a", scale, most);
    for (int i = 0; i < KERN_SUB; i++) {
        int8_t code[4];

        memcpy(code, &codes[i / 4 * stride], 4);
        sum[i / 16] += code[i % 4];
        CHECK(code[i % 4] >= -127 &&
                  (scale == 0
                       ? code[i % 4] == 0
                       : fabs(code[i % 4] - (double)x[i] / scale) <= 0.5 + 0x1p-16),
              "code %d of %a in steps of %a", code[i % 4], x[i], scale);
    }
    for (int i = 0; i < 2; i++)
        scaled[i] = scale * (float)(f->halves == 2 || i == 1 ? sum[i] : sum[0] + sum[1]);
    word[0] = -f->zero * (f->halves == 2 ? sum[0] : sum[0] + sum[1]);
    word[1] = f->halves == 2 ? -f->zero * sum[1] : 0;
    for (int i = 0; f->min && i < f->halves; i++)
        memcpy(&word[i], &scaled[i], 4);
    if (f->subs == 0) {
        word[0] = *before;
        word[1] = *before += sum[0] + sum[1];
    }
    CHECK(words[KERN_A_I8_SUM * mr] == word[0] &&
              words[(KERN_A_I8_SUM + 1) * mr] == word[1],
          "words of sums %d %d", words[KERN_A_I8_SUM * mr],
          words[(KERN_A_I8_SUM + 1) * mr]);
}

static void bytes_once(struct rng *r, const struct kern_variant *v, int64_t mr, int64_t k,
                       int64_t ldx)
{
    const size_t bytes = kern_a_bytes(v->a_format, mr, k);
    const bool rows = v->a_format == KERN_A_I8_ROWS;
    float *x = guard_get(SLOT_SRC, (size_t)((mr - 1) * ldx + k) * 4);
    const int32_t *out = guard_get(SLOT_OUT, bytes);

    AT("%s mr=%d k=%d ldx=%d", v->name, (int)mr, (int)k, (int)ldx);
    for (int64_t i = 0; i < mr; i++)
        fill_f32(r, (enum fill)rng_below(r, FILL_N), x + i * ldx, k);
    kern_a_pack(v, (void *)(uintptr_t)out, x, ldx, mr, k, k);
    for (int64_t i = 0; i < mr; i++) {
        const float *row = x + i * ldx, of_row = largest(row, k);
        int32_t before = 0;

        for (int64_t at = 0; at < k; at += KERN_SUB) {
            const int32_t *words = out + at / KERN_SUB * KERN_A_I8_WORDS * mr;

            bytes_check(
                v, words + (rows ? 8 * i : i), rows ? 1 : mr, words + i, mr, row + at,
                kern_type_one_block(type_of_op(v->op)) ? of_row
                                                       : largest(row + at, KERN_SUB),
                &before);
        }
    }
    guard_check(SLOT_OUT, bytes);
}

static void test_activations(const struct kern_variant *v, struct rng *r)
{
    for (int64_t mr = 1; mr <= 30; mr++) {
        for (int n = 0; n < 12; n++) {
            int64_t k = n < 4 ? n + 1 : rng_range(r, 1, 220);
            int64_t pad = k % 2 + 2 * rng_range(r, 0, 1);

            if (kern_a_is_i8(v->a_format))
                bytes_once(r, v, mr, check_k(type_of_op(v->op), k), 768 + k);
            else if (v->a_format == KERN_A_F16_TWICE)
                halves_once(r, v, mr, k, pad);
            else
                activation_once(r, v, mr, k, pad, k + rng_range(r, 0, 9));
        }
    }
}

/* Blocks cover all rows once, in order, none higher than mr_max. */
static void test_blocks(const struct kern_variant *v, struct rng *r)
{
    (void)v;
    (void)r;
    for (int64_t m = 1; m <= 100; m++) {
        for (int mr_max = 1; mr_max <= 16; mr_max++) {
            int64_t blocks = kern_a_blocks(m, mr_max);

            AT("m=%d mr_max=%d", (int)m, mr_max);
            CHECK(kern_a_row(m, blocks, 0) == 0 && kern_a_row(m, blocks, blocks) == m,
                  "ends");
            for (int64_t i = 0; i < blocks; i++) {
                int64_t mr = kern_a_row(m, blocks, i + 1) - kern_a_row(m, blocks, i);

                CHECK(mr >= 1 && mr <= mr_max, "block %d has %d rows", (int)i, (int)mr);
            }
        }
    }
}

int main(void)
{
    check_init();
    check_case("matrices", test_matrices, NULL);
    check_case("layout", test_layout, NULL);
    for (int t = 0; t < KERN_N_TYPES; t++)
        check_gemm_variants(KERN_GEMM_F32 + t, test_activations);
    check_case("blocks of rows", test_blocks, NULL);
    return check_done();
}
