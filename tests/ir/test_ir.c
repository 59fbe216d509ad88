/* Both levels as text, what loops are, and what is refused. */
#include "ir/ir.h"
#include "ir/tree.h"
#include "tests/support/test.h"

#define REF "engine/kernels/ref/"

/* ---- random programs ---- */

struct maker {
    struct ir *p;
    struct rng r;
    const char *names[64];
    int n_names;
};

static int draw(struct maker *m, int n)
{
    return (int)rng_below(&m->r, (uint64_t)n);
}

static struct ir_node *expr(struct maker *m, int depth);

static struct ir_type random_type(struct maker *m, bool pointer)
{
    static const char *const bases[] = {"float", "int", "int64_t", "uint16_t",
                                        "struct kern_form"};

    return (struct ir_type){.base = bases[draw(m, 5)],
                            .is_const = draw(m, 2),
                            .ptr = pointer ? draw(m, 3) : 0};
}

static struct ir_node *leaf(struct maker *m)
{
    static const char *const floats[] = {"1.5", "0x1p-5f", "2e-3f", ".25", "3.0f"};
    struct ir_node *n;

    switch (draw(m, 4)) {
    case 0:
        return ir_int(m->p, draw(m, 1000));
    case 1:
        n = ir_node(m->p, IR_FLOAT, 0);
        n->text = floats[draw(m, 5)];
        return n;
    case 2:
        return ir_name(m->p, draw(m, 2) ? "INFINITY" : "KERN_EXACT");
    default:
        return m->n_names ? ir_name(m->p, m->names[draw(m, m->n_names)])
                          : ir_int(m->p, 7);
    }
}

static struct ir_node *list_of(struct maker *m, int n, int depth)
{
    IR_LIST_INIT(l);

    while (n-- > 0)
        ir_append(&l, expr(m, depth));
    return l.first;
}

static struct ir_node *member(struct maker *m, int depth)
{
    struct ir_node *n = ir_node(m->p, IR_MEMBER, 0);

    n->op = m->p->level == IR_HIGH ? IR_EITHER : draw(m, 2) ? IR_DOT : IR_ARROW;
    n->text = "mr";
    n->k[0] = expr(m, depth);
    return n;
}

static struct ir_node *expr(struct maker *m, int depth)
{
    static const char *const calls[] = {"expf", "fmaf", "kern_bf16_to"};
    struct ir_node *n;

    if (depth <= 0)
        return leaf(m);
    switch (draw(m, 9)) {
    case 0:
        return ir_unary(m->p, (enum ir_op)(IR_NEG + draw(m, 5)), expr(m, depth - 1));
    case 1:
    case 2:
        return ir_binary(m->p, (enum ir_op)(IR_ADD + draw(m, 18)), expr(m, depth - 1),
                         expr(m, depth - 1));
    case 3:
        n = ir_node(m->p, IR_COND, 0);
        for (int i = 0; i < 3; i++)
            n->k[i] = expr(m, depth - 1);
        return n;
    case 4:
        return ir_call(m->p, calls[draw(m, 3)], list_of(m, draw(m, 4), depth - 1));
    case 5:
        return ir_index(m->p, expr(m, depth - 1), expr(m, depth - 1));
    case 6:
        return member(m, depth - 1);
    case 7:
        n = ir_node(m->p, draw(m, 2) ? IR_CAST : IR_SIZEOF, 0);
        if (n->kind == IR_CAST || draw(m, 2))
            n->type = random_type(m, true);
        if (n->kind == IR_CAST || !n->type.base)
            n->k[0] = expr(m, depth - 1);
        return n;
    default:
        return leaf(m);
    }
}

static const char *new_name(struct maker *m)
{
    static const char *const words[] = {"a", "b", "x1", "acc", "k0", "left", "sum", "_t"};
    const char *name = words[draw(m, 8)];

    if (m->n_names < 64)
        m->names[m->n_names++] = name;
    return name;
}

static struct ir_node *stmt_list(struct maker *m, int depth);

static struct ir_node *decl(struct maker *m, bool initial)
{
    struct ir_node *init = NULL, *sizes = NULL, *d;

    if (draw(m, 4) == 0)
        sizes = list_of(m, 1 + draw(m, 2), 1);
    if (initial && draw(m, 4)) {
        init = expr(m, 2);
        if (draw(m, 5) == 0) {
            init = ir_node(m->p, IR_LIST, 0);
            init->k[0] = list_of(m, draw(m, 3), 1);
        }
    }
    d = ir_decl(m->p, random_type(m, true), new_name(m), init);
    d->k[0] = sizes;
    return d;
}

