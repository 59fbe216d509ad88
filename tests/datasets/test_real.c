/* The real files, where they are: the readers read them, and the shipped fits are what
 * the files say. Fits are golden: UPDATE=1 is not offered, because a fit that no longer
 * follows from its file is a finding. */
#include <math.h>

#include "base/json.h"
#include "base/stats.h"
#include "datasets/fit.h"
#include "tests/datasets/data.h"

static struct dataset *open_all(const char *reader, const char *path)
{
    struct dataset_opts o = data_opts(reader, path);
    struct dataset *d;

    assert_ok(dataset_open(&d, &o));
    opt_free(dataset_opt_table, &o);
    return d;
}

static void check_marginal(const struct dataset_fit *f, const double *marginal,
                           const double *x, size_t n)
{
    for (int i = 0; i < f->n_points; i++) {
        double got = f->at[i] > 0 ? stats_percentile(x, n, f->at[i]) : stats_min(x, n);

        if (got != marginal[i])
            fail_msg("%s: quantile %g: the fit says %g, the file %g", f->name, f->at[i],
                     marginal[i], got);
    }
}

static void check_against(const char *reader, const char *file, const char *fit)
{
    const char *path = test_need_data(file);
    struct dataset_fit *f;
    struct dataset *d;
    double *prompt, *output;
    size_t n;

    d = open_all(reader, path);
    n = (size_t)d->n_items;
    prompt = mem_new(MEM_TEST, n, sizeof(double));
    output = mem_new(MEM_TEST, n, sizeof(double));
    for (size_t i = 0; i < n; i++) {
        prompt[i] = (double)d->items[i].n_prompt;
        output[i] = (double)d->items[i].n_output;
    }
    assert_ok(dataset_fit_open(&f, fit));
    check_marginal(f, f->prompt_tok, prompt, n);
    check_marginal(f, f->output_tok, output, n);
    assert_true(fabs(stats_spearman(prompt, output, n) - f->spearman) < 1e-4);
    if (f->rate_per_s > 0) {
        double span = d->items[n - 1].arrival_s;

        assert_true(fabs((double)(n - 1) / span - f->rate_per_s) < 1e-4);
        for (size_t i = 1; i < n; i++)
            prompt[i - 1] = d->items[i].arrival_s - d->items[i - 1].arrival_s;
        assert_true(fabs(stats_std(prompt, n - 1) * f->rate_per_s - f->gap_cv) < 1e-3);
    }
    dataset_fit_close(&f);
    mem_free(prompt);
    mem_free(output);
    dataset_close(&d);
}

TEST(azure_conv)
{
    check_against("azure", "azure_llm_2023/AzureLLMInferenceTrace_conv.csv",
                  "azure_conv");
}

TEST(azure_code)
{
    check_against("azure", "azure_llm_2023/AzureLLMInferenceTrace_code.csv",
                  "azure_code");
}

TEST(sharegpt_8k)
{
    check_against("lengths_csv", "token_lengths/sharegpt_8k_llama2.csv", "sharegpt_8k");
}

TEST(arxiv)
{
    check_against("lengths_csv", "token_lengths/arxiv_summarization_llama2.csv", "arxiv");
}

TEST(sharegpt_conversations)
{
    struct dataset *d =
        open_all("auto", test_need_data("sharegpt/sharegpt_v3_sample_dev.json.gz"));

    assert_string_equal(d->name, "sharegpt");
    assert_int_equal(d->n_items + d->n_skipped, 675);
    assert_true(d->n_items > 600);
    for (int64_t i = 0; i < d->n_items; i++) {
        assert_true(d->items[i].text_bytes > 0 && d->items[i].reply_bytes > 0);
        assert_null(memchr(d->items[i].text, '\0', d->items[i].text_bytes));
    }
    dataset_close(&d);
}

TEST(alpaca)
{
    struct dataset *d = open_all("auto", test_need_data("alpaca/alpaca_sample_dev.json"));

    assert_string_equal(d->name, "alpaca");
    assert_int_equal(d->n_items + d->n_skipped, 1324);
    assert_true(d->n_items > 1300);
    dataset_close(&d);
}

TEST(nq)
{
    struct dataset *d =
        open_all("auto", test_need_data("natural_questions/NQ-open.dev.jsonl"));

    assert_string_equal(d->name, "nq");
    assert_int_equal(d->n_items, 3610);
    dataset_close(&d);
}

TEST(mooncake)
{
    struct dataset *d =
        open_all("auto", test_need_data("mooncake/conversation_trace.jsonl.gz"));
    int64_t n_shared = 0;

    assert_string_equal(d->name, "mooncake");
    assert_int_equal(d->n_items + d->n_skipped, 12031);
    for (int64_t i = 0; i < d->n_items; i++) {
        assert_int_equal(d->items[i].n_blocks, (d->items[i].n_prompt + 511) / 512);
        n_shared += d->items[i].block_ids[0] == d->items[0].block_ids[0];
    }
    assert_true(n_shared > 1); /* prompts that begin alike */
    assert_true(d->items[d->n_items - 1].arrival_s > 3000);
    dataset_close(&d);
}

static void check_sum(const char *path, const char *want)
{
    char command[1200], got[65] = "";
    FILE *p;

    snprintf(command, sizeof(command), "sha256sum '%s'", path);
    p = popen(command, "r");
    assert_non_null(p);
    assert_int_equal(fread(got, 1, 64, p), 64);
    pclose(p);
    if (strcmp(got, want) != 0)
        fail_msg("%s: the manifest says %s, the file has %s", path, want, got);
}

/* Each entry is complete and names a reader; the files that are here have its checksum.
 */
TEST(manifest)
{
    const json_t *list;
    json_t *j, *e;
    int n_here = 0;
    size_t i;

    assert_ok(json_read_file(&j, "datasets/manifest.json", 1 << 20));
    assert_ok(json_get_arr(j, "datasets", &list, "manifest"));
    json_array_foreach((json_t *)list, i, e)
    {
        const char *reader, *text, *file = json_string_value(json_object_get(e, "file"));
        int k = 0;

        assert_ok(json_get_str(e, "licence", &text, "manifest"));
        assert_ok(json_get_str(e, "get", &text, "manifest"));
        if (!json_is_null(json_object_get(e, "reader"))) { /* of requests */
            assert_ok(json_get_str(e, "reader", &reader, "manifest"));
            while (dataset_readers[k] && strcmp(dataset_readers[k]->name, reader) != 0)
                k++;
            assert_non_null(dataset_readers[k]);
        }
        if (!file)
            continue;
        assert_ok(json_get_str(e, "sha256", &text, "manifest"));
        assert_int_equal(strspn(text, "0123456789abcdef"), 64);
        if (test_data(file)) {
            check_sum(test_data(file), text);
            n_here++;
        }
    }
    json_decref(j);
    if (n_here == 0)
        test_need_data("datasets of datasets/manifest.json");
}
