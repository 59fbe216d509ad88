#include <dirent.h>
#include <math.h>

#include "base/stats.h"
#include "datasets/fit.h"
#include "tests/datasets/data.h"

static struct dataset *draw(const char *fit, int64_t n, int64_t seed)
{
    struct dataset_opts o = data_opts("synth", NULL);
    struct dataset *d;

    assert_ok(opt_set(dataset_opt_table, &o, "fit", fit, "test"));
    o.n = n;
    o.seed = seed;
    assert_ok(dataset_open(&d, &o));
    assert_int_equal(d->n_items, n);
    opt_free(dataset_opt_table, &o);
    return d;
}

/* Between which lengths may the sample's p-quantile lie? Those of the fit whose
 * probability is five standard errors of an order statistic away; a token more for the
 * rounding. */
static void check_quantile(const struct dataset_fit *f, const double *marginal,
                           const double *x, size_t n, double p)
{
    double se = 5 * sqrt(p * (1 - p) / (double)n) + 1.0 / (double)n;
    double low = dataset_fit_quantile(f, marginal, fmax(0, p - se)) - 1;
    double high = dataset_fit_quantile(f, marginal, fmin(1, p + se)) + 1;
    double got = stats_percentile(x, n, p);

    if (got < low || got > high)
        fail_msg("%s: quantile %g: expected [%g, %g], got %g", f->name, p, low, high,
                 got);
}

static void check_fit(const char *name)
{
    enum { N = 20000 };
    struct dataset *d = draw(name, N, (int64_t)test_seed());
    double *prompt = mem_new(MEM_TEST, N, sizeof(double));
    double *output = mem_new(MEM_TEST, N, sizeof(double));
    struct dataset_fit *f;

    assert_ok(dataset_fit_open(&f, name));
    for (int i = 0; i < N; i++) {
        prompt[i] = (double)d->items[i].n_prompt;
        output[i] = (double)d->items[i].n_output;
        assert_true(prompt[i] >= 1 && output[i] >= 1);
    }
    for (double p = 0.05; p < 0.96; p += 0.05) {
        check_quantile(f, f->prompt_tok, prompt, N, p);
        check_quantile(f, f->output_tok, output, N, p);
    }
    assert_true(fabs(stats_spearman(prompt, output, N) - f->spearman) < 5 / sqrt(N));
    if (f->rate_per_s > 0) {
        double *gap = mem_new(MEM_TEST, N, sizeof(double));

        for (int i = 1; i < N; i++)
            gap[i - 1] = d->items[i].arrival_s - d->items[i - 1].arrival_s;
        assert_true(d->items[0].arrival_s == 0);
        assert_true(fabs(stats_mean(gap, N - 1) * f->rate_per_s - 1) <
                    5 * f->gap_cv / sqrt(N));
        /* five standard errors of a gamma distribution's spread, generous where it is small */
        assert_true(fabs(stats_std(gap, N - 1) * f->rate_per_s / f->gap_cv - 1) <
                    fmax(0.1, 5 * sqrt((2 + 6 * f->gap_cv * f->gap_cv) / (4.0 * N))));
        mem_free(gap);
    } else {
        assert_true(isnan(d->items[0].arrival_s));
    }
    dataset_fit_close(&f);
    mem_free(prompt);
    mem_free(output);
    dataset_close(&d);
}

TEST(every_shipped_fit)
{
    DIR *dir = opendir(DATASET_FITS_DIR);
    struct dirent *e;
    int n = 0;

    assert_non_null(dir);
    while ((e = readdir(dir))) {
        char name[300];
        char *dot = strstr(strcpy(name, e->d_name), ".json");

        if (!dot)
            continue;
        *dot = '\0';
        check_fit(name);
        n++;
    }
    closedir(dir);
    assert_true(n >= 6);
}

