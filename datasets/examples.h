/* datasets/examples.h - answered requests as examples of a length predictor (kv/learn.h):
 * counted in tokens, and divided so that the predictor is tested on conversations of which it
 * has seen nothing.
 *
 * A conversation belongs to one of `folds` equal parts by a hash of its name or text, so that
 * the division does not depend on the file's order, on which requests were sampled, or on
 * which file holds it: all turns and all copies of a conversation are in one part.
 * Threads: any, distinct structs. */
#ifndef DATASETS_EXAMPLES_H
#define DATASETS_EXAMPLES_H

#include "datasets/dataset.h"
#include "kv/learn.h"

struct tok;

struct dataset_examples {
    /* [n_learn + n_held_out], in the order of the data set. `text` is the question alone,
     * lent by the data set, prompt_tok counts the turns before it too. */
    struct kv_example *e;
    int64_t n_learn, n_held_out; /* those held out come after those to learn from */
};

/* Without a tokenizer a text is taken to have one token for each of these bytes. */
#define DATASET_BYTES_PER_TOK 4

/* The requests of `d` and, of conversations, their later turns. Those of part `fold` of
 * `folds` are held out; fold 0: none is. t NULL: see DATASET_BYTES_PER_TOK.
 *   out  to be given back with dataset_examples_fini() before `d`, also after an error
 * ERR_ARG: the requests have no texts; fold is not in 0 .. folds. ERR_NOMEM. */
MUST int dataset_examples(struct dataset_examples *out, const struct dataset *d,
                          const struct tok *t, int64_t fold, int64_t folds);
void dataset_examples_fini(struct dataset_examples *x);

#endif
