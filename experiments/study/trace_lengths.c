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
#include "experiments/study/support/rows.h"

#define N_QUANTILES 200

enum { CONVERSATION, CODING };
enum { PUBLISHED, FIT };
struct opts {
    int trace, source;
    int64_t n, seed;
};

static const struct opt_row table[] = {
    OPT_ROW(ENUM, trace, "conversation", "Azure's trace of 2023.",
            .values = "conversation|coding"),
    OPT_ROW(
        ENUM, source, "file",
        "file: the published trace, also below $SANDWICH_DATA. fit: drawn from the fit "
        "that is made of it.",
        .values = "file|fit"),
    OPT_ROW(INT, n, "20000", "fit: requests to draw.", .min = 10, .max = 10000000),
    OPT_ROW(INT, seed, "1", "fit: seed of the lengths.", .min = 1, .max = 1 << 30),
    {0},
};

#define LENGTHS(what)                                                                    \
    {what "_p50_tok", "tok", "", what "s, median"},                                      \
        {what "_p90_tok", "tok", "", what "s, p90"},                                     \
        {what "_p99_tok", "tok", "", what "s, p99"},                                     \
        {what "_most_tok", "tok", "", what "s, longest"},                                \
        {what "_mean_tok", "tok", "", what "s, mean"},                                   \
    {                                                                                    \
        what "_ks", "", "lower",                                                         \
            what "s as drawn: largest distance of the distribution from the file's "     \
                 "(Kolmogorov-Smirnov)"                                                  \
    }
static const struct study_metric metrics[] = {
    LENGTHS("prompt"),
    LENGTHS("output"),
    {"rank_correlation", "", "", "of prompt and output (Spearman)"},
    {"ks_by_chance", "", "",
     "distance that two samples of these sizes from one distribution exceed in 5 of 100 "
     "cases"},
    {"n_requests", "", "", "requests"},
    {0},
};

struct lengths {
    size_t n;
    double *prompt, *output; /* [n] */
};

struct cell {
    const struct opts *o;
    struct study_cell *out;
    struct lengths here, file; /* file: to compare with */
};

static const char *const paths[] = {
    [CONVERSATION] = "azure_llm_2023/AzureLLMInferenceTrace_conv.csv",
    [CODING] = "azure_llm_2023/AzureLLMInferenceTrace_code.csv"};
static const char *const fits[] = {
    [CONVERSATION] = "azure_conv", [CODING] = "azure_code"};

static int read_lengths(struct lengths *l, const struct opts *o, int source)
{
    struct dataset *d = NULL;
    struct dataset_opts so;
    int rc = opt_init(dataset_opt_table, &so);

    if (rc == OK)
        rc = source == PUBLISHED
                 ? opt_set(dataset_opt_table, &so, "path", paths[o->trace], "study")
                 : opt_set(dataset_opt_table, &so, "fit", fits[o->trace], "study");
    so.n = source == PUBLISHED ? 0 : o->n;
    so.seed = o->seed;
    if (rc == OK)
        rc = dataset_open(&d, &so);
    opt_free(dataset_opt_table, &so);
    if (rc != OK)
        return rc;
    l->n = (size_t)d->n_items;
    l->prompt = mem_new(MEM_OTHER, l->n, sizeof(*l->prompt));
    l->output = mem_new(MEM_OTHER, l->n, sizeof(*l->output));
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

static void report(struct cell *c, const char *what, double *x, double *file)
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

    for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++) {
        snprintf(name, sizeof(name), "%s_%s", what, v[i].end);
        study_value(c->out, name, v[i].value, "no request");
    }
    for (int i = 0; i < N_QUANTILES; i++)
        quantiles[i] = stats_percentile(x, n, (i + 0.5) / N_QUANTILES);
    snprintf(name, sizeof(name), "%s_tok", what);
    study_series(c->out, name, "tok", quantiles, N_QUANTILES);
    if (file)
        ks = distance(x, n, file, c->file.n);
    snprintf(name, sizeof(name), "%s_ks", what);
    study_value(c->out, name, ks, "of drawn lengths, where the file is there");
}

static int run(struct cell *c)
{
    double n, m;

    if (c->o->source == PUBLISHED && !is_here(c->o->trace))
        return err_set(ERR_NOTFOUND,
                       "%s is neither here nor below $SANDWICH_DATA (datasets/data.md "
                       "says where to get it)",
                       paths[c->o->trace]);
    TRY(read_lengths(&c->here, c->o, c->o->source));
    if (c->o->source == FIT && is_here(c->o->trace))
        TRY(read_lengths(&c->file, c->o, PUBLISHED));
    study_value(c->out, "rank_correlation",
                stats_spearman(c->here.prompt, c->here.output, c->here.n), "too few");
    n = (double)c->here.n;
    m = (double)c->file.n;
    report(c, "prompt", c->here.prompt, c->file.prompt);
    report(c, "output", c->here.output, c->file.output);
    study_value(c->out, "ks_by_chance", m > 0 ? 1.358 * sqrt((n + m) / (n * m)) : NAN,
                "of drawn lengths, where the file is there");
    study_value(c->out, "n_requests", n, NULL);
    study_evidence(c->out, c->o->source == PUBLISHED ? "published" : "model", NULL);
    return OK;
}

static void end(struct cell *c)
{
    mem_free(c->here.prompt);
    mem_free(c->here.output);
    mem_free(c->file.prompt);
    mem_free(c->file.output);
}

STUDY(trace_lengths,
      "lengths of prompts and outputs of Azure's traces, and of their fits");
