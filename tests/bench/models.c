/* Whole steps of a model: decode at context 128 and prefill of 16 ... 512 tokens, exact
 * and relaxed, beside the bytes that must be read and the peak of the type. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/stats.h"
#include "kv/kv.h"
#include "format/make.h"
#include "model/model.h"
#include "tests/bench/bench.h"
#include "tune/schedule_cache.h"

#define CONTEXT       BENCH_CONTEXT
#define DECODE_TOKENS 12 /* a round */
static const int64_t prefill_sizes[] = BENCH_PREFILL_SIZES;
#define N_PREFILL (int)(sizeof(prefill_sizes) / sizeof(prefill_sizes[0]))

struct subject {
    struct model *model;
    struct model_phase *phase; /* one rank of all threads */
    struct kv_pool *pool;
    struct kv_slot kv;
    float *logits;
    int32_t ids[512];
    double decode_s[BENCH_ROUNDS_MAX], decode_frac[BENCH_ROUNDS_MAX],
        read_gbps[BENCH_ROUNDS_MAX];
    double prefill_s[N_PREFILL][BENCH_ROUNDS_MAX], tuned_s[N_PREFILL][BENCH_ROUNDS_MAX];
    struct tune_cache *tuned;      /* NULL: the default schedules only */
    uint64_t decode_ns[MODEL_T_N]; /* of thread 0 over all decode steps, by operation */
};

static double step_s(struct subject *s, int64_t pos0, int64_t n)
{
    struct model_chunk c = {
        .kv = &s->kv, .ids = s->ids, .n_tok = n, .pos0 = pos0, .want_logits = true};
    uint64_t t0 = clock_ns();

    if (model_forward(s->phase, &c, 1, s->logits) != OK)
        return NAN;
    return (double)(clock_ns() - t0) * 1e-9;
}

static int make_file(const char *arch, const char *type, char *path, size_t n)
{
    struct format_make_opts o = {
        .arch = arch, .seed = 1, .format = "gguf", .out = path, .n_threads = 2};
    int rc = kern_type_parse(type, &o.type);

    snprintf(path, n, "build/models/%s-%s.gguf", arch, type);
    if (rc != OK || access(path, R_OK) == 0)
        return rc;
    bench_make_dirs(path);
    printf("making %s\n", path);
    return format_make(&o);
}

static int subject_open(struct bench *b, struct subject *s, const char *path,
                        enum kern_precision precision)
{
    struct format_file *f = NULL;
    struct model_opts o = {.weight_type = KERN_N_TYPES,
                           .kv_type = KERN_F32,
                           .precision = precision,
                           .deterministic = b->o.deterministic,
                           .max_step_tok = 512,
                           .max_tok = 1024};
    const struct model_phase_opts p = {.n_ranks = 1, .n_threads = b->n_threads};
    struct kv_shape shape;
    int rc = format_open(&f, path);

    if (rc == OK)
        rc = model_open(&s->model, f, b->team, &o);
    format_close(&f);
    if (rc == OK)
        rc = model_phase_open(&s->phase, s->model, &p);
    if (rc != OK)
        return rc;
    model_kv_shape(s->model, &shape);
    rc = kv_pool_open(&s->pool, NULL, &shape, kv_token_bytes(&shape) * 1024 + (1 << 21),
                      1024, -1);
    if (rc == OK)
        rc = kv_reserve(s->pool, 1024, &s->kv);
    s->logits =
        mem_new(MEM_TEST, (size_t)model_config_of(s->model)->vocab, sizeof(float));
    if (rc == OK && !s->logits)
        rc = ERR_NOMEM;
    for (int i = 0; i < 512; i++)
        s->ids[i] = 3 + i * 37 % (model_config_of(s->model)->vocab - 3);
    return rc;
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
    tune_cache_close(&s->tuned);
    if (s->pool)
        kv_release(s->pool, &s->kv);
    kv_pool_close(&s->pool);
    model_phase_close(&s->phase);
    model_close(&s->model);
    mem_free(s->logits);
    s->logits = NULL;
}

/* Where memory is shared its bandwidth changes from one second to the next (here between
 * 50 and 85 GB/s), so every round measures it before and after its tokens, and it is the
 * rounds' fractions whose median is reported. */
