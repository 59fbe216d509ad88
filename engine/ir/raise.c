/* From the low level to the high one: loops that say what they are, parameters with names. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "ir/tree.h"

struct raiser {
    struct ir *p;
    const struct ir *low;
    const char *entry;        /* the function of the row */
    struct ir_node *function; /* the one in hand */
    int n_names;              /* made so far */
    bool gemm;
};

/* ---- calls of functions that return nothing ---- */

static bool is_return(const struct ir_node *n, void *arg)
{
    (void)arg;
    return n->kind == IR_RETURN;
}

struct names {
    const char *v[128];
    int n;
};

static bool collect_name(const struct ir_node *n, void *arg)
{
    struct names *x = arg;

    if ((n->kind == IR_DECL || n->kind == IR_LOOP) && x->n < 128)
        x->v[x->n++] = n->text;
    return false;
}

static bool has_name(const struct names *x, const char *name)
{
    return ir_among(x->v, x->n, name);
}

/* Give every variable of `list` that the function in hand has, too, another name. */
static void rename_apart(struct raiser *r, struct ir_node **list, struct ir_node *params)
{
    struct names ours = {.n = 0}, theirs = {.n = 0};

    (void)ir_any(r->function, collect_name, &ours);
    (void)ir_any_in_list(*list, collect_name, &theirs);
    (void)ir_any_in_list(params, collect_name, &theirs);
    for (int i = 0; i < theirs.n; i++) {
        const char *to;

        if (!has_name(&ours, theirs.v[i]))
            continue;
        do
            to = ir_textf(r->p, "%s%d", theirs.v[i], ++r->n_names);
        while (has_name(&ours, to) || has_name(&theirs, to));
        if (*list)
            ir_rename(r->p, list, theirs.v[i], to);
        if (params)
            ir_rename(r->p, &params, theirs.v[i], to);
    }
}

/* The body of `callee` with the arguments of the call. */
static int inline_call(struct raiser *r, struct ir_node *call,
                       const struct ir_node *callee, struct ir_list *out)
{
    struct ir_node *params = ir_copy_list(r->p, callee->k[0]), *next;
    struct ir_node *body = ir_copy_list(r->p, callee->k[1]), *arg = call->k[0];

    if (ir_any_in_list(body, is_return, NULL))
        return err_set(ERR_UNSUPPORTED, "line %d: %s() returns from its middle",
                       call->line, call->text);
    rename_apart(r, &body, params);
    for (struct ir_node *x = params; x; x = next, arg = arg ? arg->next : NULL) {
        next = x->next;
        x->next = NULL;
        if (!arg)
            return err_set(ERR_FORMAT, "line %d: %s() with too few arguments", call->line,
                           call->text);
        if ((arg->kind == IR_NAME || arg->kind == IR_INT) && !ir_assigns(body, x->text)) {
            struct ir_node *by = ir_copy(r->p, arg);

            ir_substitute(r->p, &body, x->text, by);
            continue;
        }
        if (x->k[0]) { /* an array is a pointer */
            x->k[0] = NULL;
            x->type.ptr++;
        }
        x->k[1] = ir_copy(r->p, arg);
        ir_append(out, x);
    }
    ir_append(out, body);
    return OK;
}

/* memset(c, 0, N * sizeof(...)) as a loop. */
static int raise_memset(struct raiser *r, struct ir_node *call, struct ir_list *out)
{
    struct ir_node *to = call->k[0], *zero = to ? to->next : NULL;
    struct ir_node *bytes = zero ? zero->next : NULL, *loop;
    const char *var = ir_textf(r->p, "z%d", ++r->n_names);
    int64_t value;

    if (!bytes || !ir_int_value(zero, &value) || value != 0 || bytes->kind != IR_BINARY ||
        bytes->op != IR_MUL || bytes->k[1]->kind != IR_SIZEOF)
        return err_set(ERR_UNSUPPORTED, "line %d: memset() of other than N * sizeof x",
                       call->line);
    loop = ir_node(r->p, IR_LOOP, call->line);
    loop->op = IR_PAR;
    loop->type = (struct ir_type){.base = "int"};
    loop->text = var;
    loop->k[0] = ir_int(r->p, 0);
    loop->k[1] = ir_copy(r->p, bytes->k[0]);
    loop->k[4] =
        ir_assign(r->p, IR_SET, ir_index(r->p, ir_copy(r->p, to), ir_name(r->p, var)),
                  ir_int(r->p, 0));
    ir_append(out, loop);
    return OK;
}

static int raise_call(struct raiser *r, struct ir_node *n, struct ir_list *out)
{
    struct ir_node *call = n->k[0];
    const struct ir_node *callee = ir_find_function(r->p, call->text);

    if (callee && !callee->type.ptr && strcmp(callee->type.base, "void") == 0)
        return inline_call(r, call, callee, out);
    if (strcmp(call->text, "memset") == 0)
        return raise_memset(r, call, out);
    ir_append(out, n);
    return OK;
}

