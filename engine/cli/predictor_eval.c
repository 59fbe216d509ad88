/* sandwich predictor eval: held-out requests, one after the other, each predicted, given a
 * bucket and judged by the length that it came to have. */
#include "cli/predictor.h"

#include <math.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/stats.h"
#include "cli/cli.h"
#include "kv/accuracy.h"

#define N_FIXED 10 /* as the allocator s3 has */

enum { CONSTANT, LEARNED, N_PREDICTORS };
enum { FIXED, FOLLOWING, N_BOUNDS };
static const char *const predictors[] = {"constant", "learned"};
static const char *const bounds[] = {"fixed", "learned"};

struct eval {
    const struct cli_predictor_flags *flags;
    const struct kv_example *e; /* [n] to be judged */
    int64_t n, max_tok;
    const struct kv_learned *learned;
    double constant_tok;
    struct kv_prediction *predicted; /* [n] */
    struct kv_outcome *outcomes;     /* [n] */
    struct kv_accuracy result[N_PREDICTORS][N_BOUNDS];
    double predict_s;
};

static int64_t total(const struct kv_example *e)
{
    return e->prompt_tok + e->output_tok;
}

/* The output's median among the examples, which no other constant has a smaller error of the
 * logarithm than. */
static double median_output(const struct kv_example *e, int64_t n)
{
    double *x = mem_new(MEM_OTHER, (size_t)n, sizeof(*x)), median;

    for (int64_t i = 0; x && i < n; i++)
        x[i] = (double)e[i].output_tok;
    median = x ? stats_median(x, (size_t)n) : NAN;
    mem_free(x);
    return median;
}

static void predict(struct eval *v, int predictor)
{
    for (int64_t i = 0; i < v->n; i++)
        if (predictor == LEARNED)
            kv_learned_predict(v->learned, &v->e[i], &v->predicted[i]);
        else
            v->predicted[i] = (struct kv_prediction){.gen_tok = v->constant_tok};
}

/* What the request has at its end, where it outgrew its memory: twice as much until it fits,
 * as s3 gives it, or the large bucket, which is the most that odma gives. */
static int64_t grown(int64_t size, int64_t need, int64_t max_tok, int which)
{
    while (size < need)
        size = which == FIXED ? 2 * size : max_tok;
    return size < max_tok ? size : max_tok;
}

static int judge(struct eval *v, int predictor, int which)
{
    const struct kv_bucket_opts o = {.max_tok = v->max_tok,
                                     .align_tok = 1,
                                     .window = 1024,
                                     .every = 32,
                                     .of_total = true,
                                     .n_first = N_FIXED,
                                     .n = KV_N_QUANTILES,
                                     .p = KV_QUANTILES};
    const struct kv_caution caution = {.alpha = v->flags->alpha, .tau = v->flags->tau};
    struct kv_buckets *b;

    TRY(kv_buckets_open(&b, &o));
    for (int64_t i = 0; i < v->n; i++) {
        const struct kv_example *e = &v->e[i];
        struct kv_need need =
            kv_need_predicted(e->prompt_tok, &v->predicted[i], &caution, v->max_tok);
        struct kv_outcome *q = &v->outcomes[i];

        *q = (struct kv_outcome){.predicted_tok = v->predicted[i].gen_tok,
                                 .prompt_tok = e->prompt_tok,
                                 .output_tok = e->output_tok};
        kv_outcome_bucket(q, kv_buckets_bounds(b), &need, v->max_tok);
        q->first_tok = kv_bounds_size(kv_buckets_bounds(b), &need, v->max_tok);
        q->last_tok = grown(q->first_tok, total(e), v->max_tok, which);
        kv_buckets_add(b, e->prompt_tok, e->output_tok);
        if (which == FOLLOWING && kv_buckets_due(b))
            kv_buckets_learn(b);
    }
    kv_buckets_close(&b);
    return kv_accuracy(&v->result[predictor][which], v->outcomes, v->n, v->max_tok);
}

static int judge_all(struct eval *v)
{
    uint64_t before_ns;

    for (int p = 0; p < N_PREDICTORS; p++) {
        predict(v, p);
        for (int which = 0; which < N_BOUNDS; which++)
            TRY(judge(v, p, which));
    }
    before_ns = clock_ns(); /* again, now that all code and data are in the caches */
    predict(v, LEARNED);
    v->predict_s = (double)(clock_ns() - before_ns) * 1e-9 / (double)v->n;
    return OK;
}

/* --- reports */

