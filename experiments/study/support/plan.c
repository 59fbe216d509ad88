#include "experiments/study/support/plan.h"

#include <stdio.h>
#include <string.h>

#include "base/home.h"
#include "base/mem.h"
#include "datasets/dataset.h"
#include "format/format.h"
#include "make/make.h"
#include "simulate/contention.h"

#define MACHINES "engine/simulate/machines"

/* --- the target */

/* NAME or NAME:TYPE. */
static int open_named(struct study_planner *p, const char *text)
{
    const char *colon = strchr(text, ':');
    char name[64];

    snprintf(name, sizeof(name), "%.*s", (int)strcspn(text, ":@"), text);
    TRY(make_config(name, &p->model));
    p->model.weight_type = KERN_BF16;
    return colon ? kern_type_parse(colon + 1, &p->model.weight_type) : OK;
}

static int open_simulated(struct study_planner *p, const char *target, const char *at)
{
    char machines[PATH_MAX], model[96];

    home_find(machines, sizeof(machines), MACHINES);
    snprintf(model, sizeof(model), "%.*s", (int)(at - target), target);
    TRY(open_named(p, model));
    TRY(simulate_named_machine_open(&p->machine, at + 1, machines, p->params_path,
                                    sizeof(p->params_path)));
    return plan_evaluator_find("contention", &p->search.evaluator);
}

static int open_host(struct study_planner *p, const char *path)
{
    struct format_file *f = NULL;
    int rc = path ? format_open(&f, path)
                  : err_set(ERR_ARG, "study.model: a model's file is needed");

    if (rc == OK)
        p->model = f->config;
    format_close(&f);
    if (rc == OK)
        rc = topo_machine_open(&p->machine, "host");
    if (rc == OK)
        rc = cpu_budget_get(&p->budget);
    p->search.tree.cpus = p->budget.cpus;
    p->search.tree.n_cpus = p->budget.n;
    return rc == OK ? plan_evaluator_find("measured", &p->search.evaluator) : rc;
}

/* --- planning */

int study_lengths_draw(struct plan_lengths *out, const char *fit, int64_t n,
                       int64_t max_tok, int64_t seed)
{
    struct dataset *trace = NULL;
    struct dataset_opts d;
    int64_t *lengths;
    int rc;

    TRY(opt_init(dataset_opt_table, &d));
    d.n = n;
    d.seed = seed;
    d.max_prompt_tok = d.max_output_tok = max_tok;
    rc = opt_set(dataset_opt_table, &d, "fit", fit, "study.fit");
    if (rc == OK)
        rc = dataset_open(&trace, &d);
    opt_free(dataset_opt_table, &d);
    if (rc != OK)
        return rc;
    n = trace->n_items;
    lengths = mem_new(MEM_DATASET, 2 * (size_t)n, sizeof(*lengths));
    for (int64_t i = 0; i < n; i++) {
        lengths[i] = trace->items[i].n_prompt;
        lengths[n + i] = trace->items[i].n_output;
    }
    dataset_close(&trace);
    *out = (struct plan_lengths){.n_prompt = lengths, .n_output = lengths + n, .n = n};
    return OK;
}

int study_planner_open(struct study_planner *out, const struct study_plan_opts *o)
{
    const char *at = o->target ? strchr(o->target, '@') : NULL;
    struct plan_search_opts *s = &out->search;

    TRY(at ? open_simulated(out, o->target, at) : open_host(out, o->target));
    TRY(opt_init(plan_tree_search_opt_table, &s->search));
    s->search.max_s = o->max_s;
    s->search.seed = o->seed;
    s->model = &out->model;
    s->types.weight = out->model.weight_type;
    s->batch = o->batch;
    s->one_team = true; /* what the engine can run */
    s->costs_s = -1;    /* nothing here mixes phases in a step */
    s->e = (struct plan_evaluator_opts){.machine = out->machine,
                                        .machine_params_path = out->params_path,
                                        .model_path = o->target,
                                        .precision = kern_precision_name(o->precision),
                                        .trace = &s->trace,
                                        .batch = o->batch,
                                        .seed = (uint64_t)o->seed};
    return plan_trace_of(&s->trace, &o->lengths, out->model.max_tok);
}

void study_planner_close(struct study_planner *p)
{
    opt_free(plan_tree_search_opt_table, &p->search.search);
    topo_machine_close(&p->machine);
}

int study_plan(struct plan_search_result *out, struct study_planner *p,
               const char *method, int n_ranks)
{
    const struct plan_method *m;

    memset(out, 0, sizeof(*out));
    p->search.n_ranks = n_ranks;
    TRY(plan_method_find(method, &m));
    return m->run(out, &p->search);
}
