/* Loops are classified: par, red or seq. */
#include <string.h>

#include "ir/tree.h"

struct judge {
    const struct ir *p;
    const struct ir_node *function;
    const struct ir_node *loop;
    bool sums, ordered; /* it adds to something; its order matters otherwise */
};

static int count_name(const struct ir_node *n, const char *name)
{
    int count = 0;

    for (; n; n = n->next) {
        count += n->kind == IR_NAME && strcmp(n->text, name) == 0;
        for (int i = 0; i < IR_KIDS; i++)
            count += count_name(n->k[i], name);
    }
    return count;
}

static bool declares(const struct ir_node *n, void *name)
{
    return (n->kind == IR_DECL || n->kind == IR_LOOP) && strcmp(n->text, name) == 0;
}

static struct ir_type type_in(const struct ir_node *function, const char *name);

static void judge_scalar(struct judge *j, const struct ir_node *n)
{
    const char *name = n->k[0]->text;
    bool pointer = type_in(j->function, name).ptr > 0;

    if (ir_any_in_list(j->loop->k[4], declares, (void *)name))
        return;
    j->sums = true;
    if (n->op != IR_ADD || ir_mentions(n->k[1], name) ||
        (!pointer && count_name(j->loop->k[4], name) > 1))
        j->ordered = true;
}

struct access {
    struct judge *j;
    const char *root;
    const struct ir_node *index; /* of what is written */
};

/* Elements of other iterations than the one that writes? */
static bool is_other_element(const struct ir_node *n, void *arg)
{
    const struct access *x = arg;
    const struct ir_node *a = x->index, *b = n->k[1], *hi = x->j->loop->k[1];
    const char *root;
    int64_t lo;

    if (n->kind != IR_INDEX)
        return false;
    root = ir_root(n->k[0]);
    if (!root || strcmp(root, x->root) != 0 || ir_same(a, b))
        return false;
    /* as many elements away as there are iterations */
    if (!ir_int_value(x->j->loop->k[0], &lo) || lo != 0 || x->j->loop->k[2])
        return true;
    if (a->kind == IR_BINARY && a->op == IR_ADD && ir_same(a->k[0], b))
        return !ir_same(a->k[1], hi);
    return !(b->kind == IR_BINARY && b->op == IR_ADD && ir_same(b->k[0], a) &&
             ir_same(b->k[1], hi));
}

static void judge_element(struct judge *j, const struct ir_node *n)
{
    const struct ir_node *at = n->k[0];
    const char *root = ir_root(at->k[0]);
    struct access x = {j, root, at->k[1]};
    int64_t coef;

    if (!root) {
        j->ordered = true;
        return;
    }
    /* A pointer of the iteration's own: by the contracts of kern.h rows, panels and heads of
     * results do not overlap. */
    if (ir_any_in_list(j->loop->k[4], declares, (void *)root))
        return;
    if (!ir_mentions(at->k[1], j->loop->text)) {
        j->sums = true;
        j->ordered |= n->op != IR_ADD || ir_mentions(n->k[1], root);
        return;
    }
    if (!ir_affine(at->k[1], j->loop->text, &coef) || coef == 0 ||
        ir_any_in_list(j->loop->k[4], is_other_element, &x))
        j->ordered = true;
}

static bool judge_node(const struct ir_node *n, void *arg)
{
    struct judge *j = arg;

    if (n->kind == IR_RETURN || (n->kind == IR_UNARY && n->op == IR_ADDRESS) ||
        (n->kind == IR_CALL &&
         (ir_find_function(j->p, n->text) || strncmp(n->text, "mem", 3) == 0)))
        j->ordered = true;
    if (n->kind != IR_ASSIGN)
        return false;
    if (n->k[0]->kind == IR_NAME)
        judge_scalar(j, n);
    else if (n->k[0]->kind == IR_INDEX)
        judge_element(j, n);
    else
        j->ordered = true;
    return false;
}

static struct ir_type type_in(const struct ir_node *n, const char *name)
{
    struct ir_type t = {0};

    for (; n && !t.base; n = n->next) {
        if ((n->kind == IR_DECL || n->kind == IR_LOOP) && strcmp(n->text, name) == 0)
            return n->type;
        for (int i = 0; i < IR_KIDS && !t.base; i++)
            t = type_in(n->k[i], name);
        if (n->kind == IR_FUNCTION)
            break;
    }
    return t;
}

enum ir_op ir_judge(const struct ir *p, const struct ir_node *function,
                    const struct ir_node *loop)
{
    struct judge j = {.p = p, .function = function, .loop = loop};

    (void)ir_any_in_list(loop->k[4], judge_node, &j);
    return j.ordered ? IR_SEQ : j.sums ? IR_RED : IR_PAR;
}
