/* This engine and others as their own bench programs measure them, against one roof: prompts of
 * 16 to 4,096 tokens and decode of 1 to 16 sequences, of the same file, in turn. Each engine first
 * tries the settings that its file in baselines/systems/ lists, and is then measured with the best
 * for prompts, of 512 tokens at most, and the best for decode.
 *
 * The first engine is measured twice in each round: that A/A shows the smallest difference that
 * could have been seen.
 *
 * The roof of a prompt is its operations / peak of the products that the file's type allows: of
 * bytes for quantised weights, of 16 bits for others. That of decode is the longer of this and the
 * bytes that a step must read / bandwidth. Both are measured in the same rounds. Every engine may
 * round activations as those products do, and this one does: precision a8 for quantised weights,
 * relaxed for others. How far each is from exact arithmetic is measured, too: of this engine by its
 * logits, of others by the probabilities that their servers tell. Not in the five papers. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/stats.h"
#include "base/stats_interval.h"
#include "baselines/bench_program.h"
#include "experiments/frame/frame.h"
#include "experiments/study/support/gemm.h"
#include "experiments/study/support/logit_error.h"
#include "experiments/study/support/options.h"
#include "format/format.h"
#include "model/cost.h"

#define SYSTEMS_MAX 12
#define ROUNDS_MAX  99
#define NAME_CHARS  48
#define PROMPT_TOK  64 /* of a prompt by which errors are measured */
#define SEED        1

#define OPTIONS(X)                                                                       \
    OPTION_MODEL(X)                                                                      \
    X(STR, systems, "sandwich llama.cpp ik_llama.cpp",                                   \
      "Engines, separated by blanks: names in baselines/systems/, or paths of such "     \
      "files. The first is held against the others.")                                    \
    X(STR, isa, "", "Instruction set to stay within, such as avx2. Empty: any.")         \
    X(INT, max_prompt_tok, "4096", "Longest prompt that is measured.", .min = 16,        \
      .max = 4096)                                                                       \
    X(INT, max_batch, "16", "Most sequences that are decoded together.", .min = 1,       \
      .max = 16)                                                                         \
    X(INT, n_output_tok, "32", "Tokens that each sequence decodes.", .min = 1,           \
      .max = 4096)                                                                       \
    X(INT, rounds, "3", "Rounds of all engines and the roof, in turn.", .min = 2,        \
      .max = ROUNDS_MAX)                                                                 \
    X(INT, error_prompts, "32",                                                          \
      "Prompts of 64 random tokens by which errors are measured. 0: they are not.",      \
      .min = 0, .max = STUDY_LOGIT_PROMPTS_MAX)                                          \
    X(F64, read_s, "0.3", "Time of one measurement of the bandwidth.", .unit = "s",      \
      .min = 0.01, .max = 60)                                                            \
    X(F64, peak_s, "0.2", "Time of one measurement of the peak.", .unit = "s",           \
      .min = 0.01, .max = 60)                                                            \
    X(F64, limit_s, "600", "A bench program that runs for longer is ended.",             \
      .unit = "s", .min = 1, .max = 86400)

/* The measured points: prompts of a number of tokens, decode of a number of sequences. */
#define PROMPTS(Y, X) Y(X, 16) Y(X, 128) Y(X, 512) Y(X, 4096)
#define BATCHES(Y, X) Y(X, 1) Y(X, 4) Y(X, 8) Y(X, 16)
#define COUNT(X, n)   +1
enum {
    N_PROMPTS = 0 PROMPTS(COUNT, ),
    N_BATCHES = 0 BATCHES(COUNT, ),
    N_POINTS = N_PROMPTS + N_BATCHES
};
#define VALUE(X, n) n,
static const int64_t points[N_POINTS] = {PROMPTS(VALUE, ) BATCHES(VALUE, )};