/* ---- loops ---- */

static bool is_member_assignment(const struct ir_node *n, void *arg)
{
    (void)arg;
    return n->kind == IR_ASSIGN && n->k[0]->kind == IR_MEMBER;
}

struct body {
    const struct ir_node *list, *steps;
};

static bool is_changed_name(const struct ir_node *n, void *arg)
{
    const struct body *b = arg;

    return (n->kind == IR_NAME &&
            (ir_assigns(b->list, n->text) || ir_assigns(b->steps, n->text))) ||
           n->kind == IR_CALL || n->kind == IR_INDEX;
}

/* Has n the same value in every iteration? */
static bool is_fixed(const struct ir_node *n, const struct ir_node *list,
                     const struct ir_node *steps)
{
    struct body b = {list, steps};

    return !ir_any(n, is_changed_name, &b) &&
           !ir_any_in_list(list, is_member_assignment, NULL);
}

/* A loop that counts becomes an IR_LOOP; false: it stays as it is. */
static bool raise_for(struct raiser *r, struct ir_node *n, struct ir_list *out)
{
    struct ir_node *d = n->k[0], *cond = n->k[1], *step = NULL, *also = NULL, *loop;
    IR_LIST_INIT(rest);
    IR_LIST_INIT(body);

    if (cond->kind == IR_BINARY && cond->op == IR_AND) {
        also = cond->k[1];
        cond = cond->k[0];
    }
    if (!d || !d->k[1] || d->k[0] || d->type.ptr > 0 || cond->kind != IR_BINARY ||
        cond->op != IR_LT || cond->k[0]->kind != IR_NAME ||
        strcmp(cond->k[0]->text, d->text) != 0 || ir_assigns(n->k[3], d->text))
        return false;
    for (struct ir_node *s = n->k[2], *next; s; s = next) {
        next = s->next;
        if (!step && s->op == IR_ADD && s->k[0]->kind == IR_NAME &&
            strcmp(s->k[0]->text, d->text) == 0)
            step = s;
        else
            ir_append(&rest, ir_copy(r->p, s));
    }
    if (!step || !is_fixed(cond->k[1], n->k[3], rest.first) ||
        !is_fixed(step->k[1], n->k[3], rest.first) || ir_mentions(cond->k[1], d->text) ||
        ir_assigns(rest.first, d->text) ||
        (also && (!is_fixed(also, n->k[3], rest.first) || ir_mentions(also, d->text))))
        return false;
    ir_append(&body, n->k[3]);
    ir_append(&body, rest.first);
    loop = ir_node(r->p, IR_LOOP, n->line);
    loop->op = IR_SEQ;
    loop->type = d->type;
    loop->text = d->text;
    loop->k[0] = d->k[1];
    loop->k[1] = cond->k[1];
    if (step->k[1]->kind != IR_INT || strcmp(step->k[1]->text, "1") != 0)
        loop->k[2] = step->k[1];
    loop->k[4] = body.first;
    if (also) {
        struct ir_node *outer = ir_node(r->p, IR_IF, n->line);

        outer->k[0] = also;
        outer->k[1] = loop;
        loop = outer;
    }
    ir_append(out, loop);
    return true;
}

static int raise_statement(void *arg, struct ir_node *n, struct ir_list *out)
{
    struct raiser *r = arg;

    if (n->kind == IR_BLOCK) { /* so that its names stay its own */
        n->kind = IR_IF;
        n->k[1] = n->k[0];
        n->k[0] = ir_int(r->p, 1);
    }
    if (n->kind == IR_IF) {
        TRY(ir_each(&n->k[1], raise_statement, r));
        TRY(ir_each(&n->k[2], raise_statement, r));
    }
    if (n->kind == IR_FOR)
        TRY(ir_each(&n->k[3], raise_statement, r));
    if (n->kind == IR_EXPR)
        return raise_call(r, n, out);
    if (n->kind != IR_FOR || !raise_for(r, n, out))
        ir_append(out, n);
    return OK;
}

/* *x is x[0], and . stands for -> as well. */
static struct ir_node *raise_expr(struct ir *p, struct ir_node *n, void *arg)
{
    (void)arg;
    if (n->kind == IR_MEMBER)
        n->op = IR_EITHER;
    if (n->kind == IR_UNARY && n->op == IR_DEREF) {
        n->kind = IR_INDEX;
        n->op = IR_SET;
        n->k[1] = ir_int(p, 0);
    }
    return n;
}

/* ---- parameters ---- */