static void rounds(struct bench *b, struct subject *s)
{
    double one[DECODE_TOKENS], read_gbps;
    uint64_t ns[MODEL_T_N];

    set_schedules(s, NULL);
    step_s(s, 0, 512); /* warm up; fills the context, too */
    for (int r = 0; r < b->o.rounds; r++) {
        read_gbps = bench_read_gbps(b);
        step_s(s, CONTEXT, 1);
        model_times_take(s->model, ns);
        for (int i = 0; i < DECODE_TOKENS; i++)
            one[i] = step_s(s, CONTEXT, 1);
        model_times_take(s->model, ns);
        for (int i = 0; i < MODEL_T_N; i++)
            s->decode_ns[i] += ns[i];
        s->decode_s[r] = stats_median(one, DECODE_TOKENS);
        s->read_gbps[r] = (read_gbps + bench_read_gbps(b)) / 2;
        s->decode_frac[r] = bench_decode_bytes(s->model, CONTEXT) / s->decode_s[r] *
                            1e-9 / s->read_gbps[r];
        for (int p = 0; p < N_PREFILL; p++)
            s->prefill_s[p][r] = step_s(s, 0, prefill_sizes[p]);
        set_schedules(s, s->tuned);
        for (int p = 0; p < N_PREFILL && s->tuned; p++)
            s->tuned_s[p][r] = step_s(s, 0, prefill_sizes[p]);
        set_schedules(s, NULL);
    }
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
    double t = stats_median(s->decode_s, (size_t)b->o.rounds);
    double mad = stats_mad(s->decode_s, (size_t)b->o.rounds);
    double read = stats_median(s->read_gbps, (size_t)b->o.rounds);
    double frac = stats_median(s->decode_frac, (size_t)b->o.rounds);
    double frac_mad = stats_mad(s->decode_frac, (size_t)b->o.rounds);
    double bytes = bench_decode_bytes(s->model, CONTEXT);
    char name[160];
    int rc;

    printf("%-20s %-12s decode  ctx %d: %8.2f tok/s +- %.1f %%  %6.1f GB/s = %5.1f %% "
           "+- %.1f of %.1f GB/s\n",
           arch, tag, CONTEXT, 1 / t, 100 * mad / t, bytes / t * 1e-9, 100 * frac,
           100 * frac_mad, read);
    print_shares(s);
    snprintf(name, sizeof(name), "decode_bandwidth_frac_%s_%s", arch, tag);
    rc = bench_headline(b, name, frac, "1", true);
    if (rc != OK)
        return rc;
    snprintf(name, sizeof(name), "decode_tokens_per_s_%s_%s", arch, tag);
    rc = bench_headline(b, name, 1 / t, "tok/s", true);
    if (rc != OK)
        return rc;
    return bench_row(
        b, json_pack("{s:s, s:s, s:s, s:i, s:f, s:f, s:f, s:f, s:f, s:f}", "model", arch,
                     "type", tag, "what", "decode", "context_tok", CONTEXT, "median_s", t,
                     "mad_s", mad, "read_gbps", read, "token_bytes", bytes,
                     "bandwidth_frac", frac, "bandwidth_frac_mad", frac_mad));
}

/* `which` is "" or "_tuned". */
static int report_prefill(struct bench *b, const struct subject *s, const char *arch,
                          const char *type, const char *tag, const char *precision, int p,
                          const char *which)
{
    size_t n = (size_t)b->o.rounds;
    const double *seconds = *which ? s->tuned_s[p] : s->prefill_s[p];
    double t = stats_median(seconds, n), mad = stats_mad(seconds, n);
    double flop = bench_prefill_flop(s->model, prefill_sizes[p]);
    double peak = bench_peak_gflops(b, type, precision);
    double gflops = flop / t * 1e-9;
    char name[160];
    int rc;

    printf(
        "%-20s %-12s prefill %4lld: %9.1f tok/s +- %.1f %%  %6.0f GFLOP/s = %5.1f %% of "
        "%.0f%s\n",
        arch, tag, (long long)prefill_sizes[p], (double)prefill_sizes[p] / t,
        100 * mad / t, gflops, 100 * gflops / peak, peak, *which ? ", tuned" : "");
    snprintf(name, sizeof(name), "prefill%lld_peak_frac_%s_%s%s",
             (long long)prefill_sizes[p], arch, tag, which);
    rc = bench_headline(b, name, gflops / peak, "1", true);
    if (rc != OK)
        return rc;
    snprintf(name, sizeof(name), "prefill%lld_tokens_per_s_%s_%s%s",
             (long long)prefill_sizes[p], arch, tag, which);
    rc = bench_headline(b, name, (double)prefill_sizes[p] / t, "tok/s", true);
    if (rc != OK)
        return rc;
    return bench_row(b,
                     json_pack("{s:s, s:s, s:s, s:b, s:I, s:f, s:f, s:f, s:f}", "model",
                               arch, "type", tag, "what", "prefill", "tuned", *which != 0,
                               "n_tok", (json_int_t)prefill_sizes[p], "median_s", t,
                               "mad_s", mad, "flop", flop, "peak_gflops", peak));
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

static int one(struct bench *b, const char *arch, const char *type, const char *precision)
{
    bool relaxed = strcmp(precision, "relaxed") == 0;
    struct subject *s = mem_new(MEM_TEST, 1, sizeof(*s));
    char path[256], tag[48];
    int rc;

    if (!s)
        return ERR_NOMEM;
    snprintf(tag, sizeof(tag), "%s%s%s", type, relaxed ? "_relaxed" : "",
             b->o.deterministic ? "_deterministic" : "");
    rc = make_file(arch, type, path, sizeof(path));
    if (rc == OK)
        rc = subject_open(b, s, path, relaxed ? KERN_RELAXED : KERN_EXACT);
    if (rc == OK && b->o.schedules)
        rc = tune_cache_open(&s->tuned, b->o.schedules, b->cpus, b->n_threads);
    if (rc == OK) {
        rounds(b, s);
        rc = report_load(b, s, arch, tag);
    }
    if (rc == OK)
        rc = report_decode(b, s, arch, tag);
    for (int p = 0; rc == OK && p < N_PREFILL; p++)
        rc = report_prefill(b, s, arch, type, tag, precision, p, "");
    for (int p = 0; rc == OK && s->tuned && p < N_PREFILL; p++)
        rc = report_prefill(b, s, arch, type, tag, precision, p, "_tuned");
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
                bool relaxed = strcmp(precisions.at[p], "relaxed") == 0;

                if (!relaxed || strcmp(types.at[t], "bf16") == 0)
                    rc = one(b, models.at[m], types.at[t], precisions.at[p]);
            }
        }
    }
    return rc;
}
