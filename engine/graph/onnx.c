/* An ONNX file: its graph, in the order in which it is written. */
#include "graph/onnx.h"

#include <ctype.h>
#include <string.h>

#include "base/hash.h"
#include "base/map.h"
#include "base/mem.h"
#include "graph/onnx_ops.h"

#define CONST_MAX 64 /* elements of an initializer that becomes a const */

struct onnx_value {
    struct onnx_text name;
    int node;
};

struct onnx_weight {
    char name[GRAPH_NAME_MAX];
    struct onnx_tensor t;
};

struct graph_onnx {
    struct graph g;
    int64_t opset;
    struct map places; /* hash of a name -> its place among values */
    int n_values, max_values;
    struct onnx_value *values;
    struct map weight_places; /* hash of its name -> its place among weights */
    int n_weights, max_weights;
    struct onnx_weight *weights;
    struct onnx_node node; /* the one that is read */
};

/* ---- names ---- */

/* Equal hashes are not equal names: whoever finds a place compares the name. */
static bool value_find(const struct graph_onnx *f, struct onnx_text name, int *node)
{
    const struct onnx_value *v;
    int64_t place;

    if (!map_find(&f->places, hash_bytes(name.p, name.n), &place))
        return false;
    v = &f->values[place];
    *node = v->node;
    return v->name.n == name.n && memcmp(v->name.p, name.p, name.n) == 0;
}

static int value_put(struct graph_onnx *f, struct onnx_text name, int node)
{
    int64_t place;

    if (name.n == 0)
        return OK; /* an output that nobody reads */
    if (map_find(&f->places, hash_bytes(name.p, name.n), &place))
        return err_set(ERR_FORMAT, "\"%.*s\" is computed twice", onnx_shown(name),
                       name.p);
    if (f->n_values == f->max_values) {
        int max = 2 * f->max_values + 64;
        struct onnx_value *values =
            mem_resize(MEM_OTHER, f->values, (size_t)max, sizeof(*values));

        if (!values)
            return ERR_NOMEM;
        f->values = values;
        f->max_values = max;
    }
    f->values[f->n_values] = (struct onnx_value){name, node};
    return map_put(&f->places, hash_bytes(name.p, name.n), f->n_values++);
}

/* A name as our text has it. */
static int own_name(struct onnx_text t, char out[GRAPH_NAME_MAX])
{
    if (t.n == 0 || t.n >= GRAPH_NAME_MAX)
        return err_set(ERR_LIMIT, "a name of %zu characters: expected 1 to %d: \"%.*s\"",
                       t.n, GRAPH_NAME_MAX - 1, onnx_shown(t), t.p);
    for (size_t i = 0; i < t.n; i++)
        out[i] = isalnum((unsigned char)t.p[i]) || strchr("_./-", t.p[i]) ? t.p[i] : '_';
    out[t.n] = '\0';
    return OK;
}

/* ---- nodes ---- */

static int convert_node(struct graph_onnx *o, const struct onnx_node *v)
{
    int in[ONNX_IN_MAX], out[ONNX_IN_MAX];

    for (int a = 0; a < v->n_in; a++) {
        in[a] = -1;
        if (v->in[a].n > 0 && !value_find(o, v->in[a], &in[a]))
            return err_set(ERR_FORMAT, "no node before it computes \"%.*s\"",
                           onnx_shown(v->in[a]), v->in[a].p);
    }
    TRY(graph_onnx_convert(&o->g, o->opset, v, in, out));
    for (int a = 0; a < v->n_out; a++)
        TRY(value_put(o, v->out[a], out[a]));
    return OK;
}

/* ---- inputs, initializers, outputs ---- */

/* An input or a weight. */
static int put_given(struct graph *g, const char *op, const char *name,
                     enum graph_type type, const struct graph_shape *shape, int *out)
{
    struct graph_node *v;

    TRY(graph_add(g, op, out));
    v = &g->nodes[*out];
    memcpy(v->name, name, strlen(name) + 1);
    v->type = type;
    v->shape = *shape;
    return v->op->infer(g, *out);
}

/* dim: a number, or a name. */
static int read_dim(struct graph_wire w, int64_t *dim)
{
    struct graph_wire_field f;
    bool more;

    *dim = GRAPH_DYNAMIC;
    for (;;) {
        TRY(graph_wire_next(&w, &f, &more));
        if (!more)
            return OK;
        if (f.number == 1 && !f.is_bytes && (int64_t)f.value > 0)
            *dim = (int64_t)f.value;
        else if (f.number == 2 && f.is_bytes && f.n >= 5 && memcmp(f.p, "batch", 5) == 0)
            *dim = 1;
    }
}

/* The message in the field of this number, the last one of it; empty: there is none. */
static int find_message(struct graph_wire w, uint32_t number, struct graph_wire *out)
{
    struct graph_wire_field f;
    bool more;

    *out = (struct graph_wire){w.base, w.end, w.end};
    for (;;) {
        TRY(graph_wire_next(&w, &f, &more));
        if (!more)
            return OK;
        if (f.number == number && f.is_bytes)
            *out = graph_wire_in(&w, &f);
    }
}

