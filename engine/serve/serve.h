/* serve/serve.h - the public API: all that cli/ and the adapters may do with the engine.
 *
 * Open the engine with options, submit requests, and call serve_step() until no request
 * remains. Each step computes one batch. It passes new tokens to the callback of their
 * request, in order, on the stepping thread.
 * Threads: one thread opens, steps and closes (it becomes thread 0 of the team). Any
 * thread may call serve_submit(), serve_cancel() and serve_wake(). */
#ifndef SERVE_SERVE_H
#define SERVE_SERVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <jansson.h>

#include "base/err.h"
#include "base/opt.h"
#include "format/config.h"
#include "model/sampler.h"
#include "tokenizer/tokenizer.h"

struct serve;

/* The options of the engine. Flags, JSON keys, help and records are made from their
 * table. */
struct serve_opts {
    char *model;         /* path */
    char *tokenizer;     /* NULL: from the model's file */
    char *pre_tokenizer; /* NULL: the one that the tokenizer's file names */
    char *isa;           /* "auto", "ref", "avx2", ... */
    int precision;       /* enum kern_precision */
    bool deterministic;  /* same tokens for any batch, threads, ranks and plan */
    char *weight_type;   /* "file", "f32", "bf16" */
    int kv_type;         /* enum kern_kv_type */
    int64_t threads;     /* 0: the plan's, or all CPUs of the budget */
    int64_t ranks;       /* tensor-parallel ranks of both phases; 0: the plan's, or 1 */
    char *team;          /* kind of the threads (par/team.h) */
    int rank_mode;       /* enum serve_rank_mode */
    char *plan;          /* path of a plan, NULL: default */
    char *schedules;     /* path of a cache of tuned schedules, NULL: none */
    char *operators;     /* path of a list of operators (step/op.h), NULL: the model's */
    char *policy;        /* scheduling policy */
    int64_t max_tok;     /* longest sequence; 0: the model's, at most 4096 */
    int64_t max_seqs;    /* most sequences that may hold memory at once */
    int kv_admit;        /* enum serve_kv_admit */
    int64_t kv_budget_tok;   /* most tokens that may be reserved; 0: all of the memory */
    int64_t kv_budget;       /* bytes of memory; 0: of max_seqs sequences of max_tok */
    char *kv_alloc;          /* how it is divided: the name of an allocator */
    int64_t kv_block;        /* paged: tokens of a block */
    double kv_large_frac;    /* odma, odma_paper: share of it for the large bucket only */
    char *kv_predict;        /* name of a length predictor; NULL: none */
    int64_t kv_predict_tok;  /* constant: what it predicts */
    double kv_predict_sigma; /* noisy: size of its errors */
    char *kv_predict_file;   /* learned: path of what was learned */
    int64_t kv_relearn;      /* odma: requests between new bounds; 0: never */
    bool kv_reuse;           /* keep what ended for requests that begin alike */
    char *draft;             /* "lookup", or path of a draft model; NULL: none */
    int64_t draft_tok;       /* the most tokens that are guessed for a step */
    bool draft_adapt;        /* fewer after wrong guesses, more after right ones */
    int64_t kv_patience;     /* steps for which a request waits for memory to grow */
    int64_t max_step_tok;    /* most tokens in one step */
    bool pin;                /* pin each thread to its CPU */
};
extern const struct opt_row serve_opt_table[];
const char *serve_precision_name(const struct serve_opts *o); /* "exact" */
const char *serve_kv_type_name(const struct serve_opts *o);   /* "f32" */

/* A rank is a group of threads of this process, or a process of its own. In the latter case this
 * process is rank 0, and all ranks share the memory of the model (ranks/procs.h). */
enum serve_rank_mode { SERVE_RANKS_THREADS, SERVE_RANKS_PROCESSES };

/* The memory for keys and values that a request is given before its first step, where no
 * length is predicted: for its prompt and longest output, so that it surely ends; or for its
 * prompt and one token, and more as it generates. */
enum serve_kv_admit { SERVE_ADMIT_MAX, SERVE_ADMIT_NOW };

/* See model/sampler.h. typical_p and repetition_penalty: 0 is off, too. */
struct serve_sampling {
    double temperature, top_p, min_p, typical_p;
    double repetition_penalty, presence_penalty, frequency_penalty;
    int64_t top_k, seed;
};

enum serve_finish {
    SERVE_RUNNING,
    SERVE_LENGTH, /* max_new reached */
    SERVE_EOS,
    SERVE_CANCELED,
    SERVE_ERROR
};

/* Called for each new token `id` of a request, on the stepping thread. `logits` is
 * [vocab] f32, valid during the call only. `finish` is SERVE_RUNNING until the last call
 * of the request. id == -1 and logits == NULL: the request ended without another token.
 * With SERVE_ERROR, err_msg() gives the reason, for example that the logits for the next
 * token are not finite. The callback may submit and cancel. */
