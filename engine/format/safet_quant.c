#include "format/safet_quant.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/file_map.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/thread.h"
#include "cpu/cpu.h"

#define NAME_BYTES 160
#define BLOCK      FORMAT_QUANT_BLOCK
/* About a tenth of a millisecond of work, so that threads end together. A multiple of 8. */
#define PIECE_ROWS 64
/* For which a thread is started: longer work than that. */
#define THREAD_WEIGHTS (1 << 17)
/* Of mappings, at least: experts are many matrices of less than a large page. */
#define CHUNK_BYTES ((size_t)16 << 20)

static bool is_fp8(enum format_scheme s)
{
    return s == FORMAT_SCHEME_FP8 || s == FORMAT_SCHEME_FP8_BLOCKS;
}

/* ---- the tensors of a matrix ---- */

struct format_safet_matrix {
    const struct format_safet_quant *q;
    char base[NAME_BYTES]; /* the name without .weight */
    const struct format_safet_tensor *codes, *scales, *zeros; /* zeros: NULL, or there */
    int64_t rows, cols, groups;                               /* of a row */
    int64_t n_scales;
    struct format_tensor tensor;
};

static const struct format_safet_tensor *part(const struct format_safet_quant *q,
                                              const char *base, const char *what)
{
    char name[NAME_BYTES + 24];

    snprintf(name, sizeof(name), "%s.%s", base, what);
    return q->find(q->ctx, name);
}

/* GPTQ and AWQ have rows of K, as y = x W. */
static bool is_flipped(enum format_scheme s)
{
    return s == FORMAT_SCHEME_GPTQ || s == FORMAT_SCHEME_AWQ;
}

/* The tensors of the matrix. false: it is not a quantised one. */
static bool find_parts(struct format_safet_matrix *m)
{
    const enum format_scheme s = m->q->scheme;
    const bool flipped = is_flipped(s);

    m->codes = part(m->q, m->base,
                    flipped                   ? "qweight"
                    : s == FORMAT_SCHEME_INT4 ? "weight_packed"
                                              : "weight");
    m->scales = part(m->q, m->base, flipped ? "scales" : "weight_scale");
    if (!m->scales && is_fp8(s)) /* they multiply under this name, too */
        m->scales = part(m->q, m->base, "weight_scale_inv");
    m->zeros = part(m->q, m->base, flipped ? "qzeros" : "weight_zero_point");
    return m->codes && strcmp(m->codes->dtype, is_fp8(s)                 ? "F8_E4M3"
                                               : s == FORMAT_SCHEME_INT8 ? "I8"
                                                                         : "I32") == 0;
}

static int64_t elements(const struct format_safet_tensor *t)
{
    int64_t n = 1;

    for (int i = 0; i < t->n_dims; i++)
        n *= (int64_t)t->dims[i];
    return n;
}

static bool is_zeros(const struct format_safet_tensor *t)
{
    const uint8_t *at = t->data;

    for (uint64_t i = 0; i < t->end - t->begin; i++)
        if (at[i] != 0)
            return false;
    return true;
}

static int wrong(const struct format_safet_matrix *m, const struct format_safet_tensor *t,
                 const char *dtype, int64_t n)
{
    return err_set(ERR_FORMAT,
                   "%s: tensor %.140s: expected %s of %" PRId64
                   " elements, found %.20s of %" PRId64,
                   m->q->path, t->name, dtype, n, t->dtype, elements(t));
}

static int missing(const struct format_safet_matrix *m, const char *what)
{
    return err_set(ERR_FORMAT, "%s: tensor %.140s.%s: expected this tensor, found none",
                   m->q->path, m->base, what);
}

/* 8 codes of 4 bits are in a word, along K or along N. */
static int set_shape(struct format_safet_matrix *m)
{
    const struct format_safet_tensor *t = m->codes;
    const enum format_scheme s = m->q->scheme;
    const int64_t a = (int64_t)t->dims[0], b = (int64_t)t->dims[1];
    const int64_t most = INT32_MAX, group = m->q->group;

    if (t->n_dims != 2 || a < 1 || b < 1 || a > most || b > most)
        return err_set(ERR_FORMAT,
                       "%s: tensor %.140s: shape: expected 2 dimensions from 1 to 2^31, "
                       "found others",
                       m->q->path, t->name);
    m->rows = s == FORMAT_SCHEME_GPTQ ? b : s == FORMAT_SCHEME_AWQ ? 8 * b : a;
    m->cols = s == FORMAT_SCHEME_GPTQ   ? 8 * a
              : s == FORMAT_SCHEME_AWQ  ? a
              : s == FORMAT_SCHEME_INT4 ? 8 * b
                                        : b;
    if (!is_fp8(s) && m->cols % (group ? group : BLOCK) != 0)
        return err_set(ERR_UNSUPPORTED,
                       "%s: tensor %.140s: expected rows of whole groups of %" PRId64
                       " weights, found %" PRId64,
                       m->q->path, t->name, group ? group : BLOCK, m->cols);
    m->groups = s == FORMAT_SCHEME_FP8_BLOCKS ? (m->cols + BLOCK - 1) / BLOCK
                : group                       ? m->cols / group
                                              : 1;
    return OK;
}

