/* The same length for every request: what other predictors must beat. */
#include "base/mem.h"
#include "kv/predict.h"

static int constant_open(void **state, const struct kv_predict_opts *o)
{
    double *tok;

    if (!(o->constant_tok >= 1 && o->constant_tok <= (double)o->max_tok))
        return err_set(ERR_ARG, "constant: a length of %g tokens: expected 1 to %lld",
                       o->constant_tok, (long long)o->max_tok);
    tok = mem_new(MEM_KV, 1, sizeof(*tok));
    if (!tok)
        return ERR_NOMEM;
    *tok = o->constant_tok;
    *state = tok;
    return OK;
}

static void constant_close(void *state)
{
    mem_free(state);
}

static int constant_predict(void *state, const struct kv_query *q,
                            struct kv_prediction *out)
{
    (void)q;
    *out = (struct kv_prediction){.gen_tok = *(const double *)state};
    return OK;
}

const struct kv_predictor kv_predictor_constant = {
    .name = "constant",
    .help = "the same length for every request",
    .open = constant_open,
    .close = constant_close,
    .predict = constant_predict,
};
