/* The true length times exp(bias + s z), z normal and s uniform in [0, 2 sigma]: a predictor
 * whose error is known. It knows how unsure it is: the uncertainty is s, at most 1. */
#include <math.h>

#include "base/mem.h"
#include "base/rng.h"
#include "kv/predict.h"

struct noisy {
    double sigma, bias, max_tok;
    struct rng rng;
};

static int noisy_open(void **state, const struct kv_predict_opts *o)
{
    struct noisy *n;

    if (!(o->sigma >= 0 && o->sigma <= 10 && fabs(o->bias) <= 10))
        return err_set(
            ERR_ARG,
            "noisy: sigma %g, bias %g: expected sigma in 0 to 10, bias in -10 to 10",
            o->sigma, o->bias);
    n = mem_new(MEM_KV, 1, sizeof(*n));
    if (!n)
        return ERR_NOMEM;
    n->sigma = o->sigma;
    n->bias = o->bias;
    n->max_tok = (double)o->max_tok;
    rng_init(&n->rng, (uint64_t)o->seed, "predict");
    *state = n;
    return OK;
}

static void noisy_close(void *state)
{
    mem_free(state);
}

static int noisy_predict(void *state, const struct kv_query *q, struct kv_prediction *out)
{
    struct noisy *n = state;
    double s = 2 * n->sigma * rng_f64(&n->rng), z = rng_normal(&n->rng);

    if (q->true_tok < 0)
        return err_set(ERR_ARG, "noisy: the length of the request is not known");
    out->gen_tok = fmin((double)q->true_tok * exp(n->bias + s * z), n->max_tok);
    out->uncertainty = fmin(s, 1);
    return OK;
}

const struct kv_predictor kv_predictor_noisy = {
    .name = "noisy",
    .help = "the true length with an error of known size",
    .reads_truth = true,
    .open = noisy_open,
    .close = noisy_close,
    .predict = noisy_predict,
};
