/* Lengths of prompts and outputs of Azure's two traces of 2023, of the published files and as drawn
 * from their fits, and how far the two distributions are apart.
 * Paper: Splitwise III-A, Fig. 3. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/home.h"
#include "base/mem.h"
#include "base/stats.h"
#include "datasets/dataset.h"
#include "experiments/frame/frame.h"
#include "experiments/study/support/options.h"

#define N_QUANTILES 200

enum { CONVERSATION, CODING };
enum { FILE_OF_TRACE, FIT };

#define OPTIONS(X)                                                                       \
    X(ENUM, trace, "conversation", "Azure's trace of 2023.",                             \
      .values = "conversation|coding")                                                   \
    X(ENUM, source, "file",                                                              \
      "file: the published trace, also below $SANDWICH_DATA. fit: drawn from the fit "   \
      "that is made of it.",                                                             \
      .values = "file|fit")                                                              \
    X(INT, n, "20000", "fit: requests to draw.", .min = 10, .max = 10000000)             \
    X(INT, seed, "1", "fit: seed of the lengths.", .min = 1, .max = 1 << 30)

#define LENGTH_RESULTS(X, what)                                                          \
    X(what##_p50_tok, "tok", 0, #what "s, median")                                       \
    X(what##_p90_tok, "tok", 0, #what "s, p90")                                          \
    X(what##_p99_tok, "tok", 0, #what "s, p99")                                          \
    X(what##_most_tok, "tok", 0, #what "s, longest")                                     \
    X(what##_mean_tok, "tok", 0, #what "s, mean")                                        \
    X(what##_ks, "", LOWER,                                                              \
      #what "s as drawn: largest distance of the distribution from the file's "          \
            "(Kolmogorov-Smirnov)")
#define RESULTS(X)                                                                       \
    LENGTH_RESULTS(X, prompt)                                                            \
    LENGTH_RESULTS(X, output)                                                            \
    X(rank_correlation, "", 0, "of prompt and output (Spearman)")                        \
    X(ks_by_chance, "", 0,                                                               \
      "distance that two samples of these sizes from one distribution exceed in 5 of "   \
      "100 cases")                                                                       \
    X(n_requests, "", 0, "requests")

FRAME_TYPES;

struct lengths {
    size_t n;
    double *prompt, *output; /* [n] */
};

struct trace_lengths {
    FRAME_CELL;
    struct lengths here, file; /* file: to compare with */
};

static const char *const paths[] = {
    [CONVERSATION] = "azure_llm_2023/AzureLLMInferenceTrace_conv.csv",
    [CODING] = "azure_llm_2023/AzureLLMInferenceTrace_code.csv"};
static const char *const fits[] = {
    [CONVERSATION] = "azure_conv", [CODING] = "azure_code"};

static int read_lengths(struct trace_lengths *c, struct lengths *l, int source)
{
    const struct opts *o = c->o;
    struct dataset *d = NULL;
    struct dataset_opts so;
    int rc = opt_init(dataset_opt_table, &so);

    if (rc == OK)
        rc = source == FILE_OF_TRACE
                 ? opt_set(dataset_opt_table, &so, "path", paths[o->trace], "study")
                 : opt_set(dataset_opt_table, &so, "fit", fits[o->trace], "study");
    so.n = source == FILE_OF_TRACE ? 0 : o->n;
    so.seed = o->seed;
    if (rc == OK)
        rc = dataset_open(&d, &so);
    opt_free(dataset_opt_table, &so);
    if (rc != OK)
        return rc;
    l->n = (size_t)d->n_items;
    l->prompt = frame_new(c->f, l->n, sizeof(*l->prompt));
    l->output = frame_new(c->f, l->n, sizeof(*l->output));
    for (size_t i = 0; i < l->n; i++) {
        l->prompt[i] = (double)d->items[i].n_prompt;
        l->output[i] = (double)d->items[i].n_output;
    }
    dataset_close(&d);
    return OK;
}

static bool is_here(int trace)
{
    char path[1024];

    home_data(path, sizeof(path), paths[trace]);
    return access(path, R_OK) == 0;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The largest distance of the two distributions; both become ascending. */
static double distance(double *a, size_t n, double *b, size_t m)
{
    double most = 0;
    size_t i = 0, k = 0;

    qsort(a, n, sizeof(*a), ascending);
    qsort(b, m, sizeof(*b), ascending);
    while (i < n && k < m) {
        double x = fmin(a[i], b[k]);

        while (i < n && a[i] == x)
            i++;
        while (k < m && b[k] == x)
            k++;
        most = fmax(most, fabs((double)i / (double)n - (double)k / (double)m));
    }
    return most;
}

static void trace_lengths_report(struct trace_lengths *c, const char *what, double *x,
                                 double *file)
{
    size_t n = c->here.n;
    double quantiles[N_QUANTILES], ks = NAN;
    const struct {
        const char *end;
        double value;
    } v[] = {{"p50_tok", stats_median(x, n)},
             {"p90_tok", stats_percentile(x, n, 0.9)},
             {"p99_tok", stats_percentile(x, n, 0.99)},
             {"most_tok", stats_max(x, n)},
             {"mean_tok", stats_mean(x, n)}};
    char name[32];

    for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++)
        frame_set(c->f, frame_named(c->f, "%s_%s", what, v[i].end), v[i].value,
                  "no request");
    for (int i = 0; i < N_QUANTILES; i++)
        quantiles[i] = stats_percentile(x, n, (i + 0.5) / N_QUANTILES);
    snprintf(name, sizeof(name), "%s_tok", what);
    study_series(c->out, name, "tok", quantiles, N_QUANTILES);
    if (file)
        ks = distance(x, n, file, c->file.n);
    frame_set(c->f, frame_named(c->f, "%s_ks", what), ks,
              "of drawn lengths, where the file is there");
}

static int trace_lengths_run(struct trace_lengths *c)
{
    double n, m;

    if (c->o->source == FILE_OF_TRACE && !is_here(c->o->trace))
        return dataset_absent(paths[c->o->trace]);
    TRY(read_lengths(c, &c->here, c->o->source));
    if (c->o->source == FIT && is_here(c->o->trace))
        TRY(read_lengths(c, &c->file, FILE_OF_TRACE));
    frame_set(c->f, &c->r->rank_correlation,
              stats_spearman(c->here.prompt, c->here.output, c->here.n), "too few");
    n = (double)c->here.n;
    m = (double)c->file.n;
    trace_lengths_report(c, "prompt", c->here.prompt, c->file.prompt);
    trace_lengths_report(c, "output", c->here.output, c->file.output);
    frame_set(c->f, &c->r->ks_by_chance, m > 0 ? 1.358 * sqrt((n + m) / (n * m)) : NAN,
              "of drawn lengths, where the file is there");
    c->r->n_requests = n;
    study_evidence(c->out, c->o->source == FILE_OF_TRACE ? "published" : "model", NULL);
    return OK;
}

STUDY(trace_lengths,
      "lengths of prompts and outputs of Azure's traces, and of their fits");
