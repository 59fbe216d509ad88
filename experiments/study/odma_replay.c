/* Who has memory for keys and values when: requests of a trace through the allocators, by a
 * serving loop without its computation, and how much of the memory is used.
 * Paper: ODMA 3, 5.2. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/stats.h"
#include "experiments/load/study.h"
#include "experiments/study/support/kv_replay.h"
#include "experiments/study/support/kv_stream.h"
#include "experiments/study/support/rows.h"

struct opts {
    char *alloc, *predictor, *stream, *tokenizer, *quantiles, *change, *devices;
    double sigma, alpha, tau, tells, keep_frac, overflow;
    int bounds, route;
    bool primed, co_batch, migrate, raw, paper, detect, least, own_bounds, over_time;
    int64_t constant_tok, n_requests, n_learn, folds, clients, max_tok, budget_seqs,
        align_tok, block_tok, n_buckets, n_fixed, n_first, window, every, half_life,
        calibrate, patience, max_age, seed;
};

static const char *alloc_name(int i)
{
    return kv_allocs[i] ? kv_allocs[i]->name : NULL;
}

static const char *predictor_name(int i)
{
    return kv_predictors[i] ? kv_predictors[i]->name : NULL;
}

static const struct opt_row table[] = {
    OPT_ROW(STR, alloc, "odma", "Allocator.", .names = alloc_name),
    OPT_ROW(STR, predictor, "noisy", "Length predictor.", .names = predictor_name),
    OPT_ROW(F64, sigma, "0.3",
            "noisy: size of its errors. The predicted length is the true one times exp(s "
            "z), z normal, s uniform in [0, 2 sigma].",
            .min = 0, .max = 10),
    OPT_ROW(
        INT, constant_tok, "0",
        "constant: the length that it predicts. 0: the mean output of the requests to "
        "learn from, where there are any, else of those that are replayed.",
        .unit = "tok", .min = 0, .max = 1 << 20),
    OPT_ROW(
        STR, stream, "sharegpt",
        "The requests: a fit, from which lengths are drawn, or a file of conversations "
        "or lengths. \"A+B\": the first half from A, the second from B; what is "
        "learned is learned from A."),
    OPT_ROW(STR, tokenizer, NULL,
            "Tokenizer that counts the tokens of texts. Without it four bytes are taken "
            "for a token.",
            .unit = "FILE"),
    OPT_ROW(INT, n_requests, "2000", "Number of requests to replay; of a file at most.",
            .min = 1, .max = 1000000),
    OPT_ROW(INT, n_learn, "2000", "Drawn requests to learn from, before those.", .min = 0,
            .max = 1000000),
    OPT_ROW(INT, folds, "5",
            "Parts of a file of conversations. One is replayed, by the seed; the others "
            "are to learn from.",
            .min = 2, .max = 1000),
    OPT_ROW(
        F64, tells, "0.7",
        "Drawn requests: probability that the text has the word of its output's class, "
        "one of eight. Otherwise the word is that of a random class.",
        .min = 0, .max = 1),
    OPT_ROW(INT, clients, "256",
            "Clients, each of which sends its next request when one was answered.",
            .min = 1, .max = 4096),
    OPT_ROW(INT, max_tok, "0",
            "Longest sequence, prompt and output; longer ones are cut. 0: it holds "
            "95 % of the requests.",
            .unit = "tok", .min = 0, .max = 1 << 20),
    OPT_ROW(INT, budget_seqs, "32",
            "Memory for keys and values, in sequences of the longest.", .min = 1,
            .max = 1 << 20),
    OPT_ROW(STR, devices, "",
            "Memory of each of several devices, in sequences of the longest, at most 8: "
            "\"16 8 8 4\". \"\": one device, with budget_seqs."),
    OPT_ROW(ENUM, route, "cluster",
            "Devices: a request goes to the one with the smallest larger share of "
            "memory and compute, and waits before all while none has the memory; to each "
            "in turn; or to the one with the fewest requests.",
            .values = "cluster|in_turn|fewest"),
    OPT_ROW(BOOL, own_bounds, "false",
            "Devices: each learns bounds from its own requests; else all have the same."),
    OPT_ROW(INT, align_tok, "16", "Sizes of contiguous memory are multiples of it.",
            .unit = "tok", .min = 1, .max = 1 << 16),
    OPT_ROW(INT, block_tok, "16", "paged: size of a block.", .unit = "tok", .min = 16,
            .max = 512),
    OPT_ROW(F64, keep_frac, "0.02",
            "paged: share of the blocks that stays free when a request is admitted, for "
            "those that grow.",
            .min = 0, .max = 0.9),
    OPT_ROW(INT, n_buckets, "0",
            "Number of buckets of either allocator: for s3 of equal width, for odma of "
            "equally many lengths of the window. 0: n_fixed and quantiles.",
            .min = 0, .max = KV_BUCKETS_MAX),
    OPT_ROW(INT, n_fixed, "10", "s3: number of buckets, of equal width.", .min = 1,
            .max = KV_BUCKETS_MAX),
    OPT_ROW(
        INT, n_first, "10",
        "odma: number of buckets, of equal width, until lengths have been learned. 0: "
        "only the large bucket.",
        .min = 0, .max = KV_BUCKETS_MAX),
    OPT_ROW(STR, quantiles, "0.2 0.4 0.55 0.65 0.75 0.8 0.85 0.9 0.94 0.97",
            "odma: quantiles of the lengths at which buckets end. \"\": only the large "
            "bucket."),
    OPT_ROW(INT, window, "1024", "odma: finished requests from which bounds are learned.",
            .min = 1, .max = 1 << 20),
    OPT_ROW(INT, every, "128", "odma: learn after this number of finished requests.",
            .min = 1, .max = 1 << 20),
    OPT_ROW(INT, half_life, "0",
            "odma: finished requests after which one of the window counts half. 0: all "
            "count the same.",
            .min = 0, .max = 1 << 20),
    OPT_ROW(BOOL, detect, "true",
            "odma: where the latest lengths differ from those before by the test of "
            "Kolmogorov and Smirnov, the window forgets those before. Not with paper."),
    OPT_ROW(BOOL, least, "false",
            "odma: bounds with which the window's requests would take least memory, in "
            "place of its quantiles."),
    OPT_ROW(INT, calibrate, "0",
            "Predictions are multiplied by the median of realised / predicted of this "
            "number of finished requests. 0: they are used as they are.",
            .min = 0, .max = 1 << 20),
    OPT_ROW(ENUM, bounds, "again",
            "odma: when bounds are learned: again and again, once, or never, so that the "
            "n_first equal parts stay.",
            .values = "again|once|never"),
    OPT_ROW(BOOL, primed, "false",
            "odma: the window begins with the requests to learn from."),
    OPT_ROW(
        BOOL, paper, "false",
        "odma: as in the paper, a sequence that outgrows its memory moves to the large "
        "bucket, predictions above the last quantile get it, and the window forgets "
        "nothing early. Else memory doubles, and above the last quantile are buckets of "
        "twice the size each."),
    OPT_ROW(BOOL, co_batch, "true",
            "Admit the oldest request of the bucket that was admitted before; else the "
            "oldest."),
    OPT_ROW(BOOL, migrate, "true",
            "Copy a sequence that outgrows its memory; else it begins again."),
    OPT_ROW(F64, alpha, "0.5",
            "A predicted length is inflated by 1 + alpha times its uncertainty.",
            .min = 0, .max = 100),
    OPT_ROW(F64, overflow, "0",
            "Choose the smallest alpha with which at most this share of the requests "
            "outgrows the memory that it gets first, so that allocators are compared at "
            "equal overflow. 0: alpha as it is.",
            .min = 0, .max = 1),
    OPT_ROW(F64, tau, "0.8",
            "Uncertainty above which a sequence gets the longest memory.", .min = 0,
            .max = 1),
    OPT_ROW(INT, patience, "8",
            "Steps that a sequence waits for memory before the youngest is preempted.",
            .min = 0, .max = 1 << 20),
    OPT_ROW(INT, max_age, "256",
            "Steps that a request can be passed by others of the latest bucket.",
            .min = 0, .max = 1 << 30),
    OPT_ROW(STR, change, "none",
            "Other values for some of the other options, as \"option=value\" or "
            "\"option=value;option=value\", so that an axis can change a few at a time. "
            "none: no other."),
    OPT_ROW(BOOL, over_time, "true",
            "Record utilization and batches over time; a record of many cells is smaller "
            "without."),
    OPT_ROW(BOOL, raw, "false",
            "Record each request: prediction, length, bucket and memory."),
    OPT_ROW(INT, seed, "1",
            "Seed of lengths, texts and the predictor's errors; of conversations, which "
            "part is replayed.",
            .min = 1, .max = 1 << 30),
    {0},
};

static const struct study_metric metrics[] = {
    {"tokens_per_step", "tok", "higher",
     "tokens generated per step while there are requests to send: the mean batch, less "
     "the sequences that wait for memory; a token computed again after a preemption is "
     "not counted"},
    {"over_static", "", "higher", "tokens_per_step / that of the allocator static"},
    {"utilization_inner", "", "higher",
     "tokens held / tokens of reserved memory, mean of steps"},
    {"utilization_gain", "", "higher",
     "utilization_inner - that of the allocator static"},
    {"utilization_outer", "", "higher",
     "tokens held / tokens of all memory, mean of steps"},
    {"overflow_frac", "", "lower", "requests that outgrew their memory / requests"},
    {"migrated_frac", "", "lower", "tokens copied to other memory / tokens generated"},
    {"extended_frac", "", "lower",
     "tokens of sequences whose memory was extended in place, each time / tokens "
     "generated"},
    {"preempted_per_request", "", "lower", "preemptions / requests"},
    {"recomputed_frac", "", "lower",
     "tokens to compute again after preemptions / tokens generated"},
    {"waited_frac", "", "lower",
     "sequence-steps without memory for the next token / all sequence-steps"},
    {"bucket_accuracy_frac", "", "higher",
     "requests whose length is within the bucket that was chosen for them"},
    {"alpha", "", "", "alpha, as given or chosen"},
    {"safe_frac", "", "higher",
     "requests whose length is at most the bound of the bucket that was chosen for them"},
    {"within_frac", "", "higher",
     "requests whose predicted output is within 10 % of the true one"},
    {"kendall_tau", "", "higher",
     "Kendall's tau-b of predicted and true outputs: their order"},
    {"log_mae", "", "lower", "mean of |ln(predicted / true output)|"},
    {"log_mae_over_constant", "", "lower",
     "log_mae / that of the constant with the smallest one among the requests to learn "
     "from, their median"},
    {"large_frac", "", "lower", "requests that got the longest memory at once"},
    {"utilization_end", "", "higher", "tokens / tokens of memory, at the requests' ends"},
    {"recovery_requests", "", "lower",
     "after the change of the lengths: requests until the utilization_end of the latest "
     "256 is 95 % of utilization_ideal"},
    {"utilization_after", "", "higher",
     "utilization_end of the second half of the requests after the change"},
    {"utilization_ideal", "", "higher",
     "utilization_end of all requests after the change, with bounds learned from all of "
     "them"},
    {"reserved_least_frac", "", "higher",
     "reserved share of the memory of the device with the least, mean of steps"},
    {"reserved_most_frac", "", "",
     "reserved share of the memory of the device with the most, mean of steps"},
    {"predict_us", "us", "lower", "time of a prediction, mean of all requests"},
    {"predict_frac", "", "lower",
     "time of predictions / time of steps of 49.5 ms: the paper's model, 15.2 GB, read "
     "once at the 307.2 GB/s of its memory"},
    {"text_bits", "", "",
     "what the text of a drawn request reveals of its output's class, of 3 bits"},
    {"n_requests", "", "", "requests replayed"},
    {"n_learned", "", "", "requests that were there to learn from"},
    {"max_tok", "tok", "", "the longest sequence"},
    {"n_steps", "", "lower", "steps to answer all requests"},
    {"n_epochs", "", "", "how often bounds were learned"},
    {0},
};

struct cell {
    const struct opts *o;
    struct study_cell *out;
    struct opts changed; /* those of the job, with the change */
    struct study_kv_stream stream;
    struct kv_learned *learned;
    struct kv_outcome *outcomes; /* [stream.n] */
    struct kv_outcome *ideal; /* [stream.n - stream.n_first] with bounds of the change */
    struct kv_accuracy accuracy;
    struct study_kv_result result, fixed; /* fixed: of the allocator static */
};

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
    for (size_t i = 0; x && i < *n; i++)
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

