/* Who has memory for keys and values when: requests of a trace through the allocators, by a
 * serving loop without its computation, and how much of the memory is used.
 * Paper: ODMA 3, 5.2. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/stats.h"
#include "datasets/dataset.h"
#include "experiments/harness/study.h"
#include "experiments/study/support/kv_replay.h"
#include "experiments/study/support/rows.h"
#include "kv/learn.h"
#include "tokenizer/tokenizer.h"

enum { OF_TOTAL, OF_OUTPUT };

struct opts {
    char *alloc, *predictor, *fit, *path, *tokenizer, *quantiles;
    double sigma, bias, alpha, tau, learn_frac, fit_frac;
    int bounds_of;
    bool learn_once;
    int64_t constant_tok, n_requests, clients, max_tok, budget_seqs, align_tok, block_tok,
        superblock_larges, n_fixed, n_first, window, every, patience, max_age, seed;
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
    OPT_ROW(F64, bias, "0",
            "noisy: mean of the predicted length's logarithm, less the true one's.",
            .min = -10, .max = 10),
    OPT_ROW(INT, constant_tok, "0",
            "constant: the length that it predicts. 0: the mean output, of "
            "conversations that of those to learn from.",
            .unit = "tok", .min = 0, .max = 1 << 20),
    OPT_ROW(STR, fit, "sharegpt",
            "Fit of the trace from which lengths are drawn. \"A+B\": the first half "
            "from A, the second from B."),
    OPT_ROW(STR, path, NULL, "Trace or conversations, in place of the fit.",
            .unit = "FILE"),
    OPT_ROW(STR, tokenizer, NULL, "Tokenizer that counts the tokens of conversations.",
            .unit = "FILE"),
    OPT_ROW(F64, learn_frac, "0.5",
            "Of conversations, the share that `learned` learns from, in the order of "
            "the file. The others are replayed, with every predictor.",
            .min = 0, .max = 0.9),
    OPT_ROW(INT, n_requests, "2000", "Number of requests.", .min = 1, .max = 1000000),
    OPT_ROW(INT, clients, "256",
            "Clients, each of which sends its next request when one was answered.",
            .min = 1, .max = 4096),
    OPT_ROW(INT, max_tok, "0",
            "Longest sequence, prompt and output; longer ones are cut. 0: it holds "
            "`fit_frac` of the requests.",
            .unit = "tok", .min = 0, .max = 1 << 20),
    OPT_ROW(F64, fit_frac, "0.95",
            "Share of the requests that is not cut where max_tok is 0.", .min = 0.01,
            .max = 1),
    OPT_ROW(INT, budget_seqs, "32",
            "Memory for keys and values, in sequences of the longest.", .min = 1,
            .max = 1 << 20),
    OPT_ROW(INT, align_tok, "16", "Sizes of contiguous memory are multiples of it.",
            .unit = "tok", .min = 1, .max = 1 << 16),
    OPT_ROW(INT, block_tok, "16", "paged: size of a block.", .unit = "tok", .min = 16,
            .max = 512),
    OPT_ROW(
        INT, superblock_larges, "1",
        "s3, odma: large blocks of a superblock, the unit that changes its block size.",
        .min = 1, .max = 256),
    OPT_ROW(INT, n_fixed, "10", "s3: number of buckets, of equal width.", .min = 1,
            .max = KV_BUCKETS_MAX),
    OPT_ROW(
        INT, n_first, "10",
        "odma: number of buckets, of equal width, until lengths have been learned. 0: "
        "only the large bucket.",
        .min = 0, .max = KV_BUCKETS_MAX),
    OPT_ROW(STR, quantiles, "0.5 0.75 0.9 0.97",
            "odma: quantiles of the lengths at which buckets end. \"\": only the large "
            "bucket."),
    OPT_ROW(ENUM, bounds_of, "total",
            "odma: what buckets bound, prompt and output together or the output.",
            .values = "total|output"),
    OPT_ROW(INT, window, "1024", "odma: finished requests from which bounds are learned.",
            .min = 1, .max = 1 << 20),
    OPT_ROW(INT, every, "128", "odma: learn after this number of finished requests.",
            .min = 1, .max = 1 << 20),
    OPT_ROW(BOOL, learn_once, "false", "odma: keep the first bounds that were learned."),
    OPT_ROW(F64, alpha, "0.5",
            "A predicted length is inflated by 1 + alpha times its uncertainty.",
            .min = 0, .max = 100),
    OPT_ROW(F64, tau, "0.8",
            "Uncertainty above which a sequence gets the longest memory.", .min = 0,
            .max = 1),
    OPT_ROW(INT, patience, "8",
            "Steps that a sequence waits for memory before the youngest is preempted.",
            .min = 0, .max = 1 << 20),
    OPT_ROW(INT, max_age, "256",
            "Steps that a request can be passed by others of the latest bucket.",
            .min = 0, .max = 1 << 30),
    OPT_ROW(INT, seed, "1", "Seed of lengths and of the predictor's errors."),
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
    {"safe_frac", "", "higher", "requests that fit the memory that they got first"},
    {"bucket_accuracy_frac", "", "higher",
     "requests whose length is within the bucket that was chosen for them"},
    {"max_tok", "tok", "", "the longest sequence"},
    {"n_steps", "", "lower", "steps to answer all requests"},
    {"n_epochs", "", "", "how often bounds were learned"},
    {0},
};

struct work {
    struct dataset *data; /* has the texts of the requests */
    struct tok *tok;
    struct study_kv_request *requests; /* [n] */
    int64_t n, n_learn;                /* the first n_learn are to learn from */
    int64_t max_tok;                   /* of the longest sequence */
    struct kv_learned *learned;
    struct study_kv_result result, fixed; /* fixed: of the allocator static */
};

