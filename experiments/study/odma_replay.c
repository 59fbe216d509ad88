/* Who has memory for keys and values when: requests of a trace through the allocators, by a
 * serving loop without its computation, and how much of the memory is used.
 * Paper: ODMA 3, 5.2. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/stats.h"
#include "experiments/frame/frame.h"
#include "experiments/study/support/kv_replay.h"
#include "experiments/study/support/kv_stream.h"

static const char *alloc_name(int i)
{
    return kv_allocs[i] ? kv_allocs[i]->name : NULL;
}

static const char *predictor_name(int i)
{
    return kv_predictors[i] ? kv_predictors[i]->name : NULL;
}

#define OPTIONS(X)                                                                       \
    X(STR, alloc, "odma", "Allocator.", .names = alloc_name)                             \
    X(STR, predictor, "noisy", "Length predictor.", .names = predictor_name)             \
    X(F64, sigma, "0.3",                                                                 \
      "noisy: size of its errors. The predicted length is the true one times exp(s z), " \
      "z normal, s uniform in [0, 2 sigma].",                                            \
      .min = 0, .max = 10)                                                               \
    X(INT, constant_tok, "0",                                                            \
      "constant: the length that it predicts. 0: the mean output of the requests to "    \
      "learn from, where there are any, else of those that are replayed.",               \
      .unit = "tok", .min = 0, .max = 1 << 20)                                           \
    X(STR, stream, "sharegpt",                                                           \
      "The requests: a fit, from which lengths are drawn, or a file of conversations "   \
      "or lengths. \"A+B\": the first half from A, the second from B; what is learned "  \
      "is learned from A.")                                                              \
    X(STR, tokenizer, NULL,                                                              \
      "Tokenizer that counts the tokens of texts. Without it four bytes are taken for "  \
      "a token.",                                                                        \
      .unit = "FILE")                                                                    \
    X(INT, n_requests, "2000", "Number of requests to replay; of a file at most.",       \
      .min = 1, .max = 1000000)                                                          \
    X(INT, n_learn, "2000", "Drawn requests to learn from, before those.", .min = 0,     \
      .max = 1000000)                                                                    \
    X(INT, folds, "5",                                                                   \
      "Parts of a file of conversations. One is replayed, by the seed; the others are "  \
      "to learn from.",                                                                  \
      .min = 2, .max = 1000)                                                             \
    X(F64, tells, "0.7",                                                                 \
      "Drawn requests: probability that the text has the word of its output's class, "   \
      "one of eight. Otherwise the word is that of a random class.",                     \
      .min = 0, .max = 1)                                                                \
    X(INT, clients, "256",                                                               \
      "Clients, each of which sends its next request when one was answered.", .min = 1,  \
      .max = 4096)                                                                       \
    X(INT, max_tok, "0",                                                                 \
      "Longest sequence, prompt and output; longer ones are cut. 0: it holds 95 % of "   \
      "the requests.",                                                                   \
      .unit = "tok", .min = 0, .max = 1 << 20)                                           \
    X(INT, budget_seqs, "32",                                                            \
      "Memory for keys and values, in sequences of the longest.", .min = 1,              \
      .max = 1 << 20)                                                                    \
    X(STR, devices, "",                                                                  \
      "Memory of each of several devices, in sequences of the longest, at most 8: \"16 " \
      "8 8 4\". \"\": one device, with budget_seqs.")                                    \
    X(ENUM, route, "cluster",                                                            \
      "Devices: a request goes to the one with the smallest larger share of memory and " \
      "compute, and waits before all while none has the memory; to each in turn; or to " \
      "the one with the fewest requests.",                                               \
      .values = "cluster|in_turn|fewest")                                                \
    X(BOOL, own_bounds, "false",                                                         \
      "Devices: each learns bounds from its own requests; else all have the same.")      \
    X(INT, align_tok, "16", "Sizes of contiguous memory are multiples of it.",           \
      .unit = "tok", .min = 1, .max = 1 << 16)                                           \
    X(INT, block_tok, "16", "paged: size of a block.", .unit = "tok", .min = 16,         \
      .max = 512)                                                                        \
    X(F64, keep_frac, "0.02",                                                            \
      "paged: share of the blocks that stays free when a request is admitted, for "      \
      "those that grow.",                                                                \
      .min = 0, .max = 0.9)                                                              \
    X(F64, large_pool_frac, "0",                                                         \
      "odma, odma_paper: share of the memory that is kept for sequences of the large "   \
      "bucket, as in the paper, which does not say how much. 0: they get what is free.", \
      .min = 0, .max = 0.9)                                                              \
    X(INT, n_buckets, "0",                                                               \
      "Number of buckets of either allocator: for s3 of equal width, for odma of "       \
      "equally many lengths of the window. 0: n_fixed and quantiles.",                   \
      .min = 0, .max = KV_BUCKETS_MAX)                                                   \
    X(INT, n_fixed, "10", "s3: number of buckets, of equal width.", .min = 1,            \
      .max = KV_BUCKETS_MAX)                                                             \
    X(INT, n_first, "10",                                                                \
      "odma: number of buckets, of equal width, until lengths have been learned. 0: "    \
      "only the large bucket.",                                                          \
      .min = 0, .max = KV_BUCKETS_MAX)                                                   \
    X(STR, quantiles, "0.2 0.4 0.55 0.65 0.75 0.8 0.85 0.9 0.94 0.97",                   \
      "odma: quantiles of the lengths at which buckets end. \"\": only the large "       \
      "bucket.")                                                                         \
    X(INT, window, "1024", "odma: finished requests from which bounds are learned.",     \
      .min = 1, .max = 1 << 20)                                                          \
    X(INT, every, "128", "odma: learn after this number of finished requests.",          \
      .min = 1, .max = 1 << 20)                                                          \
    X(INT, half_life, "0",                                                               \
      "odma: finished requests after which one of the window counts half. 0: all count " \
      "the same.",                                                                       \
      .min = 0, .max = 1 << 20)                                                          \
    X(BOOL, detect, "true",                                                              \
      "odma: where the latest lengths differ from those before by the test of "          \
      "Kolmogorov and Smirnov, the window forgets those before. Not with paper.")        \
    X(BOOL, least, "false",                                                              \
      "odma: bounds with which the window's requests would take least memory, in place " \
      "of its quantiles.")                                                               \
    X(INT, calibrate, "0",                                                               \
      "Predictions are multiplied by the median of realised / predicted of this number " \
      "of finished requests. 0: they are used as they are.",                             \
      .min = 0, .max = 1 << 20)                                                          \
    X(ENUM, bounds, "again",                                                             \
      "odma: when bounds are learned: again and again, once, or never, so that the "     \
      "n_first equal parts stay.",                                                       \
      .values = "again|once|never")                                                      \
    X(ENUM, lengths, "total",                                                            \
      "odma: lengths that bounds are learned from: those of prompt and output "          \
      "together, which memory must hold, or of the output, as in the paper, where "      \
      "memory is for the prompt and the bound.",                                         \
      .values = "total|output")                                                          \
    X(BOOL, primed, "false", "odma: the window begins with the requests to learn from.") \
    X(BOOL, paper, "false",                                                              \
      "odma: as in the paper, a sequence that outgrows its memory moves to the large "   \
      "bucket, predictions above the last quantile get it, and the window forgets "      \
      "nothing early. Else memory doubles, and above the last quantile are buckets of "  \
      "twice the size each. alloc=odma_paper, large_pool_frac, lengths=output and tau "  \
      "below 1 are the other rules of the paper.")                                       \
    X(BOOL, co_batch, "true",                                                            \
      "Admit the oldest request of the bucket that was admitted before; else the "       \
      "oldest.")                                                                         \
    X(BOOL, migrate, "true",                                                             \
      "Copy a sequence that outgrows its memory; else it begins again.")                 \
    X(F64, alpha, "0.5",                                                                 \
      "A predicted length is inflated by 1 + alpha times its uncertainty.", .min = 0,    \
      .max = 100)                                                                        \
    X(F64, overflow, "0",                                                                \
      "Choose the smallest alpha with which at most this share of the requests "         \
      "outgrows the memory that it gets first, so that allocators are compared at "      \
      "equal overflow. 0: alpha as it is.",                                              \
      .min = 0, .max = 1)                                                                \
    X(F64, tau, "0.8", "Uncertainty above which a sequence gets the longest memory.",    \
      .min = 0, .max = 1)                                                                \
    X(INT, patience, "8",                                                                \
      "Steps that a sequence waits for memory before the youngest is preempted.",        \
      .min = 0, .max = 1 << 20)                                                          \
    X(INT, max_age, "256",                                                               \
      "Steps that a request can be passed by others of the latest bucket.", .min = 0,    \
      .max = 1 << 30)                                                                    \
    X(STR, change, "none",                                                               \
      "Other values for some of the other options, as \"option=value\" or "              \
      "\"option=value;option=value\", so that an axis can change a few at a time. "      \
      "none: no other.")                                                                 \
    X(BOOL, over_time, "true",                                                           \
      "Record utilization and batches over time; a record of many cells is smaller "     \
      "without.")                                                                        \
    X(BOOL, over_never, "false",                                                         \
      "Replay with bounds that are never learned too, for over_never.")                  \
    X(BOOL, raw, "false", "Record each request: prediction, length, bucket and memory.") \
    X(INT, seed, "1",                                                                    \
      "Seed of lengths, texts and the predictor's errors; of conversations, which part " \
      "is replayed.",                                                                    \
      .min = 1, .max = 1 << 30)

#define RESULTS(X)                                                                       \
    X(tokens_per_step, "tok", HIGHER,                                                    \
      "tokens generated per step while there are requests to send: the mean batch, "     \
      "less the sequences that wait for memory; a token computed again after a "         \
      "preemption is not counted")                                                       \
    X(over_static, "", HIGHER, "tokens_per_step / that of the allocator static")         \
    X(over_never, "", HIGHER,                                                            \
      "tokens_per_step / that with bounds that are equal parts and never learned")       \
    X(utilization_inner, "", HIGHER,                                                     \
      "tokens held / tokens of reserved memory, mean of steps")                          \
    X(utilization_gain, "", HIGHER, "utilization_inner - that of the allocator static")  \
    X(utilization_outer, "", HIGHER,                                                     \
      "tokens held / tokens of all memory, mean of steps")                               \
    X(overflow_frac, "", LOWER, "requests that outgrew their memory / requests")         \
    X(migrated_frac, "", LOWER, "tokens copied to other memory / tokens generated")      \
    X(extended_frac, "", LOWER,                                                          \
      "tokens of sequences whose memory was extended in place, each time / tokens "      \
      "generated")                                                                       \
    X(preempted_per_request, "", LOWER, "preemptions / requests")                        \
    X(recomputed_frac, "", LOWER,                                                        \
      "tokens to compute again after preemptions / tokens generated")                    \
    X(waited_frac, "", LOWER,                                                            \
      "sequence-steps without memory for the next token / all sequence-steps")           \
    X(bucket_accuracy_frac, "", HIGHER,                                                  \
      "requests whose length is within the bucket that was chosen for them")             \
    X(alpha, "", 0, "alpha, as given or chosen")                                         \
    X(safe_frac, "", HIGHER,                                                             \
      "requests whose length is at most the bound of the bucket that was chosen for "    \
      "them")                                                                            \
    X(within_frac, "", HIGHER,                                                           \
      "requests whose predicted output is within 10 % of the true one")                  \
    X(kendall_tau, "", HIGHER,                                                           \
      "Kendall's tau-b of predicted and true outputs: their order")                      \
    X(log_mae, "", LOWER, "mean of |ln(predicted / true output)|")                       \
    X(log_mae_over_constant, "", LOWER,                                                  \
      "log_mae / that of the constant with the smallest one among the requests to "      \
      "learn from, their median")                                                        \
    X(large_frac, "", LOWER, "requests that got the longest memory at once")             \
    X(utilization_end, "", HIGHER, "tokens / tokens of memory, at the requests' ends")   \
    X(recovery_requests, "", LOWER,                                                      \
      "after the change of the lengths: requests until the utilization_end of the "      \
      "latest 256 is 95 % of utilization_ideal")                                         \
    X(utilization_after, "", HIGHER,                                                     \
      "utilization_end of the second half of the requests after the change")             \
    X(utilization_ideal, "", HIGHER,                                                     \
      "utilization_end of all requests after the change, with bounds learned from all "  \
      "of them")                                                                         \
    X(reserved_least_frac, "", HIGHER,                                                   \
      "reserved share of the memory of the device with the least, mean of steps")        \
    X(reserved_most_frac, "", 0,                                                         \
      "reserved share of the memory of the device with the most, mean of steps")         \
    X(predict_us, "us", LOWER | MEASURED, "time of a prediction, mean of all requests")  \
    X(predict_frac, "", LOWER,                                                           \
      "time of predictions / time of steps of 49.5 ms: the paper's model, 15.2 GB, "     \
      "read once at the 307.2 GB/s of its memory")                                       \
    X(text_bits, "", 0,                                                                  \
      "what the text of a drawn request reveals of its output's class, of 3 bits")       \
    X(n_requests, "", 0, "requests replayed")                                            \
    X(n_learned, "", 0, "requests that were there to learn from")                        \
    X(max_tok, "tok", 0, "the longest sequence")                                         \
    X(n_steps, "", LOWER, "steps to answer all requests")                                \
    X(n_epochs, "", 0, "how often bounds were learned")

FRAME_TYPES;
enum { LENGTHS_TOTAL, LENGTHS_OUTPUT };

struct odma_replay {
    FRAME_CELL;
    struct opts changed; /* those of the job, with the change */
    struct study_kv_stream stream;
    struct kv_learned *learned;
    struct kv_outcome *outcomes; /* [stream.n] */
    struct kv_outcome *ideal; /* [stream.n - stream.n_first] with bounds of the change */
    struct kv_accuracy accuracy;
    struct study_kv_result result, fixed; /* fixed: of the allocator static */
};

