#include "experiments/study/support/engine.h"

#include <string.h>

#define STEP_TOK 512 /* the engine's own --max-step-tok */

int study_engine_open(struct study_engine *out, const char *path, int precision,
                      int n_seqs, int64_t max_tok, int64_t seed)
{
    struct model_opts o = {.weight_type = KERN_N_TYPES,
                           .kv_type = KERN_F32,
                           .precision = (enum kern_precision)precision,
                           .max_step_tok = max_tok < STEP_TOK ? max_tok : STEP_TOK,
                           .max_tok = max_tok};
    struct format_file *f = NULL;
    int rc;

    memset(out, 0, sizeof(*out));
    if (!path)
        return err_set(ERR_ARG, "study.model: a model's file is needed");
    if (o.max_step_tok < n_seqs)
        o.max_step_tok = n_seqs;
    rc = cpu_budget_get(&out->budget);
    if (rc == OK)
        rc = par_team_open(&out->team, out->budget.cpus, out->budget.n, 1);
    if (rc == OK)
        rc = format_open(&f, path);
    if (rc == OK)
        rc = model_open(&out->model, f, out->team, &o);
    format_close(&f);
    if (rc == OK)
        rc = model_bench_steps_open(&out->steps, out->model, out->team, n_seqs, max_tok,
                                    STEP_TOK, (uint64_t)seed);
    if (rc != OK)
        study_engine_close(out);
    return rc;
}

void study_engine_close(struct study_engine *e)
{
    model_bench_steps_close(&e->steps);
    model_close(&e->model);
    par_team_close(&e->team);
}

int study_engine_phase(struct study_engine *e, struct model_phase **out, int n_ranks,
                       int n_threads, const struct par_coll *coll)
{
    const struct model_phase_opts o = {
        .n_ranks = n_ranks, .n_threads = n_threads, .coll = coll};

    return model_phase_open(out, e->model, &o);
}

void study_engine_report(struct study_cell *c, const struct study_engine *e)
{
    char table[512];
    struct cpu_info info;

    cpu_info_get(&info);
    kern_table_print(model_kern(e->model), table, sizeof(table));
    study_note_text(c, "cpu", info.model_name);
    study_note_text(c, "cpus", e->budget.reason);
    study_note_text(c, "kernels", table);
    study_note_text(c, "weights", kern_type_name(model_weight_type(e->model)));
}
