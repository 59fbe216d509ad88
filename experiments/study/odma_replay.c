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
#include "experiments/study/support/odma_opts.h"
#include "experiments/study/support/rows.h"

#define table study_odma_rows /* of STUDY() */

static const struct study_metric metrics[] = {
    {"tokens_per_step", "tok", "higher",
     "tokens generated per step while there are requests to send: the mean batch, less "
     "the sequences that wait for memory; a token computed again after a preemption is "
     "not counted"},
    {"over_static", "", "higher", "tokens_per_step / that of the allocator static"},
    {"over_never", "", "higher",
     "tokens_per_step / that with bounds that are equal parts and never learned"},
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

/* Before the replay that counts, whose outcomes stay. */
static int replay_never(double *tokens_per_step, struct cell *w,
                        const struct study_kv_opts *k)
{
    const struct study_kv_stream *s = &w->stream;
    struct study_kv_opts never = *k;
    struct study_kv_result result;

    *tokens_per_step = NAN;
    if (!w->changed.over_never)
        return OK;
    never.bounds = STUDY_KV_NEVER;
    TRY(study_kv_replay(&result, &never, s->requests, s->n, w->outcomes));
    *tokens_per_step = per_step(&result);
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
    double constant_mae, never;

    TRY(study_odma_change(&w->changed, w->o));
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
    TRY(replay_never(&never, w, &k));
    TRY(study_kv_replay(&w->result, &k, s->requests, s->n, w->outcomes));
    study_value(w->out, "alpha", k.caution.alpha, "");
    study_value(w->out, "over_never", per_step(&w->result) / never,
                "not asked for, or fewer requests than clients");
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
