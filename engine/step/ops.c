/* Lists of operators: made, checked, changed, read and printed. */
#include <ctype.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "step/op.h"

#define OPS_MAX  (1 << 16)
#define WORD_MAX 32

const struct model_op_kind *model_op_find(const char *name)
{
    for (int i = 0; model_op_kinds[i]; i++)
        if (strcmp(model_op_kinds[i]->name, name) == 0)
            return model_op_kinds[i];
    return NULL;
}

void model_ops_fini(struct model_ops *o)
{
    mem_free(o->op);
    *o = (struct model_ops){0};
}

static bool in_layer(const struct model_config *c, const char *op, int layer)
{
    return strcmp(op, "wanted_rows") == 0 ? layer + 1 == c->n_layers
           : strcmp(op, "mlp") == 0       ? !model_has_experts(c, layer)
           : strcmp(op, "experts") == 0   ? model_has_experts(c, layer)
                                          : true;
}

int model_ops_of(struct model_ops *out, const struct model_config *c)
{
    const bool apart = model_sums_apart(c), after = apart && !c->parallel;
    const struct {
        const char *name;
        bool has;
    } layer[] = {
        {"attn_qkv", true},
        {"latent_in", c->latent_dim > 0},
        {"qk_norm_row", c->qk_norm_row},
        {"attention", true},
        {"wanted_rows", true}, /* of the last layer */
        {"stored", true},
        {"branch", apart},
        {"latent_out", c->latent_dim > 0},
        {"attn_out", true},
        {"attn_add", after},
        {"branch", after},
        {"mlp", true},
        {"experts", true}, /* in place of it */
        {"mlp_add", apart},
    };
    const size_t most = 2 + (size_t)c->n_layers * (sizeof(layer) / sizeof(layer[0]));

    *out = (struct model_ops){.op = mem_new(MEM_OTHER, most, sizeof(*out->op))};
    if (!out->op)
        return ERR_NOMEM;
    out->op[out->n++] = (struct model_op){model_op_find("embed"), -1, NULL};
    for (int l = 0; l < c->n_layers; l++)
        for (size_t i = 0; i < sizeof(layer) / sizeof(layer[0]); i++) {
            if (!layer[i].has || !in_layer(c, layer[i].name, l))
                continue;
            out->op[out->n++] = (struct model_op){model_op_find(layer[i].name), l, NULL};
        }
    out->op[out->n++] = (struct model_op){model_op_find("lm_head"), -1, NULL};
    return OK;
}

/* ---- the check ---- */

static const char *value_name(unsigned v)
{
    return v & MODEL_V_X        ? "the residual stream"
           : v & MODEL_V_ALL    ? "all rows"
           : v & MODEL_V_WANTED ? "the wanted rows"
           : v & MODEL_V_QKV    ? "queries, keys and values"
           : v & MODEL_V_HEADS  ? "the heads that a thread attended with"
           : v & MODEL_V_ATTN   ? "what all heads attended to"
           : v & MODEL_V_BRANCH ? "a sum apart from the stream"
                                : "logits";
}

/* Values that operators of one layer pass to each other. */
#define OF_LAYER ((unsigned)(MODEL_V_QKV | MODEL_V_HEADS | MODEL_V_ATTN))
/* Values that the next operator has to take: until then no other may write what threads share. */
#define TO_NEXT ((unsigned)(MODEL_V_QKV | MODEL_V_HEADS))

struct state {
    unsigned have; /* enum model_value, or-ed */
    int layer;     /* of the values of one layer */
    int n_stored;  /* layers */
};

static int check_op(struct state *s, const struct model_op *op, int n_layers)
{
    const struct model_op_kind *k = op->kind;

    if (k->in_layer ? op->layer < 0 || op->layer >= n_layers : op->layer != -1)
        return err_set(ERR_ARG, "%s: expected layer %s%d, found %d", k->name,
                       k->in_layer ? "0 to " : "", k->in_layer ? n_layers - 1 : -1,
                       op->layer);
    if (k->reads & ~s->have)
        return err_set(ERR_ARG, "%s: expected %s, which no operator before it leaves",
                       k->name, value_name(k->reads & ~s->have));
    if (s->have & TO_NEXT & ~k->reads)
        return err_set(ERR_ARG, "%s: expected an operator that reads %s", k->name,
                       value_name(s->have & TO_NEXT));
    if (s->have & MODEL_V_BRANCH && k->ends & (MODEL_V_X | MODEL_V_ALL))
        return err_set(ERR_ARG, "%s: expected an operator that adds %s", k->name,
                       value_name(MODEL_V_BRANCH));
    if (k->reads & OF_LAYER && op->layer != s->layer)
        return err_set(ERR_ARG, "%s: expected layer %d, found %d", k->name, s->layer,
                       op->layer);
    if (k->gives & MODEL_V_QKV && op->layer != s->n_stored)
        return err_set(ERR_ARG,
                       "%s: expected layer %d, as keys and values are stored "
                       "once for each layer, found %d",
                       k->name, s->n_stored, op->layer);
    s->n_stored += (k->gives & MODEL_V_QKV) != 0;
    if (k->gives & OF_LAYER)
        s->layer = op->layer;
    s->have = (s->have & ~k->ends) | k->gives;
    return OK;
}

