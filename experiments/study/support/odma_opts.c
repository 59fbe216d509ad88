#include "experiments/study/support/odma_opts.h"

#include <stdio.h>
#include <string.h>

#include "experiments/study/support/rows.h"
#include "kv/buckets.h"
#include "kv/predict.h"

static const char *alloc_name(int i)
{
    return kv_allocs[i] ? kv_allocs[i]->name : NULL;
}

static const char *predictor_name(int i)
{
    return kv_predictors[i] ? kv_predictors[i]->name : NULL;
}

const struct opt_row study_odma_rows[] = {
    OPT_ROW(STR, alloc, "odma", "Allocator.", .names = alloc_name),
    OPT_ROW(STR, predictor, "noisy", "Length predictor.", .names = predictor_name),
    OPT_ROW(F64, sigma, "0.3",
            "noisy: size of its errors. The predicted length is the true one times exp(s "
            "z), z normal, s uniform in [0, 2 sigma].",
            .min = 0, .max = 10),
    OPT_ROW(
        INT, constant_tok, "0",
        "constant: the length that it predicts. 0: the mean output of the requests to "
        "learn from, where there are any, else of those that are replayed.",
        .unit = "tok", .min = 0, .max = 1 << 20),
    OPT_ROW(
        STR, stream, "sharegpt",
        "The requests: a fit, from which lengths are drawn, or a file of conversations "
        "or lengths. \"A+B\": the first half from A, the second from B; what is "
        "learned is learned from A."),
    OPT_ROW(STR, tokenizer, NULL,
            "Tokenizer that counts the tokens of texts. Without it four bytes are taken "
            "for a token.",
            .unit = "FILE"),
    OPT_ROW(INT, n_requests, "2000", "Number of requests to replay; of a file at most.",
            .min = 1, .max = 1000000),
    OPT_ROW(INT, n_learn, "2000", "Drawn requests to learn from, before those.", .min = 0,
            .max = 1000000),
    OPT_ROW(INT, folds, "5",
            "Parts of a file of conversations. One is replayed, by the seed; the others "
            "are to learn from.",
            .min = 2, .max = 1000),
    OPT_ROW(
        F64, tells, "0.7",
        "Drawn requests: probability that the text has the word of its output's class, "
        "one of eight. Otherwise the word is that of a random class.",
        .min = 0, .max = 1),
    OPT_ROW(INT, clients, "256",
            "Clients, each of which sends its next request when one was answered.",
            .min = 1, .max = 4096),
    OPT_ROW(INT, max_tok, "0",
            "Longest sequence, prompt and output; longer ones are cut. 0: it holds "
            "95 % of the requests.",
            .unit = "tok", .min = 0, .max = 1 << 20),
    OPT_ROW(INT, budget_seqs, "32",
            "Memory for keys and values, in sequences of the longest.", .min = 1,
            .max = 1 << 20),
    OPT_ROW(STR, devices, "",
            "Memory of each of several devices, in sequences of the longest, at most 8: "
            "\"16 8 8 4\". \"\": one device, with budget_seqs."),
    OPT_ROW(ENUM, route, "cluster",
            "Devices: a request goes to the one with the smallest larger share of "
            "memory and compute, and waits before all while none has the memory; to each "
            "in turn; or to the one with the fewest requests.",
            .values = "cluster|in_turn|fewest"),
    OPT_ROW(BOOL, own_bounds, "false",
            "Devices: each learns bounds from its own requests; else all have the same."),
    OPT_ROW(INT, align_tok, "16", "Sizes of contiguous memory are multiples of it.",
            .unit = "tok", .min = 1, .max = 1 << 16),
    OPT_ROW(INT, block_tok, "16", "paged: size of a block.", .unit = "tok", .min = 16,
            .max = 512),
    OPT_ROW(F64, keep_frac, "0.02",
            "paged: share of the blocks that stays free when a request is admitted, for "
            "those that grow.",
            .min = 0, .max = 0.9),
    OPT_ROW(
        F64, large_pool_frac, "0",
        "odma, odma_paper: share of the memory that is kept for sequences of the large "
        "bucket, as in the paper, which does not say how much. 0: they get what is "
        "free.",
        .min = 0, .max = 0.9),
    OPT_ROW(INT, n_buckets, "0",
            "Number of buckets of either allocator: for s3 of equal width, for odma of "
            "equally many lengths of the window. 0: n_fixed and quantiles.",
            .min = 0, .max = KV_BUCKETS_MAX),
    OPT_ROW(INT, n_fixed, "10", "s3: number of buckets, of equal width.", .min = 1,
            .max = KV_BUCKETS_MAX),
    OPT_ROW(
        INT, n_first, "10",
        "odma: number of buckets, of equal width, until lengths have been learned. 0: "
        "only the large bucket.",
        .min = 0, .max = KV_BUCKETS_MAX),
    OPT_ROW(STR, quantiles, "0.2 0.4 0.55 0.65 0.75 0.8 0.85 0.9 0.94 0.97",
            "odma: quantiles of the lengths at which buckets end. \"\": only the large "
            "bucket."),
    OPT_ROW(INT, window, "1024", "odma: finished requests from which bounds are learned.",
            .min = 1, .max = 1 << 20),
    OPT_ROW(INT, every, "128", "odma: learn after this number of finished requests.",
            .min = 1, .max = 1 << 20),
    OPT_ROW(INT, half_life, "0",
            "odma: finished requests after which one of the window counts half. 0: all "
            "count the same.",
            .min = 0, .max = 1 << 20),
    OPT_ROW(BOOL, detect, "true",
            "odma: where the latest lengths differ from those before by the test of "
            "Kolmogorov and Smirnov, the window forgets those before. Not with paper."),
    OPT_ROW(BOOL, least, "false",
            "odma: bounds with which the window's requests would take least memory, in "
            "place of its quantiles."),
    OPT_ROW(INT, calibrate, "0",
            "Predictions are multiplied by the median of realised / predicted of this "
            "number of finished requests. 0: they are used as they are.",
            .min = 0, .max = 1 << 20),
    OPT_ROW(ENUM, bounds, "again",
            "odma: when bounds are learned: again and again, once, or never, so that the "
            "n_first equal parts stay.",
            .values = "again|once|never"),
    OPT_ROW(ENUM, lengths, "total",
            "odma: lengths that bounds are learned from: those of prompt and output "
            "together, which memory must hold, or of the output, as in the paper, where "
            "memory is for the prompt and the bound.",
            .values = "total|output"),
    OPT_ROW(BOOL, primed, "false",
            "odma: the window begins with the requests to learn from."),
    OPT_ROW(
        BOOL, paper, "false",
        "odma: as in the paper, a sequence that outgrows its memory moves to the large "
        "bucket, predictions above the last quantile get it, and the window forgets "
        "nothing early. Else memory doubles, and above the last quantile are buckets of "
        "twice the size each. alloc=odma_paper, large_pool_frac, lengths=output and tau "
        "below 1 are the "
        "other rules of the paper."),
    OPT_ROW(BOOL, co_batch, "true",
            "Admit the oldest request of the bucket that was admitted before; else the "
            "oldest."),
    OPT_ROW(BOOL, migrate, "true",
            "Copy a sequence that outgrows its memory; else it begins again."),
    OPT_ROW(F64, alpha, "0.5",
            "A predicted length is inflated by 1 + alpha times its uncertainty.",
            .min = 0, .max = 100),
    OPT_ROW(F64, overflow, "0",
            "Choose the smallest alpha with which at most this share of the requests "
            "outgrows the memory that it gets first, so that allocators are compared at "
            "equal overflow. 0: alpha as it is.",
            .min = 0, .max = 1),
    OPT_ROW(F64, tau, "0.8",
            "Uncertainty above which a sequence gets the longest memory.", .min = 0,
            .max = 1),
    OPT_ROW(INT, patience, "8",
            "Steps that a sequence waits for memory before the youngest is preempted.",
            .min = 0, .max = 1 << 20),
    OPT_ROW(INT, max_age, "256",
            "Steps that a request can be passed by others of the latest bucket.",
            .min = 0, .max = 1 << 30),
    OPT_ROW(STR, change, "none",
            "Other values for some of the other options, as \"option=value\" or "
            "\"option=value;option=value\", so that an axis can change a few at a time. "
            "none: no other."),
    OPT_ROW(BOOL, over_time, "true",
            "Record utilization and batches over time; a record of many cells is smaller "
            "without."),
    OPT_ROW(BOOL, over_never, "false",
            "Replay with bounds that are never learned too, for over_never."),
    OPT_ROW(BOOL, raw, "false",
            "Record each request: prediction, length, bucket and memory."),
    OPT_ROW(INT, seed, "1",
            "Seed of lengths, texts and the predictor's errors; of conversations, which "
            "part is replayed.",
            .min = 1, .max = 1 << 30),
    {0},
};