TEST(strong_correlation)
{
    static const double rhos[] = {-1, -0.8, 0, 0.5, 0.95, 1};

    for (size_t i = 0; i < sizeof(rhos) / sizeof(rhos[0]); i++) {
        enum { N = 4000 };
        double x[N], y[N];
        char text[256], path[512];
        struct dataset *d;

        snprintf(text, sizeof(text),
                 "{\"name\":\"t\",\"quantile_at\":[0,1],\"prompt_tok\":[1,1000000],"
                 "\"output_tok\":[1,1000000],\"spearman\":%g}",
                 rhos[i]);
        snprintf(path, sizeof(path), "%s/t.json", test_dir());
        test_write(path, text, strlen(text));
        d = draw(path, N, 7);
        for (int k = 0; k < N; k++) {
            x[k] = (double)d->items[k].n_prompt;
            y[k] = (double)d->items[k].n_output;
        }
        assert_true(fabs(stats_spearman(x, y, N) - rhos[i]) < 5 / sqrt(N));
        dataset_close(&d);
    }
}

TEST(seeds)
{
    struct dataset *a = draw("azure_conv", 200, 1), *b = draw("azure_conv", 200, 1);
    struct dataset *c = draw("azure_conv", 200, 2);
    int differ = 0;

    for (int i = 0; i < 200; i++) {
        assert_int_equal(a->items[i].n_prompt, b->items[i].n_prompt);
        assert_int_equal(a->items[i].n_output, b->items[i].n_output);
        assert_true(a->items[i].arrival_s == b->items[i].arrival_s);
        differ += a->items[i].n_prompt != c->items[i].n_prompt;
    }
    assert_true(differ > 150);
    dataset_close(&a);
    dataset_close(&b);
    dataset_close(&c);
}

#define Q "\"quantile_at\":[0,0.5,1],"
#define P "\"prompt_tok\":[1,2,3],"
#define O "\"output_tok\":[1,2,3],"

TEST(refused)
{
    static const struct {
        const char *text;
        int code;
        const char *message;
    } bad[] = {
        {"", ERR_FORMAT, "t.json"},
        {"{}", ERR_FORMAT, "name"},
        {"{\"name\":\"t\"}", ERR_FORMAT, "quantile_at"},
        {"{\"name\":\"t\",\"quantile_at\":[0]," P O "\"spearman\":0}", ERR_FORMAT,
         "quantile_at: expected 2 to 128 numbers, found 1"},
        {"{\"name\":\"t\",\"quantile_at\":[0,0.5,0.9]," P O "\"spearman\":0}", ERR_FORMAT,
         "expected 0 first and 1 last"},
        {"{\"name\":\"t\",\"quantile_at\":[0,0,1]," P O "\"spearman\":0}", ERR_FORMAT,
         "quantile_at[1]: expected more than 0"},
        {"{\"name\":\"t\",\"quantile_at\":[0,\"x\",1]," P O "\"spearman\":0}", ERR_FORMAT,
         "quantile_at[1]: expected a number"},
        {"{\"name\":\"t\"," Q "\"prompt_tok\":[1,3,2]," O "\"spearman\":0}", ERR_FORMAT,
         "prompt_tok[2]"},
        {"{\"name\":\"t\"," Q "\"prompt_tok\":[0,3,4]," O "\"spearman\":0}", ERR_FORMAT,
         "prompt_tok[0]: expected a number in [1, "},
        {"{\"name\":\"t\"," Q "\"prompt_tok\":[1,4]," O "\"spearman\":0}", ERR_FORMAT,
         "found 2 and 3"},
        {"{\"name\":\"t\"," Q P O "\"spearman\":1.5}", ERR_FORMAT, "found 1.5"},
        {"{\"name\":\"t\"," Q P O "\"spearman\":0,\"arrival\":{\"rate_per_s\":0,"
         "\"gap_cv\":1}}",
         ERR_FORMAT, "arrival: expected rate_per_s > 0"},
    };
    struct dataset_fit *f;
    char path[512];

    snprintf(path, sizeof(path), "%s/t.json", test_dir());
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        test_write(path, bad[i].text, strlen(bad[i].text));
        assert_err(dataset_fit_open(&f, path), bad[i].code, bad[i].message);
        assert_null(f);
    }
    assert_err(dataset_fit_open(&f, "sharegtp"), ERR_NOTFOUND,
               "did you mean \"sharegpt\"");
    assert_err(dataset_fit_open(&f, "none/x.json"), ERR_NOTFOUND, "none/x.json");
}