/* --- options */

/* One "option=value" of `change`, which is n bytes. */
static int change_opt(struct opts *to, const char *change, size_t n)
{
    const char *is = memchr(change, '=', n);
    char name[64], value[256];

    if (!is || is - change >= (ptrdiff_t)sizeof(name) ||
        change + n - is > (ptrdiff_t)sizeof(value))
        return err_set(ERR_ARG, "study.change: expected option=value, found \"%.*s\"",
                       (int)n, change);
    snprintf(name, sizeof(name), "%.*s", (int)(is - change), change);
    snprintf(value, sizeof(value), "%.*s", (int)(change + n - is - 1), is + 1);
    return opt_set(option_rows, to, name, value, "study.change");
}

/* The job's options with the changes that it asks for; to be given back with opt_free(), also after
 * an error. */
static int change_opts(struct opts *to, const struct opts *o)
{
    json_t *given;
    int rc = opt_init(option_rows, to);

    if (rc != OK)
        return rc;
    given = opt_to_json(option_rows, o);
    rc = opt_from_json(option_rows, to, given, "study");
    json_decref(given);
    if (strcmp(o->change, "none") == 0)
        return rc;
    for (const char *at = o->change; rc == OK && at; at = strchr(at, ';')) {
        at += *at == ';';
        rc = change_opt(to, at, strcspn(at, ";"));
    }
    return rc;
}

