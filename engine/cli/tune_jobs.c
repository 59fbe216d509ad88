/* From the words of `sandwich tune` to shapes: matrices, numbers of rows, variants. */
#include "cli/tune.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "format/format.h"
#include "model/choose.h"

#define MATRICES_MAX  32
#define EXTENT_MAX    (1 << 24)
#define ROWS_LIMIT    65536
#define HEAD_ROWS_MAX 32 /* the head has a row a sequence */
#define GRID_ALL_TO   16 /* every number of rows, then steps of an eighth */

struct pick {
    const struct cli_tune_ask *ask;
    struct model_shape matrices[MATRICES_MAX];
    struct model_shape
        whole; /* the first of the whole model, by which variants are chosen */
    int n_matrices;
    enum kern_type type;
    struct model_variants variants;
};

/* ---- matrices ---- */

static int parse_shape(struct pick *p, const char *at, const char **end)
{
    struct model_shape *x = &p->matrices[p->n_matrices];
    char *e = NULL;

    if (p->n_matrices == MATRICES_MAX)
        return err_set(ERR_LIMIT, "--shapes: more than %d", MATRICES_MAX);
    *x = (struct model_shape){.name = "matrix"};
    x->n = strtoll(at, &e, 10);
    x->k = *e == 'x' ? strtoll(e + 1, &e, 10) : 0;
    x->k_unit = *e == '/' ? strtoll(e + 1, &e, 10) : 0;
    if ((*e && *e != ',') || x->n < 1 || x->k < 1 || x->n > EXTENT_MAX ||
        x->k > EXTENT_MAX || x->k_unit < 0 || x->k_unit % 2 || x->k_unit > x->k)
        return err_set(ERR_ARG,
                       "--shapes: offset %d: expected OUTPUTSxINPUTS or "
                       "OUTPUTSxINPUTS/UNIT (even), found \"%.24s\"",
                       (int)(at - p->ask->shapes), at);
    p->n_matrices++;
    *end = e;
    return OK;
}

static int matrices_of_words(struct pick *p)
{
    const char *end = "";
    int rc = OK;

    p->type = KERN_F32;
    for (const char *at = p->ask->shapes; rc == OK; at = end + 1) {
        rc = parse_shape(p, at, &end);
        if (rc != OK || !*end)
            break;
    }
    p->whole = p->matrices[0];
    return rc;
}

static bool same_matrix(const struct model_shape *a, const struct model_shape *b)
{
    return a->n == b->n && a->k == b->k && a->k_unit == b->k_unit;
}

/* Each shape that a rank computes, once; ranks may have shares of different size. */
static int matrices_of_ranks(struct pick *p, const struct model_config *c)
{
    struct model_shape own[MODEL_N_MATS];

    p->n_matrices = 0;
    for (int r = 0; r < p->ask->n_ranks; r++) {
        model_rank_shapes(c, r, p->ask->n_ranks, own);
        if (p->ask->one_rank)
            model_shapes_join(own);
        for (int i = 0; i < MODEL_N_MATS; i++) {
            int k = 0;

            while (k < p->n_matrices && !same_matrix(&p->matrices[k], &own[i]))
                k++;
            if (i == MODEL_MAT_HEAD || i == MODEL_MAT_ROUTER || k < p->n_matrices ||
                !own[i].n || !own[i].k)
                continue;
            if (p->n_matrices == MATRICES_MAX)
                return err_set(ERR_LIMIT, "%d ranks have more than %d shapes",
                               p->ask->n_ranks, MATRICES_MAX);
            p->matrices[p->n_matrices++] = own[i];
        }
    }
    return OK;
}

static int matrices_of_model(struct pick *p)
{
    struct model_shape shapes[MODEL_N_MATS];
    struct format_file *f = NULL;
    int rc = format_open(&f, p->ask->model);

    if (rc != OK)
        return rc;
    model_shapes(&f->config, shapes);
    if (p->ask->n_ranks == 0)
        model_shapes_join(shapes);
    p->whole = shapes[0];
    p->n_matrices = 0;
    for (int i = 0; i < MODEL_N_MATS; i++)
        if (shapes[i].n > 0 && i != MODEL_MAT_ROUTER && /* f32, whatever the others are */
            (i == MODEL_MAT_HEAD || !p->ask->head_only))
            p->matrices[p->n_matrices++] = shapes[i];
    if (!p->ask->head_only && p->ask->n_ranks > 0)
        rc = matrices_of_ranks(p, &f->config);
    p->type = f->config.weight_type;
    format_close(&f);
    return rc;
}

/* ---- rows ---- */