static int read_shape(struct graph_wire w, struct graph_shape *s)
{
    struct graph_wire_field f;
    int n_dynamic = 0;
    bool more;

    *s = (struct graph_shape){0};
    for (;;) {
        TRY(graph_wire_next(&w, &f, &more));
        if (!more)
            break;
        if (f.number != 1 || !f.is_bytes)
            continue;
        if (s->rank == GRAPH_RANK_MAX)
            return graph_wire_expected(&w, "at most 8 axes");
        TRY(read_dim(graph_wire_in(&w, &f), &s->dim[s->rank]));
        n_dynamic += s->dim[s->rank++] == GRAPH_DYNAMIC;
    }
    if (n_dynamic == 2 && s->dim[0] == GRAPH_DYNAMIC) { /* the batch, without a name */
        s->dim[0] = 1;
        n_dynamic--;
    }
    return n_dynamic < 2 ? OK : graph_wire_expected(&w, "one size that is not a number");
}

static int read_input(struct graph_onnx *o, struct graph_wire w)
{
    struct graph_wire type, tensor, shape;
    struct graph_wire_field f;
    struct onnx_text name = {0};
    struct onnx_tensor like = {0};
    char own[GRAPH_NAME_MAX];
    bool more;
    int node;

    for (struct graph_wire v = w;;) {
        TRY(graph_wire_next(&v, &f, &more));
        if (!more)
            break;
        if (f.number == 1 && f.is_bytes)
            name = graph_onnx_text(&f);
    }
    if (value_find(o, name, &node))
        return OK; /* an initializer, which old files repeat here */
    TRY(find_message(w, 2, &type));
    TRY(find_message(type, 1, &tensor));
    TRY(find_message(tensor, 2, &shape));
    for (struct graph_wire v = tensor;;) {
        TRY(graph_wire_next(&v, &f, &more));
        if (!more)
            break;
        if (f.number == 1)
            like.type = (int64_t)f.value;
    }
    if (like.type == 0)
        return err_set(ERR_FORMAT, "input \"%.*s\": expected a tensor", onnx_shown(name),
                       name.p);
    TRY(read_shape(shape, &like.shape));
    TRY(own_name(name, own));
    TRY(put_given(&o->g, "input", own, graph_onnx_is_real(&like) ? GRAPH_F32 : GRAPH_I64,
                  &like.shape, &node));
    return value_put(o, name, node);
}

static const struct onnx_weight *find_weight(const struct graph_onnx *o, const char *name)
{
    int64_t place;

    if (!map_find(&o->weight_places, hash_bytes(name, strlen(name)), &place))
        return NULL;
    return strcmp(o->weights[place].name, name) == 0 ? &o->weights[place] : NULL;
}

static int put_weight(struct graph_onnx *o, const struct onnx_tensor *t, int *node)
{
    struct onnx_weight *w;

    if (o->n_weights == o->max_weights) {
        int max = 2 * o->max_weights + 16;

        w = mem_resize(MEM_OTHER, o->weights, (size_t)max, sizeof(*w));
        if (!w)
            return ERR_NOMEM;
        o->weights = w;
        o->max_weights = max;
    }
    w = &o->weights[o->n_weights];
    w->t = *t;
    TRY(own_name(t->name, w->name));
    if (find_weight(o, w->name))
        return err_set(ERR_FORMAT, "two tensors are \"%s\"", w->name);
    TRY(map_put(&o->weight_places, hash_bytes(w->name, strlen(w->name)), o->n_weights++));
    return put_given(&o->g, "weight", w->name, GRAPH_F32, &t->shape, node);
}

static int read_initializer(struct graph_onnx *o, struct graph_wire w)
{
    struct onnx_tensor t;
    int node;

    TRY(graph_onnx_read_tensor(w, &t));
    if (!graph_onnx_is_real(&t) || graph_n_elements(&t.shape) <= CONST_MAX)
        TRY(graph_onnx_put_const(&o->g, &t, &node));
    else
        TRY(put_weight(o, &t, &node));
    return value_put(o, t.name, node);
}

static int read_output(struct graph_onnx *o, struct graph_wire w)
{
    struct graph_wire_field f;
    bool more;

    for (;;) {
        TRY(graph_wire_next(&w, &f, &more));
        if (!more)
            return err_set(ERR_FORMAT, "an output without a name");
        if (f.number == 1 && f.is_bytes)
            break;
    }
    if (o->g.n_out == GRAPH_IN_MAX)
        return err_set(ERR_LIMIT, "more than %d outputs", GRAPH_IN_MAX);
    if (!value_find(o, graph_onnx_text(&f), &o->g.out[o->g.n_out]))
        return err_set(ERR_FORMAT, "no node computes the output \"%.*s\"",
                       onnx_shown(graph_onnx_text(&f)), (const char *)f.p);
    o->g.n_out++;
    return OK;
}

/* ---- the file ---- */