/* --- replays */

static int parse_quantiles(struct kv_bucket_opts *b, const char *text)
{
    const char *at = text;
    char *end;

    for (b->n = 0; *(at += strspn(at, " ")); at = end) {
        double p = strtod(at, &end);

        if (end == at || b->n == KV_BUCKETS_MAX)
            return err_set(ERR_ARG, "quantiles: \"%s\": expected at most %d numbers",
                           text, KV_BUCKETS_MAX);
        b->p[b->n++] = p;
    }
    return OK;
}

/* The outputs to learn from, where there are any, else all. */
static double *outputs(const struct study_kv_stream *s, size_t *n)
{
    const struct kv_example *e = s->n_learn ? s->learn : s->requests;
    double *x;

    *n = (size_t)(s->n_learn ? s->n_learn : s->n);
    x = mem_new(MEM_OTHER, *n, sizeof(*x));
    for (size_t i = 0; i < *n; i++)
        x[i] = (double)e[i].output_tok;
    return x;
}

static int parse_devices(struct study_kv_opts *k, const char *text, int64_t max_tok)
{
    const char *at = text;
    char *end;

    for (k->n_devices = 0; *(at += strspn(at, " ")); at = end) {
        int64_t n = strtoll(at, &end, 10);

        if (end == at || n < 1 || n > 1 << 20 || k->n_devices == STUDY_KV_DEVICES)
            return err_set(ERR_ARG,
                           "study.devices: \"%s\": expected at most %d numbers of at "
                           "least 1",
                           text, STUDY_KV_DEVICES);
        k->device_tok[k->n_devices++] = n * max_tok;
    }
    return OK;
}

