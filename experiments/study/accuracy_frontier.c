/* What accuracy costs in speed: types of weights, precisions of products, types of keys and values,
 * builds for instruction sets, and other engines, each by the goodput that its steps allow and by
 * the error of its logits against f32 weights in exact arithmetic. No point is without its error.
 *
 * Variants run in turn, and each opens its model again in every round. The goodput is computed,
 * not served: n sequences are always in flight, prompts are computed alone, a token of all is a
 * step.
 *     a request takes the machine   prefill + (n_output_tok - 1) step(n) / n
 *     TTFT = prefill + step(n)      TPOT = step(n) + (n - 1) prefill / (n_output_tok - 1)
 * It is 1 / the first for the best n of 1 to 16 within the objectives; 0: none is. Queues and
 * lengths that vary make it lower under a load, which fig12_goodput measures.
 *
 * Errors are of the model whose speed is measured, which may have random weights, and of a small
 * trained one on text that it draws itself, with its matrices rounded in memory.
 *
 * A variant is dominated where another one errs no more, within EQUAL in the whole 95 % interval by
 * prompts, and is faster by more than MARGIN in the whole interval by rounds. It is on the frontier
 * where each other one surely errs more or surely is not faster; else undecided.
 * Paper: MNN-LLM, Sec. IV-C (4 bits against 8, W4A8). */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/home.h"
#include "base/mem.h"
#include "base/stats.h"
#include "base/stats_interval.h"
#include "base/text.h"
#include "baselines/bench_program.h"
#include "cpu/cpu.h"
#include "experiments/frame/frame.h"
#include "experiments/study/support/elasticity.h"
#include "experiments/study/support/engine.h"
#include "experiments/study/support/gemm.h"
#include "experiments/study/support/logit_error.h"
#include "experiments/study/support/options.h"
#include "experiments/study/support/rounded.h"

#define VARIANTS_MAX 64
#define ROUNDS_MAX   99
#define ERROR_TOK    32
#define PREFILLS     2 /* of which a time is the mean */
#define STEPS        8 /* the same of decode */
#define WEIGHTS      "{weights}"
#define LIMIT_S      600
#define EQUAL        1.05 /* errors within this factor are equal */
#define MARGIN       1.02 /* so are speeds: A/As of quiet hosts differ by less */
#define FLOOR        1e-5 /* of an error: the reference's own (tests/step/test_golden.c) */

#define OPTIONS(X)                                                                       \
    X(STR, model, NULL, "Model files, with {weights} in place of the type of weights.")  \
    X(STR, variants, "f32/exact/f32 q8_0/a8/f16",                                        \
      "weights/precision/keys and values of this engine, perhaps with @ and an "         \
      "instruction set; other engines as system:weights, by names in "                   \
      "baselines/systems/ or paths of such files, in all their settings.")               \
    X(STR, twins, "", "Variants of this engine that run a second time.")                 \
    X(STR, trained, "", "A trained model, also below $SANDWICH_DATA. Empty: none.")      \
    X(INT, n_prompt_tok, "128", "Tokens of a prompt.", .min = 1, .max = 4096)            \
    X(INT, n_output_tok, "32", "Tokens of an answer.", .min = 2, .max = 4096)            \
    X(F64, ttft_ms, "1000", "Objective: the first token.", .unit = "ms", .min = 1e-3,    \
      .max = 1e9)                                                                        \
    X(F64, tpot_ms, "100", "Objective: each later token.", .unit = "ms", .min = 1e-3,    \
      .max = 1e9)                                                                        \
    X(INT, rounds, "12", "Rounds of all variants, in turn.", .min = 2,                   \
      .max = ROUNDS_MAX)                                                                 \
    X(INT, error_prompts, "64", "Prompts by which errors are measured.", .min = 2,       \
      .max = STUDY_LOGIT_PROMPTS_MAX)                                                    \
    X(INT, trained_prompts, "256", "The same of the trained model.", .min = 2,           \
      .max = STUDY_LOGIT_PROMPTS_MAX)