static struct ir_node *assignment(struct maker *m)
{
    struct ir_node *to =
        draw(m, 2) ? ir_index(m->p, expr(m, 1), expr(m, 1)) : member(m, 1);

    if (m->n_names && draw(m, 2))
        to = ir_name(m->p, m->names[draw(m, m->n_names)]);
    return ir_assign(m->p, (enum ir_op)(draw(m, 2) ? IR_SET : IR_ADD + draw(m, 5)), to,
                     expr(m, 2));
}

static struct ir_node *loop_inside(struct maker *m, int depth)
{
    static const char *const attrs[] = {"tile", "vector", "unroll", "sums", "ahead"};
    struct ir_node *n = ir_node(m->p, IR_FOR, 0);
    IR_LIST_INIT(l);

    if (m->p->level == IR_HIGH && draw(m, 3)) {
        n->kind = IR_LOOP;
        n->op = (enum ir_op)(IR_PAR + draw(m, 3));
        n->type = random_type(m, false);
        for (int i = 0; i < 2 + draw(m, 2); i++)
            n->k[i] = expr(m, 1);
        for (int i = draw(m, 3); i > 0; i--) {
            struct ir_node *a = ir_node(m->p, IR_ATTR, 0);

            a->text = attrs[draw(m, 5)];
            a->k[0] = expr(m, 2);
            ir_append(&l, a);
        }
        n->k[3] = l.first;
        n->text = new_name(m);
        n->k[4] = stmt_list(m, depth - 1);
        return n;
    }
    if (draw(m, 3)) {
        n->k[0] = decl(m, true);
        n->k[0]->k[0] = m->p->level == IR_HIGH ? NULL : n->k[0]->k[0];
    }
    n->k[1] = expr(m, 2);
    for (int i = draw(m, 3); i > 0; i--)
        ir_append(&l, assignment(m));
    n->k[2] = l.first;
    n->k[3] = stmt_list(m, depth - 1);
    return n;
}

/* Its counter is its own. */
static struct ir_node *loop(struct maker *m, int depth)
{
    int n_names = m->n_names;
    struct ir_node *n = loop_inside(m, depth);

    m->n_names = n_names;
    return n;
}

static struct ir_node *stmt(struct maker *m, int depth)
{
    int what = draw(m, depth > 0 ? 8 : 5);
    struct ir_node *n = ir_node(m->p, IR_RETURN, 0);

    if (what < 2)
        return decl(m, true);
    if (what == 2)
        return assignment(m);
    if (what == 3) {
        n->kind = IR_EXPR;
        n->k[0] = ir_call(m->p, "memcpy", list_of(m, 3, 2));
    } else if (what == 4) {
        n->k[0] = draw(m, 2) ? expr(m, 2) : NULL;
    } else if (what == 5) {
        n->kind = IR_IF;
        n->k[0] = expr(m, 2);
        n->k[1] = stmt_list(m, depth - 1);
        n->k[2] = draw(m, 2) ? stmt_list(m, depth - 1) : NULL;
    } else if (what == 6 && m->p->level == IR_LOW) {
        n->kind = IR_BLOCK;
        n->k[0] = stmt_list(m, depth - 1);
    } else {
        return loop(m, depth);
    }
    return n;
}

/* Names of a block are its own. */
static struct ir_node *stmt_list(struct maker *m, int depth)
{
    int n_names = m->n_names;
    IR_LIST_INIT(l);

    for (int i = draw(m, 4); i > 0; i--)
        ir_append(&l, stmt(m, depth));
    m->n_names = n_names;
    return l.first;
}

