/* From the high level to C: tiles, vectors, sums in registers, unrolled loops. */
#include "ir/lower.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/name.h"
#include "kernels/kern.h"

#define TILE_M_MAX 64

/* ---- loops whose bounds are known: tiles, and whole panels as vectors ---- */

static int tile_statement(void *arg, struct ir_node *n, struct ir_list *out)
{
    struct ir_lowering *w = arg;
    int64_t size;

    if (n->kind == IR_IF) {
        TRY(ir_each(&n->k[1], tile_statement, w));
        TRY(ir_each(&n->k[2], tile_statement, w));
    }
    if (n->kind != IR_LOOP) {
        ir_append(out, n);
        return OK;
    }
    TRY(ir_each(&n->k[4], tile_statement, w));
    if (ir_attr_value(n, "tile", 0) == 0 || !ir_int_value(n->k[1], &size)) {
        ir_append(out, n);
        return OK;
    }
    if (n->op != IR_PAR)
        return err_set(ERR_UNSUPPORTED,
                       "the loop over %s cannot be a tile: it is not par", n->text);
    TRY(ir_tile(w, &n->k[4], n->text, (int)size, w->by_row));
    ir_append(out, n->k[4]);
    return OK;
}

/* A loop of a constant number of iterations is that many vectors one after another. */
static int whole_vectors(void *arg, struct ir_node *n, struct ir_list *out)
{
    struct ir_lowering *w = arg;
    int64_t lanes, unroll, lo, hi;

    if (n->kind != IR_LOOP) {
        for (int i = 1; i < 4 && (n->kind == IR_IF || n->kind == IR_FOR); i++)
            if (n->kind == IR_IF ? i < 3 : i == 3)
                TRY(ir_each(&n->k[i], whole_vectors, w));
        ir_append(out, n);
        return OK;
    }
    TRY(ir_check_loop(n, &lanes, &unroll));
    if (lanes == 1 || n->op != IR_PAR || !ir_int_value(n->k[0], &lo) ||
        !ir_int_value(n->k[1], &hi) || n->k[2] || (hi - lo) % lanes) {
        TRY(ir_each(&n->k[4], whole_vectors, w));
        ir_append(out, n);
        return OK;
    }
    for (int64_t at = lo; at < hi; at += lanes) {
        struct ir_node *body, *by = ir_int(w->p, at);

        TRY(ir_vector(w, &body, n, (int)lanes));
        ir_substitute(w->p, &body, n->text, by);
        ir_fold(w->p, &body);
        ir_append(out, body);
    }
    return OK;
}

/* ---- functions ---- */

static struct ir_node *set_arrow(struct ir *p, struct ir_node *n, void *arg)
{
    (void)p;
    if (n->kind == IR_MEMBER)
        n->op = ir_type_of(arg, n->k[0]).ptr > 0 ? IR_ARROW : IR_DOT;
    return n;
}

/* Types are looked up in a copy: passes take lists apart while they change them. */
static int lower_function(struct ir_lowering *w, struct ir_node *f, bool by_row)
{
    w->by_row = by_row;
    ir_fold(w->p, &f->k[1]);
    TRY(ir_each(&f->k[1], tile_statement, w));
    w->function = ir_copy(w->p, f);
    TRY(ir_each(&f->k[1], whole_vectors, w));
    TRY(ir_promote(w, &f->k[1]));
    w->function = ir_copy(w->p, f);
    TRY(ir_expand(w, &f->k[1]));
    ir_fold(w->p, &f->k[1]);
    w->function = ir_copy(w->p, f);
    ir_change(w->p, &f->k[1], set_arrow, w);
    return OK;
}

static void put_function(struct text *t, struct ir_node *f, bool is_static)
{
    struct text own = {0};

    ir_print_function(&own, f, IR_LOW);
    text_put(&own, "", 1);
    if (own.rc == OK)
        text_puts(t, own.p + (is_static ? 0 : strlen("static ")));
    else
        t->rc = own.rc;
    text_fini(&own);
}

/* ---- a product: one function for each number of rows and of panels ---- */

struct tiles {
    const struct ir_node *rows, *panels; /* the loops */
    int64_t most_rows, most_panels;
    int lanes;
};

static bool find_tiles(const struct ir_node *n, void *arg)
{
    struct tiles *t = arg;

    if (n->kind != IR_LOOP)
        return false;
    if (ir_attr(n, "tile")) {
        if (!t->rows)
            t->rows = n;
        else if (!t->panels)
            t->panels = n;
    }
    if (t->panels && !t->lanes && ir_attr(n, "vector"))
        t->lanes = (int)ir_attr_value(n, "vector", 1);
    return false;
}