#define RESULTS(X)                                                                       \
    X(decode_w4_over_w8, "x", 0, "decode of one sequence: w4c over q8_0, both a8")       \
    X(goodput_a8_over_exact, "x", MODEL, "goodput of w4c: a8 over exact products")       \
    X(error_a8_over_exact, "x", 0, "error of w4c: a8 over exact products")               \
    X(trained_error_a8_over_exact, "x", 0, "the same of the trained model")              \
    X(goodput_kv8_over_kv16, "x", MODEL,                                                 \
      "goodput of w4c a8: keys and values q8 over f16")                                  \
    X(error_kv8_over_kv16, "x", 0, "error of w4c a8: keys and values q8 over f16")       \
    X(trained_error_kv8_over_kv16, "x", 0, "the same of the trained model")              \
    X(goodput_over_avx2, "x", MODEL,                                                     \
      "goodput of w4c a8: all instruction sets over AVX2")                               \
    X(trained_agree_w16, "", HIGHER,                                                     \
      "greedy tokens of the trained model that stay: bf16")                              \
    X(trained_agree_w8, "", HIGHER,                                                      \
      "greedy tokens of the trained model that stay: q8_0 a8")                           \
    X(trained_agree_w4, "", HIGHER,                                                      \
      "greedy tokens of the trained model that stay: w4c a8")                            \
    X(trained_agree_loss, "", LOWER, "trained_agree_w8 - trained_agree_w4, by prompts")  \
    X(least_lead_w4a8, "x", HIGHER | MODEL,                                              \
      "goodput of 4 bits with a8, all instruction sets / the fastest of others that "    \
      "err "                                                                             \
      "no more: the least")                                                              \
    X(over_again, "x", MODEL, "goodput: A/A, the first twin / itself again")             \
    X(decode_over_again, "x", 0, "decode of one sequence: the same A/A")                 \
    X(detectable_frac, "", MODEL, "smallest difference that this A/A could have seen")   \
    X(n_twins_differ, "", LOWER, "twins that do not tie, or one of which is dominated")  \
    X(n_variants, "", 0, "points, twins included")                                       \
    X(n_absent, "", 0, "engines and builds that are not here, or tell no error")         \
    X(n_on, "", 0, "variants that are surely on the frontier")                           \
    X(n_dominated, "", 0, "variants that are surely below it")                           \
    X(trained_n_on, "", 0, "on the frontier by errors of the trained model")             \
    X(trained_n_dominated, "", 0, "below the frontier by errors of the trained model")

FRAME_TYPES;

static const struct study_aa aa[] = {
    {"goodput_a8_over_exact", "over_again"},    {"goodput_kv8_over_kv16", "over_again"},
    {"goodput_over_avx2", "over_again"},        {"least_lead_w4a8", "over_again"},
    {"decode_w4_over_w8", "decode_over_again"}, {0}};

static const int64_t batches[] = {1, 2, 4, 8, 16}; /* sequences in flight */
enum { N_BATCHES = sizeof(batches) / sizeof(batches[0]), BATCH_MAX = 16 };
/* The speeds of a variant: a decode for each batch. */
enum { GOODPUT, PREFILL, DECODE, N_SPEEDS = DECODE + N_BATCHES };
/* Its errors: of the model that is timed, and of the trained one. */
enum { OWN, TRAINED, N_ERRORS };
static const char *const prefixes[N_ERRORS] = {"", "trained_"};

struct variant {
    char name[96], path[512];
    char weights[16], isa[16], system[64]; /* isa "": all; system "": this engine */
    enum kern_precision precision;
    enum kern_kv_type kv;
    struct sut_bench *bench; /* of another engine */
    int setting;             /* of that */
    int twin_of;             /* -1: of none */
    struct study_logit_errors errors[N_ERRORS];
    double speed[N_SPEEDS]; /* requests or tokens a second */
};

struct accuracy_frontier {
    FRAME_CELL;
    struct study_threads threads;
    struct study_logit_error exact[N_ERRORS];
    struct format_file *trained; /* NULL: it is not here */
    struct variant variants[VARIANTS_MAX];
    int n, n_absent;
};

/* ---- errors ---- */