/* --- requests */

static int count_tokens(const struct work *w, const char *text, size_t bytes,
                        int64_t *n_tok)
{
    int32_t *ids;
    size_t n;

    if (!w->tok)
        return err_set(ERR_ARG,
                       "%s: has texts: expected study.tokenizer to count their tokens",
                       w->data->source);
    TRY(tok_encode(w->tok, text, bytes, 0, &ids, &n));
    mem_free(ids);
    *n_tok = (int64_t)n;
    return OK;
}

static int append(struct work *w, const struct dataset_item *item)
{
    struct study_kv_request *q = &w->requests[w->n++];

    *q = (struct study_kv_request){.prompt_tok = item->n_prompt,
                                   .output_tok = item->n_output,
                                   .text = item->text,
                                   .text_bytes = item->text_bytes};
    if (q->prompt_tok < 0)
        TRY(count_tokens(w, item->text, item->text_bytes, &q->prompt_tok));
    if (q->output_tok < 0)
        TRY(count_tokens(w, item->reply, item->reply_bytes, &q->output_tok));
    return OK;
}

/* `n` requests of a fit, or of o->path where fit is NULL. */
static int read_requests(struct work *w, const struct opts *o, const char *fit, int64_t n)
{
    struct dataset_opts d;
    int rc = opt_init(dataset_opt_table, &d);

    if (rc != OK)
        return rc;
    d.n = n;
    d.seed = o->seed;
    rc = opt_set(dataset_opt_table, &d, fit ? "fit" : "path", fit ? fit : o->path,
                 fit ? "study.fit" : "study.path");
    dataset_close(&w->data);
    if (rc == OK)
        rc = dataset_open(&w->data, &d);
    opt_free(dataset_opt_table, &d);
    for (int64_t i = 0; rc == OK && i < w->data->n_items && w->n < o->n_requests; i++)
        rc = append(w, &w->data->items[i]);
    return rc;
}