typedef void (*serve_token_fn)(void *ctx, int64_t request, int32_t id,
                               const float *logits, enum serve_finish finish);

/* What the new text has to obey. */
struct serve_grammar {
    const char *text; /* [n] NULL: nothing. Read by serve_submit() only */
    size_t n;
    bool is_schema; /* JSON schema; else GBNF */
    bool at_start;  /* the first token's leading space is not shown (tokenizer.h) */
};

struct serve_handoff;         /* serve/handoff.h */
#define SERVE_STOP_IDS_MAX 16 /* of a request */
struct serve_request {
    const int32_t *prompt; /* copied */
    int64_t n_prompt;      /* >= 1 */
    int64_t max_new;       /* >= 1, or >= 0 with n_scored */
    /* The prompt's last n_scored tokens, fewer than n_prompt, are given to the model one by one:
     * on_token is called for each with the logits that it was to be expected from, before the
     * new ones. It costs a step of decode each. */
    int64_t n_scored;
    /* The prompt's last n_drawn tokens, fewer than n_prompt, were new tokens of this request
     * before it was given up and submitted again: sampling goes on after them. */
    int64_t n_drawn;
    bool ignore_eos;
    /* Further ids that end the text, also with ignore_eos; copied. */
    const int32_t *stop_ids;
    int n_stop_ids;
    int64_t min_new; /* new tokens before one may end the text */
    struct serve_sampling sampling;
    const struct sampler_bias *bias; /* [n_bias] added to logits; copied */
    int n_bias;
    struct serve_grammar grammar;
    serve_token_fn on_token;
    void *ctx;
    /* NULL, or where it is put, before the first on_token, how many of the prompt's tokens are
     * taken from a sequence before it (kv_reuse); untouched where none are. */
    int64_t *n_reused;
    /* NULL, or where clock_ns() is put, before the first on_token, when it gets memory and so
     * leaves the queue for the first time; untouched where another engine computes it. */
    uint64_t *started_ns;
    /* One of the two engines that compute it together; copied. NULL: it is computed here. */
    const struct serve_handoff *handoff;
};

/* Warn where a policy that batches requests was asked for, but max_seqs is 1. `option` is
 * what the user calls max_seqs. */
void serve_warn_one_seq(const struct serve_opts *o, const char *option);

/* Totals of the engine's work in each phase since it was opened. A step that contains part of a
 * prompt belongs to prefill. weight_bytes, kv_bytes (keys and values read) and flop are the costs
 * of the steps by model/cost.h. Written by serve_step() only. Lent, valid until serve_close(), so
 * that counters may read the members at any time. */
enum serve_phase { SERVE_PREFILL, SERVE_DECODE, SERVE_N_PHASES };
struct serve_totals {
    int64_t n_steps, n_tok; /* n_tok: tokens that steps computed */
    int64_t weight_bytes, kv_bytes, flop;
    /* wait_ns: how long the threads of the steps, of all ranks, waited for one another: their
     * mean. It is part of forward_ns. sample_ns: choosing tokens from logits. sched_ns: the
     * rest of serve_step(): the queue, the policy, memory, the batch, the callbacks. */
    int64_t forward_ns, wait_ns, sample_ns, sched_ns;
};
/* Memory for keys and values. */
struct serve_kv_stat {
    int64_t budget_tok, reserved_tok;
    int64_t pool_bytes, reserved_bytes, used_bytes; /* reserved: whole blocks */
    /* The cost of lack of memory: requests that were preempted, each time counted, and tokens
     * computed again; requests that outgrew their memory, each time counted, and the bytes copied
     * for that. */
    int64_t n_preempted, n_recomputed_tok, n_overflow, migrated_bytes;
    double migrate_s;
    int64_t n_alloc; /* calls of the allocator */
    double alloc_s;  /* their time, without that of copies */
    /* Requests whose first tokens were taken from a sequence before them, and these tokens. */
    int64_t n_reused, n_reused_tok;
    int64_t n_predicted;
    double predict_s; /* time that predictions took, on the threads that submit */
};
/* Tokens that were guessed (option draft); those of them that were compared, as all before them
 * in their step were right; those that were right, too; the time that guessing took and the bytes
 * that it had to read. All 0 without a draft. */
struct serve_draft_stat {
    int64_t n_guessed, n_checked, n_right, bytes;
    double seconds;
};

/* ---- one API, several implementations ----
 *
 * An engine in this process (serve_open()), or a front of engines in other processes
 * (roles/roles.h). Each has a table of operations; the functions below call them. */