/* Of this engine, within the variant's instruction set. */
static int error_here(struct accuracy_frontier *c, struct variant *v, int which)
{
    TRY(cpu_isa_limit(*v->isa ? v->isa : "auto"));
    TRY(study_logit_error_own(&c->exact[which], v->precision, v->kv, &v->errors[which]));
    return cpu_isa_limit("auto");
}

static int measure_errors(struct accuracy_frontier *c, struct variant *v)
{
    struct study_rounded rounded;
    int rc;

    v->errors[TRAINED] = study_logit_unknown;
    c->exact[OWN].model = v->path;
    if (*v->system)
        TRY(study_logit_error_served(&c->exact[OWN], v->system,
                                     kern_precision_name(v->precision), &v->errors[OWN]));
    else
        TRY(error_here(c, v, OWN));
    if (c->trained && !*v->system) {
        rc = study_round(&rounded, c->trained, v->weights);
        c->exact[TRAINED].file = &rounded.file;
        if (rc == OK)
            rc = error_here(c, v, TRAINED);
        study_rounded_close(&rounded);
        TRY(rc);
    }
    for (int k = 0; k < N_ERRORS; k++)
        for (int i = 0; i < c->exact[k].n_prompts; i++)
            if (v->errors[k].prompt[i] < FLOOR)
                v->errors[k].prompt[i] = FLOOR;
    study_progress(c->out, 0.1, v->name);
    return OK;
}

/* ---- variants ---- */

static int find(const struct accuracy_frontier *c, const char *name)
{
    for (int i = 0; i < c->n; i++)
        if (strcmp(c->variants[i].name, name) == 0)
            return i;
    return -1;
}

static int find_model(const struct accuracy_frontier *c, struct variant *v)
{
    const char *at = c->o->model ? strstr(c->o->model, WEIGHTS) : NULL;

    if (!at)
        return err_set(ERR_ARG, "study.model: expected a path with " WEIGHTS ", found %s",
                       c->o->model ? c->o->model : "none");
    snprintf(v->path, sizeof(v->path), "%.*s%s%s", (int)(at - c->o->model), c->o->model,
             v->weights, at + strlen(WEIGHTS));
    return OK;
}

/* "q4_0/a8/f16@avx2", "llama.cpp:q4_0" */
static int parse(struct variant *v, const char *text)
{
    const char *colon = strrchr(text, ':');
    char precision[16] = "a8", kv[16] = "f32";
    int n;

    *v = (struct variant){.twin_of = -1};
    snprintf(v->name, sizeof(v->name), "%s", text);
    if (colon && (size_t)(colon - text) < sizeof(v->system)) {
        memcpy(v->system, text, (size_t)(colon - text));
        n = 2 + sscanf(colon + 1, "%15s", v->weights);
    } else {
        n = sscanf(text, "%15[^/]/%15[^/]/%15[^@]@%15s", v->weights, precision, kv,
                   v->isa);
    }
    v->precision = kern_precision_of(precision);
    while (v->kv < KERN_N_KV_TYPES && strcmp(kv, kern_kv_type_name(v->kv)) != 0)
        v->kv++;
    if (n < 3 || v->kv == KERN_N_KV_TYPES ||
        strcmp(precision, kern_precision_name(v->precision)) != 0)
        return err_set(ERR_ARG,
                       "study.variants: expected WEIGHTS/" KERN_PRECISIONS
                       "/" KERN_KV_TYPES ", perhaps with @ISA, or SYSTEM:WEIGHTS, found "
                       "\"%s\"",
                       text);
    return OK;
}