static void set_n_buckets(struct study_kv_opts *k, int n)
{
    k->arena.n_fixed = n;
    k->buckets.n = k->buckets.n_first = n;
    for (int i = 0; i < n; i++)
        k->buckets.p[i] = (i + 1.0) / n;
}

static int prepare(struct study_kv_opts *k, const struct odma_replay *c,
                   const struct opts *o)
{
    const struct study_kv_stream *s = &c->stream;

    *k = (struct study_kv_opts){
        .arena = {.n_tok = o->budget_seqs * s->max_tok,
                  .max_tok = s->max_tok,
                  .align_tok = o->align_tok,
                  .block_tok = o->block_tok,
                  .keep_frac = o->keep_frac,
                  .max_seqs = o->clients,
                  .n_fixed = o->n_fixed,
                  .to_large = o->paper,
                  .large_frac = o->large_pool_frac},
        .buckets = {.max_tok = s->max_tok,
                    .align_tok = o->align_tok,
                    .window = o->window,
                    .every = o->every,
                    .half_life = o->half_life,
                    .detect = o->detect && !o->paper,
                    .least = o->least,
                    .n_first = (int)o->n_first,
                    .of_total = o->lengths == LENGTHS_TOTAL,
                    .steps = !o->paper},
        .predict = {.max_tok = s->max_tok,
                    .constant_tok = (double)o->constant_tok,
                    .sigma = o->sigma,
                    .seed = o->seed,
                    .learned = c->learned},
        .caution = {.alpha = o->alpha, .tau = o->tau},
        .calibrate = o->calibrate,
        .bounds = o->bounds,
        .earlier = s->learn,
        .n_earlier = o->primed ? s->n_learn : 0,
        .co_batch = o->co_batch,
        .migrate = o->migrate,
        .clients = o->clients,
        .patience = o->patience,
        .max_age = o->max_age,
        .max_step_tok = INT64_MAX,
        .route = o->route,
        .own_bounds = o->own_bounds,
    };
    if (o->constant_tok == 0) {
        size_t n;
        double *x = outputs(s, &n);

        k->predict.constant_tok = fmin(stats_mean(x, n), (double)s->max_tok);
        mem_free(x);
    }
    TRY(parse_quantiles(&k->buckets, o->quantiles));
    TRY(parse_devices(k, o->devices, s->max_tok));
    if (o->n_buckets > 0)
        set_n_buckets(k, (int)o->n_buckets);
    TRY(sched_policy_find("chunked", &k->policy));
    TRY(kv_alloc_find(o->alloc, &k->alloc));
    return kv_predictor_find(o->predictor, &k->predictor);
}

