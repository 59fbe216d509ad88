/* Graphs as text. */
#include <ctype.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "graph/graph.h"

#define ELEMENTS_MAX ((int64_t)1 << 16) /* of a const in a text */

/* ---- reading ---- */

struct reader {
    const char *p; /* NUL-terminated */
    int line;
    struct graph *g;
};

static int expected(const struct reader *r, const char *what)
{
    int n = 0;

    while (n < 24 && r->p[n] && r->p[n] != '\n')
        n++;
    return err_set(ERR_FORMAT, "line %d: expected %s, found \"%.*s\"", r->line, what, n,
                   r->p);
}

static void skip_blanks(struct reader *r)
{
    while (*r->p == ' ' || *r->p == '\t')
        r->p++;
}

static bool take(struct reader *r, const char *token)
{
    skip_blanks(r);
    if (strncmp(r->p, token, strlen(token)) != 0)
        return false;
    r->p += strlen(token);
    return true;
}

static int need(struct reader *r, const char *token)
{
    return take(r, token) ? OK : expected(r, token);
}

/* A name: letters, digits, and what names of tensors have. */
static int need_name(struct reader *r, char out[GRAPH_NAME_MAX])
{
    int n = 0;

    skip_blanks(r);
    while (isalnum((unsigned char)r->p[n]) || (r->p[n] && strchr("_./-", r->p[n])))
        n++;
    if (n == 0)
        return expected(r, "a name");
    if (n >= GRAPH_NAME_MAX)
        return err_set(ERR_LIMIT, "line %d: a name of %d characters: expected at most %d",
                       r->line, n, GRAPH_NAME_MAX - 1);
    memcpy(out, r->p, (size_t)n);
    out[n] = '\0';
    r->p += n;
    return OK;
}

static int need_int(struct reader *r, int64_t lo, int64_t hi, int64_t *out)
{
    char *end;

    skip_blanks(r);
    *out = strtoll(r->p, &end, 10);
    if (end == r->p || isspace((unsigned char)*r->p) || *out < lo || *out > hi)
        return expected(r, "an integer in range");
    r->p = end;
    return OK;
}

static int need_number(struct reader *r, double *out)
{
    char *end;

    skip_blanks(r);
    *out = strtod(r->p, &end);
    if (end == r->p || isspace((unsigned char)*r->p) || !isfinite(*out))
        return expected(r, "a finite number");
    r->p = end;
    return OK;
}

/* A const may hold infinities, of which masks are made. */
static int need_element(struct reader *r, double *out)
{
    bool infinite = take(r, "inf"), negative = !infinite && take(r, "-inf");

    *out = infinite ? INFINITY : -INFINITY;
    return infinite || negative ? OK : need_number(r, out);
}

static int need_node(struct reader *r, int *out)
{
    int64_t i;

    TRY(need(r, "%"));
    TRY(need_int(r, 0, INT32_MAX, &i));
    if (i >= r->g->n)
        return err_set(ERR_FORMAT, "line %d: %%%" PRId64 " does not come before", r->line,
                       i);
    *out = (int)i;
    return OK;
}

/* f32[1, T, 64] */
static int need_type(struct reader *r, struct graph_node *v)
{
    int n_dynamic = 0;

    if (take(r, "i64"))
        v->type = GRAPH_I64;
    else
        TRY(need(r, "f32"));
    TRY(need(r, "["));
    while (!take(r, "]")) {
        if (v->shape.rank == GRAPH_RANK_MAX)
            return err_set(ERR_LIMIT, "line %d: more than %d axes", r->line,
                           GRAPH_RANK_MAX);
        if (v->shape.rank > 0)
            TRY(need(r, ","));
        if (take(r, "T")) {
            v->shape.dim[v->shape.rank++] = GRAPH_DYNAMIC;
            n_dynamic++;
            continue;
        }
        /* The sizes of a tensor without axes are i64[0]. */
        TRY(need_int(r, v->type == GRAPH_I64 && v->shape.rank == 0 ? 0 : 1, INT32_MAX,
                     &v->shape.dim[v->shape.rank]));
        v->shape.rank++;
    }
    return n_dynamic > 1 ? expected(r, "at most one T before this") : OK;
}