/* On error it is not there. */
static int add(struct accuracy_frontier *c, const struct variant *like)
{
    struct variant *v = &c->variants[c->n];
    struct sut_bench_opts o = {
        .cpus = c->threads.budget.cpus, .n_threads = c->threads.n, .limit_s = LIMIT_S};
    double any;
    int rc = OK;

    if (c->n == VARIANTS_MAX)
        return err_set(ERR_LIMIT, "study.variants: expected at most %d", VARIANTS_MAX);
    if (find(c, like->name) >= 0)
        return err_set(ERR_ARG, "study.variants: %s is there twice", like->name);
    *v = *like;
    TRY(find_model(c, v));
    if (*v->system) {
        o.system = v->system;
        o.model = v->path;
        o.precision = kern_precision_name(v->precision);
        TRY(sut_bench_open(&v->bench, &o));
        /* An old version may not know a setting. */
        rc = sut_bench_decode(v->bench, v->setting, batches, 1, 2, &any);
        snprintf(v->name, sizeof(v->name), "%.60s %.30s", like->name,
                 sut_bench_setting(v->bench, v->setting));
        study_note_text(c->out, v->name, sut_bench_version(v->bench));
    }
    if (rc == OK)
        rc = measure_errors(c, v);
    if (rc != OK)
        sut_bench_close(&v->bench);
    c->n += rc == OK;
    return rc;
}

/* A variant, of another engine one for each setting. What is not here is noted. */
static int add_word(struct accuracy_frontier *c, const char *word)
{
    struct variant v;
    int n_settings = 1;

    TRY(parse(&v, word));
    for (; v.setting < n_settings; v.setting++) {
        int rc = add(c, &v);

        if (rc == ERR_UNSUPPORTED || (*v.system && rc != OK && rc != ERR_NOMEM)) {
            study_note_text(c->out, word, err_msg());
            err_clear();
            c->n_absent++;
            return OK;
        }
        TRY(rc);
        if (*v.system)
            n_settings = sut_bench_n_settings(c->variants[c->n - 1].bench);
    }
    return OK;
}

static int add_twin(struct accuracy_frontier *c, const char *word)
{
    int i = find(c, word);
    struct variant v;

    if (i < 0 || *c->variants[i].system)
        return err_set(ERR_ARG, "study.twins: expected variants of this engine, found %s",
                       word);
    v = c->variants[i];
    v.twin_of = i;
    snprintf(v.name, sizeof(v.name), "%.80s again", word);
    return add(c, &v);
}

static int add_each(struct accuracy_frontier *c, const char *words,
                    int (*fn)(struct accuracy_frontier *, const char *))
{
    char *at = frame_new(c->f, strlen(words) + 1, 1), *word;

    strcpy(at, words);
    while ((word = strsep(&at, " ")) != NULL)
        if (*word)
            TRY(fn(c, word));
    return OK;
}

/* ---- speeds ---- */

/* 0: nothing is within the objectives. NaN: a speed is missing. */
static double goodput(const struct opts *o, const double *speed)
{
    double best = 0, later = (double)(o->n_output_tok - 1);
    double prefill_s = (double)o->n_prompt_tok / speed[PREFILL];

    for (int k = 0; k < N_BATCHES; k++) {
        double n = (double)batches[k], step_s = n / speed[DECODE + k];
        double tpot_s = step_s + (n - 1) * prefill_s / later;

        if (isnan(tpot_s))
            return NAN;
        if (prefill_s + step_s <= o->ttft_ms * 1e-3 && tpot_s <= o->tpot_ms * 1e-3)
            best = fmax(best, 1 / (prefill_s + later * step_s / n));
    }
    return best;
}

static int time_steps(struct accuracy_frontier *c, struct model_bench *b, double *speed)
{
    int64_t n_tok = c->o->n_prompt_tok;
    struct model_phase *p;
    double s = NAN, prefill_s = 0;
    int rc;

    TRY(study_engine_phase(b, &p, 1, c->threads.n));
    rc = model_bench_steps_prefill(&b->steps, p, n_tok, &s); /* warms up */
    for (int i = 0; i < PREFILLS && rc == OK; i++, prefill_s += s)
        rc = model_bench_steps_prefill(&b->steps, p, n_tok, &s);
    speed[PREFILL] = PREFILLS * (double)n_tok / prefill_s;
    for (int k = 0; k < N_BATCHES; k++) {
        double all_s = 0;

        for (int i = 0; i < STEPS && rc == OK; i++, all_s += s)
            rc = model_bench_steps_batch(&b->steps, p, (int)batches[k],
                                         n_tok + c->o->n_output_tok / 2, &s);
        speed[DECODE + k] = STEPS * (double)batches[k] / all_s;
    }
    model_phase_close(&p);
    return rc;
}