static double per_step(const struct study_kv_result *r)
{
    return r->n_loaded_steps ? (double)r->loaded_tok / (double)r->n_loaded_steps : NAN;
}

static double share(double part, double whole)
{
    return whole > 0 ? part / whole : NAN;
}

/* Hundreds of cells have three series each, and a record is part of every clone. */
#define OVER_TIME_POINTS 64

static void report_over_time(struct study_cell *out, const char *name, const char *unit,
                             struct series s)
{
    series_merge(&s, OVER_TIME_POINTS);
    study_series(out, name, unit, s.mean, (size_t)s.n);
}

static void report_series(struct study_cell *out, const struct study_kv_result *r)
{
    struct series steps = r->inner;

    series_merge(&steps, OVER_TIME_POINTS);
    for (int i = 0; i < steps.n; i++)
        steps.mean[i] = (double)(i * steps.each);
    report_over_time(out, "step", "", steps);
    report_over_time(out, "utilization_inner_over_time", "", r->inner);
    report_over_time(out, "utilization_outer_over_time", "", r->outer);
    report_over_time(out, "tokens_per_step_over_time", "tok", r->batch);
}

/* By the caution of *k; constant_mae: log_mae of the best constant. */
static void report_accuracy(struct odma_replay *c, const struct study_kv_opts *k,
                            double constant_mae)
{
    const struct kv_accuracy *a = &c->accuracy;
    const struct study_kv_stream *s = &c->stream;
    struct results *r = c->r;

    r->bucket_accuracy_frac = a->bucket_frac;
    r->safe_frac = a->safe_frac;
    frame_why(c->f, &r->bucket_accuracy_frac, "the allocator has no buckets");
    frame_why(c->f, &r->safe_frac, "the allocator has no buckets");
    r->within_frac = a->within_frac;
    r->log_mae = a->log_mae;
    r->log_mae_over_constant = a->log_mae / constant_mae;
    frame_why(c->f, &r->log_mae_over_constant, "the best constant is always right");
    r->utilization_end = a->utilization_frac;
    r->overflow_frac = k->alloc->paged ? 0 : a->overflow_frac;
    r->n_requests = (double)s->n;
    r->n_learned = (double)s->n_learn;
    r->large_frac = k->alloc->paged ? NAN : a->large_frac;
    frame_why(c->f, &r->large_frac, "a table of blocks grows as the sequence does");
    r->kendall_tau = a->kendall_tau;
    frame_why(c->f, &r->kendall_tau, "all predictions are equal");
    r->text_bits = s->text_bits;
    frame_why(c->f, &r->text_bits, "the texts were not made here");
    if (s->requests[0].text && isnan(s->text_bits) && !k->predictor->reads_truth)
        study_evidence(c->out, "measured",
                       "log_mae log_mae_over_constant within_frac kendall_tau");
}

