/* What cannot be true in a record is found: each rule by numbers that only it refuses, the chain by
 * bytes that were changed afterwards. Regression: a record said 704 GB/s of a socket of 461. */
#include "tests/support/fixture.h"

#include <hdf5.h>
#include <unistd.h>

#include "base/json.h"
#include "experiments/record/head.h"
#include "experiments/record/verify.h"

#define ROWS 12
#define TOK  5
#define MS   INT64_C(1000000)

/* A cell of requests one after the other, as a run makes it, and then with one number changed. */
struct toy {
    struct record_cell cell;
    struct metrics_row rows[ROWS];
    int64_t token_ns[ROWS * TOK];
    struct metrics m;
    struct metrics_series series[METRICS_MAX_SERIES + 1];
    double one[1];
    json_t *attributes;
    struct record_headline headline;
};

static void make(struct toy *t)
{
    static const double scale[] = {0.5, 1, 2};
    static const double energy_s[] = {-1, 0.1, 9}, joules[] = {0, 7, 50};
    struct metrics_input in = {.rows = t->rows,
                               .n_rows = ROWS,
                               .slo = {20, 3, scale, 3},
                               .read_gbps = 40,
                               .peak_gflops = 200,
                               .read_why = "",
                               .peak_why = "",
                               .energy_s = energy_s,
                               .energy_joules = joules,
                               .n_energy = 3};

    memset(t, 0, sizeof(*t));
    for (int i = 0; i < ROWS; i++) {
        struct metrics_row *r = &t->rows[i];
        const int64_t start = i * 40 * MS;

        *r = (struct metrics_row){.request = i,
                                  .warmup = i == 0,
                                  .intended_ns = start,
                                  .dispatch_ns = start + 1000,
                                  .first_token_ns = start + 10 * MS,
                                  .done_ns = start + 20 * MS,
                                  .n_prompt_tok = 16,
                                  .n_output_tok = TOK,
                                  .n_tok = TOK,
                                  .token_ns = t->token_ns + i * TOK,
                                  .decode_bytes = 4 * 50e6,
                                  .prefill_flop = 1e9};
        for (int k = 0; k < TOK; k++)
            t->token_ns[i * TOK + k] = r->first_token_ns + (k * 2 + i % 3) * MS;
        r->first_token_ns = r->token_ns[0];
    }
    metrics_compute(&t->m, &in);
    memcpy(t->series, t->m.series, sizeof(t->m.series));
    t->attributes =
        json_pack("{s:{s:s s:i} s:{s:f s:f} s:{s:f s:f s:{s:f}} s:{s:i}}", "load",
                  "process", "closed", "concurrency", 1, "slo", "ttft_ms", 20.0,
                  "tpot_ms", 3.0, "bound", "read_gbps", 40.0, "peak_gflops", 200.0,
                  "before", "read_gbps", 41.0, "described", "decode_threads", 2);
    t->headline = (struct record_headline){
        .name = "ttft", .unit = "ms", .better = "lower", .value = 12.5};
    t->cell = (struct record_cell){.key = "only",
                                   .state = RECORD_DONE,
                                   .attributes = t->attributes,
                                   .rows = t->rows,
                                   .n_rows = ROWS,
                                   .values = t->m.values,
                                   .n_values = t->m.n_values,
                                   .series = t->series,
                                   .n_series = t->m.n_series,
                                   .evidence = "measured"};
}

/* The record of it. Lent, until the next one. */
static const char *record_of(struct toy *t)
{
    static char kept[600];
    static int number;
    json_t *header = fixture_header("2026-01-31T23:59:59Z");
    struct journal *j;
    char name[32], *path;

    snprintf(name, sizeof(name), "toy%d", number++);
    json_object_set_new(header, "n_cpus", json_integer(2));
    json_object_set_new(
        header, "hwloc_xml",
        json_string("<object type=\"L3Cache\" cache_size=\"1000000\" depth=\"3\">"));
    json_object_set_new(
        header, "machine_card",
        json_pack("{s:[{s:i s:f}]}", "none", "threads", 2, "read_gbps", 40.0));
    assert_ok(journal_open(&j, fixture_dir(name), "toy", header, false));
    assert_ok(journal_cell(j, &t->cell));
    assert_ok(record_finish(&j, &t->headline, 1, false, &path));
    snprintf(kept, sizeof(kept), "%s", path);
    mem_free(path);
    json_decref(header);
    return kept;
}

static void unmake(struct toy *t)
{
    metrics_fini(&t->m);
    json_decref(t->attributes);
}