/* The most rows whose sums, with one row of A or of B's columns, fit into the registers. */
static int rows_that_fit(int registers, int vectors)
{
    int rows = 0;

    while (rows < TILE_M_MAX &&
           (rows + 1) * vectors + (rows + 1 < vectors ? rows + 1 : vectors) + 1 <=
               registers)
        rows++;
    return rows;
}

struct same {
    const struct ir_node *as;
    int64_t by;
};

static struct ir_node *specialise(struct ir *p, struct ir_node *n, void *arg)
{
    const struct same *s = arg;

    return ir_same(n, s->as) ? ir_int(p, s->by) : n;
}

static int put_tile(struct ir_lowering *w, struct text *t, const struct ir_node *entry,
                    const struct tiles *s, int rows, int panels)
{
    struct ir_node *f = ir_copy(w->p, entry);
    struct same m = {s->rows->k[1], rows}, n = {s->panels->k[1], panels};
    int vectors = panels * KERN_PANEL / s->lanes;

    f->text = ir_textf(w->p, "tile_%dx%d", rows, panels);
    ir_change(w->p, &f->k[1], specialise, &m);
    ir_change(w->p, &f->k[1], specialise, &n);
    TRY(lower_function(w, f, vectors <= rows));
    put_function(t, f, true);
    return OK;
}

static int put_tiles(struct ir_lowering *w, struct text *t, const struct ir_node *entry,
                     const struct tiles *s, int registers)
{
    int rows[KERN_NP_MAX] = {0};

    for (int np = 1; np <= s->most_panels && np <= KERN_NP_MAX; np++) {
        int fit = rows_that_fit(registers, np * KERN_PANEL / s->lanes);

        rows[np - 1] = (int)(fit < s->most_rows ? fit : s->most_rows);
        for (int mr = 1; mr <= rows[np - 1]; mr++)
            TRY(put_tile(w, t, entry, s, mr, np));
    }
    if (rows[0] == 0)
        return err_set(ERR_ARG, "%d registers hold no tile of %d lanes", registers,
                       s->lanes);
    text_puts(t, "typedef void (*tile_fn)(const struct kern_gemm_tile *);\n");
    text_printf(t, "static const tile_fn tiles[%d][%d] = {\n", KERN_NP_MAX, TILE_M_MAX);
    for (int np = 1; np <= KERN_NP_MAX; np++)
        for (int mr = 1; mr <= rows[np - 1]; mr++)
            text_printf(t, "    [%d][%d] = tile_%dx%d,\n", np - 1, mr - 1, mr, np);
    text_puts(t, "};\nvoid ir_kernel(const struct kern_gemm_tile *t)\n{\n"
                 "    tiles[t->np - 1][t->mr - 1](t);\n}\n"
                 "const unsigned char ir_rows[] = {");
    for (int np = 1; np <= KERN_NP_MAX; np++)
        text_printf(t, "%s%d", np > 1 ? ", " : "", rows[np - 1]);
    text_puts(t, "};\n");
    return OK;
}

/* ---- the text before a kernel: what it uses of kern.h, so that a compiler needs no file of ours,
 * and vectors ---- */

/* The same members as text and as a structure, which is held against that of kern.h. */
#define TEXT_OF(...) #__VA_ARGS__
#define TEXT(x)      TEXT_OF(x)
#define TILE_MEMBERS                                                                     \
    const void *a;                                                                       \
    const void *b;                                                                       \
    size_t b_panel_bytes;                                                                \
    size_t b_unit_bytes;                                                                 \
    int64_t k, k_unit;                                                                   \
    float *c;                                                                            \
    int64_t ldc;                                                                         \
    int mr, np;                                                                          \
    bool accumulate;
#define ATTN_MEMBERS                                                                     \
    const float *q;                                                                      \
    int64_t q_stride;                                                                    \
    const void *k, *v;                                                                   \
    const int32_t *blocks;                                                               \
    int64_t block_tok;                                                                   \
    size_t block_bytes;                                                                  \
    float *out;                                                                          \
    int64_t out_stride;                                                                  \
    float *lse;                                                                          \
    void *scratch;                                                                       \
    int64_t kv_lo, kv_hi, pos0;                                                          \
    int n_tok, g, head_dim;                                                              \
    float scale, softcap;

