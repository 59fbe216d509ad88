/* Whole steps of a model: decode at context 128 and prefill of 16 ... 512 tokens, exact
 * and relaxed, with the bytes that must be read and the peak of the type. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "make/make.h"
#include "ranks/bench_steps.h"
#include "tests/bench/bench.h"
#include "tune/schedule_cache.h"

#define CONTEXT       BENCH_CONTEXT
#define DECODE_TOKENS 12 /* a round */
#define STEP_TOK      512
#define MAX_TOK       1024
#define SEED          1 /* of the token ids */
static const int64_t prefill_sizes[] = BENCH_PREFILL_SIZES;
#define N_PREFILL (int)(sizeof(prefill_sizes) / sizeof(prefill_sizes[0]))

/* What is measured in turn. Bandwidth is, too: where memory is shared it changes from one
 * second to the next, and a share of it is that of the same round. */
enum what {
    READ,
    DECODE,
    PREFILL,
    TUNED = PREFILL + N_PREFILL,
    N_WHAT = TUNED + N_PREFILL
};

struct subject {
    struct model *model;
    struct model_phase *phase; /* one rank of all threads */
    struct model_bench_steps steps;
    struct measure *all, *tokens; /* see enum what; the tokens of one trial of decode */
    struct bench *bench;
    struct tune_cache *tuned;      /* NULL: the default schedules only */
    uint64_t decode_ns[MODEL_T_N]; /* of thread 0 over all decode steps, by operation */
};

static int make_file(const char *arch, const char *type, char *path, size_t n)
{
    struct make_opts o = {
        .arch = arch, .seed = 1, .format = "gguf", .out = path, .n_threads = 2};
    int rc = make_type(&o, type);

    snprintf(path, n, "build/models/%s-%s.gguf", arch, type);
    if (rc != OK || access(path, R_OK) == 0)
        return rc;
    printf("making %s\n", path);
    return make_model(&o);
}

static int subject_open(struct bench *b, struct subject *s, const char *path,
                        enum kern_precision precision)
{
    struct format_file *f = NULL;
    struct model_opts o = {.weight_type = KERN_N_TYPES,
                           .kv_type = KERN_KV_F32,
                           .precision = precision,
                           .deterministic = b->o.deterministic,
                           .max_step_tok = STEP_TOK,
                           .max_tok = MAX_TOK};
    const struct model_phase_opts p = {.n_ranks = 1, .n_threads = b->n_threads};
    int rc = format_open(&f, path);

    if (rc == OK)
        rc = model_open(&s->model, f, b->team, &o);
    format_close(&f);
    if (rc == OK)
        rc = model_phase_open(&s->phase, s->model, &p);
    return rc == OK ? model_bench_steps_open(&s->steps, s->model, b->team, 1, MAX_TOK,
                                             STEP_TOK, SEED)
                    : rc;
}

static int schedule_row(void *cache, const struct kern_variant *v,
                        const struct kern_mat *w, int64_t m_max, int n_threads,
                        struct kern_schedule *out)
{
    return tune_table(cache, v, w, m_max, n_threads, out, NULL);
}

/* Multiply by the tuned schedules, or (cache NULL) by the default ones. */
static void set_schedules(struct subject *s, struct tune_cache *cache)
{
    if (s->tuned && model_phase_schedules(s->phase, schedule_row, cache) != OK)
        log_warning("schedules", 0, 0, "%s", err_msg());
}

static void subject_close(struct subject *s)
{
    measure_close(&s->all);
    measure_close(&s->tokens);
    tune_cache_close(&s->tuned);
    model_bench_steps_close(&s->steps);
    model_phase_close(&s->phase);
    model_close(&s->model);
}

static int token(void *arg, int i, struct measure_trial *t)
{
    struct subject *s = arg;

    (void)i;
    return model_bench_steps_decode(&s->steps, s->phase, CONTEXT, &t->seconds);
}

static int prefill(struct subject *s, int size, struct measure_trial *t)
{
    return model_bench_steps_prefill(&s->steps, s->phase, prefill_sizes[size],
                                     &t->seconds);
}

/* Tokens after one that wakes the team. */
static int decode(struct subject *s, struct measure_trial *t)
{
    const struct measure_opts o = {MEASURE_EXACTLY(DECODE_TOKENS), .n_warm_up = -1};
    struct measure_report r;
    uint64_t ns[MODEL_T_N];

    TRY(token(s, 0, t));
    model_times_take(s->model, ns);
    TRY(measure_compare(s->tokens, 1, &o, token, s));
    model_times_take(s->model, ns);
    for (int i = 0; i < MODEL_T_N; i++)
        s->decode_ns[i] += ns[i];
    measure_report(s->tokens, 0, &r);
    t->seconds = r.estimate;
    return OK;
}