#define POINT_RESULTS(X, point, what)                                                    \
    X(tok_s_##point, "tok/s", HIGHER, what ": the first engine")                         \
    X(rival_tok_s_##point, "tok/s", 0, what ": the fastest of the others")               \
    X(over_rival_##point, "x", HIGHER, what ": the first engine / that one")             \
    X(over_again_##point, "x", 0, what ": A/A, the first engine / itself again")         \
    X(detectable_frac_##point, "", 0,                                                    \
      what ": smallest difference that this A/A could have seen")                        \
    X(roof_tok_s_##point, "tok/s", 0, what ": what peak and bandwidth allow")            \
    X(roof_frac_##point, "", HIGHER, what ": the first engine / the roof")               \
    X(rival_roof_frac_##point, "", 0, what ": the fastest other / the roof")
#define PROMPT_RESULTS(X, n) POINT_RESULTS(X, p##n, "a prompt of " #n " tokens")
#define BATCH_RESULTS(X, n)  POINT_RESULTS(X, b##n, "decode of " #n " sequences")

#define RESULTS(X)                                                                       \
    PROMPTS(PROMPT_RESULTS, X)                                                           \
    BATCHES(BATCH_RESULTS, X)                                                            \
    X(over_rival, "x", HIGHER,                                                           \
      "the first engine / the fastest other at each point, geometric mean")              \
    X(over_again, "x", 0, "A/A: the first engine / itself again, likewise")              \
    X(detectable_frac, "", 0, "smallest difference that this A/A could have seen")       \
    X(least_over_rival, "x", HIGHER, "the same at the point where it is least")          \
    X(least_over_again, "x", 0, "A/A: 1 / (1 + the largest detectable_frac_*)")          \
    X(n_behind, "", LOWER, "points at which another engine is faster")                   \
    X(logit_error, "", LOWER,                                                            \
      "RMS error of the first engine's logits against exact arithmetic / their "         \
      "standard deviation")                                                              \
    X(rival_logit_error, "", 0, "the least of the others' errors")                       \
    X(logit_error_over_rival, "x", LOWER,                                                \
      "the first engine's error / that one, geometric mean of the prompts")              \
    X(read_gbps, "GB/s", 0, "read bandwidth, the largest of the rounds")                 \
    X(peak_gflops, "GFLOP/s", 0, "peak of the products, the largest of the rounds")

FRAME_TYPES;

static const struct study_aa aa[] = {
    {"over_rival", "over_again"}, {"least_over_rival", "least_over_again"}, {0}};

struct engine {
    char name[NAME_CHARS];
    char *system; /* as the options name it */
    struct sut_bench *bench;
    int prompt_setting, decode_setting;
    struct study_logit_errors errors;
};

struct engines {
    FRAME_CELL;
    struct study_threads threads;
    struct format_file *file;
    enum kern_precision precision;
    struct engine engines[SYSTEMS_MAX];
    int n_engines;
    double tok_s[SYSTEMS_MAX + 1][N_POINTS]; /* of the engines, and the first again */
    struct study_logit_error exact;
};

static int n_of(const int64_t *of, int n, int64_t most)
{
    int k = 0;

    while (k < n && of[k] <= most)
        k++;
    return k;
}

static int n_prompts(const struct engines *c)
{
    return n_of(points, N_PROMPTS, c->o->max_prompt_tok);
}

static int n_batches(const struct engines *c)
{
    return n_of(points + N_PROMPTS, N_BATCHES, c->o->max_batch);
}

static void point_name(int point, char out[16])
{
    snprintf(out, 16, "%c%lld", point < N_PROMPTS ? 'p' : 'b', (long long)points[point]);
}

/* ---- an engine ---- */

/* tok_s[N_POINTS], NaN where it has no speed. */
static int measure_prompts(struct engine *e, int setting, int n, double *tok_s)
{
    return sut_bench_prefill(e->bench, setting, points, n, tok_s);
}

static int measure_decode(struct engines *c, struct engine *e, int setting, double *tok_s)
{
    return sut_bench_decode(e->bench, setting, points + N_PROMPTS, n_batches(c),
                            c->o->n_output_tok, tok_s + N_PROMPTS);
}

/* The geometric mean; NaN where a speed is missing. */
static double mean_speed(const double *tok_s, int n)
{
    double sum = 0;

    for (int i = 0; i < n; i++)
        sum += log(tok_s[i]);
    return exp(sum / n);
}

static void note_setting(struct engines *c, const struct engine *e)
{
    json_t *d = json_pack("{s:s, s:s, s:s}", "version", sut_bench_version(e->bench),
                          "prompts", sut_bench_setting(e->bench, e->prompt_setting),
                          "decode", sut_bench_setting(e->bench, e->decode_setting));

    study_note(c->out, e->name, d);
}

/* Try every setting once. One that fails is out; ERR_STATE: all fail, with the last reason. */
static int choose_settings(struct engines *c, struct engine *e)
{
    double prompt_best = 0, decode_best = 0, tok_s[N_POINTS];
    char why[256] = "no speed was printed";
    int n_short =
        n_of(points, n_prompts(c), 512); /* the longest takes as long as all others */

    for (int s = 0; s < sut_bench_n_settings(e->bench); s++) {
        double speed = NAN;

        study_progress(c->out, 0.02, e->name);
        if (measure_prompts(e, s, n_short, tok_s) == OK)
            speed = mean_speed(tok_s, n_short);
        else
            snprintf(why, sizeof(why), "%s", err_msg());
        if (speed > prompt_best)
            prompt_best = speed, e->prompt_setting = s;
        speed = NAN;
        if (measure_decode(c, e, s, tok_s) == OK)
            speed = mean_speed(tok_s + N_PROMPTS, n_batches(c));
        else
            snprintf(why, sizeof(why), "%s", err_msg());
        if (speed > decode_best)
            decode_best = speed, e->decode_setting = s;
    }
    err_clear();
    if (!(prompt_best > 0 && decode_best > 0))
        return err_set(ERR_STATE, "%s: no setting measures every point: %s", e->name,
                       why);
    note_setting(c, e);
    return OK;
}

/* An engine that is not installed is left out, and so is one but the first that no setting makes
 * work; that is noted. */
static int engines_open_engine(struct engines *c, const char *system)
{
    struct engine *e = &c->engines[c->n_engines];
    const char *base = strrchr(system, '/');
    const struct sut_bench_opts o = {.system = system,
                                     .model = c->o->model,
                                     .isa = *c->o->isa ? c->o->isa : NULL,
                                     .precision = kern_precision_name(c->precision),
                                     .cpus = c->threads.budget.cpus,
                                     .n_threads = c->threads.n,
                                     .limit_s = c->o->limit_s};
    int rc;

    snprintf(e->name, sizeof(e->name), "%s", base ? base + 1 : system);
    rc = sut_bench_open(&e->bench, &o);
    if (rc == ERR_UNSUPPORTED) {
        study_note_text(c->out, e->name, err_msg());
        err_clear();
        return OK;
    }
    TRY(rc);
    e->system = mem_strdup(MEM_HARNESS, system);
    rc = choose_settings(c, e);
    if (rc == ERR_STATE && c->n_engines > 0) {
        study_note_text(c->out, e->name, err_msg());
        err_clear();
        sut_bench_close(&e->bench);
        mem_free(e->system);
        *e = (struct engine){0};
        return OK;
    }
    c->n_engines += rc == OK;
    return rc;
}

static int open_engines(struct engines *c)
{
    char *names = mem_strdup(MEM_HARNESS, c->o->systems), *at = names, *name;
    int rc = OK;

    while (rc == OK && (name = strsep(&at, " ")) != NULL) {
        if (*name && c->n_engines == SYSTEMS_MAX)
            rc = err_set(ERR_ARG, "study.systems: expected at most %d", SYSTEMS_MAX);
        else if (*name)
            rc = engines_open_engine(c, name);
    }
    mem_free(names);
    if (rc == OK && c->n_engines < 2)
        return err_set(ERR_NOTFOUND, "of the engines \"%s\" %s can be measured",
                       c->o->systems, c->n_engines ? "one" : "none");
    return rc;
}

/* ---- errors ---- */

/* Measures the errors of every engine; why one is unknown is noted. */
static int measure_errors(struct engines *c)
{
    char key[NAME_CHARS + 16];

    for (int i = 0; i < c->n_engines; i++)
        c->engines[i].errors = study_logit_unknown;
    if (c->o->error_prompts == 0)
        return OK;
    c->exact = (struct study_logit_error){.model = c->o->model,
                                          .team = c->threads.team,
                                          .n_prompts = (int)c->o->error_prompts,
                                          .n_prompt_tok = PROMPT_TOK,
                                          .seed = SEED};
    TRY(study_logit_error_open(&c->exact));
    for (int i = 0; i < c->n_engines; i++) {
        struct engine *e = &c->engines[i];
        int rc =
            strcmp(e->system, "sandwich") == 0
                ? study_logit_error_own(&c->exact, c->precision, KERN_KV_F16, &e->errors)
                : study_logit_error_served(&c->exact, e->system,
                                           kern_precision_name(c->precision), &e->errors);

        study_progress(c->out, 0.2, e->name);
        if (rc == OK)
            continue;
        snprintf(key, sizeof(key), "no_error_of_%s", e->name);
        study_note_text(c->out, key, err_msg());
        err_clear();
    }
    return OK;
}

/* ---- the roof ---- */

static double roof_tok_s(const struct engines *c, int point, double gbps, double gflops)
{
    const struct model_cost_types types = {c->file->config.weight_type, KERN_KV_F16};
    double n = (double)points[point], ctx = ((double)c->o->n_output_tok + 1) / 2;
    struct model_cost cost;

    if (point < N_PROMPTS) {
        cost = model_cost_prefill(&c->file->config, types, points[point], 0);
        return n / (cost.flop / gflops * 1e-9);
    }
    cost = model_cost_decode(&c->file->config, types, ctx, points[point]);
    return n / (fmax(cost.flop / gflops, cost.read_bytes / gbps) * 1e-9);
}

static int measure_roof(struct engines *c, double *seconds)
{
    const char *type = kern_type_name(c->file->config.weight_type);

    *seconds = c->o->read_s + c->o->peak_s;
    frame_put(c->f, &c->r->read_gbps, study_read_gbps(&c->threads, 0, c->o->read_s));
    frame_put(c->f, &c->r->peak_gflops,
              study_peak_now(&c->threads, type, kern_precision_name(c->precision),
                             c->o->peak_s));
    return OK;
}

/* ---- rounds ---- */

static int again_of(const struct engines *c)
{
    return c->n_engines;
}

static int roof_of(const struct engines *c)
{
    return c->n_engines + 1;
}

static int measure_points(struct engines *c, struct engine *e, double *tok_s)
{
    TRY(measure_prompts(e, e->prompt_setting, n_prompts(c), tok_s));
    return measure_decode(c, e, e->decode_setting, tok_s);
}

/* Once more, should it fail in between: engines have crashed once in hours. The cell names it. */
static int measure_engine(struct engines *c, struct engine *e, double *tok_s)
{
    char name[NAME_CHARS + 16];
    int rc = measure_points(c, e, tok_s);

    if (rc != ERR_IO)
        return rc;
    snprintf(name, sizeof(name), "failed_once_%s", e->name);
    study_note_text(c->out, name, err_msg());
    err_clear();
    return measure_points(c, e, tok_s);
}

static int engines_trial(void *arg, int i, struct measure_trial *t)
{
    struct engines *c = arg;
    double tok_s[N_POINTS];

    t->seconds = 1;
    if (c->f->round == 0) /* every program warms up by itself */
        return OK;
    if (i == roof_of(c))
        return measure_roof(c, &t->seconds);
    for (int k = 0; k < N_POINTS; k++)
        tok_s[k] = NAN;
    TRY(measure_engine(c, &c->engines[i == again_of(c) ? 0 : i], tok_s));
    t->seconds = 0;
    for (int k = 0; k < N_POINTS; k++) {
        frame_put(c->f, &c->tok_s[i][k], tok_s[k]);
        if (!isnan(tok_s[k]))
            t->seconds += (double)points[k] / tok_s[k];
    }
    return OK;
}

/* ---- what it comes to ---- */

/* The fastest but the first; -1: none has a speed there. */
static int rival_at(const struct engines *c, int point)
{
    int best = -1;

    for (int i = 1; i < c->n_engines; i++)
        if (!isnan(c->tok_s[i][point]) &&
            (best < 0 || c->tok_s[i][point] > c->tok_s[best][point]))
            best = i;
    return best;
}

static double *at_point(const struct engines *c, const char *what, int point)
{
    char name[16];

    point_name(point, name);
    return frame_named(c->f, "%s_%s", what, name);
}

static void put(const struct engines *c, const char *what, int point, double value)
{
    frame_set(c->f, at_point(c, what, point), value, "not measured at this point");
}

/* The ratio of the first engine to another one, or to itself again, where both ran. */
struct ratio {
    double logs[ROUNDS_MAX]; /* the mean of each round */
    double least;
    double detectable_frac; /* the largest, were it an A/A */
    int n, n_behind;        /* points; those at which the first is slower */
};

/* logs[rounds], NULL where there is no ratio. Returns the smallest difference that this could have
 * seen, were it an A/A. */
static double report_ratio(const struct engines *c, double *x, const double *logs,
                           const char *why)
{
    size_t n = (size_t)c->f->n_rounds;
    double mean = logs ? stats_mean(logs, n) : NAN;
    double half = logs ? stats_mean_half95(logs, n) : NAN;
    double lo = exp(mean - half), hi = exp(mean + half);

    frame_set(c->f, x, exp(mean), why);
    frame_interval(c->f, x, lo, hi);
    return stats_detectable_frac(lo, hi);
}

/* At one point, which joins `all`. other: -1: none is measured there. */
static double report_at(const struct engines *c, const char *what, int point, int other,
                        struct ratio *all)
{
    const double *ours = frame_each(c->f, &c->tok_s[0][point]);
    const double *theirs = other < 0 ? NULL : frame_each(c->f, &c->tok_s[other][point]);
    double logs[ROUNDS_MAX] = {0}, ratio, detectable;

    for (int r = 0; r < c->f->n_rounds; r++)
        logs[r] = theirs ? log(ours[r] / theirs[r]) : NAN;
    detectable =
        report_ratio(c, at_point(c, what, point), logs, "not measured at this point");
    ratio = exp(stats_mean(logs, (size_t)c->f->n_rounds));
    if (isnan(ratio))
        return NAN;
    all->n++;
    all->n_behind += ratio < 1;
    all->least = fmin(all->least, ratio);
    all->detectable_frac = fmax(all->detectable_frac, detectable);
    for (int r = 0; r < c->f->n_rounds; r++)
        all->logs[r] += (logs[r] - all->logs[r]) / all->n;
    return detectable;
}

static void report_point(const struct engines *c, int point, double gbps, double gflops,
                         struct ratio *over_rival, struct ratio *over_again)
{
    int rival = rival_at(c, point);
    bool measured =
        point < N_PROMPTS ? point < n_prompts(c) : point - N_PROMPTS < n_batches(c);
    double ours = measured ? c->tok_s[0][point] : NAN;
    double theirs = rival < 0 ? NAN : c->tok_s[rival][point];
    double roof = roof_tok_s(c, point, gbps, gflops);

    put(c, "tok_s", point, ours);
    put(c, "rival_tok_s", point, theirs);
    put(c, "roof_tok_s", point, measured ? roof : NAN);
    put(c, "roof_frac", point, ours / roof);
    put(c, "rival_roof_frac", point, theirs / roof);
    report_at(c, "over_rival", point, rival, over_rival);
    put(c, "detectable_frac", point,
        report_at(c, "over_again", point, again_of(c), over_again));
}

static void report_engine(const struct engines *c, int i)
{
    char name[NAME_CHARS + 16];

    snprintf(name, sizeof(name), "tok_s_of_%s", c->engines[i].name);
    study_series(c->out, name, "tok/s", c->tok_s[i], N_POINTS);
    snprintf(name, sizeof(name), "error_of_%s", c->engines[i].name);
    study_series(c->out, name, "", &c->engines[i].errors.rms, 1);
}

static void report_errors(const struct engines *c)
{
    const struct study_logit_errors *own = &c->engines[0].errors;
    const struct study_logit_errors *rival = &study_logit_unknown;
    const char *none = "no other engine reports probabilities";
    double over, lo, hi;

    for (int i = 1; i < c->n_engines; i++)
        if (isnan(rival->rms) || c->engines[i].errors.rms < rival->rms)
            rival = &c->engines[i].errors;
    over = study_logit_error_ratio(own, rival, c->exact.n_prompts, &lo, &hi);
    frame_set(c->f, &c->r->logit_error, own->rms, "not measured");
    frame_set(c->f, &c->r->rival_logit_error, rival->rms, none);
    frame_set(c->f, &c->r->logit_error_over_rival, over, none);
    frame_interval(c->f, &c->r->logit_error_over_rival, lo, hi);
}

static void report_all(const struct engines *c, const struct ratio *over_rival,
                       const struct ratio *over_again)
{
    const char *none = "no point was measured";
    bool any = over_rival->n > 0;

    report_ratio(c, &c->r->over_rival, any ? over_rival->logs : NULL, none);
    frame_set(c->f, &c->r->least_over_rival, any ? over_rival->least : NAN, none);
    frame_set(c->f, &c->r->n_behind, any ? over_rival->n_behind : NAN, none);
    frame_set(c->f, &c->r->detectable_frac,
              report_ratio(c, &c->r->over_again, any ? over_again->logs : NULL, none),
              none);
    frame_set(c->f, &c->r->least_over_again, 1 / (1 + over_again->detectable_frac), none);
}

static void engines_report(const struct engines *c)
{
    /* The largest of the rounds, as the memory of a shared host may be slow or fast. */
    double gbps = stats_max(frame_each(c->f, &c->r->read_gbps), (size_t)c->f->n_rounds);
    double gflops =
        stats_max(frame_each(c->f, &c->r->peak_gflops), (size_t)c->f->n_rounds);
    struct ratio over_rival = {.least = INFINITY, .detectable_frac = NAN};
    struct ratio over_again = over_rival;

    for (int k = 0; k < N_POINTS; k++)
        report_point(c, k, gbps, gflops, &over_rival, &over_again);
    for (int i = 0; i < c->n_engines; i++)
        report_engine(c, i);
    report_errors(c);
    report_all(c, &over_rival, &over_again);
    frame_set(c->f, &c->r->read_gbps, gbps, "cannot be measured");
    frame_set(c->f, &c->r->peak_gflops, gflops, "cannot be measured");
}

static void engines_close(struct engines *c)
{
    for (int i = 0; i < SYSTEMS_MAX; i++) {
        sut_bench_close(&c->engines[i].bench);
        mem_free(c->engines[i].system);
    }
    study_logit_error_close(&c->exact);
    study_threads_close(&c->threads);
    format_close(&c->file);
}

static int engines_run(struct engines *c)
{
    FRAME_CLOSE(c->f, engines_close, c);
    if (!c->o->model)
        return err_set(ERR_ARG, "study.model: expected a path, found none");
    TRY(format_open(&c->file, c->o->model));
    c->precision =
        kern_type_quantised(c->file->config.weight_type) ? KERN_A8 : KERN_RELAXED;
    TRY(study_threads_open(&c->threads, 0, 0));
    study_note_machine(c->out, &c->threads);
    study_note_text(c->out, "weights", kern_type_name(c->file->config.weight_type));
    study_note_text(c->out, "precision", kern_precision_name(c->precision));
    TRY(open_engines(c));
    TRY(measure_errors(c));
    c->f->progress = 0.3;
    TRY(frame_rounds(c->f, "engines in turn", roof_of(c) + 1, c->o->rounds, engines_trial,
                     c));
    engines_report(c);
    return OK;
}

STUDY(engines, "this engine and others by their own bench programs, against one roof",
      .aa = aa);