static int make(void *arg)
{
    struct maker *m = arg;
    struct ir_node *f = ir_node(m->p, IR_FUNCTION, 0), *v = ir_node(m->p, IR_VARIANT, 0);
    IR_LIST_INIT(top);
    IR_LIST_INIT(params);
    IR_LIST_INIT(fields);

    m->n_names = 0;
    for (int i = m->p->level == IR_HIGH ? draw(m, 4) : 0; i > 0; i--) {
        struct ir_node *n = ir_node(m->p, IR_PARAM, 0);

        n->k[0] = ir_int(m->p, draw(m, 65536));
        n->text = new_name(m);
        ir_append(&top, n);
    }
    f->type = random_type(m, true);
    f->text = "kernel_ref";
    for (int i = draw(m, 4); i > 0; i--)
        ir_append(&params, decl(m, false));
    f->k[0] = params.first;
    f->k[1] = stmt_list(m, 3);
    ir_append(&top, f);
    v->text = "kern_x";
    for (int i = draw(m, 3); i > 0; i--) {
        struct ir_node *x = ir_node(m->p, IR_FIELD, 0);

        x->text = draw(m, 2) ? "fn.gemm" : "rows";
        x->k[0] = ir_node(m->p, IR_STRING, 0);
        x->k[0]->text = "ref a";
        ir_append(&fields, x);
    }
    v->k[0] = fields.first;
    ir_append(&top, v);
    m->p->top = top.first;
    return OK;
}

static void same_again(const struct ir *p, const char *what)
{
    char *text;
    struct ir again;

    assert_ok(ir_print(&text, p));
    if (ir_parse(&again, p->level, text, strlen(text), what) != OK)
        fail_msg("%s of\n%s", err_msg(), text);
    if (p->level != again.level || !ir_same_list(p->top, again.top))
        fail_msg("%s: another program comes of\n%s", what, text);
    ir_fini(&again);
    mem_free(text);
}

static void random_programs(enum ir_level level, int n)
{
    for (int i = 0; i < n; i++) {
        struct ir p = {.level = level};
        struct maker m = {.p = &p};

        rng_init(&m.r, (uint64_t)i, level == IR_LOW ? "low" : "high");
        assert_ok(ir_guard(&p, make, &m));
        same_again(&p, "random");
        ir_fini(&p);
    }
}

TEST(low_programs_come_back)
{
    random_programs(IR_LOW, 100000);
}

TEST(high_programs_come_back)
{
    random_programs(IR_HIGH, 100000);
}

/* ---- the files of kernels/ref/ ---- */

static const char *const raised[] = {
    "add",       "argmax",   "attn_bf16", "attn_f16", "attn_f32", "attn_q8",
    "from_bf16", "from_f16", "gemm_bf16", "gemm_f16", "gemm_f32", "gemm_w4c_a8",
    "rmsnorm",   "rope",     "silu_mul",  "to_bf16",  "to_f16"};

static void read_ref(struct ir *p, const char *name)
{
    char path[128];

    snprintf(path, sizeof(path), REF "%s_ref.c", name);
    assert_ok(ir_read(p, path));
}

TEST(every_reference_kernel_is_read)
{
    struct ir low, high;

    for (size_t i = 0; i < sizeof(raised) / sizeof(raised[0]); i++) {
        read_ref(&low, raised[i]);
        same_again(&low, raised[i]);
        assert_ok(ir_raise(&high, &low));
        same_again(&high, raised[i]);
        assert_true(ir_keeps_bits(&high));
        ir_fini(&high);
        ir_fini(&low);
    }
    read_ref(&low, "gemm_quant");
    same_again(&low, "gemm_quant");
    assert_err(ir_raise(&high, &low), ERR_UNSUPPORTED, "a function that is an argument");
    ir_fini(&low);
}

/* The kinds of all loops over `var`, as letters in the order of the text. */
static void kinds_of(const struct ir_node *n, const char *var, char *out)
{
    for (; n; n = n->next) {
        if (n->kind == IR_LOOP && strcmp(n->text, var) == 0)
            strcat(out, n->op == IR_PAR ? "p" : n->op == IR_RED ? "r" : "s");
        for (int i = 0; i < IR_KIDS; i++)
            kinds_of(n->k[i], var, out);
    }
}

static void loops_are(const char *name, const char *var, const char *want)
{
    struct ir low, high;
    char kinds[64] = "";

    read_ref(&low, name);
    assert_ok(ir_raise(&high, &low));
    kinds_of(high.top, var, kinds);
    if (strcmp(kinds, want) != 0)
        fail_msg("%s: loops over %s are %s, expected %s", name, var, kinds, want);
    ir_fini(&high);
    ir_fini(&low);
}