/* The groups of weights are those of neighbours: nothing was reordered. */
static int check_order(const struct format_safet_matrix *m)
{
    const bool gptq = m->q->scheme == FORMAT_SCHEME_GPTQ;
    const struct format_safet_tensor *t =
        gptq || m->q->scheme == FORMAT_SCHEME_INT4
            ? part(m->q, m->base, gptq ? "g_idx" : "weight_g_idx")
            : NULL;

    if (!t)
        return OK;
    if (strcmp(t->dtype, "I32") != 0 || elements(t) != m->cols)
        return wrong(m, t, "I32", m->cols);
    for (int64_t k = 0; k < m->cols; k++) {
        int32_t group;

        memcpy(&group, (const char *)t->data + 4 * k, 4);
        if (group != (m->q->group > 0 ? k / m->q->group : 0))
            return err_set(ERR_UNSUPPORTED,
                           "%s: tensor %.140s: expected groups of neighbours, found "
                           "weights in another order (desc_act, actorder): a model that "
                           "was quantised without it loads",
                           m->q->path, t->name);
    }
    return OK;
}

static int check_zeros(const struct format_safet_matrix *m)
{
    const struct format_safet_tensor *z = m->zeros;
    const enum format_scheme s = m->q->scheme;
    const int64_t words = (m->rows + 7) / 8 * m->groups;

    if (!z)
        return is_flipped(s) ? missing(m, "qzeros") : OK;
    if (s == FORMAT_SCHEME_INT8 || is_fp8(s))
        return is_zeros(z)
                   ? OK
                   : err_set(ERR_UNSUPPORTED,
                             "%s: tensor %.140s: expected zeros (weights of 8 bits "
                             "that are symmetric load), found others",
                             m->q->path, z->name);
    /* before compressed-tensors 0.10, bytes */
    if (s == FORMAT_SCHEME_INT4 && strcmp(z->dtype, "I8") == 0)
        return elements(z) == m->rows * m->groups
                   ? OK
                   : wrong(m, z, "I8", m->rows * m->groups);
    return strcmp(z->dtype, "I32") == 0 && elements(z) == words
               ? OK
               : wrong(m, z, "I32", words);
}

static int check_parts(struct format_safet_matrix *m)
{
    const struct format_safet_tensor *s = m->scales;

    if (!s)
        return missing(m, is_flipped(m->q->scheme) ? "scales" : "weight_scale");
    m->n_scales = m->rows * m->groups;
    if (m->q->scheme == FORMAT_SCHEME_FP8_BLOCKS)
        m->n_scales = (m->rows + BLOCK - 1) / BLOCK * m->groups;
    else if (m->q->group == 0 && elements(s) == 1)
        m->n_scales = 1;
    if (elements(s) != m->n_scales ||
        (strcmp(s->dtype, "F32") != 0 && strcmp(s->dtype, "F16") != 0 &&
         strcmp(s->dtype, "BF16") != 0))
        return wrong(m, s, "F16, BF16 or F32", m->n_scales);
    TRY(check_zeros(m));
    return check_order(m);
}

/* ---- numbers ---- */

static float float_at(const struct format_safet_tensor *t, int64_t i)
{
    uint16_t h;
    float x;

    if (strcmp(t->dtype, "F32") == 0) {
        memcpy(&x, (const char *)t->data + 4 * i, 4);
        return x;
    }
    memcpy(&h, (const char *)t->data + 2 * i, 2);
    return strcmp(t->dtype, "BF16") == 0 ? kern_bf16_to(h) : kern_f16_to(h);
}

/* The scale of row n in group g. GPTQ and AWQ have those of a group as neighbours, and blocks
 * have one for 128 rows. */
