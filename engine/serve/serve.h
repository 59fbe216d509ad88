/* serve/serve.h - the public API: everything cli/ and the adapters may do with the engine.
 *
 * Open it with options, submit requests, call serve_step() until there is nothing to do.
 * Each step computes one batch and reports new tokens through the request's callback, in
 * order, on the stepping thread.
 * Threads: one thread opens, steps and closes (it becomes thread 0 of the team); submit
 * and cancel may come from any thread. */
#ifndef SERVE_SERVE_H
#define SERVE_SERVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <jansson.h>

#include "base/err.h"
#include "base/opt.h"

struct serve;

/* Options, with their table: the same rows serve flags, JSON keys, help and records. */
struct serve_opts {
    char *model;        /* path */
    char *tokenizer;    /* NULL: from the model's file */
    char *isa;          /* "auto", "ref", "avx2", ... */
    int precision;      /* enum kern_precision */
    bool deterministic; /* the same tokens whatever batch, threads, ranks and plan */
    char *weight_type;  /* "file", "f32", "bf16" */
    char *kv_type;      /* "f32", "bf16" */
    int64_t threads;    /* 0: the plan's, or the whole budget */
    int64_t ranks;      /* they are divided into, in both phases; 0: the plan's, or 1 */
    int rank_mode;      /* enum serve_rank_mode */
    char *plan;         /* path of a plan, NULL: default */
    char *schedules;    /* path of a cache of tuned schedules, NULL: none */
    char *policy;       /* scheduling policy */
    int64_t max_tok;    /* longest sequence; 0: the model's, at most 4096 */
    int64_t max_seqs;   /* sequences that may be live at once */
    int64_t max_step_tok;
    bool pin;
};
extern const struct opt_row serve_opt_table[];

/* What a rank is: threads of this process, or a process that shares all memory of the
 * model with this one, which is rank 0 (model/procs.h). */
enum serve_rank_mode { SERVE_RANKS_THREADS, SERVE_RANKS_PROCESSES };

struct serve_sampling {
    double temperature, top_p, min_p;
    int64_t top_k, seed;
};

enum serve_finish {
    SERVE_RUNNING,
    SERVE_LENGTH, /* max_new reached */
    SERVE_EOS,
    SERVE_CANCELED,
    SERVE_ERROR
};

/* A new token of a request. `logits` is [vocab], valid during the call only. `finish`
 * comes with the last token; with id == -1 (and logits NULL) the request ended without
 * another.
 * At SERVE_ERROR err_msg() says why. The call may submit and cancel. */
typedef void (*serve_token_fn)(void *ctx, int64_t request, int32_t id,
                               const float *logits, enum serve_finish finish);

struct serve_request {
    const int32_t *prompt; /* copied */
    int64_t n_prompt;      /* >= 1 */
    int64_t max_new;       /* >= 1 */
    bool ignore_eos;
    struct serve_sampling sampling;
    serve_token_fn on_token;
    void *ctx;
};

/* Called while the weights are packed. */
typedef void (*serve_progress_fn)(void *ctx, int64_t done_bytes, int64_t all_bytes);

MUST int serve_open(struct serve **out, const struct serve_opts *o);
/* The same; `progress`, if not NULL, hears how far loading is. */
MUST int serve_open_shown(struct serve **out, const struct serve_opts *o,
                          serve_progress_fn progress, void *ctx);
/* Requests that still live end with SERVE_CANCELED. */
void serve_close(struct serve **s);

/* ERR_LIMIT: prompt + max_new exceed max_tok. ERR_ARG: an id outside the vocabulary, a
 * sampling option out of range. *id names the request from now on. */
MUST int serve_submit(struct serve *s, const struct serve_request *r, int64_t *id);
void serve_cancel(struct serve *s, int64_t id);

/* Compute one step. *busy: whether live or waiting requests remain. An error here is the
 * engine's (a request's own error ends that request with SERVE_ERROR). Takes no
 * memory. ERR_STATE names a rank's process that died or stopped, also since the step
 * before: the engine can only be closed then. */
MUST int serve_step(struct serve *s, bool *busy);
/* Wait until something is submitted, a rank's process fails, or timeout_ns; for a thread
 * that only steps. */
void serve_wait(struct serve *s, uint64_t timeout_ns);
/* Make the present or next serve_wait() return at once; from any thread. */
void serve_wake(struct serve *s);

/* Text, by the model's tokenizer; ERR_STATE when it has none. bos: begin with BOS if the
 * tokenizer asks for it. *ids: mem_free. */
MUST int serve_encode(struct serve *s, const char *text, size_t n, bool bos,
                      int32_t **ids, size_t *n_ids);
struct tok;
const struct tok *serve_tok(const struct serve *s); /* NULL: none */

/* Facts. The JSON object holds: model (shape, types, bytes per decoded token), kernels
 * chosen, plan with reasons, what chooses the phase that a step runs under and how often
 * it was which, CPU budget with reason, placement (CPU of each thread wanted and seen;
 * on which memory nodes weights, keys and values and activations lie, the weights by group
 * beside who owns them; huge pages), memory per tag, load statistics, and on top
 * weight_type, precision, prefill_threads, decode_threads (of all ranks). New reference.
 * Called by the stepping thread. */
MUST int serve_describe(struct serve *s, json_t **out);
int serve_vocab(const struct serve *s);
int serve_bos(const struct serve *s); /* -1: none */
int serve_eos(const struct serve *s); /* -1: none */
int64_t serve_max_tok(const struct serve *s);
/* Bytes that a decoded token must read: weights, and keys and values of the ctx_tok tokens
 * that it attends to, itself included (model/cost.h). */
int64_t serve_token_bytes(const struct serve *s, int64_t ctx_tok);
/* What the engine has done since it was opened, by phase (a step with a piece of a prompt
 * in it is of prefill): tokens, time, and what the steps cost by model/cost.h, where
 * kv_bytes are keys and values read. Written by steps only; lent,
 * valid until serve_close(), so that whoever counts may watch its members. */
enum serve_phase { SERVE_PREFILL, SERVE_DECODE, SERVE_N_PHASES };
struct serve_totals {
    int64_t n_steps, n_tok; /* tokens put through the model */
    int64_t weight_bytes, kv_bytes, flop;
    int64_t forward_ns, wait_ns; /* wait: thread 0 at barriers, part of forward */
};
const struct serve_totals *serve_totals_of(const struct serve *s, enum serve_phase phase);
/* Call fn once on each thread of the team, id 0 on this one, where ranks are processes of
 * rank 0's: for what must happen there, such as opening counters. By the stepping thread, between steps. */
void serve_each_thread(struct serve *s, void (*fn)(void *ctx, int id, int n), void *ctx);
/* Operations that the engine executes for a prompt of n_tok tokens (model/cost.h). */
double serve_prefill_flop(const struct serve *s, int64_t n_tok);

#endif
