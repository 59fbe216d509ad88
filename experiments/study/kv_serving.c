/* The engine under load with memory for keys and values that is short: tokens a second and use of
 * the memory with each allocator. Engines of all allocators serve the same requests in turn, so
 * that the machine's changes meet all alike.   Paper: ODMA 5.2, Figs. 4 and 5. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/series.h"
#include "experiments/load/study.h"
#include "experiments/study/support/compare.h"
#include "experiments/study/support/kv_stream.h"
#include "experiments/study/support/rows.h"
#include "experiments/study/support/serving.h"
#include "format/format.h"

#define ALIGN_TOK   16
#define RELEARN     16 /* odma: so few requests that a short run sees learned bounds */
#define WARM_UP     4  /* a round to warm up has this part of a round's requests */
#define CLIENTS_MAX 256

enum { STATIC, S3, ODMA, PAGED, N_ALLOCS };
static const char *const allocs[N_ALLOCS] = {"static", "s3", "odma", "paged"};

struct opts {
    char *model, *fit;
    int precision, kv_type;
    int64_t budget_seqs, clients, n_requests, max_tok, rounds, seed;
};

static const struct opt_row table[] = {
    ROW_MODEL,
    ROW_PRECISION,
    ROW_KV_TYPE("f32"),
    OPT_ROW(STR, fit, "alpaca", "Fit of the trace from which lengths are drawn."),
    OPT_ROW(INT, n_requests, "128", "Number of requests in a round.", .min = 1,
            .max = 100000),
    OPT_ROW(INT, clients, "24",
            "Clients, each of which sends its next request when one was answered.",
            .min = 1, .max = CLIENTS_MAX),
    OPT_ROW(INT, budget_seqs, "8",
            "Memory for keys and values, in sequences of the longest.", .min = 1,
            .max = CLIENTS_MAX),
    OPT_ROW(INT, max_tok, "0",
            "Longest sequence, prompt and output; longer ones are cut. 0: it holds "
            "95 % of the requests, or what the model is made for.",
            .unit = "tok", .min = 0, .max = 1 << 20),
    OPT_ROW(INT, rounds, "3",
            "Rounds, each of all allocators; a quarter of one comes first and does not "
            "count.",
            .min = 1, .max = 99),
    OPT_ROW(INT, seed, "1", "Seed of the lengths.", .min = 1, .max = 1 << 30),
    {0},
};

#define METRICS_OF(alloc)                                                                \
    {"tps_" alloc, "tok/s", "higher",                                                    \
     "tokens generated a second while there are requests to send, with " alloc},         \
        {"utilization_" alloc, "", "higher",                                             \
         "bytes of keys and values / bytes of reserved memory, mean over that time"},    \
        {"utilization_outer_" alloc, "", "higher",                                       \
         "bytes of keys and values / bytes of all memory, mean over that time"},         \
        {"tokens_per_step_" alloc, "tok", "higher", "tokens generated / steps"},         \
        {"overflow_frac_" alloc, "", "lower",                                            \
         "times that a request outgrew its memory / requests"},                          \
        {"preempted_per_request_" alloc, "", "lower", "preemptions / requests"},         \
        {"recomputed_frac_" alloc, "", "lower",                                          \
         "tokens computed again / tokens generated"},                                    \
        {"migrated_frac_" alloc, "", "lower",                                            \
         "bytes copied to other memory / bytes of keys and values that were computed"},  \
        {"alloc_frac_" alloc, "", "lower", "time in the allocator / time"},              \
        {"migrate_frac_" alloc, "", "lower", "time of copies / time"},                   \
    {                                                                                    \
        "alloc_per_s_" alloc, "1/s", "higher",                                           \
            "calls of the allocator / the time that they take"                           \
    }

static const struct study_metric metrics[] = {
    METRICS_OF("static"),
    METRICS_OF("s3"),
    METRICS_OF("odma"),
    METRICS_OF("paged"),
    {"tps_odma_over_static", "", "higher", "by the rounds in which both ran"},
    {"tps_odma_over_s3", "", "higher", "by the rounds in which both ran"},
    {"tps_odma_over_paged", "", "higher", "by the rounds in which both ran"},
    {"utilization_gain", "", "higher", "utilization_odma - utilization_static"},
    {"predict_frac", "", "lower", "time in the predictor / time, with odma"},
    {"max_tok", "tok", "", "the longest sequence"},
    {"kv_budget_mib", "MiB", "", "memory for keys and values"},
    {0},
};

/* What was seen of an engine while there were requests to send, in all rounds that count. */
struct observation {
    int64_t n_tok, n_steps, n_requests, all_tok; /* all_tok: with the last requests' */
    double seconds, all_s, inner_s, outer_s;     /* inner, outer: sums of share x time */
    struct series inner, outer;                  /* of the last round, by steps */
    struct serve_kv_stat before, after;          /* of the whole rounds */
};

struct cell;

struct engine {
    struct cell *f;
    struct study_serving serving;
    int64_t n_sent, n_tok;
    bool failed; /* a request did not end with all of its tokens */
    struct observation seen;
};

struct cell {
    const struct opts *o;
    struct study_cell *out;
    struct study_kv_stream stream; /* has o->n_requests */
    int64_t budget_bytes;
    struct engine engines[N_ALLOCS];
    struct study_compare rounds;
};

/* --- one round of one engine */

static void on_token(void *ctx, int64_t request, int32_t id, const float *logits,
                     enum serve_finish finish)
{
    struct engine *e = ctx;

