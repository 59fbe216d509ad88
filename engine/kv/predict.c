#include "kv/predict.h"

#include <math.h>

#include "base/name.h"

int kv_predictor_find(const char *name, const struct kv_predictor **out)
{
    *out = name_find(kv_predictors, name, "length predictor");
    return *out ? OK : ERR_NOTFOUND;
}

struct kv_need kv_need_predicted(int64_t prompt_tok, const struct kv_prediction *p,
                                 const struct kv_caution *c, int64_t max_tok)
{
    double gen_tok = ceil(p->gen_tok * (1 + c->alpha * p->uncertainty));
    double most = (double)(max_tok - prompt_tok);

    gen_tok = gen_tok < most ? gen_tok : most; /* also where it is NaN */
    return (struct kv_need){.prompt_tok = prompt_tok,
                            .gen_tok = gen_tok > 1 ? (int64_t)gen_tok : 1,
                            .large = p->uncertainty > c->tau};
}
