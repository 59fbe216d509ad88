/* experiments/study/support/kv_stream.h - the requests that a replay serves, and earlier ones
 * to learn from.
 *
 * A stream is a chain of sources, "A+B": each gives an equal share of the requests, one after
 * the other, so that the lengths change. A source is the name of a fit, from which lengths are
 * drawn, or a file: of conversations, of which one part is replayed and the others are to
 * learn from, or of lengths only, which is replayed whole.
 *
 * The text of a drawn request is one word, which names one of STUDY_KV_CLASSES classes of
 * equally many outputs. It names the class of the request with a known probability and
 * otherwise a random one, so that what a text reveals of its answer's length is known in
 * bits.
 * Threads: one. */
#ifndef STUDY_KV_STREAM_H
#define STUDY_KV_STREAM_H

#include "kv/learn.h"

#define STUDY_KV_CLASSES 8
#define STUDY_KV_SOURCES 4

struct dataset;
struct tok;

struct study_kv_stream_opts {
    const char *sources;
    const char *tokenizer; /* counts the tokens of texts; NULL: DATASET_BYTES_PER_TOK */
    int64_t n_requests;    /* to be replayed, at most */
    int64_t n_learn;       /* drawn ones to learn from */
    int64_t seed;          /* of lengths and texts; of a file, which part is replayed */
    int64_t folds;         /* parts of a file */
    double tells;          /* probability that a text tells the truth */
    int64_t max_tok;   /* 0: it holds 95 % of the requests, and is at most limit_tok */
    int64_t limit_tok; /* 0: none */
    int64_t align_tok;
};

/* All zero: nothing is open. */
struct study_kv_stream {
    struct kv_example *requests; /* [n] cut to max_tok, prompt and output at least 1 */
    struct kv_example *learn;    /* [n_learn] of the first source, not cut */
    int64_t n, n_learn, max_tok;
    int64_t n_first;  /* requests of the first source; n: there is no other */
    double text_bits; /* that a text tells; NaN: some texts were not made here */
    struct dataset *sets[STUDY_KV_SOURCES]; /* have the texts of files */
    char *texts[STUDY_KV_SOURCES];
    struct tok *tok;
};

/* To be given back with study_kv_stream_close(), also after an error. ERR_NOTFOUND: no such
 * fit or file. ERR_ARG: too many sources. */
MUST int study_kv_stream_open(struct study_kv_stream *s,
                              const struct study_kv_stream_opts *o);
void study_kv_stream_close(struct study_kv_stream *s);

#endif