static int trial(void *arg, int what, struct measure_trial *t)
{
    struct subject *s = arg;
    int rc;

    if (what == READ) { /* the time that decode's bytes take at least */
        t->seconds =
            bench_decode_bytes(s->model, CONTEXT) / bench_read_gbps(s->bench) * 1e-9;
        return OK;
    }
    if (what == DECODE)
        return decode(s, t);
    if (what < TUNED)
        return prefill(s, what - PREFILL, t);
    set_schedules(s, s->tuned);
    rc = prefill(s, what - TUNED, t);
    set_schedules(s, NULL);
    return rc;
}

static int rounds(struct bench *b, struct subject *s)
{
    const struct measure_opts o = {MEASURE_EXACTLY((int)b->o.rounds)};
    double warm;

    TRY(measure_open(&s->all, N_WHAT, (int)b->o.rounds));
    TRY(measure_open(&s->tokens, 1, DECODE_TOKENS));
    s->bench = b;
    set_schedules(s, NULL);
    TRY(model_bench_steps_prefill(&s->steps, s->phase, STEP_TOK, &warm));
    return measure_compare(s->all, s->tuned ? N_WHAT : TUNED, &o, trial, s);
}

static void print_shares(const struct subject *s)
{
    static const char *const names[] = {"linear", "attention", "norm+rope",
                                        "head",   "reduce",    "wait"};
    double all = 0;

    for (int i = 0; i < MODEL_T_N; i++)
        all += (double)s->decode_ns[i];
    printf("    thread 0:");
    for (int i = 0; i < MODEL_T_N; i++)
        printf(" %s %.1f %%", names[i], 100 * (double)s->decode_ns[i] / all);
    printf("\n");
}

static int report_decode(struct bench *b, const struct subject *s, const char *arch,
                         const char *tag)
{
    struct measure_report t, read, frac;
    double bytes = bench_decode_bytes(s->model, CONTEXT);
    char name[160];

    measure_report(s->all, DECODE, &t);
    measure_report(s->all, READ, &read);
    measure_ratio(s->all, READ, DECODE, &frac);
    printf("%-20s %-12s decode  ctx %d: %8.2f tok/s %s  %6.1f GB/s = %5.1f %% "
           "(%.1f .. %.1f) of %.1f GB/s\n",
           arch, tag, CONTEXT, 1 / t.estimate, bench_interval(&t),
           bytes / t.estimate * 1e-9, 100 * frac.estimate, 100 * frac.lo, 100 * frac.hi,
           bytes / read.estimate * 1e-9);
    print_shares(s);
    snprintf(name, sizeof(name), "decode_bandwidth_frac_%s_%s", arch, tag);
    TRY(bench_headline(b, name, frac.estimate, "1", true));
    snprintf(name, sizeof(name), "decode_tokens_per_s_%s_%s", arch, tag);
    TRY(bench_headline(b, name, 1 / t.estimate, "tok/s", true));
    return bench_row(
        b, json_pack("{s:s, s:s, s:s, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}",
                     "model", arch, "type", tag, "what", "decode", "context_tok", CONTEXT,
                     "seconds", t.estimate, "seconds_lo", t.lo, "seconds_hi", t.hi,
                     "read_gbps", bytes / read.estimate * 1e-9, "token_bytes", bytes,
                     "bandwidth_frac", frac.estimate, "bandwidth_frac_lo", frac.lo,
                     "bandwidth_frac_hi", frac.hi));
}

/* `which` is "" or "_tuned". */
static int report_prefill(struct bench *b, const struct subject *s, const char *arch,
                          const char *type, const char *tag, const char *precision, int p,
                          const char *which)
{
    struct measure_report t;
    double flop = bench_prefill_flop(s->model, prefill_sizes[p]);
    double peak = bench_peak_gflops(b, type, precision);
    double gflops;
    char name[160];

    measure_report(s->all, (*which ? TUNED : PREFILL) + p, &t);
    gflops = flop / t.estimate * 1e-9;
    printf("%-20s %-12s prefill %4lld: %9.1f tok/s %s  %6.0f GFLOP/s = %5.1f %% of "
           "%.0f%s\n",
           arch, tag, (long long)prefill_sizes[p], (double)prefill_sizes[p] / t.estimate,
           bench_interval(&t), gflops, 100 * gflops / peak, peak,
           *which ? ", tuned" : "");
    snprintf(name, sizeof(name), "prefill%lld_peak_frac_%s_%s%s",
             (long long)prefill_sizes[p], arch, tag, which);
    TRY(bench_headline(b, name, gflops / peak, "1", true));
    snprintf(name, sizeof(name), "prefill%lld_tokens_per_s_%s_%s%s",
             (long long)prefill_sizes[p], arch, tag, which);
    TRY(bench_headline(b, name, (double)prefill_sizes[p] / t.estimate, "tok/s", true));
    return bench_row(b, json_pack("{s:s, s:s, s:s, s:b, s:I, s:f, s:f, s:f, s:f, s:f}",
                                  "model", arch, "type", tag, "what", "prefill", "tuned",
                                  *which != 0, "n_tok", (json_int_t)prefill_sizes[p],
                                  "seconds", t.estimate, "seconds_lo", t.lo, "seconds_hi",
                                  t.hi, "flop", flop, "peak_gflops", peak));
}