static float scale_of(const struct format_safet_matrix *m, int64_t n, int64_t g)
{
    const enum format_scheme s = m->q->scheme;

    if (m->n_scales == 1)
        return float_at(m->scales, 0);
    if (is_flipped(s))
        return float_at(m->scales, g * m->rows + n);
    return float_at(m->scales,
                    (s == FORMAT_SCHEME_FP8_BLOCKS ? n / BLOCK : n) * m->groups + g);
}

/* An f32 of at most 20 significant bits: 15 times it is exact. So are f16 and bf16. */
static float to_20_bits(float x)
{
    uint32_t u;

    if (isnan(x))
        return x;
    memcpy(&u, &x, 4);
    u = (u + 8) & ~15u;
    memcpy(&x, &u, 4);
    return x;
}

static uint32_t word_at(const struct format_safet_tensor *t, int64_t i)
{
    uint32_t w;

    memcpy(&w, (const char *)t->data + 4 * i, 4);
    return w;
}

/* Which code of a word AWQ's i-th column is (AutoAWQ, awq/utils/packing_utils.py: the word has
 * columns 0, 2, 4, 6, 1, 3, 5, 7). */
static const uint8_t awq_at[8] = {0, 4, 1, 5, 2, 6, 3, 7};

/* The code that stands for 0. GPTQ's first format has it less 1, modulo 16 (AutoGPTQ,
 * nn_modules/qlinear/). compressed-tensors has it less 8, as codes, in bytes, or not: then it
 * is 8 (compressors/quantized_compressors/pack_quantized.py). */
static int zero_of(const struct format_safet_matrix *m, int64_t n, int64_t g)
{
    const int at = m->q->scheme == FORMAT_SCHEME_AWQ ? awq_at[n % 8] : (int)(n % 8);
    uint32_t codes;

    if (!m->zeros)
        return 8;
    if (strcmp(m->zeros->dtype, "I8") == 0)
        return 8 + ((const int8_t *)m->zeros->data)[n * m->groups + g];
    codes = word_at(m->zeros, is_flipped(m->q->scheme) ? g * ((m->rows + 7) / 8) + n / 8
                                                       : n / 8 * m->groups + g);
    return ((int)(codes >> 4 * at & 15) + m->q->zeros_less_1) % 16;
}

/* 4 bits of exponent with the bias 7, 3 of fraction; no infinities, one NaN of each sign (OCP
 * 8-bit Floating Point Specification). */
static float e4m3_to(uint8_t x)
{
    const int e = x >> 3 & 15, fraction = x & 7;
    const float size = e == 15 && fraction == 7 ? NAN
                       : e == 0                 ? ldexpf((float)fraction, -9)
                                                : ldexpf((float)(8 + fraction), e - 10);

    return x & 0x80 ? -size : size;
}

/* ---- repacking ---- */

static enum kern_type type_of(enum format_scheme s)
{
    return is_fp8(s) ? KERN_F32 : s == FORMAT_SCHEME_INT8 ? KERN_W8G128 : KERN_W4G128;
}

/* The 8 codes of a word as bytes, the lowest first. */
static uint64_t spread(uint32_t word)
{
    uint64_t x = word;

    x = (x | x << 16) & 0x0000ffff0000ffff;
    x = (x | x << 8) & 0x00ff00ff00ff00ff;
    return (x | x << 4) & 0x0f0f0f0f0f0f0f0f;
}

/* Codes from k on of `rows` <= 8 rows from n on, of which n is a multiple of 8. */
static void unpack(uint8_t to[8][BLOCK], const struct format_safet_matrix *m, int64_t n,
                   int rows, int64_t k)
{
    for (int i = 0; m->q->scheme == FORMAT_SCHEME_AWQ && i < BLOCK; i++) {
        const uint64_t x = spread(word_at(m->codes, ((k + i) * m->rows + n) / 8));

        for (int r = 0; r < 8; r++)
            to[r][i] = (uint8_t)(x >> 8 * awq_at[r]);
    }
    for (int i = 0; m->q->scheme != FORMAT_SCHEME_AWQ && i < BLOCK / 8; i++)
        for (int r = 0; r < rows; r++) {
            const uint64_t x =
                spread(word_at(m->codes, m->q->scheme == FORMAT_SCHEME_GPTQ
                                             ? (k / 8 + i) * m->rows + n + r
                                             : ((n + r) * m->cols + k) / 8 + i));

            memcpy(&to[r][8 * i], &x, 8);
        }
}

