/* baselines/sut.h - a system under test, as the harness sees it.
 *
 * An adapter knows no load and no clock: it starts a request when told and reports each
 * token the moment it has it; the harness stamps the times. The harness knows no model
 * and no transport. Our own engine is one adapter among the others; `null` answers at
 * once and so gives the harness's own cost; `scripted` answers with programmed delays, to
 * prove that reported numbers equal what happened. One file in baselines/adapter/ ends in
 * one `const struct sut_adapter sut_adapter_<stem>`.
 * Threads: submit, cancel and the queries come from one harness thread; events come from
 * any one thread of the adapter at a time. */
#ifndef BASELINES_SUT_H
#define BASELINES_SUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include <jansson.h>

#include "base/err.h"

enum sut_event_kind {
    SUT_TOKEN, /* one output token */
    SUT_DONE,  /* the request ended well; no further event */
    SUT_FAILED /* it ended badly; `error` says why */
};

struct sut_event {
    int64_t request; /* the harness's own number, from sut_request */
    enum sut_event_kind kind;
    int32_t token;
    bool any_length;   /* SUT_DONE: fewer tokens than were asked for are complete */
    const char *error; /* valid during the call */
};
typedef void (*sut_event_fn)(void *ctx, const struct sut_event *e);

struct sut_request {
    int64_t request;
    const int32_t *prompt; /* token ids, valid until SUT_DONE or SUT_FAILED */
    int64_t n_prompt;
    int64_t n_output; /* exactly this many tokens: EOS is ignored */
    int64_t seed;
    /* Of a chat with the system's own answers: the prompt stands behind the prompt of the request
     * `before` and its answer, n_before tokens, if `continues`; a later one continues this, if
     * `keeps`. A request whose earlier one failed is refused. */
    bool continues, keeps;
    int64_t before, n_before;
};

struct sut; /* the adapter's own */

struct sut_adapter {
    const char *name;
    const char *help; /* one line; the options are documented by opts() */
    bool continues;   /* it takes requests that continue others */
    /* The adapter's option table, for `testbed describe` and unknown-key errors. */
    const struct opt_row *opts;
    /* `config`: the job's "sut" object less "adapter", already resolved (paths absolute
     * or relative to the working directory). */
    int (*open)(struct sut **out, const json_t *config, sut_event_fn on_event, void *ctx);
    void (*close)(struct sut **s);
    int (*submit)(struct sut *s, const struct sut_request *r);
    /* Give a request up. It still ends with its own SUT_FAILED, or SUT_DONE if it was
     * just ending: until then its prompt stays valid. */
    void (*cancel)(struct sut *s, int64_t request);
    /* Token ids of a text by the system's own tokenizer; NULL member, or ERR_UNSUPPORTED:
     * it has none. *ids: mem_free. */
    int (*encode)(struct sut *s, const char *text, size_t n, int32_t **ids,
                  size_t *n_ids);
    /* Number of valid ids (synthetic prompts draw from them) and longest sequence. */
    int (*limits)(struct sut *s, int64_t *vocab, int64_t *max_tok);
    /* Version, settings, kernels, placement, memory: stands in the record. New reference.
     * Four members choose the bound of the machine that its numbers are held against:
     * "weight_type" ("bf16"), "precision" ("exact"), "prefill_threads",
     * "decode_threads". "configuration", a text, is the same for systems that run alike,
     * whatever asked for it: of variants that have the same the report says so. */
    int (*describe)(struct sut *s, json_t **out);
    /* The physical bounds: the bytes that a decoded token must read when it attends to
     * ctx_tok tokens, itself included, and the FLOP that are executed for a prompt. NULL
     * members, or an answer of 0, where unknown. */
    int64_t (*token_bytes)(struct sut *s, int64_t ctx_tok);
    double (*prefill_flop)(struct sut *s, int64_t n_tok);
    /* The CPU-time clocks of its threads or process, and how many. 0, NULL: not known. */
    int (*cpu_clocks)(struct sut *s, const clockid_t **out);
};
extern const struct sut_adapter *const sut_adapters[]; /* written by make */

MUST int sut_adapter_find(const char *name, const struct sut_adapter **out);

#endif
