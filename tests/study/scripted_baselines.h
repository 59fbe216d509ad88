/* tests/study/scripted_baselines.h - baselines that do as they are told: these functions stand
 * in for the client of baselines/gemm.h, so that every time is known. Include it once. */
#ifndef TESTS_STUDY_SCRIPTED_BASELINES_H
#define TESTS_STUDY_SCRIPTED_BASELINES_H

#include <string.h>

#include "baselines/gemm.h"
#include "tests/support/test.h"

struct script {
    const char *name;
    bool absent, no_bf16;
    int dies_at; /* the run that fails, from 1; 0: none */
    double s;    /* of a run */
};
struct gemm_baseline {
    const struct script *script;
    int n_runs;
};

/* Names that the studies have columns for. */
static struct script scripts[] = {{.name = "onednn", .s = 2e-3},
                                  {.name = "openblas", .absent = true},
                                  {.name = "blis", .no_bf16 = true, .s = 3e-3},
                                  {.name = "libxsmm", .s = 1e-3, .dies_at = 3}};
const char *const gemm_baseline_names[] = {"onednn", "openblas", "blis", "libxsmm", NULL};
static int baselines_open, shapes_made;

int gemm_baseline_open(struct gemm_baseline **out, const char *name,
                       const struct gemm_baseline_opts *o)
{
    *out = NULL;
    assert_true(o->n_threads > 0 && o->cpus && o->cache_bytes > 0);
    for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++) {
        if (strcmp(scripts[i].name, name) != 0)
            continue;
        if (scripts[i].absent)
            return err_set(ERR_NOTFOUND, "%s was not built: no library", name);
        *out = calloc(1, sizeof(**out));
        assert_non_null(*out);
        (*out)->script = &scripts[i];
        baselines_open++;
        return OK;
    }
    return err_set(ERR_NOTFOUND, "no baseline %s", name);
}

void gemm_baseline_close(struct gemm_baseline **r)
{
    baselines_open -= *r != NULL;
    free(*r);
    *r = NULL;
}

const char *gemm_baseline_version(const struct gemm_baseline *r)
{
    return r->script->name;
}

int gemm_baseline_shape(struct gemm_baseline *r, const char *type, int64_t m, int64_t n,
                        int64_t k, bool warm, double budget_s)
{
    (void)warm;
    assert_true(m > 0 && n > 0 && k > 0 && budget_s >= 0);
    if (r->script->no_bf16 && strcmp(type, "bf16") == 0)
        return err_set(ERR_NOTFOUND, "%s has no bf16", r->script->name);
    r->n_runs = 0;
    shapes_made++;
    return OK;
}

const char *gemm_baseline_setting(const struct gemm_baseline *r)
{
    return r->script->name;
}

double gemm_baseline_error(const struct gemm_baseline *r)
{
    return r->script->s;
}

int gemm_baseline_run(struct gemm_baseline *r, double *seconds)
{
    *seconds = r->script->s;
    if (++r->n_runs == r->script->dies_at)
        return err_set(ERR_IO, "%s died", r->script->name);
    return OK;
}

#endif
