/* sandwich predictor: trains a predictor of output lengths on answered requests, or evaluates
 * one on requests that it has not seen. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/name.h"
#include "base/stats.h"
#include "base/table.h"
#include "cli/cli.h"
#include "datasets/examples.h"
#include "format/format.h"
#include "kv/accuracy.h"
#include "kv/learn.h"
#include "serve/serve.h"
#include "tokenizer/tokenizer.h"

struct predictor_flags {
    char *data, *format, *tokenizer, *generate;
    int64_t n, max_new;
    char *out;           /* train */
    int64_t fold, folds; /* train */
    char *predictor;     /* eval */
    int64_t max_tok;
    double alpha, tau;
    bool json;
};

/* A data set and its requests as examples. */
struct predictor_data {
    struct dataset *set;
    struct tok *tok; /* NULL: tokens are estimated */
    struct dataset_examples examples;
    char tokens[64]; /* how they were counted */
};

static const char *format_name(int i)
{
    return dataset_readers[i] ? dataset_readers[i]->name : NULL;
}

#define OPT_OF struct predictor_flags
static const struct opt_row data_rows[] = {
    OPT_ROW(STR, data, NULL,
            "Answered requests: conversations, or instructions with their outputs. Also "
            "below $SANDWICH_DATA (without it: ../shared/data).",
            .unit = "FILE"),
    OPT_ROW(
        STR, format, "auto",
        "Format of the file. auto: recognised by its first record. It must have texts: "
        "sharegpt, lmsys, alpaca or nq.",
        .unit = "NAME", .names = format_name),
    OPT_ROW(STR, tokenizer, NULL,
            "Count tokens by the vocabulary of this model file or tokenizer. Without it "
            "four bytes of text are taken for a token.",
            .unit = "FILE"),
    OPT_ROW(
        STR, generate, NULL,
        "Model that answers the prompts. The lengths of its answers take the place of "
        "those in the data. Prompts are given as they are, without a chat template, "
        "and the most likely token is taken. Its vocabulary counts tokens; without "
        "one it needs --tokenizer.",
        .unit = "FILE"),
    OPT_ROW(INT, max_new, "512",
            "--generate: longest answer. A longer one is cut, and counts as that long.",
            .unit = "tok", .min = 1, .max = 1 << 20),
    OPT_ROW(INT, n, "20000",
            "Number of requests to take at random, the same each time. 0: all.",
            .max = 1e9),
    {0},
};

static const struct opt_row train_rows[] = {
    OPT_ROW(STR, out, NULL, "File to write.", .unit = "FILE", .letter = 'o'),
    OPT_ROW(
        INT, fold, "1",
        "Part of the conversations to hold out, from 1 to --folds, for evaluation. 0: "
        "learn from all of them.",
        .max = 1000),
    OPT_ROW(
        INT, folds, "5",
        "Number of parts. All turns and all copies of a conversation are in one part.",
        .min = 1, .max = 1000),
    {0},
};

static const struct opt_row eval_rows[] = {
    OPT_ROW(STR, predictor, NULL,
            "Predictor that `sandwich predictor train` has written.", .unit = "FILE"),
    OPT_ROW(INT, max_tok, "0",
            "Longest sequence, prompt and output, which is the size of the large bucket; "
            "longer ones are left out. 0: the longest of the data.",
            .unit = "tok", .max = 1 << 24),
    OPT_ROW(F64, alpha, "0.5",
            "A predicted length is inflated by 1 + alpha times its uncertainty.",
            .max = 100),
    OPT_ROW(F64, tau, "1",
            "Uncertainty above which a request gets the large bucket, from 0 to 1.",
            .max = 1),
    OPT_ROW(BOOL, json, NULL, "Print JSON."),
    {0},
};

/* --- data */

static int open_set(struct predictor_data *d, const struct predictor_flags *f)
{
    struct dataset_opts o;
    int rc = opt_init(dataset_opt_table, &o);

    if (rc == OK)
        rc = opt_set(dataset_opt_table, &o, "path", f->data, "--data");
    if (rc == OK)
        rc = opt_set(dataset_opt_table, &o, "reader", f->format, "--format");
    o.n = f->n;
    o.turns = DATASET_TURNS_EACH;
    if (rc == OK)
        rc = dataset_open(&d->set, &o);
    opt_free(dataset_opt_table, &o);
    return rc;
}

