/* The predictor that was learned from answered requests (kv/learn.h), on a prompt's text. */
#include "kv/learn.h"

static int learned_open(void **state, const struct kv_predict_opts *o)
{
    if (!o->learned)
        return err_set(ERR_ARG,
                       "learned: nothing has been learned: expected examples with "
                       "texts and the lengths of their answers");
    *state = (void *)o->learned; /* lent, and only read */
    return OK;
}

static void learned_close(void *state)
{
    (void)state;
}

static int learned_predict(void *state, const struct kv_query *q,
                           struct kv_prediction *out)
{
    const struct kv_example request = {
        .text = q->text, .text_bytes = q->text_bytes, .prompt_tok = q->prompt_tok};

    if (!q->text)
        return err_set(ERR_ARG, "learned: the request has no text");
    kv_learned_predict(state, &request, out);
    return OK;
}

const struct kv_predictor kv_predictor_learned = {
    .name = "learned",
    .help = "learned from the texts and answers of earlier requests",
    .learns = true,
    .open = learned_open,
    .close = learned_close,
    .predict = learned_predict,
};
