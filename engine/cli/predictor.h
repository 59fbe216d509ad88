/* cli/predictor.h - what `sandwich predictor train` and `eval` share. */
#ifndef CLI_PREDICTOR_H
#define CLI_PREDICTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "datasets/examples.h"
#include "kv/learn.h"

struct cli_predictor_flags {
    char *data, *format, *tokenizer, *generate;
    int64_t n, max_new;
    char *out;           /* train */
    int64_t fold, folds; /* train */
    char *predictor;     /* eval */
    int64_t max_tok;
    double alpha, tau;
    bool json, help;
};

/* A data set and its requests as examples. */
struct cli_predictor_data {
    struct dataset *set;
    struct tok *tok; /* NULL: tokens are estimated */
    struct dataset_examples examples;
    char tokens[64]; /* how they were counted */
};

/* To be given back with cli_predictor_close(), also after an error. `from` NULL: any way of
 * counting tokens will do, and the part is that of the flags; else both are those of a
 * predictor. */
MUST int cli_predictor_open(struct cli_predictor_data *d,
                            const struct cli_predictor_flags *f,
                            const struct kv_learned_from *from);
void cli_predictor_close(struct cli_predictor_data *d);

/* Replace the outputs' lengths by those of the answers of f->generate, each at most f->max_new
 * tokens. */
MUST int cli_predictor_generate(struct dataset_examples *x,
                                const struct cli_predictor_flags *f);

MUST int cli_predictor_evaluate(const struct cli_predictor_flags *f);

#endif
