#include "experiments/study/support/engine.h"

#include <math.h>
#include <string.h>

#include "measure/card.h"

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
                       int n_threads)
{
    const struct model_phase_opts o = {.n_ranks = n_ranks, .n_threads = n_threads};

    return model_phase_open(out, e->model, &o);
}

int study_engine_step(struct model_bench *e, struct model_phase *p, bool decode,
                      int64_t n_tok, double *seconds, double of[STUDY_N_CLASSES])
{
    uint64_t ns[MODEL_T_N];

    model_times_take(e->model, ns);
    TRY(model_bench_steps_of(&e->steps, p, decode, n_tok, seconds));
    model_times_take(e->model, ns);
    of[STUDY_LINEAR] = (double)(ns[MODEL_T_LINEAR] + ns[MODEL_T_HEAD]) * 1e-9;
    of[STUDY_ATTENTION] = (double)ns[MODEL_T_ATTN] * 1e-9;
    of[STUDY_OTHER] = (double)ns[MODEL_T_NORM_ROPE] * 1e-9;
    of[STUDY_WAIT] = (double)(ns[MODEL_T_WAIT] + ns[MODEL_T_REDUCE]) * 1e-9;
    return OK;
}

double study_engine_bound_tok_s(const struct model_bench *e, const json_t *card,
                                bool decode, int64_t n_tok, enum kern_precision precision)
{
    const struct model_config *c = model_config_of(e->model);
    struct model_cost_types types = model_cost_types_of(e->model);
    int n = e->budget.n;

    if (!card)
        return NAN;
    if (decode)
        return measure_card_read_gbps(card, n) * 1e9 /
               model_cost_decode(c, types, (double)n_tok + 1, 1).read_bytes;
    return measure_card_peak_gflops(card, kern_type_name(types.weight),
                                    kern_precision_name(precision), n) *
           1e9 * (double)n_tok / model_cost_prefill(c, types, n_tok, 0).flop;
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