static void put_4_bits(const struct format_safet_matrix *m, uint8_t *to, int64_t n,
                       int rows)
{
    const int64_t row_bytes = (int64_t)kern_type_size(KERN_W4G128, m->cols);
    uint8_t code[8][BLOCK];

    for (int64_t k = 0; k < m->cols; k += BLOCK) {
        const int64_t g = m->q->group > 0 ? k / m->q->group : 0;

        unpack(code, m, n, rows, k);
        for (int r = 0; r < rows; r++) {
            const float d = to_20_bits(scale_of(m, n + r, g));
            const float min = d * (float)zero_of(m, n + r, g);
            uint8_t *block =
                to + r * row_bytes + k / BLOCK * (int64_t)kern_type_bytes(KERN_W4G128);

            memcpy(block, &d, 4);
            memcpy(block + 4, &min, 4);
            for (int i = 0; i < BLOCK / 2; i++) {
                const uint8_t *low = &code[r][i / 16 * 32 + i % 16];

                block[8 + i] = (uint8_t)(low[0] | low[16] << 4);
            }
        }
    }
}

static void put_8_bits(const struct format_safet_matrix *m, uint8_t *to, int64_t n)
{
    const uint8_t *codes = (const uint8_t *)m->codes->data + n * m->cols;
    const float d = scale_of(m, n, 0);

    for (int64_t k = 0; k < m->cols; k += BLOCK, to += 4 + BLOCK) {
        memcpy(to, &d, 4);
        memcpy(to + 4, codes + k, BLOCK);
    }
}

static void put_fp8(const struct format_safet_matrix *m, uint8_t *to, int64_t n,
                    const float *fp8)
{
    const uint8_t *codes = (const uint8_t *)m->codes->data + n * m->cols;
    const bool blocks = m->q->scheme == FORMAT_SCHEME_FP8_BLOCKS;

    for (int64_t k0 = 0; k0 < m->cols; k0 += BLOCK) {
        const float d = scale_of(m, n, blocks ? k0 / BLOCK : 0);

        for (int64_t k = k0; k < k0 + BLOCK && k < m->cols; k++) {
            const float x = fp8[codes[k]] * d;

            memcpy(to + 4 * k, &x, 4);
        }
    }
}

/* Threads take pieces of PIECE_ROWS rows of matrices from the first on. */
struct repacking {
    const struct format_safet_quant *q;
    atomic_llong next;
};

static int64_t n_pieces(const struct format_safet_matrix *m)
{
    return (m->rows + PIECE_ROWS - 1) / PIECE_ROWS;
}

static void put_piece(const struct format_safet_matrix *m, int64_t piece,
                      const float *fp8)
{
    const enum kern_type type = type_of(m->q->scheme);
    const int64_t n0 = piece * PIECE_ROWS;

    for (int64_t n = n0; n < n0 + PIECE_ROWS && n < m->rows; n++) {
        uint8_t *to =
            (uint8_t *)m->tensor.data + (size_t)n * kern_type_size(type, m->cols);

        if (type == KERN_F32)
            put_fp8(m, to, n, fp8);
        else if (type == KERN_W8G128)
            put_8_bits(m, to, n);
        else if (n % 8 == 0)
            put_4_bits(m, to, n, m->rows - n < 8 ? (int)(m->rows - n) : 8);
    }
}

static void repack(void *ctx, int thread)
{
    struct repacking *r = ctx;
    int64_t before = 0;
    float fp8[256];
    int i = r->q->n_repacked;

    (void)thread;
    for (int x = 0; x < 256; x++)
        fp8[x] = e4m3_to((uint8_t)x);
    for (;;) {
        const int64_t piece = atomic_fetch_add(&r->next, 1);

        for (; i < r->q->n && piece - before >= n_pieces(&r->q->made[i]); i++)
            before += n_pieces(&r->q->made[i]);
        if (i == r->q->n)
            return;
        put_piece(&r->q->made[i], piece - before, fp8);
    }
}

int format_safet_quant_repack(struct format_safet_quant *q)
{
    struct repacking r = {.q = q};
    struct cpu_budget budget;
    int64_t weights = 0;

    if (q->n_repacked == q->n)
        return OK;
    TRY(cpu_budget_get(&budget));
    for (int i = q->n_repacked; i < q->n; i++)
        weights += q->made[i].rows * q->made[i].cols;
    thread_fork_join(weights / THREAD_WEIGHTS < budget.n ? (int)(weights / THREAD_WEIGHTS)
                                                         : budget.n,
                     repack, &r);
    for (; q->n_repacked < q->n; q->n_repacked++) {
        const struct format_safet_tensor *t = q->made[q->n_repacked].codes;

        file_map_drop(t->data, t->end - t->begin);
    }
    return OK;
}

