/* datasets/build.h - how a reader hands its requests over; for datasets/reader/ only.
 *
 * A reader offers every request it finds, in the file's order. What is kept is decided
 * here, once for all readers: a uniform sample of opts.n without replacement ("sample"
 * stream, reservoir, so that a gigabyte file costs the memory of the sample), in the
 * file's order or shuffled ("order" stream). A trace with arrival times keeps its first n
 * instead: thinning would change the rate and the burstiness that make it a trace;
 * shuffled, its arrival times stay and the requests trade places. Threads: one dataset,
 * one owner, until dataset_open() has returned. */
#ifndef DATASETS_BUILD_H
#define DATASETS_BUILD_H

#include <stdbool.h>

#include "datasets/dataset.h"

/* Lengths above this are refused: 16 M tokens is beyond any model's context. */
#define DATASET_MAX_TOK ((int64_t)1 << 24)

/* Offer a request; texts are copied. *full: no more can be kept, stop reading. */
MUST int dataset_offer(struct dataset *d, const struct dataset_item *item, bool *full);

/* Count a record that holds no request. `why` is a literal: it is kept by pointer. */
void dataset_skip(struct dataset *d, const char *why);

/* The two roles of a conversation and where a record keeps them. */
struct dataset_chat_form {
    const char *turns;          /* key of the list of messages */
    const char *role, *text;    /* keys of a message */
    const char *asks, *answers; /* roles that ask and that answer, joined by '|' */
};
/* Offer a conversation's request: the first message of an asking role with text that is
 * directly followed by an answer with text; earlier messages are not part of the prompt.
 * A record without one is skipped, a record of another shape is ERR_FORMAT.
 * `text` [n] is the record's JSON; `where` begins the error line. */
MUST int dataset_offer_chat(struct dataset *d, const struct dataset_chat_form *form,
                            const char *text, size_t n, const char *where, bool *full);

#endif
