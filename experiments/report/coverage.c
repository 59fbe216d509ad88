#include "experiments/report/coverage.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/name.h"
#include "experiments/metrics/metrics.h"

#define COVERAGE_BYTES ((size_t)1 << 20)

const char *const coverage_kinds[COVERAGE_KINDS + 1] = {"full", "partial", "other",
                                                        "none", NULL};

static int check_evidence(const json_t *list, const char *where)
{
    const json_t *e;
    size_t i;

    json_array_foreach(list, i, e)
    {
        const char *name = json_string_value(e);

        if (!name || !metrics_evidence_find(name))
            return err_set(ERR_FORMAT,
                           "%s: evidence: expected a kind of evidence, found \"%s\"",
                           where, name ? name : "no text");
    }
    return OK;
}

static int check_names(const json_t *list, const char *where)
{
    const json_t *e;
    size_t i;

    json_array_foreach(list, i, e)
    {
        const char *name = json_string_value(e);

        if (!name || strchr(name, '/'))
            return err_set(ERR_FORMAT, "%s: experiments: expected a name, found \"%s\"",
                           where, name ? name : "no text");
    }
    return OK;
}

/* A row that is not whole says why, and one that is tested says by which experiments. */
static int check_sense(const struct coverage_row *r, const char *where)
{
    const bool tested = json_array_size(r->experiments) > 0;

    if (tested != (r->kind != COVERAGE_NONE))
        return err_set(ERR_FORMAT, "%s: experiments: expected %s for \"%s\"", where,
                       tested ? "none" : "some", coverage_kinds[r->kind]);
    if (tested != (json_array_size(r->evidence) > 0))
        return err_set(ERR_FORMAT, "%s: evidence: expected %s", where,
                       tested ? "that of its experiments" : "none without experiments");
    if ((r->kind == COVERAGE_FULL) == (r->why != NULL))
        return err_set(ERR_FORMAT, "%s: why: expected %s for \"%s\"", where,
                       r->why ? "none" : "what is missing", coverage_kinds[r->kind]);
    return OK;
}

static int read_kind(struct coverage_row *r, const json_t *obj, const char *where)
{
    const char *word = NULL;
    int i;

    TRY(json_get_str(obj, "covers", &word, where));
    i = name_index(coverage_kinds, word);
    if (i < 0)
        return name_unknown(ERR_FORMAT, word, coverage_kinds, "%s: covers: \"%s\"", where,
                            word);
    r->kind = (enum coverage_kind)i;
    return OK;
}

static int read_row(struct coverage_row *r, const json_t *obj, const char *path, size_t i)
{
    static const char *const keys[] = {"paper",    "where", "covers", "experiments",
                                       "evidence", "why",   NULL};
    char where[256];

    snprintf(where, sizeof(where), "%s: row %zu", path, i);
    TRY(json_get_str(obj, "paper", &r->paper, where));
    TRY(json_get_str(obj, "where", &r->where, where));
    snprintf(where, sizeof(where), "%s: %.40s, %.40s", path, r->paper, r->where);
    TRY(json_check_keys(obj, keys, where));
    TRY(read_kind(r, obj, where));
    TRY(json_get_arr(obj, "experiments", &r->experiments, where));
    TRY(json_get_arr(obj, "evidence", &r->evidence, where));
    TRY(json_opt_str(obj, "why", &r->why, where));
    TRY(check_names(r->experiments, where));
    TRY(check_evidence(r->evidence, where));
    return check_sense(r, where);
}

int coverage_read(struct coverage *out, const char *path)
{
    static const char *const top[] = {"about", "rows", NULL};
    const json_t *list = NULL;

    *out = (struct coverage){0};
    TRY(json_read_file(&out->root, path, COVERAGE_BYTES));
    TRY(json_check_keys(out->root, top, path));
    TRY(json_get_arr(out->root, "rows", &list, path));
    out->n = json_array_size(list);
    out->v = mem_new(MEM_HARNESS, out->n + 1, sizeof(*out->v));
    for (size_t i = 0; i < out->n; i++)
        TRY(read_row(&out->v[i], json_array_get(list, i), path, i));
    return OK;
}

void coverage_fini(struct coverage *c)
{
    mem_free(c->v);
    json_decref(c->root);
    *c = (struct coverage){0};
}

void coverage_join(char *out, size_t size, const json_t *names)
{
    const json_t *e;
    size_t i, n = 0;

    out[0] = '\0';
    json_array_foreach(names, i, e) if (n < size) n +=
        (size_t)snprintf(out + n, size - n, "%s%s", i ? ", " : "", json_string_value(e));
}