/* Does it have a fault at this place, in a line that names the file? */
static bool has_fault(const char *path, const char *place)
{
    json_t *found, *line;
    char start[700];
    bool has = false;
    size_t i;

    assert_ok(export_verify(&found, path));
    snprintf(start, sizeof(start), "%s: %s", path, place);
    json_array_foreach(json_object_get(found, "faults"), i, line)
    {
        const char *s = json_string_value(line);

        assert_null(strchr(s, '\n'));
        has = has || (strncmp(s, start, strlen(start)) == 0 && strstr(s, "expected") &&
                      strstr(s, "found"));
    }
    if (!has)
        json_array_foreach(json_object_get(found, "faults"), i, line)
            printf("# %s\n", json_string_value(line));
    json_decref(found);
    return has;
}

static size_t n_faults(const char *path)
{
    json_t *found, *line;
    size_t n, i;

    assert_ok(export_verify(&found, path));
    assert_true(json_is_true(json_object_get(found, "chained")));
    json_array_foreach(json_object_get(found, "faults"), i, line)
        printf("# %s\n", json_string_value(line));
    n = json_array_size(json_object_get(found, "faults"));
    json_decref(found);
    return n;
}

static struct metrics_value *value(struct toy *t, const char *name)
{
    return (struct metrics_value *)metrics_find(&t->m, name);
}

static void set(struct toy *t, const char *section, const char *key, double x)
{
    json_object_set_new(json_object_get(t->attributes, section), key, json_real(x));
}

static void add_series(struct toy *t, const char *name, double x)
{
    struct metrics_series *s = &t->series[t->cell.n_series++];

    t->one[0] = x;
    *s = (struct metrics_series){.v = t->one, .n = 1};
    snprintf(s->name, sizeof(s->name), "%s", name);
}

#define CHANGE(name, at, change)                                                         \
    static void name(struct toy *t)                                                      \
    {                                                                                    \
        change;                                                                          \
    }
#define CELL "/cells/0000/"
#define FALSE_NUMBERS                                                                    \
    X(share_of_bandwidth, "summary/decode_bandwidth_frac",                               \
      value(t, "decode_bandwidth_frac")->value = 1.5)                                    \
    X(share_of_peak, "summary/prefill_peak_frac",                                        \
      value(t, "prefill_peak_frac")->value = 7)                                          \
    X(share_in_series, "series/roof_frac[0]", add_series(t, "roof_frac", 3))             \
    X(attainment, "summary/slo_attainment_frac",                                         \
      value(t, "slo_attainment_frac")->value = 1.25)                                     \
    X(errors, "summary/error_frac", value(t, "error_frac")->value = -0.5)                \
    X(bandwidth, "summary/decode_read_gbps", value(t, "decode_read_gbps")->value = 704)  \
    X(socket, "attributes_json/bound.read_gbps", set(t, "bound", "read_gbps", 704))      \
    X(peak, "summary/prefill_gflops", value(t, "prefill_gflops")->value = 1e6)           \
    X(token_gap, "requests/decode_bytes[5]", t->rows[5].decode_bytes = 4e9)              \
    X(prompt_time, "requests/prefill_flop[5]", t->rows[5].prefill_flop = 1e13)           \
    X(negative_bytes, "requests/decode_bytes[2]", t->rows[2].decode_bytes = -1)          \
    X(negative_flop, "requests/prefill_flop[2]", t->rows[2].prefill_flop = -1)           \
    X(before_start, "requests/intended_ns[0]", t->rows[0].intended_ns = -5)              \
    X(sent_early, "requests/dispatch_ns[3]",                                             \
      t->rows[3].dispatch_ns = t->rows[3].intended_ns - 1)                               \
    X(sent_late, "requests/dispatch_ns[3]",                                              \
      t->rows[3].dispatch_ns = t->rows[3].first_token_ns + 1)                            \
    X(other_first, "requests/first_token_ns[3]", t->rows[3].first_token_ns += 1)         \
    X(token_order, "tokens/time_ns[", t->token_ns[3 * TOK + 2] -= 9 * MS)                \
    X(ended_early, "requests/done_ns[3]", t->rows[3].done_ns = t->token_ns[3 * TOK] + 1) \
    X(ended_first, "requests/done_ns[3]",                                                \
      t->rows[3].done_ns = t->rows[3].intended_ns - 1)                                   \
    X(sent_rejected, "requests/status[4]", t->rows[4].status = METRICS_REJECTED)         \
    X(no_prompt, "requests/n_prompt_tok[4]", t->rows[4].n_prompt_tok = 0)                \
    X(more_tokens, "requests/n_output_tok[4]", t->rows[4].n_output_tok = TOK - 1)        \
    X(fewer_tokens, "requests/n_output_tok[4]", t->rows[4].n_output_tok = TOK + 1)       \
    X(no_reason, "requests/error[4]", t->rows[4].status = METRICS_FAILED)                \
    X(twice, "requests/request[4]", t->rows[4].request = 3)                              \
    X(crowd, "requests: expected at most 1", t->rows[4].done_ns = t->rows[5].done_ns)    \
    X(littles_law, "summary/n_requests", value(t, "n_requests")->value += 1)             \
    X(duration, "summary/duration_s", value(t, "duration_s")->value *= 2)                \
    X(concurrency, "summary/little_l", value(t, "little_l")->value *= 1.001)             \
    X(median, "summary/p50_ttft_ms", value(t, "p50_ttft_ms")->value *= 0.9)              \
    X(percentile_order, "summary/p90_itl_ms: expected at least",                         \
      value(t, "p90_itl_ms")->value = 0.001)                                             \
    X(throughput, "summary/output_throughput_tok_s",                                     \
      value(t, "output_throughput_tok_s")->value *= 1.05)                                \
    X(tokens, "summary/output_tok", value(t, "output_tok")->value += 1)                  \
    X(energy, "summary/decode_joules_per_tok",                                           \
      value(t, "decode_joules_per_tok")->value *= 2)                                     \
    X(energy_readings, "summary/joules_per_tok", t->series[3].v[1] += 1)                 \
    X(attainment_by_scale, "series/slo_attainment_frac[1]", t->series[1].v[1] = 0.25)    \
    X(unit, "summary/mean_ttft_ms", strcpy(value(t, "mean_ttft_ms")->unit, "s"))         \
    X(interval, "summary/mean_e2e_ms", value(t, "mean_e2e_ms")->has_interval = true;     \
      value(t, "mean_e2e_ms")->lo = 1; value(t, "mean_e2e_ms")->hi = 2)                  \
    X(hidden, "summary/mean_itl_ms", value(t, "mean_itl_ms")->value = NAN;               \
      strcpy(value(t, "mean_itl_ms")->why, "secret"))                                    \
    X(failed_with_numbers, "attributes_json/state", t->cell.state = RECORD_FAILED)
