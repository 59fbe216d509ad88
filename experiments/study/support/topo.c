#include "experiments/study/support/topo.h"

#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/home.h"
#include "base/mem.h"
#include "cpu/cpu.h"
#include "datasets/dataset.h"
#include "experiments/study/support/plan.h"
#include "make/make.h"
#include "measure/card.h"
#include "plan/evaluator.h"
#include "plan/workload.h"

#define MACHINES   "engine/simulate/machines"
#define TOPOLOGIES "datasets/topologies"

/* Rates that stand in where nothing is known of a machine's: a server of about 2020 with
 * eight channels of DDR4 a package. Only the tree of such a machine is a result. */
#define ASSUMED_CORE_GBPS    12.0
#define ASSUMED_PACKAGE_GBPS 150.0
#define ASSUMED_CORE_GFLOPS  60.0
#define ASSUMED_NOISE        0.015

/* --- the machine */

static bool ends_in(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);

    return n > m && strcmp(s + n - m, end) == 0;
}

/* A path, a shipped topology, or one of the data that are fetched by hand. */
static int open_xml(struct topo_machine **out, const char *name)
{
    char path[PATH_MAX], shipped[PATH_MAX];

    if (access(name, R_OK) == 0)
        return topo_machine_open(out, name);
    snprintf(path, sizeof(path), "%s/%s", TOPOLOGIES, name);
    home_find(shipped, sizeof(shipped), path);
    if (access(shipped, R_OK) == 0)
        return topo_machine_open(out, shipped);
    snprintf(path, sizeof(path), "hwloc/%s", name);
    home_data(shipped, sizeof(shipped), path);
    if (access(shipped, R_OK) == 0)
        return topo_machine_open(out, shipped);
    return err_set(ERR_NOTFOUND,
                   "%s is not here, not in %s, and not in the folder hwloc of "
                   "$SANDWICH_DATA " DATASET_ABSENT,
                   name, TOPOLOGIES);
}

static int open_assumed(struct study_topo *t)
{
    const struct topo_machine *m = t->machine;
    int n_packages = m->n_packages > 0 ? m->n_packages : 1;
    struct simulate_machine_params params;

    t->rates = "assumed";
    TRY(simulate_machine_params_calibrate(&params, m, ASSUMED_CORE_GBPS,
                                          ASSUMED_PACKAGE_GBPS * n_packages,
                                          ASSUMED_CORE_GFLOPS * m->n_pus));
    params.noise_frac = ASSUMED_NOISE;
    return simulate_machine_new(&t->sim, m, &params);
}

/* One real point: what one thread and what all read here, and the peak. */
static int open_host(struct study_topo *t, const json_t *card)
{
    struct simulate_machine_params params;
    struct cpu_budget budget;
    double one, all, peak;
    const char *doubt;

    TRY(cpu_budget_get(&budget));
    if (!card)
        return err_set(ERR_NOTFOUND, "host: there is no machine card to calibrate with");
    one = measure_card_read_gbps(card, 1);
    all = measure_card_read_gbps(card, budget.n);
    peak = measure_card_peak_gflops(card, "f32", "exact", budget.n);
    if (isnan(one) || isnan(all) || isnan(peak)) {
        doubt = measure_card_doubt(card, "", 0);
        return err_set(ERR_NOTFOUND, "host: the machine card has no trusted bound: %s",
                       doubt ? doubt : "it was not measured");
    }
    TRY(topo_machine_open(&t->machine, "host"));
    TRY(simulate_machine_params_calibrate(&params, t->machine, one, all, peak));
    t->rates = "calibrated";
    params.noise_frac = ASSUMED_NOISE;
    return simulate_machine_new(&t->sim, t->machine, &params);
}

static int open_machine(struct study_topo *t, const char *name, const json_t *card)
{
    char params_path[PATH_MAX] = "", machines[PATH_MAX];

    if (strcmp(name, "host") == 0)
        return open_host(t, card);
    if (strncmp(name, "synthetic:", 10) == 0)
        TRY(topo_machine_open(&t->machine, name));
    else if (ends_in(name, ".xml"))
        TRY(open_xml(&t->machine, name));
    else
        TRY(simulate_named_machine_open(&t->machine, name,
                                        home_find(machines, sizeof(machines), MACHINES),
                                        params_path, sizeof(params_path)));
    t->rates = "of the machine";
    return params_path[0] ? simulate_machine_open(&t->sim, t->machine, params_path)
                          : open_assumed(t);
}

