/* experiments/study/support/logit_error.h - how far an engine's logits are from exact arithmetic.
 *
 * The reference is this engine in exact arithmetic, whose own error against float64 is below
 * 1e-5 of it (tests/step/test_golden.c). An engine says the logarithms of the probabilities of the
 * tokens that it takes for most probable after each of some random prompts. Its error is the
 * root mean square of their differences from the reference's, less their mean, as a share of the
 * standard deviation of the reference's logits.   Threads: one caller. */
#ifndef STUDY_LOGIT_ERROR_H
#define STUDY_LOGIT_ERROR_H

#include <stdbool.h>
#include <stdint.h>

#include "format/format.h"
#include "kernels/kern.h"
#include "kernels/kv_type.h"
#include "par/team.h"

/* The most probable tokens that are compared, of each prompt. Some servers fail where one of them
 * has a text that is no character, so that there are few. */
#define STUDY_LOGIT_TOP         32
#define STUDY_LOGIT_PROMPTS_MAX 256

/* All zero before. */
struct study_logit_error {
    const char *model;              /* path, lent */
    const struct format_file *file; /* in place of it; lent; NULL: none */
    struct par_team *team;
    int n_prompts, n_prompt_tok, vocab; /* n_prompts <= STUDY_LOGIT_PROMPTS_MAX */
    uint64_t seed;
    bool sampled;     /* prompts are what the model itself draws, not ids at random */
    int32_t *ids;     /* [n_prompts, n_prompt_tok] */
    float *reference; /* [n_prompts, vocab] */
};

/* All from model to sampled are set; compute the reference. On error as before;
 * study_logit_error_close() is due all the same. */
MUST int study_logit_error_open(struct study_logit_error *e);
void study_logit_error_close(struct study_logit_error *e);

struct study_logit_errors {
    double rms;                             /* over all prompts; NaN: unknown */
    double prompt[STUDY_LOGIT_PROMPTS_MAX]; /* of each; NaN: unknown, or left out */
    double agrees[STUDY_LOGIT_PROMPTS_MAX]; /* 1: the reference has the same most probable
                                               token, 0: another one; NaN: as above */
};
extern const struct study_logit_errors study_logit_unknown;

/* Errors of this engine with e->model, or e->file, which after study_logit_error_open() may be
 * another one of the same vocabulary: one with fewer bits. On error *out is study_logit_unknown,
 * here and in the next two. */
MUST int study_logit_error_own(struct study_logit_error *e, enum kern_precision precision,
                               enum kern_kv_type kv, struct study_logit_errors *out);
/* Errors of a server of the OpenAI protocol, whose answers name ids of tokens (as llama.cpp's do).
 * `url`: "http://127.0.0.1:8080/v1". Prompts that it refuses are left out. ERR_UNSUPPORTED: more
 * than half are, or answers do not name ids. */
MUST int study_logit_error_of(struct study_logit_error *e, const char *url,
                              struct study_logit_errors *out);
/* The same of e->model on a server of `system` (baselines/server.h), which is started for that.
 * `precision`: of its products, where its command has such an option. */
MUST int study_logit_error_served(struct study_logit_error *e, const char *system,
                                  const char *precision, struct study_logit_errors *out);

/* The errors of a over those of b: the geometric mean over the n prompts of which both are known,
 * with its 95 % interval. NaN: there are none; an interval needs two. */
double study_logit_error_ratio(const struct study_logit_errors *a,
                               const struct study_logit_errors *b, int n, double *lo,
                               double *hi);

#endif