static int prepare(struct study_kv_opts *k, const struct cell *w, const struct opts *o)
{
    const struct study_kv_stream *s = &w->stream;

    *k = (struct study_kv_opts){
        .arena = {.n_tok = o->budget_seqs * s->max_tok,
                  .max_tok = s->max_tok,
                  .align_tok = o->align_tok,
                  .block_tok = o->block_tok,
                  .keep_frac = o->keep_frac,
                  .max_seqs = o->clients,
                  .n_fixed = o->n_fixed,
                  .to_large = o->paper},
        .buckets = {.max_tok = s->max_tok,
                    .align_tok = o->align_tok,
                    .window = o->window,
                    .every = o->every,
                    .half_life = o->half_life,
                    .detect = o->detect && !o->paper,
                    .least = o->least,
                    .n_first = (int)o->n_first,
                    .of_total = true,
                    .steps = !o->paper},
        .predict = {.max_tok = s->max_tok,
                    .constant_tok = (double)o->constant_tok,
                    .sigma = o->sigma,
                    .seed = o->seed,
                    .learned = w->learned},
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

        if (!x)
            return ERR_NOMEM;
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

static void report_series(struct study_cell *out, const struct study_kv_result *r)
{
    size_t n = (size_t)r->inner.n;
    double steps[SERIES_POINTS];

    for (size_t i = 0; i < n; i++)
        steps[i] = (double)((int64_t)i * r->inner.each);
    study_series(out, "step", "", steps, n);
    study_series(out, "utilization_inner_over_time", "", r->inner.mean, n);
    study_series(out, "utilization_outer_over_time", "", r->outer.mean, n);
    study_series(out, "tokens_per_step_over_time", "tok", r->batch.mean, n);
}

static void report_accuracy(struct study_cell *out, const struct cell *w,
                            const struct study_kv_opts *k, double constant_mae)
{
    const struct kv_accuracy *a = &w->accuracy;
    const struct study_number buckets[] = {{"bucket_accuracy_frac", a->bucket_frac},
                                           {"safe_frac", a->safe_frac}};
    const struct study_number predictions[] = {
        {"within_frac", a->within_frac},
        {"log_mae", a->log_mae},
        {"log_mae_over_constant", a->log_mae / constant_mae},
        {"utilization_end", a->utilization_frac},
        {"overflow_frac", k->alloc->paged ? 0 : a->overflow_frac},
        {"n_requests", (double)w->stream.n},
        {"n_learned", (double)w->stream.n_learn},
    };

    if (w->stream.requests[0].text && isnan(w->stream.text_bits) &&
        !k->predictor->reads_truth)
        study_evidence(out, "measured",
                       "log_mae log_mae_over_constant within_frac kendall_tau");
    STUDY_VALUES(out, buckets, "the allocator has no buckets");
    STUDY_VALUES(out, predictions, "the best constant is always right");
    study_value(out, "large_frac", k->alloc->paged ? NAN : a->large_frac,
                "a table of blocks grows as the sequence does");
    study_value(out, "kendall_tau", a->kendall_tau, "all predictions are equal");
    study_value(out, "text_bits", w->stream.text_bits, "the texts were not made here");
}

static void report(struct study_cell *out, const struct cell *w)
{
    const struct study_kv_result *r = &w->result;
    double n = (double)w->stream.n, tok = (double)r->output_tok,
           loaded = (double)r->n_loaded_steps;
    double inner_of_static = share(w->fixed.inner_sum, (double)w->fixed.n_loaded_steps);
    const struct study_number all[] = {
        {"tokens_per_step", per_step(r)},
        {"over_static", per_step(r) / per_step(&w->fixed)},
        {"utilization_inner", share(r->inner_sum, loaded)},
        {"utilization_gain", share(r->inner_sum, loaded) - inner_of_static},
        {"utilization_outer", share(r->outer_sum, loaded)},
        {"migrated_frac", (double)r->migrated_tok / tok},
        {"extended_frac", (double)r->extended_tok / tok},
        {"preempted_per_request", (double)r->n_preempted / n},
        {"recomputed_frac", (double)r->recomputed_tok / tok},
        {"waited_frac", (double)r->waited_steps / (tok + (double)r->waited_steps)},
        {"reserved_least_frac", share(r->least_sum, loaded)},
        {"reserved_most_frac", share(r->most_sum, loaded)},
        {"max_tok", (double)w->stream.max_tok},
        {"n_steps", (double)r->n_steps},
        {"n_epochs", (double)r->n_epochs},
    };

    STUDY_VALUES(out, all,
                 "fewer requests than clients: the load ends with the first step");
    if (w->changed.over_time)
        report_series(out, r);
}

/* The error of the median of the requests to learn from. */
static int constant_error(double *mae, const struct study_kv_stream *s)
{
    size_t n;
    double *x = outputs(s, &n), median, sum = 0;

    if (!x)
        return ERR_NOMEM;
    median = stats_median(x, n);
    mem_free(x);
    for (int64_t i = 0; i < s->n; i++)
        sum += fabs(log(median / (double)s->requests[i].output_tok));
    *mae = sum / (double)s->n;
    return OK;
}

/* For each request, so that all numbers of predictions can be worked out again. */
static int report_requests(struct study_cell *out, const struct kv_outcome *q, size_t n)
{
    static const char *const names[] = {
        "request_prompt_tok",       "request_output_tok", "request_predicted_tok",
        "request_bucket_above_tok", "request_bucket_tok", "request_first_tok",
        "request_last_tok"};
    double *x = mem_new(MEM_OTHER, n, sizeof(*x));

    if (!x)
        return ERR_NOMEM;
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
    return OK;
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
static int replay_ideal(struct cell *w, const struct study_kv_opts *k)
{
    const struct study_kv_stream *s = &w->stream;
    struct study_kv_opts ideal = *k;
    struct study_kv_result result;
    int64_t n = s->n - s->n_first;

    ideal.bounds = STUDY_KV_ONCE;
    ideal.earlier = s->requests + s->n_first;
    ideal.n_earlier = n;
    ideal.buckets.window = n;
    w->ideal = mem_new(MEM_OTHER, (size_t)n, sizeof(*w->ideal));
    if (!w->ideal)
        return ERR_NOMEM;
    return study_kv_replay(&result, &ideal, ideal.earlier, n, w->ideal);
}

static int report_recovery(struct study_cell *out, struct cell *w,
                           const struct study_kv_opts *k)
{
    const struct study_kv_stream *s = &w->stream;
    const struct kv_outcome *after = w->outcomes + s->n_first;
    int64_t n = s->n - s->n_first;
    struct study_number all[] = {{"utilization_after", NAN}, {"utilization_ideal", NAN}};
    double requests = NAN;

    if (n > 0) {
        TRY(replay_ideal(w, k));
        requests = recovery(after, w->ideal, n);
        all[0].value = utilization(after + n / 2, n - n / 2);
        all[1].value = utilization(w->ideal, n);
    }
    study_value(out, "recovery_requests", requests,
                n > 0 ? "it does not recover" : "the lengths do not change");
    STUDY_VALUES(out, all, "the lengths do not change");
    return OK;
}

/* --- what predictions cost */

/* Of the paper's device: DeepSeek-R1-Distill-Qwen-7B has 7.6e9 parameters of 2 bytes. */
#define PAPER_STEP_S (15.2e9 / 307.2e9)

static int report_overhead(const struct cell *w, const struct study_kv_opts *k)
{
    const struct study_kv_stream *s = &w->stream;
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
        (double)w->result.output_tok / (double)s->n / per_step(&w->result);
    study_value(w->out, "predict_us", per_request_s * 1e6, "");
    study_value(w->out, "predict_frac",
                per_request_s / (steps_per_request * PAPER_STEP_S),
                "fewer requests than clients: the load ends with the first step");
    study_evidence(w->out, "measured", "predict_us");
    return rc;
}

/* --- a cell */

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
    return opt_set(table, to, name, value, "study.change");
}

/* The job's options with the changes that it asks for. */
static int change_opts(struct opts *to, const struct opts *o)
{
    json_t *given;
    int rc = opt_init(table, to);

    if (rc != OK)
        return rc;
    given = opt_to_json(table, o);
    rc = given ? opt_from_json(table, to, given, "study") : ERR_NOMEM;
    json_decref(given);
    if (strcmp(o->change, "none") == 0)
        return rc;
    for (const char *at = o->change; rc == OK && at; at = strchr(at, ';')) {
        at += *at == ';';
        rc = change_opt(to, at, strcspn(at, ";"));
    }
    return rc;
}

/* More overflows with a larger alpha are chance; the bracket is halved all the same. */
#define ALPHA_MAX   64.0
#define ALPHA_STEPS 12

/* Whether more than that share of the requests outgrows the memory that it gets first. */
static int overflows(struct cell *w, const struct study_kv_opts *k, bool *too_many)
{
    const struct study_kv_stream *s = &w->stream;
    struct kv_accuracy a;

    TRY(study_kv_replay(&w->result, k, s->requests, s->n, w->outcomes));
    TRY(kv_accuracy(&a, w->outcomes, s->n, s->max_tok));
    *too_many = !k->alloc->paged && a.overflow_frac > w->changed.overflow;
    return OK;
}

static int choose_alpha(struct cell *w, struct study_kv_opts *k)
{
    double low = 0, high = ALPHA_MAX;
    bool too_many;

    for (int i = 0; i < ALPHA_STEPS; i++) {
        k->caution.alpha = i ? sqrt((low + 0.01) * high) : 0;
        TRY(overflows(w, k, &too_many));
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

static int open_stream(struct cell *w, const struct opts *o)
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

    return study_kv_stream_open(&w->stream, &so);
}

static int run(struct cell *w)
{
    const struct study_kv_stream *s = &w->stream;
    const struct opts *o = &w->changed;
    const struct kv_predictor *predictor;
    struct study_kv_opts k, fixed;
    double constant_mae;

    TRY(change_opts(&w->changed, w->o));
    TRY(open_stream(w, o));
    w->outcomes = mem_new(MEM_OTHER, (size_t)s->n, sizeof(*w->outcomes));
    if (!w->outcomes)
        return ERR_NOMEM;
    TRY(kv_predictor_find(o->predictor, &predictor));
    if (predictor->learns && s->n_learn > 0)
        TRY(kv_learn(&w->learned, s->learn, s->n_learn));
    TRY(prepare(&k, w, o));
    fixed = k;
    TRY(kv_alloc_find("static", &fixed.alloc));
    TRY(study_kv_replay(&w->fixed, &fixed, s->requests, s->n, w->outcomes));
    if (o->overflow > 0)
        TRY(choose_alpha(w, &k));
    TRY(study_kv_replay(&w->result, &k, s->requests, s->n, w->outcomes));
    study_value(w->out, "alpha", k.caution.alpha, "");
    TRY(kv_accuracy(&w->accuracy, w->outcomes, s->n, s->max_tok));
    TRY(constant_error(&constant_mae, s));
    report(w->out, w);
    report_accuracy(w->out, w, &k, constant_mae);
    TRY(report_recovery(w->out, w, &k));
    TRY(report_overhead(w, &k));
    return o->raw ? report_requests(w->out, w->outcomes, (size_t)s->n) : OK;
}

static void end(struct cell *w)
{
    kv_learned_close(&w->learned);
    mem_free(w->outcomes);
    mem_free(w->ideal);
    study_kv_stream_close(&w->stream);
    opt_free(table, &w->changed);
}

STUDY(odma_replay,
      "a trace's requests through the allocators of keys and values, without computing");