struct serve_ops {
    int (*submit)(struct serve *s, const struct serve_request *r, int64_t *id);
    void (*cancel)(struct serve *s, int64_t id);
    int (*step)(struct serve *s, bool *busy);
    void (*wait)(struct serve *s, uint64_t timeout_ns);
    void (*wake)(struct serve *s);
    const struct serve_totals *(*totals)(const struct serve *s, enum serve_phase phase);
    void (*kv_stat)(const struct serve *s, struct serve_kv_stat *out);
    void (*draft_stat)(const struct serve *s, struct serve_draft_stat *out);
    int (*describe)(struct serve *s, json_t **out);
    void (*close)(struct serve *s); /* frees s */
    bool has_logits;                /* callbacks get them */
};

/* The first member of each implementation. It does not change while it is open. */
struct serve {
    const struct serve_ops *ops;
    struct serve_opts o;         /* a copy that owns its strings */
    struct model_config config;  /* of the model */
    struct tok *tok;             /* NULL: there is no tokenizer */
    uint64_t identity;           /* of model and tokenizer, by serve_open_head() */
    int32_t stops[TOK_STOP_MAX]; /* the tokenizer's; the model has its own */
    int n_stop;
    int64_t
        max_tok; /* the longest sequence: max_tok, or kv_budget_tok where that is less */
};

/* Open the engine in this process. *out: owned by the caller, closed with serve_close(). */
MUST int serve_open(struct serve **out, const struct serve_opts *o);
struct model;
struct model_phase;
/* An accelerator that computes a part of the engine's steps. The engine only knows when to open and
 * close it. */
struct serve_offload {
    void *ctx;
    /* Model and phases (one or two) are open, nothing was computed. */
    MUST int (*open)(void *ctx, struct model *m, struct model_phase **phases,
                     int n_phases);
    void (*close)(void *ctx); /* before they are closed; also after an error of open */
};
/* Steps of a machine whose speed is known: the engine computes, and sleeps until the step has taken
 * step_ns() of its chunks (model/cost.h). Called by the stepping thread. */
struct model_chunk;
struct serve_pace {
    void *ctx;
    int64_t (*step_ns)(void *ctx, const struct model_chunk *chunks, int n_chunks);
};
struct serve_how {
    bool kv_mapped; /* keys and values in memory that another process can map */
    const struct serve_offload *offload; /* lent until serve_close() */
    const struct serve_pace *pace;       /* the same; NULL: steps take what they take */
    /* No sequence will have more tokens, so that with max_tok 0 none gets memory for more, which
     * takes time to reserve. */
    int64_t need_tok;
    /* Called while the weights are packed: done_bytes of all_bytes are packed. */
    void (*progress)(void *ctx, int64_t done_bytes, int64_t all_bytes);
    void *ctx;
};
/* The same, with what else a caller may want; 0 and NULL: none of it. */
MUST int serve_open_with(struct serve **out, const struct serve_opts *o,
                         const struct serve_how *how);
/* Close the engine. Requests that have not ended end with SERVE_CANCELED. */
static inline void serve_close(struct serve **s)
{
    if (*s)
        (*s)->ops->close(*s);
    *s = NULL;
}

/* Submit a request. *id: its number, for serve_cancel() and the callback. ERR_LIMIT:
 * n_prompt + max_new exceeds s->max_tok. ERR_ARG: there is nothing to compute, an id is
 * outside the vocabulary, a sampling option is out of range, or its length cannot be
 * predicted. */
MUST static inline int serve_submit(struct serve *s, const struct serve_request *r,
                                    int64_t *id)
{
    return s->ops->submit(s, r, id);
}

static inline void serve_cancel(struct serve *s, int64_t id)
{
    s->ops->cancel(s, id);
}

/* Compute one step. A request that lacks memory for its next token waits. After kv_patience
 * steps, or when no request goes on, the one that came last of those that have memory is
 * preempted: its keys and values are given up, it is admitted again later, computed
 * again, and goes on with its next token. *busy: whether live or waiting requests remain that
 * can go on before another engine or a transport does something (serve/handoff.h).
 * Allocates nothing. Only errors of the engine are returned; an error of a request ends
 * that request with SERVE_ERROR. ERR_STATE: a rank's process ended or stopped, during
 * this step or since the previous one. The message names the rank, and the engine can
 * then only be closed. */
MUST static inline int serve_step(struct serve *s, bool *busy)
{
    return s->ops->step(s, busy);
}

/* Wait until a request is submitted, a rank's process fails, serve_wake() is called or
 * timeout_ns have passed. For a thread that does nothing but step. */
static inline void serve_wait(struct serve *s, uint64_t timeout_ns)
{
    s->ops->wait(s, timeout_ns);
}

/* Make the present or next serve_wait() return at once. May be called by any thread. */
static inline void serve_wake(struct serve *s)
{
    s->ops->wake(s);
}