static void report_replay(struct odma_replay *c)
{
    const struct study_kv_result *from = &c->result, *fixed = &c->fixed;
    double n = (double)c->stream.n, tok = (double)from->output_tok,
           loaded = (double)from->n_loaded_steps, waited = (double)from->waited_steps;
    struct results *r = c->r;

    r->tokens_per_step = per_step(from);
    r->over_static = per_step(from) / per_step(fixed);
    r->utilization_inner = share(from->inner_sum, loaded);
    r->utilization_gain =
        r->utilization_inner - share(fixed->inner_sum, (double)fixed->n_loaded_steps);
    r->utilization_outer = share(from->outer_sum, loaded);
    r->migrated_frac = (double)from->migrated_tok / tok;
    r->extended_frac = (double)from->extended_tok / tok;
    r->preempted_per_request = (double)from->n_preempted / n;
    r->recomputed_frac = (double)from->recomputed_tok / tok;
    r->waited_frac = waited / (tok + waited);
    r->reserved_least_frac = share(from->least_sum, loaded);
    r->reserved_most_frac = share(from->most_sum, loaded);
    r->max_tok = (double)c->stream.max_tok;
    r->n_steps = (double)from->n_steps;
    r->n_epochs = (double)from->n_epochs;
    if (c->changed.over_time)
        report_series(c->out, from);
}

/* The error of the median of the requests to learn from. */
static double constant_error(const struct study_kv_stream *s)
{
    size_t n;
    double *x = outputs(s, &n), median = stats_median(x, n), sum = 0;

    mem_free(x);
    for (int64_t i = 0; i < s->n; i++)
        sum += fabs(log(median / (double)s->requests[i].output_tok));
    return sum / (double)s->n;
}

/* For each request, so that all numbers of predictions can be worked out again. */
static void report_requests(struct study_cell *out, const struct kv_outcome *q, size_t n)
{
    static const char *const names[] = {
        "request_prompt_tok",       "request_output_tok", "request_predicted_tok",
        "request_bucket_above_tok", "request_bucket_tok", "request_first_tok",
        "request_last_tok"};
    double *x = mem_new(MEM_OTHER, n, sizeof(*x));

    for (int k = 0; k < 7; k++) {
        for (size_t i = 0; i < n; i++) {
            const double v[] = {(double)q[i].prompt_tok,    (double)q[i].output_tok,
                                q[i].predicted_tok,         (double)q[i].bucket_tok[0],
                                (double)q[i].bucket_tok[1], (double)q[i].first_tok,
                                (double)q[i].last_tok};

            x[i] = v[k];
        }
        study_series(out, names[k], "tok", x, n);
    }
    mem_free(x);
}