/* --- the work */

static int make_work(struct study_topo *t, const struct study_topo_opts *o)
{
    const struct model_cost_types types = {o->type ? KERN_BF16 : KERN_F32, KERN_KV_F32};
    struct plan_trace trace;
    struct plan_lengths *l = &t->lengths;

    TRY(study_lengths_draw(l, o->fit, o->n_requests, t->model.max_tok / 2, o->seed));
    for (int64_t i = 0; i < l->n; i++) {
        t->prompt_tok += (double)l->n_prompt[i] / (double)l->n;
        t->output_tok += (double)l->n_output[i] / (double)l->n;
    }
    TRY(plan_trace_of(&trace, l, t->model.max_tok));
    TRY(plan_workload(&t->prefill, &t->model, types, TOPO_PREFILL, &trace, 1));
    return plan_workload(&t->decode, &t->model, types, TOPO_DECODE, &trace, 1);
}

int study_topo_open(struct study_topo *out, const struct study_topo_opts *o,
                    const json_t *card)
{
    if (!o->machine || !o->model)
        return err_set(ERR_ARG, "study.%s: is needed", o->machine ? "model" : "machine");
    TRY(open_machine(out, o->machine, card));
    TRY(topo_tree_open(&out->tree, out->machine, NULL, out->note, sizeof(out->note)));
    TRY(make_config(o->model, &out->model));
    plan_limits(&out->limits, &out->model, false);
    return make_work(out, o);
}

void study_topo_close(struct study_topo *t)
{
    mem_free((void *)t->lengths.n_prompt);
    mem_free(t->tree);
    simulate_machine_close(&t->sim);
    topo_machine_close(&t->machine);
    memset(t, 0, sizeof(*t));
}

/* --- times */

int study_topo_step_s(const struct study_topo *t, const struct topo_config *c,
                      enum topo_phase phase, double *seconds)
{
    return simulate_seconds(t->sim, c, NULL,
                            phase == TOPO_PREFILL ? &t->prefill : &t->decode, seconds);
}

int study_topo_request_s(const struct study_topo *t, const struct topo_config *prefill,
                         const struct topo_config *decode, double *seconds)
{
    double prompt_s, token_s;

    TRY(simulate_seconds(t->sim, prefill, decode, &t->prefill, &prompt_s));
    TRY(simulate_seconds(t->sim, decode, NULL, &t->decode, &token_s));
    *seconds = prompt_s + (t->output_tok - 1.0) * token_s;
    return OK;
}

static int measure(void *ctx, const struct topo_config *c, int repeat, double *seconds)
{
    struct study_topo_asked *a = ctx;
    const struct simulate_workload *w =
        a->phase == TOPO_PREFILL ? &a->t->prefill : &a->t->decode;

    TRY(a->noise
            ? simulate_measure(a->t->sim, c, a->placement, w, a->seed, repeat, seconds)
            : simulate_seconds(a->t->sim, c, a->placement, w, seconds));
    a->sum_s += *seconds;
    return OK;
}

int study_topo_evaluator(struct plan_evaluation *out, struct study_topo_asked *asked)
{
    *out = (struct plan_evaluation){.measure = measure, .ctx = asked, .simulated = true};
    if (asked->noise)
        TRY(plan_evaluation_noise(&out->noise_frac, out, asked->t->machine,
                                  STUDY_TOPO_NOISE_N));
    asked->noise_frac = out->noise_frac;
    return OK;
}

int study_topo_find(struct plan_tree_result *out, struct study_topo_asked *asked,
                    const struct plan_tree_search_opts *s)
{
    struct plan_evaluation e;

    TRY(study_topo_evaluator(&e, asked));
    return plan_tree_search(out, asked->t->tree, &asked->t->limits, &e, s);
}

/* --- trees */