static int open_tokenizer(struct predictor_data *d, const char *path)
{
    if (!path) {
        snprintf(d->tokens, sizeof(d->tokens), "%d bytes", DATASET_BYTES_PER_TOK);
        return OK;
    }
    TRY(tok_open(&d->tok, path, NULL));
    snprintf(d->tokens, sizeof(d->tokens), "%.40s of %d", tok_kind(d->tok),
             tok_vocab(d->tok));
    return OK;
}

/* --- the answers of a model in place of those of the data */

#define N_AT_ONCE 8

struct answers {
    struct serve *serve;
    struct kv_example *e; /* [n] */
    int64_t n, n_sent, n_done, n_cut;
    int64_t *n_tok; /* [n] tokens generated */
    bool failed;
};

static void on_token(void *ctx, int64_t request, int32_t id, const float *logits,
                     enum serve_finish finish)
{
    struct answers *a = ctx;

    (void)logits;
    a->n_tok[request] += id >= 0;
    a->n_done += finish != SERVE_RUNNING;
    a->n_cut += finish == SERVE_LENGTH;
    a->failed = a->failed || finish == SERVE_ERROR || finish == SERVE_CANCELED;
}

/* A prompt that is too long loses its end. Requests are numbered in the order of submission. */
static int send_next(struct answers *a, int64_t max_new)
{
    const struct kv_example *e = &a->e[a->n_sent];
    int64_t most = a->serve->max_tok - max_new, id;
    struct serve_request r = {
        .max_new = max_new, .sampling = {.top_p = 1}, .on_token = on_token, .ctx = a};
    int32_t *ids;
    size_t n;
    int rc;

    TRY(serve_encode(a->serve, e->text, e->text_bytes, SERVE_BOS, &ids, &n));
    r.prompt = ids;
    r.n_prompt = (int64_t)n < most ? (int64_t)n : most;
    rc = serve_submit(a->serve, &r, &id);
    mem_free(ids);
    assert(rc != OK || id == a->n_sent);
    a->n_sent++;
    return rc;
}

static int open_model(struct answers *a, const struct predictor_flags *f)
{
    struct serve_opts o;
    int rc = opt_init(serve_opt_table, &o);

    if (rc != OK)
        return rc;
    rc = opt_set(serve_opt_table, &o, "model", f->generate, "--generate");
    if (rc == OK)
        rc = opt_set(serve_opt_table, &o, "policy", "continuous", "--generate");
    if (rc == OK && f->tokenizer)
        rc = opt_set(serve_opt_table, &o, "tokenizer", f->tokenizer, "--tokenizer");
    o.max_seqs = N_AT_ONCE;
    o.deterministic = true; /* so that the same data give the same file */
    if (rc == OK)
        rc = serve_open(&a->serve, &o);
    opt_free(serve_opt_table, &o);
    if (rc == OK && a->serve->max_tok <= f->max_new)
        rc = err_set(ERR_ARG,
                     "--max-new: expected less than the %lld tokens of the longest "
                     "sequence of %s, found %lld",
                     (long long)a->serve->max_tok, f->generate, (long long)f->max_new);
    return rc;
}

static int generate(struct dataset_examples *x, const struct predictor_flags *f)
{
    struct answers a = {.e = x->e, .n = x->n_learn + x->n_held_out};
    bool busy = true;
    int rc = open_model(&a, f);

    if (rc == OK) {
        a.n_tok = mem_new(MEM_OTHER, (size_t)a.n, sizeof(*a.n_tok));
        rc = a.n_tok ? OK : ERR_NOMEM;
    }
    while (rc == OK && a.n_done < a.n) {
        while (rc == OK && a.n_sent < a.n && a.n_sent - a.n_done < N_AT_ONCE)
            rc = send_next(&a, f->max_new);
        if (rc == OK)
            rc = serve_step(a.serve, &busy);
        if (rc == OK && a.failed)
            rc = err_set(ERR_STATE, "%s: a request failed: %s", f->generate, err_msg());
    }
    for (int64_t i = 0; i < a.n && rc == OK; i++)
        a.e[i].output_tok = a.n_tok[i] > 1 ? a.n_tok[i] : 1;
    if (rc == OK)
        fprintf(stderr,
                "%s answered %lld prompts; %lld answers were cut at %lld tokens\n",
                f->generate, (long long)a.n, (long long)a.n_cut, (long long)f->max_new);
    serve_close(&a.serve);
    mem_free(a.n_tok);
    return rc;
}

