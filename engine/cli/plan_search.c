/* From the words of `sandwich plan` to a search: the machine, the model, the trace. */
#include "cli/plan.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/home.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cpu/cpu.h"
#include "datasets/dataset.h"
#include "format/format.h"
#include "make/make.h"
#include "plan/method.h"
#include "simulate/contention.h"

#define MACHINES_DIR "engine/simulate/machines"

/* Without --lengths: the 10th, 25th, 50th, 75th and 90th percentile of the lengths of
 * ShareGPT's first turns (datasets/fits/sharegpt.json), prompts and outputs each. */
static const int64_t usual_prompt[] = {8, 15, 33, 175, 819};
static const int64_t usual_output[] = {38, 143, 285, 459, 671};
#define N_USUAL ((int64_t)(sizeof(usual_prompt) / sizeof(usual_prompt[0])))

struct cli_plan_job {
    const struct cli_plan_flags *f; /* lent */
    struct topo_machine *machine;
    char params_path[1024];
    struct cpu_budget budget;
    struct model_config config;
    char model_id[17]; /* of a file */
    bool model_is_file;
    enum kern_type type;
    int64_t *lengths; /* [2 n_lengths] prompts, then outputs; NULL: the usual ones */
    int64_t n_lengths;
};

bool cli_plan_is_host(const struct cli_plan_flags *f)
{
    return strcmp(f->machine, "host") == 0;
}

/* ---- the machine ---- */

const char *cli_plan_machine_name(int i)
{
    static const char *const *names;
    char machines[PATH_MAX];

    home_find(machines, sizeof(machines), MACHINES_DIR);
    if (i == 0 && simulate_named_machines(machines, &names) != OK)
        names = NULL;
    return names ? names[i] : NULL;
}

static bool is_topology(const char *spec)
{
    const char *dot = strrchr(spec, '.');

    return !strcmp(spec, "host") || !strncmp(spec, "synthetic:", 10) ||
           !strncmp(spec, "fsroot:", 7) || (dot && !strcmp(dot, ".xml"));
}

static int open_machine(struct cli_plan_job *j)
{
    const struct cli_plan_flags *f = j->f;
    char machines[PATH_MAX];
    int rc;

    home_find(machines, sizeof(machines), MACHINES_DIR);
    if (is_topology(f->machine))
        rc = topo_machine_open(&j->machine, f->machine);
    else
        rc = simulate_named_machine_open(&j->machine, f->machine, machines,
                                         j->params_path, sizeof(j->params_path));
    if (rc == OK && f->machine_params)
        snprintf(j->params_path, sizeof(j->params_path), "%s", f->machine_params);
    if (rc != OK || *j->params_path || cli_plan_is_host(f))
        return rc;
    return err_set(
        ERR_ARG,
        "--machine %s: a topology states no rates, so its steps cannot be priced: "
        "--machine-params FILE gives them (%s/params/ holds some)",
        f->machine, machines);
}

/* ---- the model ---- */

static int open_model(struct cli_plan_job *j)
{
    const struct cli_plan_flags *f = j->f;
    struct format_file *file = NULL;
    int rc;

    if (!f->model)
        return err_set(ERR_ARG, "--model is needed to plan for %s", f->machine);
    /* No architecture has a slash in its name: a file that is not there is reported as missing. */
    j->model_is_file = strchr(f->model, '/') || access(f->model, F_OK) == 0;
    if (j->model_is_file) {
        rc = format_open(&file, f->model);
        if (rc == OK)
            j->config = file->config;
        format_close(&file);
        if (rc == OK)
            rc = format_identity_of(j->model_id, f->model);
    } else {
        rc = make_config(f->model, &j->config);
        j->config.weight_type = KERN_BF16; /* as `sandwich model make` would */
    }
    if (rc != OK)
        return rc;
    j->type = j->config.weight_type;
    if (f->type != CLI_PLAN_FILE)
        j->type = (enum kern_type)(KERN_F32 + f->type - CLI_PLAN_F32);
    return OK;
}

/* Plans for this host are measured by the engine, which needs a file's weights, as it stores
 * them. */
static int check_host(const struct cli_plan_job *j)
{
    if (!j->model_is_file)
        return err_set(ERR_ARG,
                       "--model %s: to measure on this host a model's file is needed "
                       "(`sandwich model make --arch %s --out FILE` makes one)",
                       j->f->model, j->f->model);
    if (j->type != j->config.weight_type)
        return err_set(ERR_ARG,
                       "--type: on this host the model is measured as its file stores "
                       "it, %s",
                       kern_type_name(j->config.weight_type));
    if (j->f->machine_params)
        return err_set(ERR_ARG, "--machine-params: this host is measured, not simulated");
    return OK;
}

