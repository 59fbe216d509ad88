#include <limits.h>

#include "base/home.h"
#include "base/mem.h"
#include "characterize/counters/program.h"
#include "experiments/study/counted/counted.h"
#include "format/format.h"
#include "model/cost.h"

/* Short enough for a simulation some hundred times slower than the processor. */
#define PROMPT     "3,4,5,6,7,8,9,10"
#define PROMPT_TOK 8
#define NEW        "4"
#define NEW_TOK    4
#define LIMIT_S    600

/* Calls of the forward step are the phases: the first is the prompt, each other a token. */
static int run(const char *model, int64_t ll_bytes, struct counters_call **calls, int *n)
{
    char path[PATH_MAX];
    const char *const argv[] = {home_program(path, sizeof(path), "sandwich"),
                                "run",
                                "--model",
                                model,
                                "--isa",
                                "avx2",
                                "--threads",
                                "1",
                                "--no-pin",
                                "--prompt-ids",
                                PROMPT,
                                "-n",
                                NEW,
                                "--ids",
                                NULL};
    const struct counters_program p = {.argv = argv,
                                       .function = "model_forward",
                                       .ll_bytes = ll_bytes,
                                       .ll_ways = 16,
                                       .line_bytes = 64,
                                       .files = "results/callgrind",
                                       .limit_s = LIMIT_S};
    int rc = counters_program_run(&p, calls, n);

    if (rc == OK && *n != NEW_TOK)
        rc = err_set(ERR_FORMAT, "callgrind: expected %d steps, found %d", NEW_TOK, *n);
    return rc;
}

/* Bytes of weights that the phase's step reads. */
static int weight_bytes(double *out, const char *model, enum serve_phase phase)
{
    struct format_file *f = NULL;
    struct model_cost_types types = {.kv = KERN_KV_F32};

    TRY(format_open(&f, model));
    types.weight = f->config.weight_type;
    *out = phase == SERVE_PREFILL
               ? model_cost_prefill(&f->config, types, PROMPT_TOK, 0).weight_bytes
               : model_cost_decode(&f->config, types, PROMPT_TOK, 1).weight_bytes;
    format_close(&f);
    return OK;
}

int study_simulated_run(struct study_simulated *out, const char *model,
                        enum serve_phase phase, int64_t ll_bytes)
{
    struct counters_call *calls = NULL;
    double misses = 0, instructions = 0, tok = 0, bytes = 0;
    int n = 0, rc;

    TRY(weight_bytes(&bytes, model, phase));
    rc = run(model, ll_bytes, &calls, &n);
    for (int i = 0; i < n && rc == OK; i++) {
        if ((i == 0) != (phase == SERVE_PREFILL))
            continue;
        misses += (double)calls[i].ll_read_misses;
        instructions += (double)calls[i].instructions;
        tok += i ? 1 : PROMPT_TOK;
    }
    mem_free(calls);
    if (rc != OK)
        return rc;
    *out = (struct study_simulated){
        .ll_misses_per_tok = misses / tok,
        .lines_per_tok = bytes / 64 / (phase == SERVE_PREFILL ? PROMPT_TOK : 1),
        .instructions_per_tok = instructions / tok,
        .ll_mpki = 1000 * misses / instructions,
    };
    return OK;
}