static int time_here(struct accuracy_frontier *c, const struct variant *v, double *speed)
{
    const struct model_bench_opts o = {.precision = v->precision,
                                       .kv_type = v->kv,
                                       .n_seqs = BATCH_MAX,
                                       .one_rank = true,
                                       .max_tok = c->o->n_prompt_tok + c->o->n_output_tok,
                                       .step_tok = c->o->n_prompt_tok,
                                       .seed = 1,
                                       .team = c->threads.team};
    struct model_bench b;
    int rc;

    TRY(cpu_isa_limit(*v->isa ? v->isa : "auto"));
    TRY(study_engine_open(&b, v->path, &o));
    rc = time_steps(c, &b, speed);
    model_bench_close(&b);
    TRY(rc);
    return cpu_isa_limit("auto");
}

static int accuracy_frontier_trial(void *arg, int i, struct measure_trial *t)
{
    struct accuracy_frontier *c = arg;
    struct variant *v = &c->variants[i];
    double speed[N_SPEEDS];

    t->seconds = 1; /* what counts is put */
    if (c->f->round == 0)
        return OK; /* every variant warms up by itself */
    if (v->bench) {
        TRY(sut_bench_prefill(v->bench, v->setting, &c->o->n_prompt_tok, 1,
                              &speed[PREFILL]));
        TRY(sut_bench_decode(v->bench, v->setting, batches, N_BATCHES, c->o->n_output_tok,
                             &speed[DECODE]));
    } else {
        TRY(time_here(c, v, speed));
    }
    speed[GOODPUT] = goodput(c->o, speed);
    for (int k = 0; k < N_SPEEDS; k++)
        frame_put(c->f, &v->speed[k], speed[k]);
    return OK;
}

/* ---- who is on the frontier ---- */

static const struct study_estimate unknown = {NAN, NAN, NAN};

/* Of variant a over b in each round, and for each prompt; index -1: unknown. */
static struct study_estimate speed_ratio(const struct accuracy_frontier *c, int which,
                                         int a, int b)
{
    double v[ROUNDS_MAX];

    if (a < 0 || b < 0)
        return unknown;
    for (int r = 0; r < c->f->n_rounds; r++)
        v[r] = frame_each(c->f, &c->variants[a].speed[which])[r] /
               frame_each(c->f, &c->variants[b].speed[which])[r];
    return study_estimate_median(v, c->f->n_rounds);
}

static struct study_estimate error_ratio(const struct accuracy_frontier *c, int which,
                                         int a, int b)
{
    struct study_estimate e = unknown;

    if (a >= 0 && b >= 0)
        e.value = study_logit_error_ratio(&c->variants[a].errors[which],
                                          &c->variants[b].errors[which],
                                          c->exact[which].n_prompts, &e.lo, &e.hi);
    return e;
}

static int original(const struct accuracy_frontier *c, int i)
{
    return c->variants[i].twin_of < 0 ? i : c->variants[i].twin_of;
}

/* By more than the margin, surely; than what serves no request in any round if it serves some. */
static bool is_faster(const struct accuracy_frontier *c, int a, int b)
{
    double most = stats_max(frame_each(c->f, &c->variants[b].speed[GOODPUT]),
                            (size_t)c->f->n_rounds);
    double least = stats_min(frame_each(c->f, &c->variants[a].speed[GOODPUT]),
                             (size_t)c->f->n_rounds);

    return most == 0 ? least > 0 : speed_ratio(c, GOODPUT, a, b).lo > MARGIN;
}

/* 1: surely on the frontier. -1: surely dominated. 0: neither. NaN: it has no such error. */
static double state_of(const struct accuracy_frontier *c, int which, int i)
{
    double state = 1;

    if (isnan(c->variants[i].errors[which].rms))
        return NAN;
    for (int a = 0; a < c->n; a++) {
        struct study_estimate error;

        if (original(c, a) == original(c, i) || isnan(c->variants[a].errors[which].rms))
            continue;
        error = error_ratio(c, which, a, i);
        if (error.hi <= EQUAL && is_faster(c, a, i))
            return -1;
        if (!(error.lo > EQUAL || speed_ratio(c, GOODPUT, a, i).hi < MARGIN))
            state = 0;
    }
    return state;
}