struct tile {
    TILE_MEMBERS
};
struct attn {
    ATTN_MEMBERS
};
#define SAME(a, b, member)                                                               \
    _Static_assert(offsetof(a, member) == offsetof(b, member),                           \
                   "kern.h has another " #member)
SAME(struct tile, struct kern_gemm_tile, b_unit_bytes);
SAME(struct tile, struct kern_gemm_tile, k_unit);
SAME(struct tile, struct kern_gemm_tile, ldc);
SAME(struct tile, struct kern_gemm_tile, np);
SAME(struct tile, struct kern_gemm_tile, accumulate);
SAME(struct attn, struct kern_attn_args, blocks);
SAME(struct attn, struct kern_attn_args, block_bytes);
SAME(struct attn, struct kern_attn_args, out_stride);
SAME(struct attn, struct kern_attn_args, kv_hi);
SAME(struct attn, struct kern_attn_args, head_dim);
SAME(struct attn, struct kern_attn_args, scale);
_Static_assert(sizeof(struct attn) == sizeof(struct kern_attn_args), "kern_attn_args");

static const char includes[] = "#include <math.h>\n"
                               "#include <stdbool.h>\n"
                               "#include <stddef.h>\n"
                               "#include <stdint.h>\n"
                               "#include <string.h>\n";

static const char functions[] =
    "struct kern_attn_piece { const void *k, *v; int64_t n; };\n"
    "static inline struct kern_attn_piece kern_attn_token(const struct kern_attn_args "
    "*a,\n"
    "    int64_t t, size_t vec_bytes)\n"
    "{\n"
    "    size_t block = 0, at;\n"
    "    if (a->blocks) {\n"
    "        block = (size_t)a->blocks[t >> __builtin_ctzll((uint64_t)a->block_tok)] *\n"
    "                a->block_bytes;\n"
    "        t &= a->block_tok - 1;\n"
    "    }\n"
    "    at = (size_t)t * vec_bytes;\n"
    "    return (struct kern_attn_piece){(const char *)a->k + block - at,\n"
    "                                    (const char *)a->v + block + at, 1};\n"
    "}\n"
    "static inline float kern_bf16_to(uint16_t h)\n"
    "{\n"
    "    uint32_t w = (uint32_t)h << 16;\n"
    "    float x;\n"
    "    memcpy(&x, &w, 4);\n"
    "    return x;\n"
    "}\n";

/* N lanes; the unaligned type may stand for any array of its elements. */
static const char vectors[] =
    "#define IR_VECTORS(N) \\\n"
    "typedef float f32x##N __attribute__((vector_size(4 * N))); \\\n"
    "typedef float f32x##N##_at __attribute__((vector_size(4 * N), aligned(4), "
    "may_alias)); \\\n"
    "typedef uint32_t u32x##N __attribute__((vector_size(4 * N))); \\\n"
    "typedef uint16_t u16x##N##_at __attribute__((vector_size(2 * N), aligned(2), "
    "may_alias)); \\\n"
    "typedef int8_t i8x##N##_at __attribute__((vector_size(N), aligned(1), may_alias)); "
    "\\\n"
    "static inline f32x##N ir_load_f32x##N(const float *p) { return *(const f32x##N##_at "
    "*)p; } \\\n"
    "static inline void ir_store_f32x##N(float *p, f32x##N x) { *(f32x##N##_at *)p = x; "
    "} \\\n"
    "static inline f32x##N ir_splat_f32x##N(float x) { return x - (f32x##N){0}; } \\\n"
    "static inline f32x##N ir_bf16_f32x##N(const uint16_t *p) \\\n"
    "{ return (f32x##N)(__builtin_convertvector(*(const u16x##N##_at *)p, u32x##N) << "
    "16); } \\\n"
    "static inline f32x##N ir_i8_f32x##N(const int8_t *p) \\\n"
    "{ return __builtin_convertvector(*(const i8x##N##_at *)p, f32x##N); } \\\n"
    "static inline float ir_sum_f32x##N(f32x##N x) \\\n"
    "{ float s = x[0]; for (int i = 1; i < N; i++) s += x[i]; return s; }\n";

/* lanes: bit n is set where vectors of 2^n lanes are used. */
static void put_prelude(struct text *t, unsigned lanes)
{
    text_puts(t, includes);
    text_puts(t, "struct kern_gemm_tile { " TEXT(TILE_MEMBERS) " };\n");
    text_puts(t, "struct kern_attn_args { " TEXT(ATTN_MEMBERS) " };\n");
    text_puts(t, functions);
    if (!lanes)
        return;
    text_puts(t, vectors);
    for (int n = 1; n < 16; n++)
        if (lanes & 1u << n)
            text_printf(t, "IR_VECTORS(%d)\n", 1 << n);
}

/* ---- the program ---- */

static struct ir_node *fix_param(struct ir *p, struct ir_node *n, void *arg)
{
    int64_t value = n->kind == IR_NAME ? ir_param(arg, n->text) : -1;

    return value >= 0 ? ir_int(p, value) : n;
}

static bool collect_lanes(const struct ir_node *n, void *arg)
{
    int64_t x = n->kind == IR_LOOP ? ir_attr_value(n, "vector", 1) : 1;

    for (int i = 1; i < 5; i++)
        if (x == 1 << i)
            *(unsigned *)arg |= 1u << i;
    return false;
}

/* Calls of what the prelude does not define. */
static bool is_unknown_call(const struct ir_node *n, void *arg)
{
    static const char *const words[] = {
        "expf",   "logf",         "sqrtf",           "tanhf",
        "fmaf",   "fabsf",        "isfinite",        "memset",
        "memcpy", "kern_bf16_to", "kern_attn_token", NULL};
    const struct ir *p = arg;

    if (n->kind != IR_CALL || ir_find_function(p, n->text) ||
        name_index(words, n->text) >= 0)
        return false;
    (void)err_set(ERR_UNSUPPORTED, "%.60s() cannot be lowered", n->text);
    return true;
}

static int put_program(struct ir_lowering *w, struct text *t, int registers)
{
    struct ir_node *entry = ir_find_function(w->p, ir_entry_name(w->p));
    struct tiles s = {0};
    bool tiled;

    if (!entry)
        return err_set(ERR_UNSUPPORTED, "no row with the kernel's function");
    if (ir_any_in_list(w->p->top, is_unknown_call, w->p))
        return ERR_UNSUPPORTED;
    (void)ir_any_in_list(entry->k[1], find_tiles, &s);
    s.most_rows = s.rows ? ir_attr_value(s.rows, "tile", 0) : 0;
    s.most_panels = s.panels ? ir_attr_value(s.panels, "tile", 0) : 0;
    s.lanes = s.lanes ? s.lanes : 1;
    tiled = s.most_rows > 0 || s.most_panels > 0;
    if (tiled && !(s.most_rows > 0 && s.most_panels > 0))
        return err_set(ERR_ARG, "a tile has rows and panels: set both or none");
    if (tiled &&
        (s.rows->k[1]->kind != IR_MEMBER || s.panels->k[1]->kind != IR_MEMBER ||
         strncmp(ir_op_word(w->p) ? ir_op_word(w->p) : "", "KERN_GEMM_", 10) != 0))
        return err_set(ERR_UNSUPPORTED,
                       "a tile is of a product, over t.mr rows and t.np panels");
    if (tiled && (s.lanes > IR_LANES_MAX || KERN_PANEL % s.lanes))
        return err_set(ERR_ARG, "vectors of %d: expected 1, 2, 4, 8 or 16", s.lanes);
    for (struct ir_node *f = w->p->top; f; f = f->next) {
        if (f->kind != IR_FUNCTION || (f == entry && tiled))
            continue;
        TRY(lower_function(w, f, true));
        if (f == entry)
            f->text = "ir_kernel";
        put_function(t, f, f != entry);
    }
    return tiled ? put_tiles(w, t, entry, &s, registers) : OK;
}

/* The state of ir_lower(), which frees it. */
struct lowered {
    const struct ir *high;
    int registers;
    struct ir p;
    struct ir_lowering w;
    struct text t;
};

static int lower(void *arg)
{
    struct lowered *x = arg;
    const struct ir *high = x->high;
    struct ir *p = &x->p;
    unsigned lanes = 0;

    p->top = ir_copy_list(p, high->top);
    for (struct ir_node *f = p->top; f; f = f->next)
        if (f->kind == IR_FUNCTION && f->k[1])
            ir_change(p, &f->k[1], fix_param, (void *)high);
    if (p->top)
        ir_fold(p, &p->top);
    (void)ir_any_in_list(p->top, collect_lanes, &lanes);
    put_prelude(&x->t, lanes);
    TRY(put_program(&x->w, &x->t, x->registers));
    text_put(&x->t, "", 1);
    return x->t.rc;
}

int ir_lower(char **out, const struct ir *high, int registers)
{
    struct lowered *x;
    int rc;

    *out = NULL;
    if (high->level != IR_HIGH)
        return err_set(ERR_ARG, "a program of the high level is expected");
    x = mem_new(MEM_OTHER, 1, sizeof(*x));
    if (!x)
        return ERR_NOMEM;
    x->p.level = IR_HIGH;
    x->w.p = &x->p;
    x->high = high;
    x->registers = registers;
    rc = ir_guard(&x->p, lower, x);
    if (rc == OK)
        *out = x->t.p;
    else
        text_fini(&x->t);
    ir_fini(&x->p);
    mem_free(x);
    return rc;
}
