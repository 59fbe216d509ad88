/* baselines/openai.h - the OpenAI protocol for completions and chats, as its servers really speak
 * it.
 *
 * Requests: fields beyond the standard make a run exact (a fixed output length) or its
 * account precise (tokens per event). Servers refuse or ignore some of them, so each is
 * offered, and one that a server names in its refusal is left out from then on.
 * Answers: an event of a stream may hold one token, several, or none, when its bytes do not
 * yet form a character. How many it holds is taken from the best statement in it: token ids,
 * the server's running count, log probabilities, and only then one for each text.
 * Threads: none of its own. */
#ifndef BASELINES_OPENAI_H
#define BASELINES_OPENAI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <jansson.h>

#include "base/err.h"
#include "base/text.h"

/* --- requests */

enum { SUT_OPENAI_N_EXTRAS = 8 };
extern const char *const sut_openai_extras[]; /* their names; NULL ends it */
#define SUT_OPENAI_ALL_EXTRAS   ((1u << SUT_OPENAI_N_EXTRAS) - 1)
#define SUT_OPENAI_BASIC_EXTRAS 0x85u /* ignore_eos, stream_options, seed */

struct sut_openai_request {
    const char *model;
    const int32_t *prompt; /* token ids */
    int64_t n_prompt, n_output, seed;
    bool as_text; /* n_text_words common words in place of the ids */
    int64_t n_text_words;
    bool as_chat;       /* these words as a message of the user */
    const char *before; /* of sut_openai_turn(): the turns before it; NULL: none */
    bool keeps;         /* a later turn continues it, so the server may keep its work */
    unsigned extras;    /* bit i: sut_openai_extras[i] is sent */
};
/* The extras that the refusal of a request names. */
unsigned sut_openai_named(const char *message);

/* Where requests go, behind the address of the interface. */
const char *sut_openai_path(bool as_chat);
/* The body of a request for a stream, appended to `out`, with a NUL that is counted. */
MUST int sut_openai_body(struct text *out, const struct sut_openai_request *r);

/* Append what is `before` of the next turn: that of this one, its prompt and its answer, as
 * sut_openai_stream.answer has it. With a NUL that is counted. */
MUST int sut_openai_turn(struct text *out, const struct sut_openai_request *r,
                         const struct text *answer);

/* --- answers */

enum sut_openai_source { /* of the number of tokens in an event */
                         SUT_OPENAI_IDS,
                         SUT_OPENAI_COUNT,
                         SUT_OPENAI_LOGPROBS,
                         SUT_OPENAI_TEXT,
                         SUT_OPENAI_N_SOURCES
};
extern const char *const sut_openai_source_names[SUT_OPENAI_N_SOURCES];

struct sut_openai_stream {                  /* all zero: at its beginning, but n_limit */
    int64_t n_limit;                        /* more tokens than this are an error */
    int64_t n_tok;                          /* so far */
    int64_t n_prompt, n_completion;         /* as the server counts; 0: not stated */
    int64_t n_events[SUT_OPENAI_N_SOURCES]; /* that held tokens */
    int64_t n_tok_event_max;
    int64_t n_late; /* tokens that only the final count included */
    char finish[24];
    bool done; /* [DONE] came */
    /* Where the answer is kept for the next turn, as ids or as the inside of a JSON string; NULL:
     * nowhere. */
    struct text *answer;
    bool answer_as_ids, answer_lost; /* lost: tokens came without an id */
};

/* Read the data of one event (n bytes and a NUL; changed). *n_new: the tokens it brings.
 * ids: [max_ids], of which *n_ids are filled: 0 if the server does not send ids. Events that
 * keep the connection alive bring none. ERR_FORMAT: it is not such an event, or brings more
 * tokens than n_limit. ERR_IO: the server reports an error. */
MUST int sut_openai_event(struct sut_openai_stream *s, char *data, size_t n,
                          int64_t *n_new, int32_t *ids, int64_t max_ids, int64_t *n_ids);

/* The message of an error answer, in one line, cut to fit; its beginning where it has no
 * such form. */
void sut_openai_error(char *out, size_t capacity, const char *body, size_t n);

#endif
