/* From the high level to C: tiles, vectors, sums in registers, unrolled loops. */
#include "ir/lower.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "ir/prelude.h"
#include "kernels/kern.h"

#define TILE_M_MAX 64

/* ---- loops whose bounds are known: tiles, and whole panels as vectors ---- */

static int tile_list(struct ir_lowering *w, struct ir_node **list, bool by_row);

static int tile_loop(struct ir_lowering *w, struct ir_node *n, bool by_row,
                     struct ir_list *out)
{
    int64_t size;

    TRY(tile_list(w, &n->k[4], by_row));
    if (ir_attr_value(n, "tile", 0) == 0 || !ir_int_value(n->k[1], &size)) {
        ir_append(out, n);
        return OK;
    }
    if (n->op != IR_PAR)
        return err_set(ERR_UNSUPPORTED,
                       "the loop over %s cannot be a tile: it is not par", n->text);
    TRY(ir_tile(w, &n->k[4], n->text, (int)size, by_row));
    ir_append(out, n->k[4]);
    return OK;
}

static int tile_list(struct ir_lowering *w, struct ir_node **list, bool by_row)
{
    struct ir_node *next;
    IR_LIST_INIT(out);

    for (struct ir_node *n = *list; n; n = next) {
        next = n->next;
        n->next = NULL;
        if (n->kind == IR_IF) {
            TRY(tile_list(w, &n->k[1], by_row));
            TRY(tile_list(w, &n->k[2], by_row));
        }
        if (n->kind == IR_LOOP)
            TRY(tile_loop(w, n, by_row, &out));
        else
            ir_append(&out, n);
    }
    *list = out.first;
    return OK;
}

/* A loop of a constant number of iterations is that many vectors one after another. */
static int whole_vectors(struct ir_lowering *w, struct ir_node **list)
{
    struct ir_node *next;
    IR_LIST_INIT(out);

    for (struct ir_node *n = *list; n; n = next) {
        int64_t lanes, unroll, lo, hi;

        next = n->next;
        n->next = NULL;
        if (n->kind != IR_LOOP) {
            for (int i = 1; i < 4 && (n->kind == IR_IF || n->kind == IR_FOR); i++)
                if (n->kind == IR_IF ? i < 3 : i == 3)
                    TRY(whole_vectors(w, &n->k[i]));
            ir_append(&out, n);
            continue;
        }
        TRY(ir_check_loop(n, &lanes, &unroll));
        if (lanes == 1 || n->op != IR_PAR || !ir_int_value(n->k[0], &lo) ||
            !ir_int_value(n->k[1], &hi) || n->k[2] || (hi - lo) % lanes) {
            TRY(whole_vectors(w, &n->k[4]));
            ir_append(&out, n);
            continue;
        }
        for (int64_t at = lo; at < hi; at += lanes) {
            struct ir_node *body, *by = ir_int(w->p, at);

            TRY(ir_vector(w, &body, n, (int)lanes));
            ir_substitute(w->p, &body, n->text, by);
            ir_fold(w->p, &body);
            ir_append(&out, body);
        }
    }
    *list = out.first;
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
    ir_fold(w->p, &f->k[1]);
    TRY(tile_list(w, &f->k[1], by_row));
    w->function = ir_copy(w->p, f);
    TRY(whole_vectors(w, &f->k[1]));
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
        "expf",     "logf",   "sqrtf",  "fmaf",         "fabsf",
        "isfinite", "memset", "memcpy", "kern_bf16_to", "kern_attn_token",
        NULL};
    const struct ir *p = arg;
    int i = 0;

    if (n->kind != IR_CALL || ir_find_function(p, n->text))
        return false;
    while (words[i] && strcmp(words[i], n->text) != 0)
        i++;
    if (!words[i])
        (void)err_set(ERR_UNSUPPORTED, "%.60s() cannot be lowered", n->text);
    return !words[i];
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

/* What lowering owns. */
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
    ir_put_prelude(&x->t, lanes);
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