#define X(name, at, ...) CHANGE(name, at, __VA_ARGS__)
FALSE_NUMBERS
#undef X
static const struct {
    const char *name, *at;
    void (*tell)(struct toy *t);
} changes[] = {
#define X(name, at, ...) {#name, at, name},
    FALSE_NUMBERS
#undef X
};

TEST(true_numbers_pass)
{
    struct toy t;

    make(&t);
    assert_int_equal(n_faults(record_of(&t)), 0);
    unmake(&t);
}

TEST(false_numbers_are_found)
{
    const size_t n = sizeof(changes) / sizeof(changes[0]);

    assert_true(n >= 30);
    for (size_t i = 0; i < n; i++) {
        struct toy t;
        char place[96];

        make(&t);
        changes[i].tell(&t);
        snprintf(place, sizeof(place), CELL "%s", changes[i].at);
        if (!has_fault(record_of(&t), place))
            fail_msg("%s: no fault at %s", changes[i].name, place);
        unmake(&t);
    }
}

TEST(false_headlines_are_found)
{
    struct toy t;

    make(&t);
    t.headline = (struct record_headline){
        .name = "roof_frac", .unit = "", .better = "higher", .value = 3};
    assert_true(has_fault(record_of(&t), "/headline/roof_frac"));
    t.headline = (struct record_headline){.name = "x",
                                          .unit = "ms",
                                          .better = "lower",
                                          .value = 3,
                                          .has_interval = true,
                                          .lo = 4,
                                          .hi = 5};
    assert_true(has_fault(record_of(&t), "/headline/x"));
    unmake(&t);
}

/* Add 1 to the first element, and to the file what HDF5 does when it is opened to write. */
static void change(const char *path, const char *name, bool is_text)
{
    hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT), set, type;
    size_t width;
    char *bytes;

    set = H5Dopen2(file, name, H5P_DEFAULT);
    assert_true(set >= 0);
    type = H5Dget_type(set);
    width = H5Tget_size(type);
    bytes =
        mem_new(MEM_TEST, (size_t)H5Sget_simple_extent_npoints(H5Dget_space(set)), width);
    assert_true(H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes) >= 0);
    if (is_text)
        *strstr(bytes, "closed") = 'C';
    else
        bytes[0]++;
    assert_true(H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes) >= 0);
    mem_free(bytes);
    H5Tclose(type);
    H5Dclose(set);
    H5Fclose(file);
}