/* Does the twin tie with its original, and are both dominated or neither? */
static bool twin_agrees(const struct accuracy_frontier *c, int twin)
{
    int a = original(c, twin);
    struct study_estimate speed = speed_ratio(c, GOODPUT, twin, a);
    struct study_estimate error = error_ratio(c, OWN, twin, a);

    return !(speed.lo > MARGIN || speed.hi < 1 / MARGIN) && error.hi <= EQUAL &&
           error.lo >= 1 / EQUAL &&
           (state_of(c, OWN, twin) < 0) == (state_of(c, OWN, a) < 0) &&
           (state_of(c, TRAINED, twin) < 0) == (state_of(c, TRAINED, a) < 0);
}

static bool is_w4a8(const struct variant *v)
{
    return !*v->system && !*v->isa && v->precision == KERN_A8 && strchr(v->weights, '4');
}

/* The least ratio of goodput of a variant of 4 bits with a8 to another kind that errs no more. */
static struct study_estimate least_lead(const struct accuracy_frontier *c)
{
    struct study_estimate least = unknown;

    for (int i = 0; i < c->n; i++)
        for (int a = 0; a < c->n; a++) {
            struct study_estimate e;

            if (!is_w4a8(&c->variants[i]) || is_w4a8(&c->variants[a]) ||
                !(error_ratio(c, OWN, a, i).hi <= EQUAL))
                continue;
            e = speed_ratio(c, GOODPUT, i, a);
            if (isnan(least.value) || e.value < least.value)
                least = e;
        }
    return least;
}

/* ---- what it comes to ---- */

static void put(const struct accuracy_frontier *c, double *x, struct study_estimate e)
{
    *x = e.value;
    frame_interval(c->f, x, e.lo, e.hi);
}

/* The share of prompts with the reference's greedy token. */
static struct study_estimate agreement(const struct accuracy_frontier *c, int which,
                                       int i)
{
    struct study_estimate e = unknown;
    size_t k = 0, n = 0;

    for (int p = 0; i >= 0 && p < c->exact[which].n_prompts; p++) {
        n += !isnan(c->variants[i].errors[which].agrees[p]);
        k += c->variants[i].errors[which].agrees[p] > 0;
    }
    if (n > 0)
        e.value = (double)k / (double)n;
    stats_wilson95(k, n, &e.lo, &e.hi);
    return e;
}

static void report_ratios(const struct accuracy_frontier *c)
{
    int w16 = find(c, "bf16/exact/f16"), w8 = find(c, "q8_0/a8/f16"),
        w4 = find(c, "w4c/a8/f16"), w4_exact = find(c, "w4c/exact/f16"),
        kv8 = find(c, "w4c/a8/q8"), avx2 = find(c, "w4c/a8/f16@avx2");
    int n = c->exact[TRAINED].n_prompts;
    double loss[STUDY_LOGIT_PROMPTS_MAX], half;
    struct study_estimate e = unknown;

    put(c, &c->r->decode_w4_over_w8, speed_ratio(c, DECODE, w4, w8));
    put(c, &c->r->goodput_a8_over_exact, speed_ratio(c, GOODPUT, w4, w4_exact));
    put(c, &c->r->error_a8_over_exact, error_ratio(c, OWN, w4, w4_exact));
    put(c, &c->r->trained_error_a8_over_exact, error_ratio(c, TRAINED, w4, w4_exact));
    put(c, &c->r->goodput_kv8_over_kv16, speed_ratio(c, GOODPUT, kv8, w4));
    put(c, &c->r->error_kv8_over_kv16, error_ratio(c, OWN, kv8, w4));
    put(c, &c->r->trained_error_kv8_over_kv16, error_ratio(c, TRAINED, kv8, w4));
    put(c, &c->r->goodput_over_avx2, speed_ratio(c, GOODPUT, w4, avx2));
    put(c, &c->r->least_lead_w4a8, least_lead(c));
    put(c, &c->r->trained_agree_w16, agreement(c, TRAINED, w16));
    put(c, &c->r->trained_agree_w8, agreement(c, TRAINED, w8));
    put(c, &c->r->trained_agree_w4, agreement(c, TRAINED, w4));
    if (w8 >= 0 && w4 >= 0 && n > 0) {
        for (int i = 0; i < n; i++)
            loss[i] = c->variants[w8].errors[TRAINED].agrees[i] -
                      c->variants[w4].errors[TRAINED].agrees[i];
        half = stats_mean_half95(loss, (size_t)n);
        e.value = stats_mean(loss, (size_t)n);
        e.lo = e.value - half;
        e.hi = e.value + half;
    }
    put(c, &c->r->trained_agree_loss, e);
}

