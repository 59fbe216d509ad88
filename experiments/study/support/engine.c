#include "experiments/study/support/engine.h"

#include <string.h>

#define STEP_TOK 512 /* the engine's own --max-step-tok */

int study_engine_open(struct model_bench *out, const char *path,
                      const struct model_bench_opts *o)
{
    struct model_bench_opts opts = *o;
    struct format_file *f = NULL;
    int rc;

    memset(out, 0, sizeof(*out));
    if (opts.step_tok == 0)
        opts.step_tok = o->max_tok < STEP_TOK ? o->max_tok : STEP_TOK;
    rc = path ? format_open(&f, path)
              : err_set(ERR_ARG, "study.model: a model's file is needed");
    if (rc == OK)
        rc = model_bench_open(out, f, &opts);
    format_close(&f);
    return rc;
}

int study_engine_phase(struct model_bench *e, struct model_phase **out, int n_ranks,
                       int n_threads, const struct par_coll *coll)
{
    const struct model_phase_opts o = {
        .n_ranks = n_ranks, .n_threads = n_threads, .coll = coll};

    return model_phase_open(out, e->model, &o);
}

void study_engine_report(struct study_cell *c, const struct model_bench *e)
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