/* Also of numbers that no rule knows. */
TEST(changed_bytes_are_found)
{
    static const struct {
        const char *name, *at;
        bool is_text;
    } parts[] = {
        {CELL "attributes_json", CELL "attributes_json: expected the hash", true},
        {CELL "requests/n_prompt_tok", CELL "requests: expected the hash", false},
        {CELL "tokens/time_ns", CELL "tokens: expected the hash", false},
        {CELL "summary/max_timer_error_us", CELL "summary: expected the hash", false},
        {CELL "series/free", CELL "series: expected the hash", false},
        {"/headline/ttft", "/headline: expected the hash", false},
        {"/hwloc_xml", "/: expected the hash", false},
    };

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        const char *path;
        struct toy t;

        make(&t);
        add_series(&t, "free", 5);
        path = record_of(&t);
        assert_int_equal(n_faults(path), 0);
        change(path, parts[i].name, parts[i].is_text);
        if (!has_fault(path, parts[i].at))
            fail_msg("%s: no fault", parts[i].name);
        unmake(&t);
    }
}

/* A link that is missing, and one that was copied from elsewhere. */
TEST(links_are_checked)
{
    struct toy t;
    const char *path;
    hid_t file;

    make(&t);
    path = record_of(&t);
    file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
    assert_true(H5Adelete_by_name(file, CELL "summary", "sha256", H5P_DEFAULT) >= 0);
    H5Fclose(file);
    assert_true(has_fault(path, CELL "summary: expected the hash"));
    unmake(&t);
}

/* No number of a record with a fault, or with another head, is used. */
TEST(heads_are_refused)
{
    json_t *head, *number;
    const char *path;
    char of[620];
    struct toy t;

    make(&t);
    path = record_of(&t);
    assert_ok(export_head(&head, path));
    assert_null(json_object_get(head, "fault"));
    snprintf(of, sizeof(of), "%.*s.json", (int)strlen(path) - 3, path);
    number = json_object_get(json_object_get(head, "headline"), "ttft");
    assert_true(json_f64_at(number, "value") == 12.5);
    json_object_set_new(number, "value", json_real(9));
    assert_ok(json_write_file(head, of));
    json_decref(head);
    assert_ok(export_head(&head, path));
    assert_non_null(strstr(json_str_at(head, "fault", ""), "its head says 9 of ttft"));
    json_decref(head);
    unmake(&t);

    make(&t);
    value(&t, "little_l")->value *= 2;
    assert_ok(export_head(&head, record_of(&t)));
    number = json_object_get(json_object_get(head, "headline"), "ttft");
    assert_true(json_is_null(json_object_get(number, "value")));
    assert_non_null(strstr(json_str_at(number, "why", ""), "the record has a fault: "));
    json_decref(head);
    unmake(&t);
}

/* Bytes changed at random and files cut: an answer or one line. */
TEST(damaged_files)
{
    char path[600];
    uint8_t *whole, *bytes;
    int n_found = 0;
    struct toy t;
    struct rng r;
    size_t n;

    make(&t);
    whole = test_read(record_of(&t), &n);
    snprintf(path, sizeof(path), "%s/damaged.h5", test_dir());
    rng_init(&r, test_seed(), "damage");
    for (int i = 0; i < 200; i++) {
        json_t *found;
        int rc;

        bytes = mem_new(MEM_TEST, n, 1);
        memcpy(bytes, whole, n);
        for (int k = 0; k < 3; k++)
            bytes[rng_below(&r, n)] ^= (uint8_t)(1 + rng_below(&r, 255));
        unlink(path);
        test_write(path, bytes, i % 4 ? n : rng_below(&r, n));
        mem_free(bytes);
        rc = export_verify(&found, path);
        n_found += rc != OK || json_array_size(json_object_get(found, "faults")) > 0;
        if (rc != OK && (!strstr(err_msg(), path) || strchr(err_msg(), '\n')))
            fail_msg("seed %llu, file %d: %s: %s", (unsigned long long)test_seed(), i,
                     err_name(rc), err_msg());
        json_decref(found);
    }
    printf("# a fault in %d of 200\n", n_found);
    assert_true(n_found > 100);
    mem_free(whole);
    unmake(&t);
}