/* --- after a change of the lengths */

#define RECOVERY_WINDOW 256
#define RECOVERED       0.95

static double utilization(const struct kv_outcome *q, int64_t n)
{
    double used = 0, memory = 0;

    for (int64_t i = 0; i < n; i++) {
        used += (double)(q[i].prompt_tok + q[i].output_tok);
        memory += (double)q[i].last_tok;
    }
    return n > 0 ? used / memory : NAN;
}

/* Requests until the latest of them use memory as well as `ideal` ones do; NaN: never. */
static double recovery(const struct kv_outcome *q, const struct kv_outcome *ideal,
                       int64_t n)
{
    double wanted = RECOVERED * utilization(ideal, n);

    for (int64_t i = RECOVERY_WINDOW; i <= n; i++)
        if (utilization(q + i - RECOVERY_WINDOW, RECOVERY_WINDOW) >= wanted)
            return (double)i;
    return NAN;
}

/* The requests after the change with bounds that were learned from all of them, which nobody
 * has in time. */
static int replay_ideal(struct odma_replay *c, const struct study_kv_opts *k)
{
    const struct study_kv_stream *s = &c->stream;
    struct study_kv_opts ideal = *k;
    struct study_kv_result result;
    int64_t n = s->n - s->n_first;

    ideal.bounds = STUDY_KV_ONCE;
    ideal.earlier = s->requests + s->n_first;
    ideal.n_earlier = n;
    ideal.buckets.window = n;
    c->ideal = frame_new(c->f, (size_t)n, sizeof(*c->ideal));
    return study_kv_replay(&result, &ideal, ideal.earlier, n, c->ideal);
}

static int report_recovery(struct odma_replay *c, const struct study_kv_opts *k)
{
    const struct study_kv_stream *s = &c->stream;
    const struct kv_outcome *after = c->outcomes + s->n_first;
    int64_t n = s->n - s->n_first;
    struct results *r = c->r;
    double *const all[] = {&r->recovery_requests, &r->utilization_after,
                           &r->utilization_ideal};

    for (int i = 0; i < 3; i++) {
        *all[i] = NAN;
        frame_why(c->f, all[i], "the lengths do not change");
    }
    if (n == 0)
        return OK;
    TRY(replay_ideal(c, k));
    r->recovery_requests = recovery(after, c->ideal, n);
    frame_why(c->f, &r->recovery_requests, "it does not recover");
    r->utilization_after = utilization(after + n / 2, n - n / 2);
    r->utilization_ideal = utilization(c->ideal, n);
    return OK;
}

/* --- what predictions cost */

/* A step of the paper's device: DeepSeek-R1-Distill-Qwen-7B has 7.6e9 parameters of 2 bytes. */
#define PAPER_STEP_S (15.2e9 / 307.2e9)

static int report_overhead(struct odma_replay *c, const struct study_kv_opts *k)
{
    const struct study_kv_stream *s = &c->stream;
    double per_request_s, steps_per_request;
    struct kv_prediction p;
    void *state;
    uint64_t t0;
    int rc;

    TRY(k->predictor->open(&state, &k->predict));
    t0 = clock_ns();
    rc = OK;
    for (int64_t i = 0; i < s->n && rc == OK; i++) {
        const struct kv_example *e = &s->requests[i];
        const struct kv_query q = {.prompt_tok = e->prompt_tok,
                                   .true_tok = e->output_tok,
                                   .text = e->text,
                                   .text_bytes = e->text_bytes};

        rc = k->predictor->predict(state, &q, &p);
    }
    per_request_s = (double)(clock_ns() - t0) * 1e-9 / (double)s->n;
    k->predictor->close(state);
    steps_per_request =
        (double)c->result.output_tok / (double)s->n / per_step(&c->result);
    c->r->predict_us = per_request_s * 1e6;
    c->r->predict_frac = per_request_s / (steps_per_request * PAPER_STEP_S);
    return rc;
}

/* --- a cell */

/* More overflows with a larger alpha are chance; the bracket is halved all the same. */
#define ALPHA_MAX   64.0
#define ALPHA_STEPS 12

