#include "experiments/harness/export_forms.h"

#include "base/json.h"
#include "base/mem.h"

/* vLLM's benchmark key and the metric of ours that is the same number. Its TTFT counts
 * from the send, ours from the intended start: with a punctual sender they agree. */
static const struct {
    const char *key, *metric;
} names[] = {
    {"duration", "duration_s"},
    {"completed", "n_completed"},
    {"total_input_tokens", "input_tok"},
    {"total_output_tokens", "output_tok"},
    {"request_throughput", "request_throughput_rps"},
    {"request_goodput", "request_goodput_rps"},
    {"output_throughput", "output_throughput_tok_s"},
    {"total_token_throughput", "total_throughput_tok_s"},
};
static const struct {
    const char *prefix, *metric;
} statistics[] = {
    {"mean", "mean"}, {"median", "p50"}, {"std", "std"},
    {"p90", "p90"},   {"p95", "p95"},    {"p99", "p99"},
};
static const struct {
    const char *key, *metric;
} latencies[] = {
    {"ttft_ms", "ttft_ms"},
    {"tpot_ms", "tpot_ms"},
    {"itl_ms", "itl_ms"},
    {"e2el_ms", "e2e_ms"},
};
#define N(a) (sizeof(a) / sizeof((a)[0]))

static int no_memory(void)
{
    return err_set(ERR_NOMEM, "out of memory exporting");
}

/* Copy the metric's value (null: NaN or absent) under another name. */
static int put(json_t *out, const json_t *summary, const char *key, const char *metric)
{
    json_t *v = json_object_get(json_object_get(summary, metric), "value");

    return json_object_set_new(out, key, v ? json_incref(v) : json_null()) == 0
               ? OK
               : no_memory();
}

static int put_latencies(json_t *out, const json_t *summary)
{
    int rc = OK;

    for (size_t l = 0; l < N(latencies); l++)
        for (size_t s = 0; rc == OK && s < N(statistics); s++) {
            char key[64], metric[64];
            snprintf(key, sizeof(key), "%s_%s", statistics[s].prefix, latencies[l].key);
            snprintf(metric, sizeof(metric), "%s_%s", statistics[s].metric,
                     latencies[l].metric);
            rc = put(out, summary, key, metric);
        }
    return rc;
}

static int convert(const json_t *cell, json_t **out)
{
    json_t *attributes = json_object_get(cell, "attributes");
    json_t *summary = json_object_get(cell, "summary");
    int rc = OK;

    *out = json_pack("{s:O s:O s:O}", "cell", json_object_get(attributes, "key"),
                     "attributes", attributes, "summary", summary);
    if (!*out)
        return no_memory();
    for (size_t i = 0; rc == OK && i < N(names); i++)
        rc = put(*out, summary, names[i].key, names[i].metric);
    if (rc == OK)
        rc = put_latencies(*out, summary);
    if (rc != OK) {
        json_decref(*out);
        *out = NULL;
    }
    return rc;
}

static int convert_all(const json_t *cells, json_t **out)
{
    size_t i;
    json_t *cell, *one;

    *out = json_array();
    if (!*out)
        return no_memory();
    json_array_foreach(cells, i, cell)
    {
        int rc = convert(cell, &one);
        if (rc == OK && json_array_append_new(*out, one) != 0)
            rc = no_memory();
        if (rc != OK) {
            json_decref(*out);
            *out = NULL;
            return rc;
        }
    }
    return OK;
}

static int print(const json_t *doc, FILE *f)
{
    char *text = json_text(doc, JSON_INDENT(2) | JSON_SORT_KEYS);

    if (!text)
        return ERR_NOMEM;
    fprintf(f, "%s\n", text);
    mem_free(text);
    return OK;
}

int export_json(const struct export_result *r, FILE *f)
{
    json_t *root = NULL, *headline = NULL, *cells = NULL, *list = NULL, *doc = NULL;
    int rc = export_root(r, &root, &headline);

    if (rc == OK)
        rc = export_cells(r, &cells);
    if (rc == OK)
        rc = convert_all(cells, &list);
    if (rc == OK) {
        doc =
            json_pack("{s:O s:O s:O}", "run", root, "headline", headline, "cells", list);
        rc = doc ? print(doc, f) : no_memory();
    }
    json_decref(doc);
    json_decref(list);
    json_decref(cells);
    json_decref(headline);
    json_decref(root);
    return rc;
}