/* Describe the engine. *out is a new reference, which the caller owns. The JSON object
 * has:
 *   - the model: shape, types, bytes per decoded token
 *   - the chosen kernels, and the plan with its reasons
 *   - for each phase of the plan how its ranks sum, who chose it, and the times measured
 *   - how the phase of a step is chosen, and how often each phase was
 *   - the CPU budget with its reason
 *   - the placement: the CPU of each thread as wanted and as seen; the memory nodes that
 *     weights, keys and values, and activations are on; owners of each group of weights;
 *     huge pages
 *   - memory per tag, and load statistics
 *   - what opening took its time for: seconds of its phases, one after the other. Parts of
 *     weights_s: read_s and pack_s, means over threads. Part of steps_s: choose_s, the measuring
 *     of kernels. disk_bytes: what was read from disks meanwhile
 *   - at the top level weight_type, precision, prefill_threads and decode_threads
 *     (threads of all ranks together)
 * Called by the stepping thread. ERR_UNSUPPORTED: its engines are in other processes. */
MUST static inline int serve_describe(struct serve *s, json_t **out)
{
    return s->ops->describe(s, out);
}

static inline const struct serve_totals *serve_totals_of(const struct serve *s,
                                                         enum serve_phase phase)
{
    return s->ops->totals(s, phase);
}

/* Any thread. */
static inline void serve_kv_stat(const struct serve *s, struct serve_kv_stat *out)
{
    s->ops->kv_stat(s, out);
}

/* Any thread. */
static inline void serve_draft_stat(const struct serve *s, struct serve_draft_stat *out)
{
    s->ops->draft_stat(s, out);
}

enum serve_encode_flag {
    SERVE_BOS = 1,     /* begin with BOS if the tokenizer asks for it */
    SERVE_SPECIAL = 2, /* recognise control tokens ("<|eot_id|>") in the text */
};
/* Encode text[n] with the model's tokenizer. *ids: [*n_ids], freed by the caller with
 * mem_free(). ERR_STATE: there is no tokenizer. */
MUST int serve_encode(struct serve *s, const char *text, size_t n, unsigned flags,
                      int32_t **ids, size_t *n_ids);
int serve_vocab(const struct serve *s);
int serve_bos(const struct serve *s); /* token id; -1: none */
/* Does the token end a text? By config.json and generation_config.json, by the GGUF file's
 * ids and by the tokenizer. */
bool serve_is_stop(const struct serve *s, int32_t id);
/* The work done between `before`, a copy of the totals, and now. */
struct serve_totals serve_totals_since(const struct serve_totals *now,
                                       const struct serve_totals *before);

/* ---- of an engine in this process only ---- */

/* Bytes that must be read to decode one token: all weights, and the keys and values of
 * the ctx_tok tokens that it attends to, itself included (model/cost.h). */
int64_t serve_token_bytes(const struct serve *s, int64_t ctx_tok);
/* Call fn once on each of the team's n threads, with its number `id`; the calling thread
 * is 0. Where ranks are processes, this is the team of rank 0. For per-thread work such
 * as opening hardware counters. Called by the stepping thread, between steps. */
void serve_each_thread(struct serve *s, void (*fn)(void *ctx, int id, int n), void *ctx);
/* Floating-point operations that the engine executes for a prompt of n_tok tokens
 * (model/cost.h). */
double serve_prefill_flop(const struct serve *s, int64_t n_tok);

/* ---- for implementations ---- */

/* Copy the options into zeroed *s. serve_fini() also after an error. ERR_NOMEM. */
MUST int serve_init(struct serve *s, const struct serve_ops *ops,
                    const struct serve_opts *o);
void serve_fini(struct serve *s);
/* Open the tokenizer that the options ask for, which must open, or the model's own, which may be
 * missing: ids still work. s->config is set. `format`: of the model's file. */
MUST int serve_open_tok(struct serve *s, const char *format);
/* Warn where the file `path` is made for another model (format_identity_of()): it is a hint to
 * this one. model_id "": no model is known. Errors of format_open(). */
MUST int serve_made_for(const struct serve *s, const char *model_id, const char *path);
/* Read s->config and s->identity from the model's file and open the tokenizer. */
MUST int serve_open_head(struct serve *s);
/* The ids that may end a request's text: out[MODEL_STOP_MAX + TOK_STOP_MAX + SERVE_STOP_IDS_MAX].
 * Returns how many. */
int serve_ends(const struct serve *s, const struct serve_request *r, int32_t *out);
/* Whether a request is one that serve_submit() takes. ERR_ARG, ERR_LIMIT, ERR_UNSUPPORTED. */
MUST int serve_check_request(const struct serve *s, const struct serve_request *r);

#endif
