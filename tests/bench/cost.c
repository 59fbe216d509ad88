/* What a step of the benchmark costs: apart, so that a test can ask for it, too. */
#include "tests/bench/bench.h"

double bench_decode_bytes(const struct model *m, int64_t ctx_tok)
{
    return model_cost_decode(model_config_of(m), model_cost_types_of(m),
                             (double)ctx_tok + 1, 1)
        .read_bytes;
}

double bench_prefill_flop(const struct model *m, int64_t n_tok)
{
    return model_cost_prefill(model_config_of(m), model_cost_types_of(m), n_tok, 0).flop;
}