static int need_data(struct reader *r, struct graph_node *v)
{
    int64_t n = 1;

    for (int d = 0; d < v->shape.rank; d++)
        if (v->shape.dim[d] == GRAPH_DYNAMIC ||
            __builtin_mul_overflow(n, v->shape.dim[d], &n) || n > ELEMENTS_MAX)
            return err_set(ERR_LIMIT,
                           "line %d: a const of more than %" PRId64 " elements", r->line,
                           ELEMENTS_MAX);
    v->data = mem_new(MEM_OTHER, (size_t)n, sizeof(*v->data));
    if (!v->data)
        return ERR_NOMEM;
    TRY(need(r, ":"));
    for (int64_t k = 0; k < n; k++) {
        int64_t x;

        if (k > 0)
            TRY(need(r, ","));
        if (v->type == GRAPH_F32) {
            TRY(need_element(r, &v->data[k]));
            continue;
        }
        TRY(need_int(r, -((int64_t)1 << 53), (int64_t)1 << 53,
                     &x)); /* exact as a double */
        v->data[k] = (double)x;
    }
    return OK;
}

/* (%0, %1; 1, 2; 0.5) */
static int need_arguments(struct reader *r, struct graph_node *v)
{
    TRY(need(r, "("));
    while (v->n_in < GRAPH_IN_MAX && (v->n_in == 0 || take(r, ",")))
        TRY(need_node(r, &v->in[v->n_in++]));
    if (take(r, ";")) {
        skip_blanks(r);
        if (*r->p != ';' && *r->p != ')')
            do {
                if (v->n_ints == GRAPH_INTS_MAX)
                    return expected(r, "no more integers");
                if (take(r, "T"))
                    v->ints[v->n_ints++] = GRAPH_DYNAMIC;
                else
                    TRY(need_int(r, INT32_MIN, INT64_MAX, &v->ints[v->n_ints++]));
            } while (take(r, ","));
        if (take(r, ";")) {
            if (!v->op->has_x)
                return expected(r, "no number here");
            TRY(need_number(r, &v->x));
        }
    }
    TRY(need(r, ")"));
    if (v->n_in < v->op->min_in || v->n_in > v->op->max_in ||
        v->n_ints < v->op->min_ints || v->n_ints > v->op->max_ints)
        return err_set(
            ERR_FORMAT,
            "line %d: %s of %d inputs and %d integers: expected %d to %d and %d to %d",
            r->line, v->op->name, v->n_in, v->n_ints, v->op->min_in, v->op->max_in,
            v->op->min_ints, v->op->max_ints);
    return OK;
}

static int read_node(struct reader *r)
{
    struct graph *g = r->g;
    char word[GRAPH_NAME_MAX];
    struct graph_node *v;
    int64_t number;
    int i, rc;

    TRY(need_int(r, 0, INT32_MAX, &number));
    if (number != g->n)
        return err_set(ERR_FORMAT, "line %d: expected %%%d, found %%%" PRId64, r->line,
                       g->n, number);
    TRY(need(r, "="));
    TRY(need_name(r, word));
    if (!graph_op_find(word))
        return err_set(ERR_FORMAT, "line %d: no operator \"%s\"", r->line, word);
    TRY(graph_add(g, word, &i));
    g->n--; /* its inputs come before it */
    v = &g->nodes[i];
    if (v->op->max_in > 0) {
        rc = need_arguments(r, v);
    } else if (strcmp(word, "const") == 0) {
        TRY(need_type(r, v));
        rc = need_data(r, v);
        g->n += rc != OK; /* its data are the graph's */
    } else {
        TRY(need_name(r, v->name));
        TRY(need(r, ":"));
        rc = need_type(r, v);
    }
    if (rc != OK)
        return rc;
    g->n++;
    rc = v->op->infer(g, g->n - 1);
    return rc == OK ? OK : err_prefix(rc, "line %d: %s", r->line, word);
}

static int read_return(struct reader *r)
{
    struct graph *g = r->g;

    do {
        if (g->n_out == GRAPH_IN_MAX)
            return expected(r, "no more results");
        TRY(need_node(r, &g->out[g->n_out++]));
    } while (take(r, ","));
    return OK;
}