/* ---- the trace ---- */

static int read_lengths(struct cli_plan_job *j)
{
    struct dataset *d = NULL;
    struct dataset_opts o;
    int rc = opt_init(dataset_opt_table, &o);

    if (rc == OK)
        rc = opt_set(dataset_opt_table, &o, "path", j->f->lengths, "--lengths");
    if (rc == OK)
        rc = dataset_open(&d, &o);
    if (rc == OK) {
        j->n_lengths = d->n_items;
        j->lengths = mem_new(MEM_OTHER, 2 * (size_t)d->n_items, sizeof(*j->lengths));
        rc = j->lengths ? OK : ERR_NOMEM;
    }
    for (int64_t i = 0; rc == OK && i < d->n_items; i++) {
        const struct dataset_item *item = &d->items[i];

        j->lengths[i] = item->n_prompt;
        j->lengths[j->n_lengths + i] = item->n_output;
        if (item->n_prompt < 0 || item->n_output < 0)
            rc = err_set(ERR_UNSUPPORTED,
                         "--lengths: %s: expected lengths in tokens, found texts (%s)",
                         j->f->lengths, d->reader->name);
    }
    dataset_close(&d);
    opt_free(dataset_opt_table, &o);
    return rc;
}

/* ---- all of it ---- */

int cli_plan_open(struct cli_plan_job **out, const struct cli_plan_flags *f)
{
    struct cli_plan_job *j = mem_new(MEM_OTHER, 1, sizeof(*j));
    int rc;

    *out = NULL;
    if (!j)
        return ERR_NOMEM;
    j->f = f;
    rc = open_machine(j);
    if (rc == OK)
        rc = open_model(j);
    if (rc == OK && cli_plan_is_host(f))
        rc = check_host(j);
    if (rc == OK)
        rc = cpu_budget_get(&j->budget);
    if (rc == OK && f->lengths)
        rc = read_lengths(j);
    if (rc == OK)
        *out = j, j = NULL; /* the caller's now */
    cli_plan_close(&j);
    return rc;
}

void cli_plan_close(struct cli_plan_job **jp)
{
    struct cli_plan_job *j = *jp;

    if (!j)
        return;
    mem_free(j->lengths);
    topo_machine_close(&j->machine);
    mem_free(j);
    *jp = NULL;
}

int cli_plan_ask(struct cli_plan_job *j, struct plan_search_opts *o,
                 const struct plan_method **method,
                 const struct cli_plan_progress *progress)
{
    const struct plan_lengths usual = {usual_prompt, usual_output, N_USUAL};
    const struct plan_lengths given = {j->lengths, j->lengths + j->n_lengths,
                                       j->n_lengths};
    const struct cli_plan_flags *f = j->f;
    bool host = cli_plan_is_host(f);

    TRY(plan_method_find(f->method, method));
    *o = (struct plan_search_opts){.model = &j->config,
                                   .types = {j->type, (enum kern_kv_type)f->kv_type},
                                   .batch = (int)f->batch,
                                   .strict_tp = f->strict_tp,
                                   .max_ranks = (int)f->max_ranks,
                                   .n_ranks = (int)f->ranks,
                                   .one_team = host || f->one_team,
                                   .search = f->search,
                                   .stop = &cli_interrupted,
                                   .progress = progress->fn,
                                   .progress_ctx = progress->ctx};
    memcpy(o->model_id, j->model_id, sizeof(o->model_id));
    TRY(plan_evaluator_find(host ? "measured" : "contention", &o->evaluator));
    TRY(plan_trace_of(&o->trace, j->lengths ? &given : &usual, j->config.max_tok));
    if (host) {
        o->tree.cpus = j->budget.cpus;
        o->tree.n_cpus = j->budget.n;
    }
    o->tree.hide = f->hide ? TOPO_CLUSTER : 0;
    o->e = (struct plan_evaluator_opts){.machine = j->machine,
                                        .machine_params_path = j->params_path,
                                        .model_path = f->model,
                                        .precision = kern_precision_name(f->precision),
                                        .trace = &o->trace,
                                        .batch = f->batch,
                                        .seed = (uint64_t)f->search.seed};
    return OK;
}