/* --- all of the data */

/* To be given back with close_data(), also after an error. `from` NULL: any way of counting tokens
 * will do, and the part is that of the flags; else both are those of a predictor. */
static int open_data(struct predictor_data *d, const struct predictor_flags *f,
                     const struct kv_learned_from *from)
{
    *d = (struct predictor_data){0};
    if (strcmp(f->format, "auto") != 0 &&
        !name_find(dataset_readers, f->format, "format"))
        return err_prefix(ERR_NOTFOUND, "--format");
    TRY(open_tokenizer(d, f->tokenizer || !f->generate ? f->tokenizer : f->generate));
    if (f->generate) {
        size_t n = strlen(d->tokens);

        snprintf(d->tokens + n, sizeof(d->tokens) - n, ", generated");
    }
    if (from && strcmp(d->tokens, from->tokens) != 0)
        return err_set(ERR_ARG,
                       "--tokenizer or --generate: expected what %s was trained with "
                       "(%s), found %s",
                       f->predictor, from->tokens, d->tokens);
    TRY(open_set(d, f));
    TRY(dataset_examples(&d->examples, d->set, d->tok, from ? from->fold : f->fold,
                         from ? from->folds : f->folds));
    return f->generate ? generate(&d->examples, f) : OK;
}

static void close_data(struct predictor_data *d)
{
    dataset_examples_fini(&d->examples);
    dataset_close(&d->set);
    tok_close(&d->tok);
}

/* --- train */

static int train(const struct verb_words *w)
{
    const struct predictor_flags *f = w->opts;
    struct predictor_data d = {0};
    struct kv_learned *l = NULL;
    struct kv_learned_from from = {.fold = f->fold, .folds = f->folds};
    uint64_t before_ns;
    double seconds = 0;
    int rc;

    if (!f->data || !f->out)
        return err_set(
            ERR_ARG,
            "--data and --out are needed: the file to learn from and the one to write");
    rc = file_check_target(f->out, f->data);
    if (rc == OK)
        rc = open_data(&d, f, NULL);
    if (rc == OK) {
        before_ns = clock_ns();
        rc = kv_learn(&l, d.examples.e, d.examples.n_learn);
        seconds = (double)(clock_ns() - before_ns) * 1e-9;
    }
    if (rc == OK) {
        from.n_examples = d.examples.n_learn;
        snprintf(from.format, sizeof(from.format), "%.31s", d.set->reader->name);
        snprintf(from.tokens, sizeof(from.tokens), "%s", d.tokens);
        if (f->generate)
            rc = format_identity_of(from.model_id, f->generate);
    }
    if (rc == OK)
        rc = kv_learned_save(l, &from, f->out);
    if (rc == OK)
        printf("learned from %lld requests (%s) in %.3f s; %lld are held out; written to "
               "%s\n",
               (long long)d.examples.n_learn, from.format, seconds,
               (long long)d.examples.n_held_out, f->out);
    kv_learned_close(&l);
    close_data(&d);
    return rc;
}

/* --- eval: held-out requests, one after the other, each predicted, given a bucket and judged by
 * the length that it came to have */

#define N_FIXED 10 /* as the allocator s3 has */

enum { CONSTANT, LEARNED, N_PREDICTORS };
enum { FIXED, FOLLOWING, N_BOUNDS };
static const char *const predictors[] = {"constant", "learned"};
static const char *const bounds[] = {"fixed", "learned"};

