/* The engine under load with memory for keys and values that is short: tokens a second and use of
 * the memory with each allocator. Engines of all allocators serve the same requests in turn, so
 * that the machine's changes meet all alike.   Paper: ODMA 5.2, Figs. 4 and 5. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/series.h"
#include "experiments/frame/frame.h"
#include "experiments/study/support/kv_stream.h"
#include "experiments/study/support/options.h"
#include "experiments/study/support/serving.h"
#include "format/format.h"

#define ALIGN_TOK   16
#define RELEARN     16 /* odma: so few requests that a short run sees learned bounds */
#define WARM_UP     4  /* a round to warm up has this part of a round's requests */
#define CLIENTS_MAX 256

enum { STATIC, S3, ODMA, PAGED, N_ALLOCS };
static const char *const allocs[N_ALLOCS] = {"static", "s3", "odma", "paged"};

#define OPTIONS(X)                                                                       \
    OPTION_MODEL(X)                                                                      \
    OPTION_PRECISION(X)                                                                  \
    OPTION_KV_TYPE(X, "f32")                                                             \
    X(STR, fit, "alpaca", "Fit of the trace from which lengths are drawn.")              \
    X(INT, n_requests, "128", "Number of requests in a round.", .min = 1, .max = 100000) \
    X(INT, clients, "24",                                                                \
      "Clients, each of which sends its next request when one was answered.", .min = 1,  \
      .max = CLIENTS_MAX)                                                                \
    X(INT, budget_seqs, "8", "Memory for keys and values, in sequences of the longest.", \
      .min = 1, .max = CLIENTS_MAX)                                                      \
    X(INT, max_tok, "0",                                                                 \
      "Longest sequence, prompt and output; longer ones are cut. 0: it holds 95 % of "   \
      "the requests, or what the model is made for.",                                    \
      .unit = "tok", .min = 0, .max = 1 << 20)                                           \
    X(INT, rounds, "3",                                                                  \
      "Rounds, each of all allocators; a quarter of one comes first and does not "       \
      "count.",                                                                          \
      .min = 1, .max = 99)                                                               \
    X(INT, seed, "1", "Seed of the lengths.", .min = 1, .max = 1 << 30)

