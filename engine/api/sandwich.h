/* sandwich.h - the engine as a library: open a model, submit prompts, step, poll tokens, close.
 *
 *   cc example.c $(pkg-config --cflags --libs sandwich)
 *
 * Functions that return int return 0, or a negative number, after which sandwich_error() gives one
 * line that says what was expected and what was found.
 * Threads: all calls for one engine by the thread that opened it; it computes as thread 0 of the
 * engine's. One process may have several engines, one after the other. */
#ifndef SANDWICH_H
#define SANDWICH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct sandwich;

/* Open an engine. `options`: a JSON object with the keys of `sandwich serve --help`, dashes written
 * as underscores: {"model": "m.gguf", "threads": 4, "max_seqs": 8}. *out: NULL after an error. */
int sandwich_open(struct sandwich **out, const char *options);
/* Requests that have not ended are dropped. *s becomes NULL. */
void sandwich_close(struct sandwich **s);

/* Ids of a text by the model's tokenizer, with BOS where the model begins with it. special: control
 * tokens ("<|eot_id|>") are recognised in the text, which therefore must not be a stranger's.
 * *ids: [*n_ids], freed with sandwich_free(). */
int sandwich_encode(struct sandwich *s, const char *text, bool special, int32_t **ids,
                    size_t *n_ids);

/* A prompt and how to go on from it. All is copied. */
struct sandwich_request {
    const int32_t
        *ids; /* the prompt: [n_ids]; NULL: `text`, encoded without control tokens */
    size_t n_ids;
    const char *text;
    int64_t max_new;     /* most tokens to generate, >= 1 */
    double temperature;  /* 0: the most likely token, always */
    double top_p;        /* 0 and 1: off */
    int64_t top_k, seed; /* top_k 0: off */
    bool ignore_eos;     /* go on behind the end of the text */
};
/* *id: the request's number, 0 or more. Errors: too long a prompt, an option out of its range. */
int sandwich_submit(struct sandwich *s, const struct sandwich_request *r, int64_t *id);
/* The request ends with SANDWICH_CANCELED, at the next step. One that has ended is ignored. */
void sandwich_cancel(struct sandwich *s, int64_t id);

/* Compute one step: one batch of all requests that have work. *busy: whether any is left. After an
 * error the engine can only be closed. */
int sandwich_step(struct sandwich *s, bool *busy);

enum sandwich_finish {
    SANDWICH_RUNNING,
    SANDWICH_LENGTH, /* max_new tokens */
    SANDWICH_EOS,    /* the model ended the text */
    SANDWICH_CANCELED,
    SANDWICH_ERROR /* of this request; `text` says which */
};
/* A token that a step has chosen. */
struct sandwich_token {
    int64_t request;
    int32_t id; /* -1: the request ended without another token */
    const char *
        text; /* [n_text] bytes and a NUL: what it adds to the text, whole UTF-8 sequences; */
    size_t n_text;               /* lent until the next sandwich_step() */
    enum sandwich_finish finish; /* other than SANDWICH_RUNNING: the request's last */
};
/* Take the next token, in the order in which they were chosen. false: there is none until the next
 * step. Tokens that are not taken before the next step are lost. */
bool sandwich_poll(struct sandwich *s, struct sandwich_token *out);

/* What was opened, as JSON: model, plan and its reasons, kernels, CPUs, memory, time of loading.
 * sandwich_free(); NULL after an error. */
char *sandwich_describe(struct sandwich *s);
void sandwich_free(void *p); /* NULL is fine */

const char *sandwich_error(void); /* the calling thread's last message */
const char *sandwich_version(void);

#ifdef __cplusplus
}
#endif
#endif