static int one_step(struct topo_tree **t, const char *step, int n_chars)
{
    struct topo_tree *next = NULL;
    int n, stride, depth, end = 0;

    if (sscanf(step, "group(%d,%d,%d)%n", &n, &stride, &depth, &end) == 3 &&
        end == n_chars)
        TRY(topo_tree_group(&next, *t, n, stride, depth));
    else if (sscanf(step, "remove(%d,%d)%n", &n, &depth, &end) == 2 && end == n_chars)
        TRY(topo_tree_remove(&next, *t, n, depth));
    else
        return err_set(ERR_ARG,
                       "steps: expected group(N,STRIDE,DEPTH) or remove(N,DEPTH), found "
                       "\"%.*s\"",
                       n_chars, step);
    mem_free(*t);
    *t = next;
    return OK;
}

int study_topo_steps(struct topo_tree **out, const struct topo_tree *t, const char *steps)
{
    TRY(topo_tree_copy(out, t));
    for (steps += strspn(steps, " "); *steps; steps += strspn(steps, " ")) {
        int n = (int)strcspn(steps, " ");

        TRY(one_step(out, steps, n));
        steps += n;
    }
    return OK;
}

int study_topo_level(const struct topo_tree *t, int n)
{
    int level = 0;

    while (level + 1 < t->n_levels && topo_tree_n_nodes(t, level + 1) <= n)
        level++;
    return level;
}

int study_topo_node_level(const struct topo_tree *t)
{
    for (int l = 0; l < t->n_levels; l++)
        if (t->levels[l].kinds & TOPO_NODE)
            return l;
    return 0;
}

/* --- its description */

/* "4 package x 2 node+L3 x 24 core+PU". */
static void print_shape(const struct topo_tree *t, char *out, size_t n)
{
    char kinds[64];
    size_t at = 0;

    for (int l = 1; l < t->n_levels && at < n; l++) {
        topo_kinds_print(t->levels[l].kinds, kinds, sizeof(kinds));
        snprintf(out + at, n - at, "%s%d %s", at ? " x " : "", t->levels[l - 1].arity,
                 kinds);
        at = strlen(out);
    }
}

static void report_levels(struct study_cell *c, const struct topo_tree *tree)
{
    char kinds[TOPO_LEVELS_MAX * 66] = "";

    for (int l = 0; l < tree->n_levels; l++) {
        size_t at = strlen(kinds);

        snprintf(kinds + at, sizeof(kinds) - at, "%s", l ? "|" : "");
        at = strlen(kinds);
        topo_kinds_print(tree->levels[l].kinds, kinds + at, 64);
    }
    study_note_text(c, "levels", kinds);
}

void study_topo_report_tree(struct study_cell *c, const struct topo_tree *tree)
{
    double arity[TOPO_LEVELS_MAX], original[TOPO_LEVELS_MAX], kinds[TOPO_LEVELS_MAX];
    double *cpus = mem_new(MEM_OTHER, (size_t)tree->n_pus, sizeof(*cpus));
    size_t n = (size_t)tree->n_levels;

    for (int l = 0; l < tree->n_levels; l++) {
        arity[l] = tree->levels[l].arity;
        original[l] = tree->levels[l].original;
        kinds[l] = tree->levels[l].kinds;
    }
    for (int i = 0; i < tree->n_pus; i++)
        cpus[i] = tree->machine->pus[tree->pus[i]].os_index;
    study_series(c, "arity", "", arity, n);
    study_series(c, "original_arity", "", original, n);
    study_series(c, "kinds", "", kinds, n);
    study_series(c, "cpus", "", cpus, (size_t)tree->n_pus);
    mem_free(cpus);
    report_levels(c, tree);
}

void study_topo_report(struct study_cell *c, const struct study_topo *t)
{
    char *text = NULL, shape[512];

    study_note_text(c, "tree", topo_tree_text(t->tree, &text) == OK ? text : NULL);
    mem_free(text);
    print_shape(t->tree, shape, sizeof(shape));
    study_note_text(c, "shape", shape);
    study_note_text(c, "tree_note", t->note);
    study_note_text(c, "machine_note", t->machine->note);
    study_note_text(c, "rates", t->rates);
}
