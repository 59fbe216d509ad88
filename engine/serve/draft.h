/* serve/draft.h - guesses of the tokens that come next, so that one step computes several.
 *
 * A step computes a sequence's latest token and the guesses after it as rows of one batch, which
 * takes hardly longer than one row as long as it waits for memory. The logits of each row say what
 * comes after it: guesses are taken up to the first that is wrong, in whose place the right token
 * comes. Tokens are those of decoding one by one, sampled ones too, as a sampler draws only for
 * rows that are taken; but a step of several rows may round differently than one of a single row,
 * unless the model is deterministic.
 *
 * For the files of this module. Threads: the stepping thread. Not in the five papers. */
#ifndef SERVE_DRAFT_H
#define SERVE_DRAFT_H

#include "serve/engine.h"

/* A source of guesses. */
struct serve_drafter {
    /* *state: closed with close(), also after an error. `from`: the option. */
    int (*open)(void **state, struct serve_engine *s, const char *from);
    void (*close)(void **state);
    /* Write the next seqs[i]->n_draft tokens of each sequence behind its known ids, or fewer, and
     * set n_draft to their number. */
    int (*guess)(void *state, struct serve_seq **seqs, int n);
    /* The sequence gives up its memory. NULL: there is nothing to forget. */
    void (*forget)(void *state, struct serve_seq *q);
    /* Bytes read by its own steps so far. NULL: none. */
    int64_t (*bytes)(const void *state);
};
extern const struct serve_drafter serve_drafter_lookup, serve_drafter_model;

/* Rows of logits of a step, at most. */
int64_t serve_draft_rows(const struct serve_opts *o);
/* Before anything is loaded. ERR_UNSUPPORTED: not with ranks that are processes. ERR_NOTFOUND:
 * the file cannot be read. */
MUST int serve_draft_check(const struct serve_opts *o);
/* Open what the options ask for, if anything. ERR_UNSUPPORTED: not with an accelerator. ERR_ARG: a
 * draft model of another vocabulary. */
MUST int serve_draft_open(struct serve_engine *s);
void serve_draft_close(struct serve_engine *s);
/* Guess for those of the loop's batch that decode: their n_draft is set, that of others 0. Does
 * nothing without a draft. */
MUST int serve_draft_guess(struct serve_engine *s);
/* q's n_taken rows are taken, one of which needed no guess. */
void serve_draft_count(struct serve_engine *s, struct serve_seq *q);
void serve_draft_forget(struct serve_engine *s, struct serve_seq *q);

#endif