static int make_requests(struct work *w, const struct opts *o)
{
    const char *plus = strchr(o->fit, '+');
    char first[64];

    w->requests = mem_new(MEM_DATASET, (size_t)o->n_requests, sizeof(*w->requests));
    if (!w->requests)
        return ERR_NOMEM;
    if (o->path) {
        if (o->tokenizer)
            TRY(tok_open(&w->tok, o->tokenizer, NULL));
        TRY(read_requests(w, o, NULL, o->n_requests));
        if (w->n > 0 && w->requests[0].text)
            w->n_learn = (int64_t)(o->learn_frac * (double)w->n);
        return OK;
    }
    if (!plus)
        return read_requests(w, o, o->fit, o->n_requests);
    snprintf(first, sizeof(first), "%.*s", (int)(plus - o->fit), o->fit);
    TRY(read_requests(w, o, first, (o->n_requests + 1) / 2));
    return read_requests(w, o, plus + 1, o->n_requests - w->n);
}

/* The longest sequence, and the requests cut to it. */
static int cut_requests(struct work *w, const struct opts *o)
{
    double *total = mem_new(MEM_OTHER, (size_t)w->n, sizeof(*total));
    int64_t most = o->max_tok;

    if (!total)
        return ERR_NOMEM;
    for (int64_t i = 0; i < w->n; i++)
        total[i] = (double)(w->requests[i].prompt_tok + w->requests[i].output_tok);
    if (most == 0)
        most = (int64_t)stats_percentile(total, (size_t)w->n, o->fit_frac);
    mem_free(total);
    most = (most + o->align_tok - 1) / o->align_tok * o->align_tok;
    most = most < 16 ? 16 : most;
    w->max_tok = o->max_tok > 0 ? o->max_tok : most;
    for (int64_t i = 0; i < w->n; i++) {
        struct study_kv_request *q = &w->requests[i];

        q->output_tok = q->output_tok < w->max_tok ? q->output_tok : w->max_tok - 1;
        q->output_tok = q->output_tok > 1 ? q->output_tok : 1;
        most = w->max_tok - q->output_tok;
        q->prompt_tok = q->prompt_tok < most ? q->prompt_tok : most;
        q->prompt_tok = q->prompt_tok > 1 ? q->prompt_tok : 1;
    }
    return OK;
}

static int learn(struct work *w)
{
    struct kv_example *e = mem_new(MEM_DATASET, (size_t)w->n_learn, sizeof(*e));
    int rc;

    if (!e)
        return ERR_NOMEM;
    for (int64_t i = 0; i < w->n_learn; i++)
        e[i] = (struct kv_example){.text = w->requests[i].text,
                                   .text_bytes = w->requests[i].text_bytes,
                                   .prompt_tok = w->requests[i].prompt_tok,
                                   .output_tok = w->requests[i].output_tok};
    rc = kv_learn(&w->learned, e, w->n_learn);
    mem_free(e);
    return rc;
}

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

static double mean_output(const struct work *w)
{
    int64_t n = w->n_learn ? w->n_learn : w->n;
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += (double)w->requests[i].output_tok;
    return sum / (double)n;
}