int model_ops_check(const struct model_ops *o, int n_layers)
{
    struct state s = {0};

    for (int i = 0; i < o->n; i++) {
        int rc = check_op(&s, &o->op[i], n_layers);

        if (rc != OK)
            return err_prefix(rc, "operator %d", i + 1);
    }
    if (s.n_stored != n_layers)
        return err_set(ERR_ARG, "%d layers are computed, expected %d", s.n_stored,
                       n_layers);
    if (!(s.have & MODEL_V_LOGITS))
        return err_set(ERR_ARG, "no operator computes logits");
    return OK;
}

int model_ops_replace(struct model_ops *o, const char *from, const char *to, void *ctx,
                      int *n)
{
    const struct model_op_kind *a = model_op_find(from), *b = model_op_find(to);
    int count = 0;

    if (!a || !b)
        return err_set(ERR_ARG, "there is no operator \"%s\"", a ? to : from);
    for (int i = 0; i < o->n; i++)
        if (o->op[i].kind == a) {
            o->op[i].kind = b;
            o->op[i].ctx = ctx;
            count++;
        }
    if (n)
        *n = count;
    return OK;
}

/* ---- as text ---- */

/* The next word of a line [p, end), up to a blank or a comment. Gives where it ends. */
static const char *word_of(const char *p, const char *end, char out[WORD_MAX])
{
    int n = 0;

    while (p < end && (*p == ' ' || *p == '\t'))
        p++;
    while (p < end && !isspace((unsigned char)*p) && *p != '#') {
        if (n < WORD_MAX - 1)
            out[n++] = *p;
        p++;
    }
    out[n] = '\0';
    return p;
}

static int parse_line(struct model_ops *out, const char *p, const char *end, int line)
{
    struct model_op op = {.layer = -1};
    char word[WORD_MAX], more[WORD_MAX];

    p = word_of(p, end, word);
    if (word[0] == '\0')
        return OK;
    if (isdigit((unsigned char)word[0])) {
        char *rest;
        long layer = strtol(word, &rest, 10);

        if (*rest != '\0' || layer > INT_MAX)
            return err_set(ERR_FORMAT, "line %d: expected a layer, found \"%s\"", line,
                           word);
        op.layer = (int)layer;
        p = word_of(p, end, word);
    }
    op.kind = model_op_find(word);
    if (!op.kind)
        return err_set(ERR_FORMAT, "line %d: expected an operator, found \"%s\"", line,
                       word);
    word_of(p, end, more);
    if (more[0] != '\0')
        return err_set(ERR_FORMAT, "line %d: expected the end of the line, found \"%s\"",
                       line, more);
    if (out->n == OPS_MAX)
        return err_set(ERR_LIMIT, "line %d: more than %d operators", line, OPS_MAX);
    out->op[out->n++] = op;
    return OK;
}

int model_ops_parse(struct model_ops *out, const char *text, size_t n)
{
    const char *end = text + n;
    size_t lines = 1;
    int line = 1, rc = OK;

    for (size_t i = 0; i < n; i++)
        lines += text[i] == '\n';
    *out = (struct model_ops){0};
    if (lines > OPS_MAX)
        lines = OPS_MAX;
    out->op = mem_new(MEM_OTHER, lines, sizeof(*out->op));
    if (!out->op)
        return ERR_NOMEM;
    for (const char *p = text; p < end && rc == OK; line++) {
        const char *eol = memchr(p, '\n', (size_t)(end - p));

        eol = eol ? eol : end;
        rc = parse_line(out, p, eol, line);
        p = eol + 1;
    }
    if (rc != OK)
        model_ops_fini(out);
    return rc;
}

int model_ops_print(char **out, const struct model_ops *o)
{
    struct text t = {0};

    *out = NULL;
    for (int i = 0; i < o->n; i++) {
        if (o->op[i].layer >= 0)
            text_printf(&t, "%d ", o->op[i].layer);
        text_printf(&t, "%s\n", o->op[i].kind->name);
    }
    text_put(&t, "", 1);
    if (t.rc != OK) {
        text_fini(&t);
        return t.rc;
    }
    *out = t.p;
    return OK;
}
