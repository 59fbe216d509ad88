#include "tests/support/fixture.h"

#include <sys/stat.h>

#include "base/json.h"
#include "experiments/record/export.h"

int fixture_cell_number(const char *key)
{
    int i = -1;

    if (sscanf(key, "rate=%d/repeat=0", &i) != 1)
        fail_msg("key %s", key);
    return i;
}

static void make_rows(struct fixture_cell *f, int i)
{
    int64_t *t = f->token_ns;

    f->cell.n_rows = (size_t)(3 + i % 5);
    for (size_t r = 0; r < f->cell.n_rows; r++) {
        struct metrics_row *row = &f->rows[r];
        int64_t start = (int64_t)(r * 1000 + (size_t)i);
        *row = (struct metrics_row){
            .request = (int64_t)r,
            .warmup = r == 0,
            .intended_ns = start,
            .dispatch_ns = start + 7,
            .first_token_ns = start + 50,
            .done_ns = start + 90,
            .n_prompt_tok = 100 + i,
            .n_output_tok = 8,
            .n_tok = (int64_t)((r + (size_t)i) % 8),
            .status = r == 1 ? METRICS_FAILED : METRICS_OK,
            .token_ns = t,
            .decode_bytes = r % 2 ? NAN : 1e9 + i,
            .prefill_flop = 1e12,
        };
        if (r == 1)
            snprintf(row->error, sizeof(row->error), "cell %d broke, \"quoted\",\nin two",
                     i);
        for (int64_t k = 0; k < row->n_tok; k++)
            *t++ = start + 50 + k * 5;
        if (row->n_tok == 0)
            row->first_token_ns = METRICS_NEVER;
    }
}

void fixture_cell_make(struct fixture_cell *f, int i)
{
    memset(f, 0, sizeof(*f));
    snprintf(f->key, sizeof(f->key), "rate=%d/repeat=0", i);
    make_rows(f, i);
    f->values[0] = (struct metrics_value){"mean_ttft_ms", "ms",       1.5 + i,  "",
                                          NULL,           i % 3 == 0, 1.25 + i, 2 + i};
    f->values[1] = (struct metrics_value){
        .name = "p99_ttft_ms", .unit = "ms", .value = NAN, .why = "n=3 < 368"};
    f->values[2] = (struct metrics_value){.name = "n_completed", .evidence = "model"};
    f->values[3] = (struct metrics_value){
        .name = "request_throughput_rps", .unit = "req/s", .value = 1e300 / 7};
    f->series[0] = (struct metrics_series){
        .name = "cdf", .unit = "ms", .v = f->series_v, .evidence = "simulated"};
    f->series[0].n = (size_t)(i % 16);
    for (size_t k = 0; k < f->series[0].n; k++)
        f->series_v[k] = k == 3 ? NAN : (double)k / 3 + i;
    f->cell.key = f->key;
    f->cell.state = i % 7 == 6 ? RECORD_FAILED : RECORD_DONE;
    f->cell.attributes =
        json_pack("{s:i s:{s:s s:[i,i]} s:b s:f}", "rate", i, "load", "process",
                  "poisson", "seeds", 1, 2, "warm", 1, "scale", 0.25);
    assert_non_null(f->cell.attributes);
    f->cell.rows = f->rows;
    f->cell.values = f->values;
    f->cell.n_values = 4;
    f->cell.series = f->series;
    f->cell.n_series = 1;
    f->cell.evidence = i % 2 ? "measured_small" : NULL; /* none in older journals */
}

void fixture_cell_free(struct fixture_cell *f)
{
    json_decref((json_t *)f->cell.attributes);
}

static void check_f64(double got, double want)
{
    if (isnan(want))
        assert_true(isnan(got));
    else
        assert_memory_equal(&got, &want, sizeof(got));
}

static void check_evidence(const char *got, const char *want)
{
    assert_string_equal(got ? got : "", want ? want : "");
}

static void check_row(const struct metrics_row *got, const struct metrics_row *want)
{
    assert_int_equal(got->request, want->request);
    assert_int_equal(got->warmup, want->warmup);
    assert_int_equal(got->intended_ns, want->intended_ns);
    assert_int_equal(got->dispatch_ns, want->dispatch_ns);
    assert_int_equal(got->first_token_ns, want->first_token_ns);
    assert_int_equal(got->done_ns, want->done_ns);
    assert_int_equal(got->n_prompt_tok, want->n_prompt_tok);
    assert_int_equal(got->n_output_tok, want->n_output_tok);
    assert_int_equal(got->n_tok, want->n_tok);
    assert_int_equal(got->status, want->status);
    assert_string_equal(got->error, want->error);
    check_f64(got->decode_bytes, want->decode_bytes);
    check_f64(got->prefill_flop, want->prefill_flop);
    if (want->n_tok > 0)
        assert_memory_equal(got->token_ns, want->token_ns,
                            (size_t)want->n_tok * sizeof(int64_t));
}

void fixture_cell_check(const struct record_cell *got, int i)
{
    struct fixture_cell f;

    fixture_cell_make(&f, i);
    assert_string_equal(got->key, f.key);
    assert_int_equal(got->state, f.cell.state);
    assert_true(json_equal(got->attributes, f.cell.attributes));
    assert_int_equal(got->n_rows, f.cell.n_rows);
    for (size_t r = 0; r < got->n_rows; r++)
        check_row(&got->rows[r], &f.rows[r]);
    assert_int_equal(got->n_values, f.cell.n_values);
    for (size_t k = 0; k < got->n_values; k++) {
        assert_string_equal(got->values[k].name, f.values[k].name);
        assert_string_equal(got->values[k].unit, f.values[k].unit);
        assert_string_equal(got->values[k].why, f.values[k].why);
        check_f64(got->values[k].value, f.values[k].value);
        check_evidence(got->values[k].evidence, f.values[k].evidence);
        assert_int_equal(got->values[k].has_interval, f.values[k].has_interval);
        check_f64(got->values[k].lo, f.values[k].has_interval ? f.values[k].lo : 0);
        check_f64(got->values[k].hi, f.values[k].has_interval ? f.values[k].hi : 0);
    }
    assert_int_equal(got->n_series, 1);
    assert_int_equal(got->series[0].n, f.series[0].n);
    for (size_t k = 0; k < got->series[0].n; k++)
        check_f64(got->series[0].v[k], f.series_v[k]);
    check_evidence(got->series[0].evidence, f.series[0].evidence);
    check_evidence(got->evidence, f.cell.evidence);
    fixture_cell_free(&f);
}

json_t *fixture_header(const char *utc)
{
    json_t *h =
        json_pack("{s:s s:s s:s s:s s:{s:i s:s} s:{s:s s:b s:s} s:{s:s} s:s s:s}",
                  "experiment", "toy", "evidence", "measured", "utc", utc, "host", "here",
                  "job", "n", 3, "adapter", "null", "provenance", "commit",
                  "0123456789abcdef", "dirty", 0, "flags", "-O2", "environment", "kernel",
                  "6.1", "hwloc_xml", "<topology/>", "claim", "none");

    assert_non_null(h);
    return h;
}

json_t *fixture_exported(const char *h5_path)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    json_t *all;

    assert_ok(export_print(h5_path, EXPORT_JSON, f));
    fclose(f);
    assert_ok(json_read_text(&all, text, n, h5_path));
    free(text);
    return all;
}

const char *fixture_dir(const char *name)
{
    static char ring[4][512];
    static int at;
    char *path = ring[at++ % 4];

    snprintf(path, sizeof(ring[0]), "%s/%s", test_dir(), name);
    return path;
}