static void add_param(struct raiser *r, const char *name)
{
    struct ir_node *n = ir_node(r->p, IR_PARAM, 0), **at = &r->p->top;

    for (; *at && (*at)->kind == IR_PARAM; at = &(*at)->next)
        if (strcmp((*at)->text, name) == 0)
            return;
    n->text = name;
    n->k[0] = ir_int(r->p, 0);
    n->next = *at;
    *at = n;
}

static void add_attr(struct raiser *r, struct ir_node *loop, const char *attr,
                     const char *param)
{
    struct ir_node *a = ir_node(r->p, IR_ATTR, 0), **at = &loop->k[3];

    while (*at)
        at = &(*at)->next;
    a->text = attr;
    a->k[0] = ir_name(r->p, param);
    *at = a;
    add_param(r, param);
}

static bool is_loop(const struct ir_node *n, void *arg)
{
    (void)arg;
    return n->kind == IR_LOOP || n->kind == IR_FOR;
}

/* The letter that stands for the loop: M, N and K of a product, else that of its counter. */
static char letter_of(const struct raiser *r, const struct ir_node *loop)
{
    const struct ir_node *hi = loop->k[1];

    if (!r->gemm)
        return (char)toupper((unsigned char)loop->text[0]);
    if (hi->kind == IR_MEMBER && strcmp(hi->text, "mr") == 0)
        return 'M';
    if ((hi->kind == IR_MEMBER && strcmp(hi->text, "np") == 0) || hi->kind == IR_INT)
        return 'N';
    return 'K';
}

/* The distance at which the weights of a loop along K are asked for: two units on in a matrix
 * that is split along K, else aK bytes, which the panels of a tile share. */
static void add_ahead(struct raiser *r, struct ir_node *loop)
{
    struct ir_node *c = ir_node(r->p, IR_COND, 0), *member[4];
    static const char *const names[] = {"k", "k_unit", "b_unit_bytes", "np"};
    const char *t = r->function->k[0] ? r->function->k[0]->text : "t";

    add_attr(r, loop, "ahead", "aK");
    for (int i = 0; i < 4; i++) {
        member[i] = ir_node(r->p, IR_MEMBER, 0);
        member[i]->op = IR_EITHER;
        member[i]->k[0] = ir_name(r->p, t);
        member[i]->text = names[i];
    }
    c->k[0] = ir_binary(r->p, IR_AND, ir_name(r->p, "aK"),
                        ir_binary(r->p, IR_GT, member[0], member[1]));
    c->k[1] = ir_binary(r->p, IR_MUL, ir_int(r->p, 2), member[2]);
    c->k[2] = ir_binary(r->p, IR_DIV, ir_name(r->p, "aK"), member[3]);
    for (struct ir_node *a = loop->k[3]; a; a = a->next)
        if (strcmp(a->text, "ahead") == 0)
            a->k[0] = c;
}

static void name_params(struct raiser *r, struct ir_node *loop)
{
    char c = letter_of(r, loop);
    bool inner = !ir_any_in_list(loop->k[4], is_loop, NULL);
    int64_t n;

    if (loop->op == IR_SEQ)
        return;
    if (r->gemm && loop->op == IR_PAR && !inner && (c == 'M' || c == 'N')) {
        add_attr(r, loop, "tile", ir_textf(r->p, "u%c", c));
        return;
    }
    if (inner) {
        add_attr(r, loop, "vector",
                 ir_textf(r->p, loop->op == IR_RED ? "s%c" : "v%c", c));
        if (!ir_int_value(loop->k[1], &n))
            add_attr(r, loop, "unroll", ir_textf(r->p, "u%c", c));
        return;
    }
    if (r->gemm && loop->op == IR_RED && !loop->k[2]) {
        add_attr(r, loop, "unroll", "uK");
        add_attr(r, loop, "sums", "sK");
        add_ahead(r, loop);
    }
}

/* Outer loops first. */
static void judge_loops(struct raiser *r, struct ir_node *n)
{
    for (; n; n = n->next) {
        if (n->kind == IR_LOOP) {
            n->op = ir_judge(r->p, r->function, n);
            name_params(r, n);
        }
        for (int i = 0; i < IR_KIDS; i++)
            judge_loops(r, n->k[i]);
    }
}

/* ---- the program ---- */

const char *ir_op_word(const struct ir *p)
{
    const struct ir_node *v = ir_part(p, IR_VARIANT);

    for (const struct ir_node *f = v ? v->k[0] : NULL; f; f = f->next)
        if (strcmp(f->text, "op") == 0 && f->k[0]->kind == IR_NAME)
            return f->k[0]->text;
    return NULL;
}

const char *ir_entry_name(const struct ir *p)
{
    const struct ir_node *v = ir_part(p, IR_VARIANT);

    for (const struct ir_node *f = v ? v->k[0] : NULL; f; f = f->next)
        if (strncmp(f->text, "fn.", 3) == 0 && f->k[0]->kind == IR_NAME)
            return f->k[0]->text;
    return "";
}