TEST(what_loops_are)
{
    loops_are("gemm_f32", "i", "p");
    loops_are("gemm_f32", "p", "p");
    loops_are("gemm_f32", "k0", "r");
    loops_are("gemm_f32", "k", "r");
    loops_are("gemm_f32", "c2", "p");
    loops_are("rope", "i", "p");
    loops_are("rope", "h", "s");
    loops_are("attn_f32", "d", "prppp");
    loops_are("attn_f32", "t", "s");
    loops_are("rmsnorm", "i", "rp");
    loops_are("argmax", "i", "s");
}

/* A kernel with this loop body over i of x, y [n]. */
static void body_is(const char *body, const char *want)
{
    char text[600], kinds[8] = "";
    struct ir low, high;

    snprintf(text, sizeof(text),
             "static void f(float *x, float *y, int n)\n{\n    float s = 0;\n"
             "    for (int i = 0; i < n; i++) {\n        %s\n    }\n    x[0] = s;\n}\n"
             "const struct kern_variant kern_add_x = {.op = KERN_ADD, .fn.add = f};\n",
             body);
    assert_ok(ir_parse(&low, IR_LOW, text, strlen(text), "body"));
    assert_ok(ir_raise(&high, &low));
    kinds_of(high.top, "i", kinds);
    if (strcmp(kinds, want) != 0)
        fail_msg("\"%s\": the loop is %s, expected %s", body, kinds, want);
    ir_fini(&high);
    ir_fini(&low);
}

TEST(loops_that_depend_on_their_order)
{
    body_is("x[i] += y[i];", "p");
    body_is("x[i] = y[i + 1];", "p");
    body_is("x[i] = x[i + 1];", "s");
    body_is("x[i + 1] = x[i];", "s");
    body_is("x[i + n] = x[i];", "p");
    body_is("x[i * i] = y[i];", "s");
    body_is("x[2 * i] = y[i];", "p");
    body_is("x[0] += y[i];", "r");
    body_is("x[0] = y[i];", "s");
    body_is("x[0] += x[i];", "s");
    body_is("s += y[i];", "r");
    body_is("s += s * y[i];", "s");
    body_is("s += y[i]; y[i] = s;", "s");
    body_is("s *= y[i];", "s");
    body_is("s = y[i];", "s");
    body_is("y += n; x[i] = y[0];", "r");
    body_is("y[i] = x[i]; x += 1;", "r");
    body_is("if (y[i] > 0) return;", "s");
}

/* A loop whose end moves does not count: it stays as it was written. */
TEST(loops_with_moving_bounds)
{
    static const char text[] =
        "static void f(float *x, float *y, int n)\n{\n"
        "    for (int i = 0; i < n; i++) {\n        y[i] = x[i];\n        n -= 1;\n    "
        "}\n"
        "}\nconst struct kern_variant kern_add_x = {.op = KERN_ADD, .fn.add = f};\n";
    struct ir low, high;
    char *printed;

    assert_ok(ir_parse(&low, IR_LOW, text, strlen(text), "k"));
    assert_ok(ir_raise(&high, &low));
    assert_ok(ir_print(&printed, &high));
    assert_non_null(strstr(printed, "for i: int = 0 while i < n then i += 1:"));
    mem_free(printed);
    ir_fini(&high);
    ir_fini(&low);
}

/* ---- what is refused ---- */

static void refused(enum ir_level level, const char *text, int code, const char *line)
{
    struct ir p;

    assert_err(ir_parse(&p, level, text, strlen(text), "k"), code, line);
    assert_null(p.top);
}