static int prepare(struct study_kv_opts *k, const struct work *w, const struct opts *o)
{
    *k = (struct study_kv_opts){
        .arena = {.n_tok = o->budget_seqs * w->max_tok,
                  .max_tok = w->max_tok,
                  .align_tok = o->align_tok,
                  .block_tok = o->block_tok,
                  .max_seqs = o->clients,
                  .superblock_larges = o->superblock_larges,
                  .n_fixed = o->n_fixed},
        .buckets = {.max_tok = w->max_tok,
                    .align_tok = o->align_tok,
                    .window = o->window,
                    .every = o->every,
                    .n_first = (int)o->n_first,
                    .of_total = o->bounds_of == OF_TOTAL},
        .predict = {.max_tok = w->max_tok,
                    .constant_tok = (double)o->constant_tok,
                    .sigma = o->sigma,
                    .bias = o->bias,
                    .seed = o->seed,
                    .learned = w->learned},
        .caution = {.alpha = o->alpha, .tau = o->tau},
        .learn_once = o->learn_once,
        .clients = o->clients,
        .patience = o->patience,
        .max_age = o->max_age,
    };
    if (o->constant_tok == 0)
        k->predict.constant_tok = mean_output(w);
    TRY(parse_quantiles(&k->buckets, o->quantiles));
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

static void report_series(struct study_cell *out, const struct study_kv_series *s)
{
    double steps[STUDY_KV_POINTS];

    for (int i = 0; i < s->n; i++)
        steps[i] = (double)(i * s->steps_each);
    study_series(out, "step", "", steps, (size_t)s->n);
    study_series(out, "utilization_inner_over_time", "", s->inner, (size_t)s->n);
    study_series(out, "utilization_outer_over_time", "", s->outer, (size_t)s->n);
    study_series(out, "tokens_per_step_over_time", "tok", s->batch, (size_t)s->n);
}

static void report(struct study_cell *out, const struct work *w,
                   const struct study_kv_opts *k)
{
    const struct study_kv_result *r = &w->result;
    double n = (double)(w->n - w->n_learn), tok = (double)r->output_tok,
           loaded = (double)r->n_loaded_steps;
    bool paged = k->alloc->paged;
    const struct study_number all[] = {
        {"tokens_per_step", per_step(r)},
        {"over_static", per_step(r) / per_step(&w->fixed)},
        {"utilization_inner", share(r->inner_sum, loaded)},
        {"utilization_outer", share(r->outer_sum, loaded)},
        {"overflow_frac", (double)r->n_overflow / n},
        {"migrated_frac", (double)r->migrated_tok / tok},
        {"extended_frac", (double)r->extended_tok / tok},
        {"preempted_per_request", (double)r->n_preempted / n},
        {"recomputed_frac", (double)r->recomputed_tok / tok},
        {"waited_frac", (double)r->waited_steps / (tok + (double)r->waited_steps)},
        {"max_tok", (double)w->max_tok},
        {"n_steps", (double)r->n_steps},
        {"n_epochs", (double)r->n_epochs},
    };

    STUDY_VALUES(out, all,
                 "fewer requests than clients: the load ends with the first step");
    study_value(out, "safe_frac", paged ? NAN : (double)r->n_safe / n,
                "a table of blocks grows as the sequence does");
    study_value(out, "bucket_accuracy_frac",
                share((double)r->n_in_bucket, (double)r->n_bucketed),
                "the allocator has no buckets");
    report_series(out, &r->series);
}

static int run(void *context, const void *opts, struct study_cell *out)
{
    const struct opts *o = opts;
    struct work *w = context;
    struct study_kv_opts k, fixed;

    TRY(make_requests(w, o));
    TRY(cut_requests(w, o));
    if (strcmp(o->predictor, "learned") == 0 && w->n_learn > 0)
        TRY(learn(w));
    TRY(prepare(&k, w, o));
    TRY(study_kv_replay(&w->result, &k, w->requests + w->n_learn, w->n - w->n_learn));
    fixed = k;
    TRY(kv_alloc_find("static", &fixed.alloc));
    TRY(study_kv_replay(&w->fixed, &fixed, w->requests + w->n_learn, w->n - w->n_learn));
    report(out, w, &k);
    return OK;
}

static void end(void *context)
{
    struct work *w = context;

    kv_learned_close(&w->learned);
    mem_free(w->requests);
    tok_close(&w->tok);
    dataset_close(&w->data);
}

const struct study study_odma_replay = {
    .name = "odma_replay",
    .help =
        "a trace's requests through the allocators of keys and values, without computing",
    .opts = table,
    .opts_bytes = sizeof(struct opts),
    .context_bytes = sizeof(struct work),
    .metrics = metrics,
    .run = run,
    .end = end,
};