static bool is_call_of(const struct ir_node *n, void *name)
{
    return n->kind == IR_CALL && strcmp(n->text, name) == 0;
}

/* Functions that are only put where they are called are not needed any more. */
static void drop_unused(struct ir *p, const char *entry)
{
    for (struct ir_node **at = &p->top; *at;) {
        struct ir_node *n = *at;

        if (n->kind == IR_FUNCTION && strcmp(n->text, entry) != 0 &&
            !ir_any_in_list(n->next, is_call_of, (void *)n->text))
            *at = n->next;
        else
            at = &n->next;
    }
}

static int raise_parts(void *arg)
{
    struct raiser *r = arg;
    const struct ir *low = r->low;
    struct ir *p = r->p;
    IR_LIST_INIT(parts);

    for (const struct ir_node *n = low->top; n; n = n->next) {
        struct ir_node *f = ir_copy(p, n);

        if (n->kind == IR_TYPEDEF)
            return err_set(ERR_UNSUPPORTED,
                           "line %d: %s: a function that is an argument cannot be raised",
                           n->line, n->text);
        ir_append(&parts, f);
        p->top = parts.first; /* what is called is found there */
        if (n->kind != IR_FUNCTION)
            continue;
        r->function = f;
        ir_change(p, &f->k[1], raise_expr, NULL);
        TRY(ir_each(&f->k[1], raise_statement, r));
    }
    drop_unused(p, r->entry);
    for (struct ir_node *f = p->top; f; f = f->next)
        if (f->kind == IR_FUNCTION) {
            r->function = f;
            judge_loops(r, f->k[1]);
        }
    if (r->gemm)
        for (int i = 0; i < 6; i++)
            add_param(r, ir_textf(p, "%c%c", "bp"[i / 3], "MNK"[i % 3]));
    add_param(r, "fma");
    return OK;
}

int ir_raise(struct ir *out, const struct ir *low)
{
    struct raiser r = {.p = out};
    const char *entry = ir_entry_name(low), *op = ir_op_word(low);
    int rc;

    *out = (struct ir){.level = IR_HIGH};
    if (low->level != IR_LOW)
        return err_set(ERR_ARG, "a program of the low level is expected");
    if (!op || !ir_find_function(low, entry))
        return err_set(ERR_UNSUPPORTED,
                       "no row of kern_variants with its function: nothing to raise");
    r.low = low;
    r.entry = entry;
    r.gemm = strncmp(op, "KERN_GEMM_", 10) == 0;
    rc = ir_guard(out, raise_parts, &r);
    if (rc != OK)
        ir_fini(out);
    return rc;
}

int64_t ir_param(const struct ir *high, const char *name)
{
    int64_t value;

    for (const struct ir_node *n = high->top; n; n = n->next)
        if (n->kind == IR_PARAM && strcmp(n->text, name) == 0 &&
            ir_int_value(n->k[0], &value))
            return value;
    return -1;
}

struct setting {
    struct ir *p;
    struct ir_node *param;
    int64_t value;
};

static int set_value(void *arg)
{
    struct setting *s = arg;

    s->param->k[0] = ir_int(s->p, s->value);
    return OK;
}

int ir_set(struct ir *high, const char *name, int64_t value)
{
    char all[256] = "";
    size_t at = 0;

    if (value < 0 || value > IR_PARAM_MAX)
        return err_set(ERR_ARG, "%s=%lld: expected 0 to %d", name, (long long)value,
                       IR_PARAM_MAX);
    for (struct ir_node *n = high->top; n; n = n->next) {
        if (n->kind != IR_PARAM)
            continue;
        if (strcmp(n->text, name) == 0) {
            struct setting s = {high, n, value};

            return ir_guard(high, set_value, &s);
        }
        if (at < sizeof(all))
            at += (size_t)snprintf(all + at, sizeof(all) - at, " %s", n->text);
    }
    return err_set(ERR_NOTFOUND, "no parameter \"%.40s\": expected one of%s", name, all);
}

/* A reduction in another order of its sums, or a rounding less. */
static bool reorders(const struct ir_node *n, void *arg)
{
    const struct ir *p = arg;
    const char *attrs[] = {"sums", n->kind == IR_LOOP && n->op == IR_RED ? "vector" : ""};

    for (int i = 0; i < 2 && n->kind == IR_LOOP; i++) {
        const struct ir_node *a = ir_attr(n, attrs[i]);
        int64_t value;

        if (!a || (ir_int_value(a, &value) && value <= 1))
            continue;
        if (a->kind != IR_NAME || ir_param(p, a->text) > 1)
            return true;
    }
    return false;
}

bool ir_keeps_bits(const struct ir *high)
{
    return ir_param(high, "fma") <= 0 &&
           !ir_any_in_list(high->top, reorders, (void *)high);
}