static void report_twins(const struct accuracy_frontier *c)
{
    struct study_estimate again;
    int first = -1, of, n_differ = 0;

    for (int i = c->n - 1; i >= 0; i--)
        if (original(c, i) != i) {
            first = i;
            n_differ += !twin_agrees(c, i);
        }
    of = first < 0 ? -1 : original(c, first);
    again = speed_ratio(c, GOODPUT, of, first);
    put(c, &c->r->over_again, again);
    put(c, &c->r->decode_over_again, speed_ratio(c, DECODE, of, first));
    frame_set(c->f, &c->r->detectable_frac, stats_detectable_frac(again.lo, again.hi),
              "an interval needs a twin and six rounds");
    frame_set(c->f, &c->r->n_twins_differ, first < 0 ? NAN : n_differ, "no twin");
}

/* The series NAME, NAME_lo and NAME_hi of all variants. */
static void report_each(const struct accuracy_frontier *c, const char *name,
                        const char *unit, const struct study_estimate *e)
{
    static const char *const ends[] = {"", "_lo", "_hi"};
    double v[VARIANTS_MAX];
    char full[64];

    for (int k = 0; k < 3; k++) {
        for (int i = 0; i < c->n; i++)
            v[i] = k == 0 ? e[i].value : k == 1 ? e[i].lo : e[i].hi;
        snprintf(full, sizeof(full), "%s%s", name, ends[k]);
        study_series(c->out, full, unit, v, (size_t)c->n);
        if (strcmp(name, "goodput_rps") == 0)
            study_evidence(c->out, "model", full);
    }
}

static void report_speeds(const struct accuracy_frontier *c)
{
    static const char *const names[N_SPEEDS] = {
        "goodput_rps",   "prefill_tok_s", "decode_tok_s",  "decode2_tok_s",
        "decode4_tok_s", "decode8_tok_s", "decode16_tok_s"};
    int n = c->f->n_rounds;
    double *each = frame_new(c->f, (size_t)(c->n * n), sizeof(*each));
    struct study_estimate e[VARIANTS_MAX];
    char full[64];

    for (int k = 0; k < N_SPEEDS; k++) {
        for (int i = 0; i < c->n; i++) {
            const double *v = frame_each(c->f, &c->variants[i].speed[k]);

            e[i] = study_estimate_median(v, n);
            memcpy(each + i * n, v, (size_t)n * sizeof(*v));
        }
        report_each(c, names[k], k == GOODPUT ? "1/s" : "tok/s", e);
        snprintf(full, sizeof(full), "%s_each", names[k]); /* [variants, rounds] */
        if (k != GOODPUT) /* it follows from the others */
            study_series(c->out, full, "tok/s", each, (size_t)(c->n * n));
    }
}