static json_t *report_json(const struct eval *v, const struct kv_learned_from *from)
{
    json_t *rows = json_array();
    int bad = !rows;

    for (int p = 0; p < N_PREDICTORS && !bad; p++)
        for (int which = 0; which < N_BOUNDS && !bad; which++) {
            const struct kv_accuracy *a = &v->result[p][which];

            bad = json_array_append_new(
                rows, json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
                                "predictor", predictors[p], "buckets", bounds[which],
                                "log_mae", json_number(a->log_mae), "kendall_tau",
                                json_number(a->kendall_tau), "within_frac",
                                json_number(a->within_frac), "bucket_frac",
                                json_number(a->bucket_frac), "safe_frac",
                                json_number(a->safe_frac), "overflow_frac",
                                json_number(a->overflow_frac), "utilization_frac",
                                json_number(a->utilization_frac), "large_frac",
                                json_number(a->large_frac)));
        }
    if (!bad)
        return json_pack("{s:I, s:I, s:b, s:f, s:f, s:o}", "n_requests", (json_int_t)v->n,
                         "max_tok", (json_int_t)v->max_tok, "held_out", from->fold > 0,
                         "constant_tok", v->constant_tok, "predict_s", v->predict_s,
                         "results", rows);
    json_decref(rows);
    return NULL;
}

static int print_json(const struct eval *v, const struct kv_learned_from *from)
{
    json_t *j = report_json(v, from);
    int rc = j ? cli_print_json(j) : err_set(ERR_NOMEM, "no memory for the report");

    json_decref(j);
    return rc;
}

static void print_text(const struct eval *v, const struct kv_learned_from *from)
{
    if (from->fold > 0)
        printf("%lld requests of part %lld of %lld, of whose conversations none was "
               "learned from\n",
               (long long)v->n, (long long)from->fold, (long long)from->folds);
    else
        printf("%lld requests, which may have been learned from: no part was held out\n",
               (long long)v->n);
    printf("longest sequence: %lld tokens; constant: %.0f tokens; one prediction takes "
           "%.1f us\n\n",
           (long long)v->max_tok, v->constant_tok, 1e6 * v->predict_s);
    printf("%-9s  %-7s  %7s  %7s  %7s  %7s  %7s  %8s  %11s\n", "predictor", "buckets",
           "log MAE", "tau", "in 10 %", "bucket", "safe", "overflow", "utilization");
    for (int p = 0; p < N_PREDICTORS; p++)
        for (int which = 0; which < N_BOUNDS; which++) {
            const struct kv_accuracy *a = &v->result[p][which];

            printf("%-9s  %-7s  %7.3f  %7.3f  %5.1f %%  %5.1f %%  %5.1f %%  %6.1f %%  "
                   "%9.1f %%\n",
                   predictors[p], bounds[which], a->log_mae, a->kendall_tau,
                   100 * a->within_frac, 100 * a->bucket_frac, 100 * a->safe_frac,
                   100 * a->overflow_frac, 100 * a->utilization_frac);
        }
    printf(
        "\nlog MAE: mean of |ln(predicted / true)|. tau: Kendall's rank correlation. in "
        "10 %%: predicted within\n10 %% of the true length. bucket: the length is within "
        "the chosen bucket. safe: no longer than that.\n");
}

/* --- from begin to end */

/* Those that are not too long; the longest is set where it is not given. */
static int choose(struct eval *v, struct kv_example *e, int64_t n)
{
    int64_t longest = v->flags->max_tok;

    for (int64_t i = 0; i < n && v->flags->max_tok == 0; i++)
        longest = total(&e[i]) > longest ? total(&e[i]) : longest;
    for (int64_t i = 0; i < n; i++)
        if (total(&e[i]) <= longest)
            e[v->n++] = e[i];
    v->e = e;
    v->max_tok = longest;
    if (v->n == 0)
        return err_set(ERR_ARG,
                       "%s: expected a request that is held out and has at most %lld "
                       "tokens, found none of %lld",
                       v->flags->data, (long long)longest, (long long)n);
    v->predicted = mem_new(MEM_OTHER, (size_t)v->n, sizeof(*v->predicted));
    v->outcomes = mem_new(MEM_OTHER, (size_t)v->n, sizeof(*v->outcomes));
    return v->predicted && v->outcomes ? OK : ERR_NOMEM;
}

int cli_predictor_evaluate(const struct cli_predictor_flags *f)
{
    struct cli_predictor_data d = {0};
    struct kv_learned *l = NULL;
    struct kv_learned_from from;
    struct eval v = {.flags = f};
    int rc;

    if (!f->data || !f->predictor)
        return err_set(ERR_ARG,
                       "--data and --predictor are needed: requests and what was "
                       "trained");
    rc = kv_learned_load(&l, &from, f->predictor);
    if (rc == OK)
        rc = cli_predictor_open(&d, f, &from);
    if (rc == OK) {
        struct dataset_examples *x = &d.examples;

        v.learned = l;
        v.constant_tok = median_output(x->e, x->n_learn);
        rc = from.fold > 0 ? choose(&v, x->e + x->n_learn, x->n_held_out)
                           : choose(&v, x->e, x->n_learn);
    }
    if (rc == OK)
        rc = judge_all(&v);
    if (rc == OK && f->json)
        rc = print_json(&v, &from);
    else if (rc == OK)
        print_text(&v, &from);
    mem_free(v.predicted);
    mem_free(v.outcomes);
    kv_learned_close(&l);
    cli_predictor_close(&d);
    return rc;
}