static int read_lines(struct reader *r)
{
    for (r->line = 1; *r->p; r->line++) {
        skip_blanks(r);
        if (r->g->n_out > 0 && *r->p != '\n' && *r->p != '\0')
            return expected(r, "the end, after return");
        if (take(r, "%"))
            TRY(read_node(r));
        else if (take(r, "return"))
            TRY(read_return(r));
        skip_blanks(r);
        if (*r->p == '\n')
            r->p++;
        else if (*r->p)
            return expected(r, "the end of the line");
    }
    return r->g->n_out > 0 ? OK : expected(r, "return");
}

int graph_parse(struct graph *out, const char *text, size_t n)
{
    char *copy = mem_strndup(MEM_OTHER, text, n);
    struct reader r = {.p = copy, .g = out};
    int rc;

    *out = (struct graph){0};
    if (!copy)
        return ERR_NOMEM;
    rc = strlen(copy) == n ? read_lines(&r)
                           : err_set(ERR_FORMAT, "a byte 0 at offset %zu", strlen(copy));
    mem_free(copy);
    if (rc != OK)
        graph_fini(out);
    return rc;
}

/* ---- writing ---- */

static void put_shape(struct text *t, const struct graph_node *v)
{
    text_printf(t, "%s[", v->type == GRAPH_I64 ? "i64" : "f32");
    for (int d = 0; d < v->shape.rank; d++) {
        text_puts(t, d ? ", " : "");
        if (v->shape.dim[d] == GRAPH_DYNAMIC)
            text_puts(t, "T");
        else
            text_printf(t, "%" PRId64, v->shape.dim[d]);
    }
    text_puts(t, "]");
}

/* The fewest digits that give the number again. */
static void put_number(struct text *t, double x)
{
    char word[32];

    for (int digits = 1; digits <= 17; digits++) {
        snprintf(word, sizeof(word), "%.*g", digits, x);
        if (strtod(word, NULL) == x)
            break;
    }
    text_puts(t, word);
}

static void put_arguments(struct text *t, const struct graph_node *v)
{
    text_puts(t, "(");
    for (int a = 0; a < v->n_in; a++)
        text_printf(t, "%s%%%d", a ? ", " : "", v->in[a]);
    if (v->n_ints > 0 || v->op->has_x)
        text_puts(t, ";");
    for (int k = 0; k < v->n_ints; k++)
        if (v->ints[k] == GRAPH_DYNAMIC)
            text_puts(t, k ? ", T" : " T");
        else
            text_printf(t, "%s%" PRId64, k ? ", " : " ", v->ints[k]);
    if (v->op->has_x) {
        text_puts(t, v->n_ints > 0 ? "; " : " ; ");
        put_number(t, v->x);
    }
    text_puts(t, ")");
}

static void put_node(struct text *t, const struct graph_node *v, int i)
{
    text_printf(t, "%%%d = %s", i, v->op->name);
    if (v->op->max_in > 0) {
        put_arguments(t, v);
    } else {
        text_printf(t, " %s%s", v->name, v->name[0] ? ": " : "");
        put_shape(t, v);
    }
    text_puts(t, v->data ? ":" : "");
    for (int64_t k = 0; v->data && k < graph_n_elements(&v->shape); k++) {
        text_puts(t, k ? ", " : " ");
        if (v->type == GRAPH_I64)
            text_printf(t, "%" PRId64, (int64_t)v->data[k]);
        else
            put_number(t, v->data[k]);
    }
    text_puts(t, "\n");
}

int graph_print(char **out, const struct graph *g)
{
    struct text t = {0};

    for (int i = 0; i < g->n; i++)
        put_node(&t, &g->nodes[i], i);
    for (int a = 0; a < g->n_out; a++)
        text_printf(&t, "%s%%%d", a ? ", " : "return ", g->out[a]);
    text_put(&t, "\n", 2); /* with its NUL */
    *out = t.rc == OK ? t.p : NULL;
    if (t.rc != OK)
        text_fini(&t);
    return t.rc;
}