/* The next number of rows after m, 0 at the end. *list: what is left of ask->rows. */
static int64_t next_rows(const struct cli_tune_ask *a, int64_t m, const char **list,
                         int *rc)
{
    int64_t next = m < GRID_ALL_TO || a->every ? m + 1 : m + m / 8;
    char *end;

    if (!a->rows && m == a->m_max)
        return 0;
    if (!a->rows)
        return next < a->m_max ? next : a->m_max;
    if (!**list)
        return 0;
    next = strtoll(*list, &end, 10);
    if (end == *list || (*end && *end != ',') || next <= m || next > ROWS_LIMIT) {
        *rc = err_set(ERR_ARG,
                      "--rows: expected ascending numbers up to %d, found \"%.16s\"",
                      ROWS_LIMIT, *list);
        return 0;
    }
    *list = *end ? end + 1 : end;
    return next;
}

static int add_shape(struct cli_tune_job *j, const struct tune_shape *s)
{
    struct tune_shape *grown =
        mem_resize(MEM_OTHER, j->shapes, (size_t)j->n_shapes + 1, sizeof(*j->shapes));

    if (!grown)
        return ERR_NOMEM;
    j->shapes = grown;
    j->shapes[j->n_shapes++] = *s;
    return OK;
}

/* Rows [lo, hi) of a matrix for v; no job where the rows asked for have none of them. */
static int add_job(struct cli_tune_jobs *out, const struct pick *p,
                   const struct model_shape *x, const struct kern_variant *v, int64_t lo,
                   int64_t hi)
{
    bool head = !strcmp(x->name, "head");
    struct cli_tune_job *j = &out->v[out->n];
    const char *list = p->ask->rows;
    char unit[24] = "";
    int rc = OK;

    for (int64_t m = next_rows(p->ask, 0, &list, &rc); m > 0 && rc == OK;
         m = next_rows(p->ask, m, &list, &rc)) {
        const struct tune_shape s = {
            .v = v, .m = m, .n = x->n, .k = x->k, .k_unit = x->k_unit};

        if (m >= lo && m < hi && (!head || m <= HEAD_ROWS_MAX))
            rc = add_shape(j, &s);
    }
    if (rc != OK || j->n_shapes == 0)
        return rc;
    if (x->k_unit > 0)
        snprintf(unit, sizeof(unit), "/%lld", (long long)x->k_unit);
    snprintf(j->name, sizeof(j->name), "%s %lldx%lld%s %s", x->name, (long long)x->n,
             (long long)x->k, unit, v->name);
    j->split_k = !head;
    out->n++;
    return OK;
}

/* All rows of a matrix for a variant of the user's. */
static int add_own(struct cli_tune_jobs *out, const struct pick *p,
                   const struct model_shape *x)
{
    const struct kern_variant *own = p->ask->own;

    if (own->op != (enum kern_op)(KERN_GEMM_F32 + (int)p->type))
        return err_set(ERR_ARG, "--kernel is of %s, but weights are of %s",
                       kern_op_name(own->op), kern_type_name(p->type));
    if (out->n == CLI_TUNE_JOBS_MAX)
        return err_set(ERR_LIMIT, "more than %d matrices", CLI_TUNE_JOBS_MAX);
    return add_job(out, p, x, own, 1, INT64_MAX);
}

int cli_tune_jobs(struct cli_tune_jobs *out, const struct cli_tune_ask *ask)
{
    struct pick p = {.ask = ask};
    int rc;

    memset(out, 0, sizeof(*out));
    if (!ask->model == !ask->shapes)
        return err_set(ERR_ARG, "give one of --model and --shapes");
    rc = ask->model ? matrices_of_model(&p) : matrices_of_words(&p);
    if (rc == OK && strcmp(ask->weight_type, "file") != 0)
        rc = kern_type_parse(ask->weight_type, &p.type);
    if (rc == OK)
        rc = model_variants_choose(&p.variants, p.type, ask->precision, p.whole.n,
                                   p.whole.k);
    for (int i = 0; i < p.n_matrices && rc == OK; i++) {
        for (int at = 0, end; at < MODEL_RANGES && rc == OK; at = end) {
            end = at + 1;
            while (end < MODEL_RANGES && p.variants.v[end] == p.variants.v[at])
                end++;
            rc = add_job(out, &p, &p.matrices[i], p.variants.v[at],
                         at > 0 ? model_range_end[at - 1] : 1, model_range_end[end - 1]);
        }
        if (rc == OK && ask->own)
            rc = add_own(out, &p, &p.matrices[i]);
    }
    return rc;
}

void cli_tune_jobs_free(struct cli_tune_jobs *jobs)
{
    /* one more than n: a job that an error left half made */
    for (int i = 0; i < CLI_TUNE_JOBS_MAX; i++)
        mem_free(jobs->v[i].shapes);
    memset(jobs, 0, sizeof(*jobs));
}