struct eval {
    const struct predictor_flags *flags;
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

/* The memory of a request at its end, where it outgrew the first: twice as much until it fits,
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
    static const struct table_column columns[] = {{"predictor", -10},  {"buckets", -8},
                                                  {"log MAE", 7},      {"tau", 8},
                                                  {"in 10 %", 8},      {"bucket", 8},
                                                  {"safe", 8},         {"overflow", 9},
                                                  {"utilization", 12}, {0}};
    struct table t = {.f = stdout, .columns = columns};

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
    table_head(&t);
    for (int p = 0; p < N_PREDICTORS; p++)
        for (int which = 0; which < N_BOUNDS; which++) {
            const struct kv_accuracy *a = &v->result[p][which];

            table_cell(&t, "%s", predictors[p]);
            table_cell(&t, "%s", bounds[which]);
            table_cell(&t, "%.3f", a->log_mae);
            table_cell(&t, "%.3f", a->kendall_tau);
            table_cell(&t, "%.1f %%", 100 * a->within_frac);
            table_cell(&t, "%.1f %%", 100 * a->bucket_frac);
            table_cell(&t, "%.1f %%", 100 * a->safe_frac);
            table_cell(&t, "%.1f %%", 100 * a->overflow_frac);
            table_cell(&t, "%.1f %%", 100 * a->utilization_frac);
        }
    printf(
        "\nlog MAE: mean of |ln(predicted / true)|. tau: Kendall's rank correlation. in "
        "10 %%: predicted within\n10 %% of the true length. bucket: the length is within "
        "the chosen bucket. safe: no longer than that.\n");
}

/* --- from begin to end */

/* Choose the examples that are not too long; the longest is set where it is not given. */
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

static int evaluate(const struct verb_words *w)
{
    const struct predictor_flags *f = w->opts;
    struct predictor_data d = {0};
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
        rc = open_data(&d, f, &from);
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
    close_data(&d);
    return rc;
}

/* --- the verbs */

static const struct verb train_verb = {
    .name = "train",
    .help = "Learn from answered requests and write a predictor.",
    .usage =
        {.line = "sandwich predictor train --data FILE --out FILE [options]",
         .about =
             "Learn from answered requests how many tokens a prompt's answer will have, "
             "and write what was learned. The same data give the same file.",
         .examples =
             "  sandwich predictor train --data chats.json --format sharegpt --out "
             "p.json\n"
             "  sandwich predictor train --data alpaca_data.json --fold 2 -o p2.json\n"
             "  sandwich predictor train --data alpaca_data.json --n 500 --generate "
             "m.gguf -o "
             "p3.json\n"},

    .opts = {{data_rows}, {train_rows}},
    .opts_bytes = sizeof(struct predictor_flags),
    .run = train,
};

static const struct verb eval_verb = {
    .name = "eval",
    .help = "Evaluate a predictor on requests that it has not seen.",
    .usage =
        {.line = "sandwich predictor eval --data FILE --predictor FILE [options]",
         .about =
             "Compare a predictor with the best constant, on the conversations that were "
             "held "
             "out from training: errors of the length, and accuracy, memory used and "
             "overflows "
             "with fixed buckets and with buckets that are learned from the lengths.",
         .examples = "  sandwich predictor eval --data chats.json --predictor p.json\n"
                     "  sandwich predictor eval --data alpaca_data.json --predictor "
                     "p2.json --json\n"},

    .opts = {{data_rows}, {eval_rows}},
    .opts_bytes = sizeof(struct predictor_flags),
    .run = evaluate,
};

static const char help[] =
    "Usage: sandwich predictor train|eval [options]\n"
    "\n"
    "Train or evaluate a predictor of output lengths.\n"
    "\n"
    "Commands:\n"
    "  train    Learn from answered requests and write a predictor.\n"
    "  eval     Evaluate a predictor on requests that it has not seen.\n"
    "\n"
    "Options:\n"
    "  -h, --help\n"
    "        Print this text and exit. `sandwich predictor train --help` and\n"
    "        `sandwich predictor eval --help` describe the options of each.\n"
    "\n"
    "Examples:\n"
    "  sandwich predictor train --data conversations.json --out predictor.json\n"
    "  sandwich predictor eval --data conversations.json --predictor predictor.json\n"
    "\n"
    "Exit status:\n" CLI_EXIT_STATUS;

const struct verb cli_verb_predictor = {
    .name = "predictor",
    .help = "Train or evaluate a predictor of output lengths.",
    .place = 12,
    .verbs = (const struct verb *const[]){&train_verb, &eval_verb, NULL},
    .text = help,
};