/* One "option=value" of `change`, which is n bytes. */
static int change_opt(struct opts *to, const char *change, size_t n)
{
    const char *is = memchr(change, '=', n);
    char name[64], value[256];

    if (!is || is - change >= (ptrdiff_t)sizeof(name) ||
        change + n - is > (ptrdiff_t)sizeof(value))
        return err_set(ERR_ARG, "study.change: expected option=value, found \"%.*s\"",
                       (int)n, change);
    snprintf(name, sizeof(name), "%.*s", (int)(is - change), change);
    snprintf(value, sizeof(value), "%.*s", (int)(change + n - is - 1), is + 1);
    return opt_set(study_odma_rows, to, name, value, "study.change");
}

/* The job's options with the changes that it asks for. */
int study_odma_change(struct opts *to, const struct opts *o)
{
    json_t *given;
    int rc = opt_init(study_odma_rows, to);

    if (rc != OK)
        return rc;
    given = opt_to_json(study_odma_rows, o);
    rc = given ? opt_from_json(study_odma_rows, to, given, "study") : ERR_NOMEM;
    json_decref(given);
    if (strcmp(o->change, "none") == 0)
        return rc;
    for (const char *at = o->change; rc == OK && at; at = strchr(at, ';')) {
        at += *at == ';';
        rc = change_opt(to, at, strcspn(at, ";"));
    }
    return rc;
}