    (void)request, (void)logits;
    e->n_tok += id >= 0;
    e->failed |= finish != SERVE_RUNNING && finish != SERVE_LENGTH;
}

static int send_next(struct engine *e)
{
    const struct kv_example *q = &e->f->stream.requests[e->n_sent];

    return study_serving_submit(&e->serving,
                                (uint64_t)(e->f->o->n_requests + e->n_sent++),
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
    const struct opts *o = e->f->o;
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

static int trial(void *arg, int i, struct measure_trial *t)
{
    struct cell *f = arg;
    struct engine *e = &f->engines[i];

    if (f->rounds.round == 0) { /* it warms up */
        TRY(serve_all(e, (f->o->n_requests - 1) / WARM_UP + 1, &t->seconds));
        e->seen = (struct observation){0};
        serve_kv_stat(e->serving.serve, &e->seen.before);
        return OK;
    }
    return serve_all(e, f->o->n_requests, &t->seconds);
}

/* --- what is reported */

static void report_alloc(struct study_cell *c, const struct cell *f, int i)
{
    const struct observation *s = &f->engines[i].seen;
    const struct serve_kv_stat *a = &s->before, *b = &s->after;
    double n = (double)s->n_requests, tok = (double)s->all_tok;
    double alloc_s = b->alloc_s - a->alloc_s;
    int64_t token_bytes = f->budget_bytes / (f->o->budget_seqs * f->stream.max_tok);
    double recomputed = (double)(b->n_recomputed_tok - a->n_recomputed_tok);
    const struct study_number all[] = {
        {"tps", 1 / f->rounds.time[i].estimate},
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

    for (size_t k = 0; k < sizeof(all) / sizeof(all[0]); k++) {
        snprintf(name, sizeof(name), "%s_%s", all[k].name, allocs[i]);
        study_value(c, name, all[k].value, "there were fewer requests than clients");
    }
    snprintf(name, sizeof(name), "utilization_over_time_%s", allocs[i]);
    study_series(c, name, "", s->inner.mean, (size_t)s->inner.n);
    snprintf(name, sizeof(name), "utilization_outer_over_time_%s", allocs[i]);
    study_series(c, name, "", s->outer.mean, (size_t)s->outer.n);
}

static void report(struct study_cell *c, const struct cell *f)
{
    static const struct {
        const char *name;
        int over;
    } ratios[] = {{"tps_odma_over_static", STATIC},
                  {"tps_odma_over_s3", S3},
                  {"tps_odma_over_paged", PAGED}};
    const struct observation *odma = &f->engines[ODMA].seen;
    const struct observation *fixed = &f->engines[STATIC].seen;

    for (int i = 0; i < N_ALLOCS; i++)
        report_alloc(c, f, i);
    for (int i = 0; i < 3; i++)
        study_compare_ratio(&f->rounds, ratios[i].name, ratios[i].over, ODMA, 0);
    study_value(c, "utilization_gain",
                odma->inner_s / odma->seconds - fixed->inner_s / fixed->seconds,
                "there were fewer requests than clients");
    study_value(c, "predict_frac",
                (odma->after.predict_s - odma->before.predict_s) / odma->all_s, "");
    study_value(c, "max_tok", (double)f->stream.max_tok, "");
    study_value(c, "kv_budget_mib", (double)f->budget_bytes / (1 << 20), "");
}

/* --- the cell */

/* In the memory that has been found, or in that of one sequence. */
static int open_engine(struct cell *f, int i)
{
    const struct opts *o = f->o;
    struct study_serving *e = &f->engines[i].serving;
    struct serve_opts so;

    f->engines[i].f = f;
    e->on_token = on_token;
    e->ctx = &f->engines[i];
    TRY(study_serving_opts(&so, o->model, "continuous"));
    so.precision = o->precision;
    so.kv_type = o->kv_type;
    so.max_tok = f->stream.max_tok;
    so.max_seqs = f->budget_bytes > 0 ? o->clients : 1;
    so.kv_budget = f->budget_bytes;
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
static int find_budget(struct cell *f)
{
    struct serve_kv_stat kv;

    TRY(open_engine(f, STATIC));
    serve_kv_stat(f->engines[STATIC].serving.serve, &kv);
    f->budget_bytes = kv.pool_bytes * f->o->budget_seqs;
    study_serving_close(&f->engines[STATIC].serving);
    return OK;
}

static int run(struct cell *f)
{
    const struct opts *o = f->o;
    struct study_kv_stream_opts so = {.sources = o->fit,
                                      .n_requests = o->n_requests,
                                      .seed = o->seed,
                                      .max_tok = o->max_tok,
                                      .align_tok = ALIGN_TOK};

    if (!o->model)
        return err_set(ERR_ARG, "study.model: expected a path, found none");
    TRY(find_limit(o->model, &so.limit_tok));
    TRY(study_kv_stream_open(&f->stream, &so));
    TRY(find_budget(f));
    for (int i = 0; i < N_ALLOCS; i++)
        TRY(open_engine(f, i));
    f->rounds = (struct study_compare){.doing = "requests by allocator, in turn"};
    TRY(study_compare(&f->rounds, f->out, N_ALLOCS, o->rounds, trial, f));
    report(f->out, f);
    return OK;
}

static void end(struct cell *f)
{
    study_compare_close(&f->rounds);
    for (int i = 0; i < N_ALLOCS; i++)
        study_serving_close(&f->engines[i].serving);
    study_kv_stream_close(&f->stream);
}

STUDY(kv_serving, "the engine under load with memory for keys and values that is short");