TEST(what_is_not_known_is_refused)
{
    refused(IR_LOW, "static void f(int n)\n{\n    g(n);\n}\n", ERR_UNSUPPORTED,
            "k:3: g() is no function");
    refused(IR_LOW, "static void f(int n)\n{\n    m = n;\n}\n", ERR_UNSUPPORTED,
            "k:3: \"m\" is not declared");
    refused(IR_LOW, "static void f(int n)\n{\n    while (n)\n        n--;\n}\n",
            ERR_UNSUPPORTED, "k:3: \"while\"");
    refused(IR_LOW, "#if X\n#endif\n", ERR_UNSUPPORTED, "k:1: #if");
    refused(IR_LOW, "static void f(int n)\n{\n    n = 1 +;\n}\n", ERR_FORMAT,
            "k:3: expected a name, found \";\"");
    refused(IR_LOW, "static void f(int n)\n{\n    n + 1;\n}\n", ERR_FORMAT,
            "k:3: expected an assignment or a call");
    refused(IR_LOW, "static void ir_f(int n)\n{\n}\n", ERR_FORMAT,
            "k:1: expected a name without");
    refused(IR_LOW, "/* no end", ERR_FORMAT, "k:1: a comment");
    refused(IR_LOW, "static void f(int n)\n{\n    n = `;\n}\n", ERR_FORMAT,
            "k:3: \"`\" begins no token");
    refused(IR_LOW, "#define A(x) x\nstatic int f(void)\n{ return A(1, 2); }\n",
            ERR_FORMAT, "k:3: ");
    refused(IR_LOW, "#include \"kernels/ref/none.h\"\n", ERR_NOTFOUND, "k:1: ");
    refused(IR_HIGH, "param uM = 70000\n", ERR_FORMAT, "k:1: expected an integer");
    refused(IR_HIGH, "def f(n: int) -> void:\nn = 1\n", ERR_FORMAT,
            "k:2: expected an indented line");
    refused(IR_HIGH,
            "def f(n: int) -> void:\n    for i: int in any(0, n):\n        pass\n",
            ERR_FORMAT, "k:2: expected par, red or seq");
    refused(
        IR_HIGH,
        "def f(n: int) -> void:\n    for i: int in par(0, n, wide=4):\n        pass\n",
        ERR_FORMAT, "k:2: expected tile, vector, unroll, sums or ahead");
}

TEST(deep_texts_are_refused)
{
    char text[4000] = "static void f(int n)\n{\n    n = ";

    for (int i = 0; i < 1500; i++)
        strcat(text, "(");
    refused(IR_LOW, text, ERR_LIMIT, "k:3: more than 100 levels");
}

TEST(parameters)
{
    struct ir low, high;
    char *text;

    read_ref(&low, "gemm_f32");
    assert_ok(ir_raise(&high, &low));
    assert_err(ir_set(&high, "uX", 1), ERR_NOTFOUND, "expected one of uM uN");
    assert_err(ir_set(&high, "uM", -1), ERR_ARG, "0 to 65536");
    assert_int_equal(ir_param(&high, "uX"), -1);
    assert_ok(ir_set(&high, "uM", 4));
    assert_int_equal(ir_param(&high, "uM"), 4);
    assert_err(ir_lower(&text, &high, 32), ERR_ARG, "set both or none");
    assert_ok(ir_set(&high, "uN", 2));
    assert_ok(ir_set(&high, "vN", 3));
    assert_err(ir_lower(&text, &high, 32), ERR_ARG, "1, 2, 4, 8 or 16");
    assert_ok(ir_set(&high, "vN", 8));
    assert_ok(ir_set(&high, "uK", 4));
    assert_true(ir_keeps_bits(&high));
    assert_ok(ir_set(&high, "sK", 8));
    assert_false(ir_keeps_bits(&high));
    assert_ok(ir_set(&high, "sK", 0));
    assert_ok(ir_set(&high, "fma", 1));
    assert_false(ir_keeps_bits(&high));
    ir_fini(&high);
    ir_fini(&low);
    read_ref(&low, "attn_f32");
    assert_ok(ir_raise(&high, &low));
    assert_ok(ir_set(&high, "vD", 8));
    assert_true(ir_keeps_bits(&high));
    assert_ok(ir_set(&high, "sD", 8)); /* of the reduction */
    assert_false(ir_keeps_bits(&high));
    ir_fini(&high);
    ir_fini(&low);
}

/* Every allocation fails once. */
TEST(without_memory)
{
    for (long n = 0;; n++) {
        struct ir low = {0}, high = {0};
        char *text = NULL, *printed = NULL;
        int rc;

        mem_fail_after(n, 1);
        rc = ir_read(&low, REF "gemm_f32_ref.c");
        if (rc == OK)
            rc = ir_raise(&high, &low);
        for (int i = 0; i < 3 && rc == OK; i++)
            rc = ir_set(&high, (const char *[]){"uM", "uN", "vN"}[i], i == 2 ? 16 : 2);
        if (rc == OK)
            rc = ir_lower(&text, &high, 32);
        if (rc == OK)
            rc = ir_print(&printed, &high);
        mem_fail_after(-1, 0);
        mem_free(text);
        mem_free(printed);
        ir_fini(&high);
        ir_fini(&low);
        if (rc == OK)
            break;
        assert_int_equal(rc, ERR_NOMEM);
    }
}