static void report_errors(const struct accuracy_frontier *c, int which, double *n_on,
                          double *n_dominated)
{
    struct study_estimate error[VARIANTS_MAX], agree[VARIANTS_MAX];
    int n = c->exact[which].n_prompts;
    double state[VARIANTS_MAX], logs[STUDY_LOGIT_PROMPTS_MAX];
    char name[64];

    *n_on = *n_dominated = n > 0 ? 0 : NAN;
    for (int i = 0; i < c->n; i++) {
        double mean, half;
        int n_known = 0;

        for (int p = 0; p < n; p++)
            if (!isnan(c->variants[i].errors[which].prompt[p]))
                logs[n_known++] = log(c->variants[i].errors[which].prompt[p]);
        mean = stats_mean(logs, (size_t)n_known);
        half = stats_mean_half95(logs, (size_t)n_known);
        error[i] = (struct study_estimate){exp(mean), exp(mean - half), exp(mean + half)};
        agree[i] = agreement(c, which, i);
        state[i] = state_of(c, which, i);
        *n_on += state[i] > 0;
        *n_dominated += state[i] < 0;
    }
    snprintf(name, sizeof(name), "%serror", prefixes[which]);
    report_each(c, name, "", error);
    snprintf(name, sizeof(name), "%sagree", prefixes[which]);
    report_each(c, name, "", agree);
    snprintf(name, sizeof(name), "%sfrontier", prefixes[which]);
    study_series(c->out, name, "", state, (size_t)c->n);
}

static void accuracy_frontier_report(const struct accuracy_frontier *c)
{
    struct text names = {0};

    for (int i = 0; i < c->n; i++)
        text_printf(&names, "%s%s", i ? ", " : "", c->variants[i].name);
    study_note_text(c->out, "variants", names.p);
    text_fini(&names);
    report_speeds(c);
    report_errors(c, OWN, &c->r->n_on, &c->r->n_dominated);
    report_errors(c, TRAINED, &c->r->trained_n_on, &c->r->trained_n_dominated);
    report_ratios(c);
    report_twins(c);
    c->r->n_variants = c->n;
    c->r->n_absent = c->n_absent;
}

static void accuracy_frontier_close(struct accuracy_frontier *c)
{
    (void)!cpu_isa_limit("auto"); /* after an error */
    for (int i = 0; i < c->n; i++)
        sut_bench_close(&c->variants[i].bench);
    for (int k = 0; k < N_ERRORS; k++)
        study_logit_error_close(&c->exact[k]);
    study_threads_close(&c->threads);
    format_close(&c->trained);
}

/* The reference of both kinds of errors. */
static int open_exact(struct accuracy_frontier *c)
{
    const struct study_logit_error any = {
        .team = c->threads.team, .n_prompt_tok = ERROR_TOK, .seed = 1};
    struct variant reference = {.weights = "f32"};
    char path[600];

    TRY(find_model(c, &reference));
    c->exact[OWN] = c->exact[TRAINED] = any;
    c->exact[OWN].model = reference.path;
    c->exact[OWN].n_prompts = (int)c->o->error_prompts;
    TRY(study_logit_error_open(&c->exact[OWN]));
    if (!*c->o->trained || access(home_data(path, sizeof(path), c->o->trained), R_OK)) {
        study_note_text(c->out, "no_trained", *c->o->trained ? "not here" : "not wanted");
        return OK;
    }
    TRY(format_open(&c->trained, path));
    c->exact[TRAINED].file = c->trained;
    c->exact[TRAINED].sampled = true;
    c->exact[TRAINED].n_prompts = (int)c->o->trained_prompts;
    return study_logit_error_open(&c->exact[TRAINED]);
}

static int accuracy_frontier_run(struct accuracy_frontier *c)
{
    FRAME_CLOSE(c->f, accuracy_frontier_close, c);
    TRY(study_threads_open(&c->threads, 0, 0));
    study_note_machine(c->out, &c->threads);
    TRY(open_exact(c));
    TRY(add_each(c, c->o->variants, add_word));
    TRY(add_each(c, c->o->twins, add_twin));
    if (c->n < 2)
        return err_set(ERR_ARG, "study.variants: expected two that run here, found %d",
                       c->n);
    c->f->progress = 0.3;
    TRY(frame_rounds(c->f, "variants in turn", c->n, c->o->rounds,
                     accuracy_frontier_trial, c));
    frame_why(c->f, NULL,
              c->trained
                  ? "not among the variants, or no request is within the objectives"
                  : "no trained model, not among the variants, or no request is "
                    "within the objectives");
    accuracy_frontier_report(c);
    return OK;
}

STUDY(accuracy_frontier,
      "speed against error: weights, precisions, keys and values, engines", .aa = aa);