#define ALLOC_RESULTS(X, alloc)                                                          \
    X(tps_##alloc, "tok/s", HIGHER,                                                      \
      "tokens generated a second while there are requests to send, with " #alloc)        \
    X(utilization_##alloc, "", HIGHER,                                                   \
      "bytes of keys and values / bytes of reserved memory, mean over that time")        \
    X(utilization_outer_##alloc, "", HIGHER,                                             \
      "bytes of keys and values / bytes of all memory, mean over that time")             \
    X(tokens_per_step_##alloc, "tok", HIGHER, "tokens generated / steps")                \
    X(overflow_frac_##alloc, "", LOWER,                                                  \
      "times that a request outgrew its memory / requests")                              \
    X(preempted_per_request_##alloc, "", LOWER, "preemptions / requests")                \
    X(recomputed_frac_##alloc, "", LOWER, "tokens computed again / tokens generated")    \
    X(migrated_frac_##alloc, "", LOWER,                                                  \
      "bytes copied to other memory / bytes of keys and values that were computed")      \
    X(alloc_frac_##alloc, "", LOWER, "time in the allocator / time")                     \
    X(migrate_frac_##alloc, "", LOWER, "time of copies / time")                          \
    X(alloc_per_s_##alloc, "1/s", HIGHER,                                                \
      "calls of the allocator / the time that they take")

#define RESULTS(X)                                                                       \
    ALLOC_RESULTS(X, static)                                                             \
    ALLOC_RESULTS(X, s3)                                                                 \
    ALLOC_RESULTS(X, odma)                                                               \
    ALLOC_RESULTS(X, paged)                                                              \
    X(tps_odma_over_static, "", HIGHER, "by the rounds in which both ran")               \
    X(tps_odma_over_s3, "", HIGHER, "by the rounds in which both ran")                   \
    X(tps_odma_over_paged, "", HIGHER, "by the rounds in which both ran")                \
    X(utilization_gain, "", HIGHER, "utilization_odma - utilization_static")             \
    X(predict_frac, "", LOWER, "time in the predictor / time, with odma")                \
    X(max_tok, "tok", 0, "the longest sequence")                                         \
    X(kv_budget_mib, "MiB", 0, "memory for keys and values")

FRAME_TYPES;

/* Observations of an engine while there were requests to send, in all rounds that count. */
struct observation {
    int64_t n_tok, n_steps, n_requests, all_tok; /* all_tok: with the last requests' */
    double seconds, all_s, inner_s, outer_s;     /* inner, outer: sums of share x time */
    struct series inner, outer;                  /* of the last round, by steps */
    struct serve_kv_stat before, after;          /* of the whole rounds */
};

struct cell;

struct engine {
    struct kv_serving *c;
    struct study_serving serving;
    int64_t n_sent, n_tok;
    bool failed; /* a request did not end with all of its tokens */
    struct observation seen;
};

struct kv_serving {
    FRAME_CELL;
    struct study_kv_stream stream; /* has o->n_requests */
    int64_t budget_bytes;
    struct engine engines[N_ALLOCS];
};

/* --- one round of one engine */

static void kv_serving_on_token(void *ctx, int64_t request, int32_t id,
                                const float *logits, enum serve_finish finish)
{
    struct engine *e = ctx;

    (void)request, (void)logits;
    e->n_tok += id >= 0;
    e->failed |= finish != SERVE_RUNNING && finish != SERVE_LENGTH;
}

static int send_next(struct engine *e)
{
    const struct kv_example *q = &e->c->stream.requests[e->n_sent];

    return study_serving_submit(&e->serving,
                                (uint64_t)(e->c->o->n_requests + e->n_sent++),
                                q->prompt_tok, q->output_tok, NULL);
}

static void look(struct engine *e, double step_s)
{
    struct observation *s = &e->seen;
    struct serve_kv_stat kv;
    double used, inner;

    serve_kv_stat(e->serving.serve, &kv);
    if (kv.reserved_bytes == 0)
        return;
    used = (double)kv.used_bytes;
    inner = used / (double)kv.reserved_bytes;
    s->inner_s += inner * step_s;
    s->outer_s += used / (double)kv.pool_bytes * step_s;
    series_add(&s->inner, inner);
    series_add(&s->outer, used / (double)kv.pool_bytes);
}

/* n requests. *seconds: a token's while there are requests to send. */
static int serve_all(struct engine *e, int64_t n, double *seconds)
{
    const struct opts *o = e->c->o;
    uint64_t t0 = clock_ns(), t1 = t0;
    struct observation *s = &e->seen;

    e->n_sent = e->n_tok = 0;
    s->inner = s->outer = (struct series){0};
    *seconds = NAN;
    do {
        uint64_t t = t1;
        bool sending = e->n_sent < n;

        while (e->n_sent < n && e->serving.n_live < o->clients)
            TRY(send_next(e));
        TRY(study_serving_step(&e->serving));
        t1 = clock_ns();
        s->all_s += (double)(t1 - t) * 1e-9;
        if (e->failed)
            return err_set(ERR_STATE, "a request failed: %s", err_msg());
        if (!sending)
            continue;
        look(e, (double)(t1 - t) * 1e-9);
        s->seconds += (double)(t1 - t) * 1e-9;
        s->n_steps++;
        if (e->n_sent == n) {
            *seconds = (double)(t1 - t0) * 1e-9 / (double)e->n_tok;
            s->n_tok += e->n_tok;
        }
    } while (e->serving.n_live > 0 || e->n_sent < n);
    s->all_tok += e->n_tok;
    s->n_requests += n;
    serve_kv_stat(e->serving.serve, &s->after);
    return OK;
}

static int kv_serving_trial(void *arg, int i, struct measure_trial *t)
{
    struct kv_serving *c = arg;
    struct engine *e = &c->engines[i];

    if (c->f->round == 0) { /* it warms up */
        TRY(serve_all(e, (c->o->n_requests - 1) / WARM_UP + 1, &t->seconds));
        e->seen = (struct observation){0};
        serve_kv_stat(e->serving.serve, &e->seen.before);
        return OK;
    }
    return serve_all(e, c->o->n_requests, &t->seconds);
}

/* --- what is reported */

static void report_alloc(struct kv_serving *c, int i)
{
    const struct observation *s = &c->engines[i].seen;
    const struct serve_kv_stat *a = &s->before, *b = &s->after;
    double n = (double)s->n_requests, tok = (double)s->all_tok;
    double alloc_s = b->alloc_s - a->alloc_s;
    int64_t token_bytes = c->budget_bytes / (c->o->budget_seqs * c->stream.max_tok);
    double recomputed = (double)(b->n_recomputed_tok - a->n_recomputed_tok);
    const struct {
        const char *name;
        double value;
    } all[] = {
        {"tps", 1 / frame_seconds(c->f, i)},
        {"utilization", s->inner_s / s->seconds},
        {"utilization_outer", s->outer_s / s->seconds},
        {"tokens_per_step", (double)s->n_tok / (double)s->n_steps},
        {"overflow_frac", (double)(b->n_overflow - a->n_overflow) / n},
        {"preempted_per_request", (double)(b->n_preempted - a->n_preempted) / n},
        {"recomputed_frac", recomputed / tok},
        {"migrated_frac", (double)(b->migrated_bytes - a->migrated_bytes) /
                              ((tok + recomputed) * (double)token_bytes)},
        {"alloc_frac", alloc_s / s->all_s},
        {"migrate_frac", (b->migrate_s - a->migrate_s) / s->all_s},
        {"alloc_per_s", (double)(b->n_alloc - a->n_alloc) / alloc_s},
    };
    char name[64];

    for (size_t k = 0; k < sizeof(all) / sizeof(all[0]); k++)
        frame_set(c->f, frame_named(c->f, "%s_%s", all[k].name, allocs[i]), all[k].value,
                  "there were fewer requests than clients");
    snprintf(name, sizeof(name), "utilization_over_time_%s", allocs[i]);
    study_series(c->out, name, "", s->inner.mean, (size_t)s->inner.n);
    snprintf(name, sizeof(name), "utilization_outer_over_time_%s", allocs[i]);
    study_series(c->out, name, "", s->outer.mean, (size_t)s->outer.n);
}

static void kv_serving_report(struct kv_serving *c)
{
    const struct observation *odma = &c->engines[ODMA].seen;
    const struct observation *fixed = &c->engines[STATIC].seen;

    for (int i = 0; i < N_ALLOCS; i++)
        report_alloc(c, i);
    frame_ratio(c->f, &c->r->tps_odma_over_static, STATIC, ODMA, 0);
    frame_ratio(c->f, &c->r->tps_odma_over_s3, S3, ODMA, 0);
    frame_ratio(c->f, &c->r->tps_odma_over_paged, PAGED, ODMA, 0);
    frame_set(c->f, &c->r->utilization_gain,
              odma->inner_s / odma->seconds - fixed->inner_s / fixed->seconds,
              "there were fewer requests than clients");
    c->r->predict_frac = (odma->after.predict_s - odma->before.predict_s) / odma->all_s;
    c->r->max_tok = (double)c->stream.max_tok;
    c->r->kv_budget_mib = (double)c->budget_bytes / (1 << 20);
}

/* --- the cell */

/* In the memory that has been found, or in that of one sequence. */
static int kv_serving_open_engine(struct kv_serving *c, int i)
{
    const struct opts *o = c->o;
    struct study_serving *e = &c->engines[i].serving;
    struct serve_opts so;

    c->engines[i].c = c;
    e->on_token = kv_serving_on_token;
    e->ctx = &c->engines[i];
    TRY(study_serving_opts(&so, o->model, "continuous"));
    so.precision = o->precision;
    so.kv_type = o->kv_type;
    so.max_tok = c->stream.max_tok;
    so.max_seqs = c->budget_bytes > 0 ? o->clients : 1;
    so.kv_budget = c->budget_bytes;
    so.kv_relearn = RELEARN;
    mem_free(so.kv_alloc);
    so.kv_alloc = mem_strdup(MEM_OTHER, allocs[i]);
    so.kv_predict = mem_strdup(MEM_OTHER, "noisy");
    return study_serving_open(e, &so);
}

/* The longest sequence that the model is made for. */
static int find_limit(const char *model, int64_t *limit_tok)
{
    struct format_file *file;

    TRY(format_open(&file, model));
    *limit_tok = file->config.max_tok;
    format_close(&file);
    return OK;
}

/* The bytes of budget_seqs slots of the longest sequence. */
static int find_budget(struct kv_serving *c)
{
    struct serve_kv_stat kv;

    TRY(kv_serving_open_engine(c, STATIC));
    serve_kv_stat(c->engines[STATIC].serving.serve, &kv);
    c->budget_bytes = kv.pool_bytes * c->o->budget_seqs;
    study_serving_close(&c->engines[STATIC].serving);
    return OK;
}

static void kv_serving_close(struct kv_serving *c)
{
    for (int i = 0; i < N_ALLOCS; i++)
        study_serving_close(&c->engines[i].serving);
    study_kv_stream_close(&c->stream);
}

static int kv_serving_run(struct kv_serving *c)
{
    const struct opts *o = c->o;
    struct study_kv_stream_opts so = {.sources = o->fit,
                                      .n_requests = o->n_requests,
                                      .seed = o->seed,
                                      .max_tok = o->max_tok,
                                      .align_tok = ALIGN_TOK};

    FRAME_CLOSE(c->f, kv_serving_close, c);
    if (!o->model)
        return err_set(ERR_ARG, "study.model: expected a path, found none");
    TRY(find_limit(o->model, &so.limit_tok));
    TRY(study_kv_stream_open(&c->stream, &so));
    TRY(find_budget(c));
    for (int i = 0; i < N_ALLOCS; i++)
        TRY(kv_serving_open_engine(c, i));
    TRY(frame_rounds(c->f, "requests by allocator, in turn", N_ALLOCS, o->rounds,
                     kv_serving_trial, c));
    kv_serving_report(c);
    return OK;
}

STUDY(kv_serving, "the engine under load with memory for keys and values that is short");