/* ---- the public API ---- */

/* Memory of matrices, whose pages no thread has touched. */
struct format_safet_chunk {
    struct format_safet_chunk *next;
    size_t bytes, used;
};

static void *take(struct format_safet_quant *q, size_t bytes)
{
    struct format_safet_chunk *c = q->chunks;

    bytes = (bytes + 63) / 64 * 64;
    if (!c || c->bytes - c->used < bytes) {
        const size_t all = 64 + (bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES);

        c = mem_map(MEM_MODEL_FILE, all, MEM_NODE_ANY);
        if (!c)
            return NULL;
        *c = (struct format_safet_chunk){.next = q->chunks, .bytes = all, .used = 64};
        q->chunks = c;
    }
    c->used += bytes;
    return (char *)c + c->used - bytes;
}

static int add(struct format_safet_quant *q, const struct format_safet_matrix *m)
{
    const enum kern_type type = type_of(q->scheme);
    struct format_safet_matrix *made = q->made;
    void *data;

    if (q->n == q->max) {
        const int max = 2 * q->max + 64;

        made = mem_resize(MEM_MODEL_FILE, made, (size_t)max, sizeof(*made));
        if (!made)
            return ERR_NOMEM;
        q->made = made;
        q->max = max;
    }
    data = take(q, (size_t)m->rows * kern_type_size(type, m->cols));
    if (!data)
        return ERR_NOMEM;
    TRY(map_put(&q->places, hash_bytes(m->base, strlen(m->base)), q->n));
    made += q->n++;
    *made = *m;
    made->tensor = (struct format_tensor){
        .data = data, .type = type, .rows = m->rows, .cols = m->cols, .in_memory = true};
    return OK;
}

/* `name` without its last part. */
static const struct format_safet_matrix *made_of(const struct format_safet_quant *q,
                                                 const char *base, size_t n)
{
    int64_t i;

    return map_find(&q->places, hash_bytes(base, n), &i) &&
                   strlen(q->made[i].base) == n && memcmp(q->made[i].base, base, n) == 0
               ? &q->made[i]
               : NULL;
}

int format_safet_quant_find(struct format_safet_quant *q, const char *name,
                            struct format_tensor *out)
{
    struct format_safet_matrix m = {.q = q};
    const char *end = strrchr(name, '.');
    const size_t n = end ? (size_t)(end - name) : 0;

    if (q->scheme == FORMAT_SCHEME_NONE || !end || strcmp(end, ".weight") != 0 ||
        n >= sizeof(m.base))
        return ERR_NOTFOUND;
    if (!made_of(q, name, n)) {
        snprintf(m.base, sizeof(m.base), "%.*s", (int)n, name);
        if (!find_parts(&m))
            return ERR_NOTFOUND;
        TRY(set_shape(&m));
        TRY(check_parts(&m));
        TRY(add(q, &m));
    }
    *out = made_of(q, name, n)->tensor;
    return OK;
}

bool format_safet_quant_owns(const struct format_safet_quant *q, const char *name)
{
    static const char *const parts[] = {
        ".qweight",          ".qzeros",       ".scales",        ".g_idx",
        ".weight",           ".weight_scale", ".weight_packed", ".weight_zero_point",
        ".weight_scale_inv", ".weight_shape", ".weight_g_idx",  ".input_scale",
        ".input_zero_point", ".bias"};
    const char *end = strrchr(name, '.');

    for (size_t i = 0; end && i < sizeof(parts) / sizeof(parts[0]); i++)
        if (strcmp(end, parts[i]) == 0)
            /* AutoGPTQ writes biases of zeros where a model has none. */
            return made_of(q, name, (size_t)(end - name)) != NULL &&
                   (strcmp(end, ".bias") != 0 || is_zeros(q->find(q->ctx, name)));
    return false;
}

void format_safet_quant_fini(struct format_safet_quant *q)
{
    while (q->chunks) {
        struct format_safet_chunk *c = q->chunks;

        q->chunks = c->next;
        mem_unmap(MEM_MODEL_FILE, c, c->bytes);
    }
    map_fini(&q->places);
    mem_free(q->made);
}