static int read_a_node(struct graph_onnx *o, struct graph_wire w)
{
    size_t offset = (size_t)(w.at - w.base);
    struct onnx_node *v = &o->node;
    int rc = graph_onnx_read_node(w, v);

    if (rc == OK)
        rc = convert_node(o, v);
    if (rc != OK)
        rc = err_prefix(rc, "offset %zu: node \"%.*s\", %.*s", offset,
                        onnx_shown(v->name), v->name.p ? v->name.p : "",
                        onnx_shown(v->op), v->op.p ? v->op.p : "");
    return rc;
}

/* Fields of one kind of GraphProto, in their order. */
static int each(struct graph_onnx *o, struct graph_wire w, uint32_t number,
                int (*read)(struct graph_onnx *o, struct graph_wire w))
{
    struct graph_wire_field f;
    bool more;

    for (;;) {
        TRY(graph_wire_next(&w, &f, &more));
        if (!more)
            return OK;
        if (f.number != number)
            continue;
        if (!f.is_bytes)
            return graph_wire_expected(&w, "a message");
        TRY(read(o, graph_wire_in(&w, &f)));
    }
}

static int read_opset(struct graph_onnx *o, struct graph_wire w)
{
    struct graph_wire_field f;
    struct onnx_text domain = {0};
    int64_t version = 0;
    bool more;

    for (;;) {
        TRY(graph_wire_next(&w, &f, &more));
        if (!more)
            break;
        if (f.number == 1 && f.is_bytes)
            domain = graph_onnx_text(&f);
        else if (f.number == 2)
            version = (int64_t)f.value;
    }
    if (domain.n == 0 || graph_onnx_is(domain, "ai.onnx"))
        o->opset = version;
    return OK;
}

static int read_sparse(struct graph_onnx *o, struct graph_wire w)
{
    (void)o;
    (void)w;
    return err_set(ERR_UNSUPPORTED, "a sparse tensor");
}

static int read_model(struct graph_onnx *o, struct graph_wire w)
{
    struct graph_wire graph;

    TRY(each(o, w, 8, read_opset));
    if (o->opset < 11 || o->opset > 23)
        return err_set(ERR_UNSUPPORTED, "opset_import: expected 11 to 23, found %lld",
                       (long long)o->opset);
    TRY(find_message(w, 7, &graph));
    if (graph.at == graph.end)
        return err_set(ERR_FORMAT, "no graph");
    TRY(each(o, graph, 15, read_sparse));
    TRY(each(o, graph, 5, read_initializer));
    TRY(each(o, graph, 11, read_input));
    TRY(each(o, graph, 1, read_a_node));
    TRY(each(o, graph, 12, read_output));
    return o->g.n_out > 0 ? OK : err_set(ERR_FORMAT, "no output");
}

int graph_onnx_open(struct graph_onnx **out, const void *bytes, size_t n)
{
    struct graph_onnx *o = mem_new(MEM_OTHER, 1, sizeof(*o));
    int rc;

    *out = NULL;
    if (!o)
        return ERR_NOMEM;
    rc = read_model(o, graph_wire_of(bytes, n));
    if (rc == OK)
        *out = o;
    else
        graph_onnx_close(&o);
    return rc;
}

void graph_onnx_close(struct graph_onnx **f)
{
    struct graph_onnx *o = *f;

    if (!o)
        return;
    graph_fini(&o->g);
    map_fini(&o->places);
    map_fini(&o->weight_places);
    mem_free(o->values);
    mem_free(o->weights);
    mem_free(o);
    *f = NULL;
}

struct graph *graph_onnx_graph(struct graph_onnx *f)
{
    return &f->g;
}

void graph_onnx_fill(void *f, const char *name, const struct graph_shape *shape,
                     double *data)
{
    const struct onnx_weight *w = find_weight(f, name);
    int64_t n = graph_n_elements(shape);

    if (!w || graph_n_elements(&w->t.shape) != n ||
        graph_onnx_elements(&w->t, data) != OK)
        memset(data, 0, (size_t)n * sizeof(*data));
}

int graph_onnx_weight(const struct graph_onnx *f, const char *name, float *out)
{
    const struct onnx_weight *w = find_weight(f, name);
    int64_t n = w ? graph_n_elements(&w->t.shape) : 0;
    double *data;
    int rc;

    if (!w)
        return err_set(ERR_NOTFOUND, "no tensor \"%s\"", name);
    data = mem_new(MEM_OTHER, (size_t)n, sizeof(*data));
    if (!data)
        return ERR_NOMEM;
    rc = graph_onnx_elements(&w->t, data);
    for (int64_t k = 0; rc == OK && k < n; k++)
        out[k] = (float)data[k];
    mem_free(data);
    return rc;
}

/* ModelProto begins with ir_version, a small number, and then has other fields of its own. */
bool graph_onnx_probe(const void *bytes, size_t n)
{
    const uint8_t *p = bytes;

    return n > 4 && p[0] == 0x08 && p[1] >= 3 && p[1] <= 20 &&
           (p[2] == 0x12 || p[2] == 0x3a || p[2] == 0x42);
}
