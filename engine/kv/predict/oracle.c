/* Knows the length: what a perfect predictor would be worth. */
#include "kv/predict.h"

static int oracle_open(void **state, const struct kv_predict_opts *o)
{
    (void)o;
    *state = NULL;
    return OK;
}

static void oracle_close(void *state)
{
    (void)state;
}

static int oracle_predict(void *state, const struct kv_query *q,
                          struct kv_prediction *out)
{
    (void)state;
    if (q->true_tok < 0)
        return err_set(ERR_ARG, "oracle: the length of the request is not known");
    *out = (struct kv_prediction){.gen_tok = (double)q->true_tok};
    return OK;
}

const struct kv_predictor kv_predictor_oracle = {
    .name = "oracle",
    .help = "the true length",
    .reads_truth = true,
    .open = oracle_open,
    .close = oracle_close,
    .predict = oracle_predict,
};