static int report_load(struct bench *b, const struct subject *s, const char *arch,
                       const char *tag)
{
    const struct model_load_stat *l = model_load_stat_of(s->model);
    char table[512];

    kern_table_print(model_kern(s->model), table, sizeof(table));
    printf("%-20s %-12s load: %.2f GB/s, packed %.3f x, peak resident %.2f x; %s\n", arch,
           tag, l->load_gbps, (double)l->packed_bytes / (double)l->tensor_bytes,
           (double)l->rss_peak_bytes / (double)l->tensor_bytes, table);
    return bench_row(b, json_pack("{s:s, s:s, s:s, s:f, s:I, s:I, s:I, s:s}", "model",
                                  arch, "type", tag, "what", "load", "load_gbps",
                                  l->load_gbps, "tensor_bytes",
                                  (json_int_t)l->tensor_bytes, "packed_bytes",
                                  (json_int_t)l->packed_bytes, "rss_peak_bytes",
                                  (json_int_t)l->rss_peak_bytes, "kernels", table));
}

static int report(struct bench *b, const struct subject *s, const char *arch,
                  const char *type, const char *precision, const char *tag)
{
    TRY(report_load(b, s, arch, tag));
    TRY(report_decode(b, s, arch, tag));
    for (int p = 0; p < N_PREFILL; p++)
        TRY(report_prefill(b, s, arch, type, tag, precision, p, ""));
    for (int p = 0; s->tuned && p < N_PREFILL; p++)
        TRY(report_prefill(b, s, arch, type, tag, precision, p, "_tuned"));
    return OK;
}

static int one(struct bench *b, const char *arch, const char *type, const char *precision)
{
    enum kern_precision p = kern_precision_of(precision);
    struct subject *s = mem_new(MEM_TEST, 1, sizeof(*s));
    char path[256], tag[48];
    int rc;

    if (!s)
        return ERR_NOMEM;
    snprintf(tag, sizeof(tag), "%s%s%s%s", type, p ? "_" : "",
             p ? kern_precision_name(p) : "", b->o.deterministic ? "_deterministic" : "");
    rc = make_file(arch, type, path, sizeof(path));
    if (rc == OK)
        rc = subject_open(b, s, path, p);
    if (rc == OK && b->o.schedules)
        rc = tune_cache_open(&s->tuned, b->o.schedules, b->cpus, b->n_threads);
    if (rc == OK)
        rc = rounds(b, s);
    if (rc == OK)
        rc = report(b, s, arch, type, precision, tag);
    subject_close(s);
    mem_free(s);
    if (rc == OK && b->o.ranks && b->n_threads > 1)
        rc = bench_ranks(b, path, precision, arch, tag);
    return rc;
}

struct words {
    char text[512], *at[32];
    int n;
};

static void split(struct words *w, const char *list)
{
    char *save = NULL;

    w->n = 0;
    snprintf(w->text, sizeof(w->text), "%s", list);
    for (char *s = strtok_r(w->text, ",", &save); s && w->n < 32;
         s = strtok_r(NULL, ",", &save))
        w->at[w->n++] = s;
}

/* Is a model of this type computed in another way with this precision than with exact? */
static bool may_differ(const char *type, const char *precision)
{
    enum kern_precision p = kern_precision_of(precision);
    bool plain = strcmp(type, "f32") == 0 || strcmp(type, "f16") == 0;

    return p == KERN_EXACT || (!plain && (p == KERN_RELAXED) == !strcmp(type, "bf16"));
}

int bench_models(struct bench *b)
{
    struct words models, types, precisions;
    int rc = OK;

    split(&models, b->o.models);
    split(&types, b->o.types);
    split(&precisions, b->o.precisions);
    for (int m = 0; m < models.n; m++) {
        for (int t = 0; t < types.n; t++) {
            for (int p = 0; rc == OK && p < precisions.n; p++) {
                if (may_differ(types.at[t], precisions.at[p]))
                    rc = one(b, models.at[m], types.at[t], precisions.at[p]);
            }
        }
    }
    return rc;
}