/* Whether more than that share of the requests outgrows the memory that it gets first. */
static int overflows(struct odma_replay *c, const struct study_kv_opts *k, bool *too_many)
{
    const struct study_kv_stream *s = &c->stream;
    struct kv_accuracy a;

    TRY(study_kv_replay(&c->result, k, s->requests, s->n, c->outcomes));
    TRY(kv_accuracy(&a, c->outcomes, s->n, s->max_tok));
    *too_many = !k->alloc->paged && a.overflow_frac > c->changed.overflow;
    return OK;
}

static int choose_alpha(struct odma_replay *c, struct study_kv_opts *k)
{
    double low = 0, high = ALPHA_MAX;
    bool too_many;

    for (int i = 0; i < ALPHA_STEPS; i++) {
        k->caution.alpha = i ? sqrt((low + 0.01) * high) : 0;
        TRY(overflows(c, k, &too_many));
        if (!i && !too_many)
            return OK; /* no caution is needed */
        if (too_many)
            low = k->caution.alpha;
        else
            high = k->caution.alpha;
    }
    k->caution.alpha = high;
    return OK;
}

/* Before the replay that counts, whose outcomes stay. */
static int replay_never(double *tokens_per_step, struct odma_replay *c,
                        const struct study_kv_opts *k)
{
    const struct study_kv_stream *s = &c->stream;
    struct study_kv_opts never = *k;
    struct study_kv_result result;

    *tokens_per_step = NAN;
    if (!c->changed.over_never)
        return OK;
    never.bounds = STUDY_KV_NEVER;
    TRY(study_kv_replay(&result, &never, s->requests, s->n, c->outcomes));
    *tokens_per_step = per_step(&result);
    return OK;
}

static int open_stream(struct odma_replay *c, const struct opts *o)
{
    const struct study_kv_stream_opts so = {.sources = o->stream,
                                            .tokenizer = o->tokenizer,
                                            .n_requests = o->n_requests,
                                            .n_learn = o->n_learn,
                                            .seed = o->seed,
                                            .folds = o->folds,
                                            .tells = o->tells,
                                            .max_tok = o->max_tok,
                                            .align_tok = o->align_tok};

    return study_kv_stream_open(&c->stream, &so);
}

static void close_replays(struct odma_replay *c)
{
    kv_learned_close(&c->learned);
    study_kv_stream_close(&c->stream);
    opt_free(option_rows, &c->changed);
}

static int odma_replay_run(struct odma_replay *c)
{
    const struct study_kv_stream *s = &c->stream;
    const struct opts *o = &c->changed;
    const struct kv_predictor *predictor;
    struct study_kv_opts k, fixed;
    double never;

    FRAME_CLOSE(c->f, close_replays, c);
    TRY(change_opts(&c->changed, c->o));
    TRY(open_stream(c, o));
    c->outcomes = frame_new(c->f, (size_t)s->n, sizeof(*c->outcomes));
    TRY(kv_predictor_find(o->predictor, &predictor));
    if (predictor->learns && s->n_learn > 0)
        TRY(kv_learn(&c->learned, s->learn, s->n_learn));
    TRY(prepare(&k, c, o));
    fixed = k;
    TRY(kv_alloc_find("static", &fixed.alloc));
    TRY(study_kv_replay(&c->fixed, &fixed, s->requests, s->n, c->outcomes));
    if (o->overflow > 0)
        TRY(choose_alpha(c, &k));
    TRY(replay_never(&never, c, &k));
    TRY(study_kv_replay(&c->result, &k, s->requests, s->n, c->outcomes));
    TRY(kv_accuracy(&c->accuracy, c->outcomes, s->n, s->max_tok));
    frame_why(c->f, NULL,
              "fewer requests than clients: the load ends with the first step");
    c->r->alpha = k.caution.alpha;
    c->r->over_never = per_step(&c->result) / never;
    frame_why(c->f, &c->r->over_never, "not asked for, or fewer requests than clients");
    report_replay(c);
    report_accuracy(c, &k, constant_error(s));
    TRY(report_recovery(c, &k));
    TRY(report_overhead(c, &k));
    if (o->raw)
        report_requests(c->out, c->outcomes, (size_t)s->n);
    return OK;
}

STUDY(odma_replay,
      "a trace's requests through the allocators of keys and values, without computing");
