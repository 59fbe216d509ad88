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

/* Offer a request; texts and later turns are copied. One with a known length of 0 is counted
 * as skipped: public traces write that for a request that failed. *full: no more can be kept,
 * stop reading. */
MUST int dataset_offer(struct dataset *d, const struct dataset_item *item, bool *full);

/* The same of a trace's request that came at `time_ns`, of any origin; sets item->arrival_s.
 * ERR_FORMAT: earlier than the one before. `where` begins the error line. */
MUST int dataset_offer_at(struct dataset *d, struct dataset_item *item, int64_t time_ns,
                          const char *where, bool *full);

/* Count a record that holds no request. `why` is a literal: it is kept by pointer. */
void dataset_skip(struct dataset *d, const char *why);

/* May the record that was refused with `rc` be passed over (opts.skip_bad)? */
bool dataset_may_skip_bad(const struct dataset *d, const struct dataset_opts *o, int rc);
/* The same. It is then counted as skipped and named in a warning, and the error is cleared. */
bool dataset_skip_bad(struct dataset *d, const struct dataset_opts *o, int rc);

/* --- files of JSON records */

/* Called with each record: `text` [n] is its JSON, `where` begins an error line. *full ends
 * the reading. */
typedef int (*dataset_record_fn)(struct dataset *d, const struct dataset_opts *o,
                                 const char *text, size_t n, const char *where,
                                 bool *full);
/* Every record of the file at o->path: a list of objects, or an object a line (JSONL; empty
 * lines are passed over). A line ends at LF only: U+2028 and its like occur inside strings. */
MUST int dataset_read_records(struct dataset *d, const struct dataset_opts *o,
                              dataset_record_fn fn);

/* --- traces as CSV */

struct dataset_csv;
/* Which columns hold a request, by names joined by '|'. */
struct dataset_csv_form {
    const char *prompt, *output, *arrival; /* arrival NULL: none has one */
    bool needs_arrival;
    /* The field as nanoseconds, of any origin. NULL: it is in seconds. */
    int (*time_ns)(const struct dataset_csv *t, int column, int64_t *ns);
};
/* Offer a request for each row. */
MUST int dataset_read_csv(struct dataset *d, const struct dataset_opts *o,
                          const struct dataset_csv_form *form);

/* --- conversations */

/* The two roles of a conversation and where a record keeps them. */
struct dataset_chat_form {
    /* Key of the conversation's name, which a record need not have, and the character before
     * the number of a part of it; NULL: a record holds a whole conversation. */
    const char *id, *part;
    const char *turns;          /* key of the list of messages */
    const char *role, *text;    /* keys of a message */
    const char *asks, *answers; /* roles that ask and that answer, joined by '|' */
};
/* The prompts of a conversation may hold this much together: every prompt repeats those before
 * it. Turns beyond are left out. */
#define DATASET_TURNS_MAX_BYTES ((size_t)64 << 20)

/* Offer a conversation's requests, as o->turns says. A question is a message of an asking
 * role with text that is directly followed by an answer with text. Its history is every
 * message before it, joined by newlines without a chat template. A record without a question
 * is skipped, a record of another shape is ERR_FORMAT.
 * `text` [n] is the record's JSON; `where` begins the error line. */
MUST int dataset_offer_chat(struct dataset *d, const struct dataset_opts *o,
                            const struct dataset_chat_form *form, const char *text,
                            size_t n, const char *where, bool *full);

/* --- recognition */

/* Is `name` one of `words`, joined by '|'? words NULL: no. */
bool dataset_is_one_of(const char *words, const char *name, bool any_case);

/* dataset_open() by this reader. */
MUST int dataset_open_by(struct dataset **out, const struct dataset_opts *o,
                         const struct dataset_reader *reader);

#endif
