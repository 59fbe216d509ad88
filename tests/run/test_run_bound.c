/* The bounds of a cell: what the card says, as much more or less as the machine did just before
 * and just after it; what makes them unknown; and a cell that exceeds them. */
#include "tests/metrics/rows.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "base/mem.h"
#include "cpu/cpu.h"
#include "experiments/record/head.h"
#include "experiments/run/bound.h"
#include "experiments/run/experiment.h"
#include "experiments/run/session.h"
#include "measure/card.h"
#include "tests/support/tiny_model.h"

/* A cache may have held as much of the weights as it can; the rest came from memory. */
TEST(caches_may_serve_a_part)
{
    assert_near(run_surely_read_gbps(80, 400e6, 100e6), 60, 1e-9);
    assert_near(run_surely_read_gbps(80, 100e6, 400e6), 0, 0);
    assert_near(run_surely_read_gbps(80, 400e6, 0), 80, 0);
    assert_true(isnan(run_surely_read_gbps(NAN, 400e6, 0)));
}

TEST(the_larger_of_before_and_after)
{
    assert_near(run_bound_scaled(40, 80, 80, 80), 40, 1e-12);
    assert_near(run_bound_scaled(40, 80, 40, 60), 30, 1e-12);
    assert_near(run_bound_scaled(40, 80, 160, 60), 80, 1e-12);
    assert_near(run_bound_scaled(40, 80, NAN, 60), 30, 1e-12);
    assert_near(run_bound_scaled(40, 80, NAN, NAN), 40, 1e-12);
    assert_near(run_bound_scaled(40, NAN, 60, 60), 40,
                1e-12); /* nothing to compare with */
    assert_true(isnan(run_bound_scaled(NAN, 80, 80, 80)));
}

/* A card of 80 GB/s and 200 GFLOP/s on all CPUs, half of it on one if there are more. */
static json_t *made_card(void)
{
    static const char *const names[] = {"read_gbps", "peak_f32_fma_any"};
    json_t *rows = json_array();
    struct cpu_budget b;

    assert_ok(cpu_budget_get(&b));
    for (int i = 0; i < 4; i++) {
        int n = i < 2 ? b.n : 1;
        double whole = i % 2 ? 200 : 80;

        if (i < 2 || b.n > 1)
            json_array_append_new(rows, json_pack("{s:s, s:i, s:f}", "name", names[i % 2],
                                                  "n_threads", n, "estimate",
                                                  i < 2 ? whole : whole / 2));
    }
    return json_pack("{s:o}", "values", rows);
}

static json_t *described(const char *type)
{
    struct cpu_budget b;

    assert_ok(cpu_budget_get(&b));
    return json_pack("{s:s, s:i, s:i}", "weight_type", type, "decode_threads", b.n,
                     "prefill_threads", b.n);
}

TEST(found_for_a_system)
{
    struct run_session s = {.card = made_card()};
    json_t *d = described("bf16"), *record;
    struct run_bound b;

    b = RUN_BOUND_NONE;
    run_bound_find(&b, &s, "cell", d);
    assert_near(b.read_gbps, 80, 1e-9); /* nothing else was measured */
    assert_near(b.peak_gflops, 200, 1e-9);
    assert_false(test_warned("bound_changed"));
    b.now[RUN_BEFORE].read_gbps = 40, b.now[RUN_AFTER].read_gbps = 43;
    b.now[RUN_BEFORE].peak_gflops = 100, b.now[RUN_AFTER].peak_gflops = 95;
    run_bound_find(&b, &s, "cell", d);
    assert_near(b.read_gbps, 43, 1e-9);
    assert_near(b.peak_gflops, 100, 1e-9);
    assert_false(test_warned("bound_changed"));
    b.now[RUN_AFTER].read_gbps = 45;
    run_bound_find(&b, &s, "cell", d);
    assert_near(b.read_gbps, 45, 1e-9);
    assert_true(test_warned("bound_changed"));
    assert_false(test_warned("cpus_moved"));
    b.now[RUN_BEFORE].handoff_ns = 27, b.now[RUN_AFTER].handoff_ns = 40;
    run_bound_find(&b, &s, "cell", d);
    assert_false(test_warned("cpus_moved"));
    b.now[RUN_AFTER].handoff_ns = 168;
    run_bound_find(&b, &s, "cell", d);
    assert_true(test_warned("cpus_moved"));
    record = run_bound_json(&b);
    assert_near(json_number_value(
                    json_object_get(json_object_get(record, "after"), "handoff_ns")),
                168, 0);
    assert_near(json_number_value(json_object_get(record, "read_gbps")), 45, 1e-9);
    assert_near(json_number_value(
                    json_object_get(json_object_get(record, "before"), "read_gbps")),
                40, 0);
    json_decref(record);
    json_decref(d);
    json_decref(s.card);
}

TEST(none_is_found)
{
    struct run_session s = {.card_why = "no card here"};
    json_t *d = json_object();
    struct run_bound b;

    b = RUN_BOUND_NONE;
    run_bound_look(&b, &s, RUN_BEFORE);
    assert_true(isnan(b.now[RUN_BEFORE].read_gbps));
    run_bound_find(&b, &s, "cell", d);
    assert_true(isnan(b.read_gbps) && isnan(b.peak_gflops));
    assert_string_equal(b.read_why, "no card here");
    s.card = made_card();
    run_bound_find(&b, &s, "cell", d);
    assert_true(isnan(b.read_gbps) && isnan(b.peak_gflops));
    assert_non_null(strstr(b.peak_why, "does not say its threads"));
    json_decref(s.card);
    json_decref(d);
}

/* Where there is a card, the machine is measured. */
TEST(the_machine_is_looked_at)
{
    struct run_session s = {.card = made_card()};
    struct cpu_budget cpus;
    struct run_bound b;

    b = RUN_BOUND_NONE;
    run_bound_look(&b, &s, RUN_AFTER);
    assert_true(b.now[RUN_AFTER].read_gbps > 0 && b.now[RUN_AFTER].peak_gflops > 0);
    assert_true(isnan(b.now[RUN_BEFORE].read_gbps));
    if (cpu_budget_get(&cpus) == OK && cpus.n > 1)
        assert_true(b.now[RUN_AFTER].handoff_ns > 0);
    json_decref(s.card);
}

/* A bound that is exceeded is none, and the card it came from is dropped. */
TEST(exceeded)
{
    const char *dir = test_dir();
    const struct run_options o = {.machine_dir = dir};
    struct run_session s = {.o = &o, .card = made_card()};
    struct run_bound b;
    char path[1200];

    b = RUN_BOUND_NONE;
    b.read_gbps = 80, b.peak_gflops = 200;
    assert_ok(measure_card_path(path, sizeof(path), dir, ""));
    test_write(path, "{}", 2);
    assert_false(run_bound_exceeded(&b, &s, "cell", 87, 219));
    assert_false(run_bound_exceeded(&b, &s, "cell", NAN, NAN));
    assert_int_equal(access(path, F_OK), 0);
    assert_true(run_bound_exceeded(&b, &s, "cell", 89, 219));
    assert_true(isnan(b.read_gbps));
    assert_near(b.peak_gflops, 200, 0);
    assert_non_null(strstr(b.read_why, "of 80 GB/s was exceeded: 89"));
    assert_true(test_warned("bound_exceeded"));
    assert_int_equal(access(path, F_OK), -1);
    json_decref(s.card);
}

/* Keep a card with a bound that is not trusted in `dir`: its path, and the card itself. */
static json_t *keep_card(char path[1200], const char *dir)
{
    const struct measure_card_row row = {"read_gbps", "GB/s", 1, 80, 1, 160, 9, "spread"};
    struct measure_noise noise;
    struct cpu_budget b;
    json_t *card;

    assert_ok(cpu_budget_get(&b));
    assert_ok(measure_noise_begin(&noise));
    assert_ok(measure_noise_end(&noise));
    assert_ok(measure_card_new(&card, &row, 1, &b, &noise, 1));
    assert_ok(measure_card_path(path, 1200, dir, ""));
    assert_ok(json_write_file(card, path));
    return card;
}

/* The smoke run of a job on this engine. */
static int run_smoke(struct run_outcome *outcome, const char *model, const char *dir)
{
    struct run_options o = {
        .out_dir = dir, .machine_dir = dir, .progress = PROGRESS_QUIET};
    char text[1000];
    json_t *root;
    struct job *j;
    int rc;

    snprintf(
        text, sizeof(text),
        "{\"about\": \"t\", \"system\": {\"adapter\": \"sandwich\", \"model\": "
        "\"%s\"}, \"dataset\": {\"n\": 1, \"max_prompt_tok\": 8, \"max_output_tok\": "
        "2}, \"load\": {\"n_requests\": 1}, \"smoke\": {\"about\": \"s\"}}",
        model);
    assert_ok(json_read_text(&root, text, strlen(text), "t"));
    assert_ok(
        job_from_json(&j, root, "t", "t.json", &(struct job_read_opts){.smoke = true}));
    o.live = o.report = fopen("/dev/null", "w");
    rc = run_experiment(outcome, j, &o);
    fclose(o.live);
    job_free(&j);
    json_decref(root);
    return rc;
}

/* A smoke run judges no speed: it takes a kept card as it is, also one that is not trusted. */
TEST(a_smoke_run_takes_the_card_that_is_there)
{
    struct run_outcome outcome;
    char path[1200];
    json_t *card = keep_card(path, test_dir()), *root;

    assert_err(run_smoke(&outcome, "none", test_dir()), ERR_STATE,
               "no cell could be measured");
    assert_ok(measure_card_read(&root, path));
    assert_true(
        json_equal(json_object_get(card, "values"), json_object_get(root, "values")));
    json_decref(card);
    json_decref(root);
}

/* Regression: a run of which only the record was left to write measured the machine again. */
TEST(a_run_without_cells_left_needs_no_card)
{
    const char *dir = test_path("left");
    struct run_outcome outcome;
    char path[1200], latest[1200];
    json_t *card, *head;

    assert_int_equal(mkdir(dir, 0777), 0);
    card = keep_card(path, dir);
    snprintf(latest, sizeof(latest), "%s/latest.json", dir);
    assert_int_equal(mkdir(latest, 0777), 0); /* where the record's head would go */
    assert_true(run_smoke(&outcome, tiny_model(KERN_BF16), dir) != OK);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(latest), 0);
    assert_ok(run_smoke(&outcome, tiny_model(KERN_BF16), dir));
    assert_int_equal(outcome.n_resumed, 1);
    assert_int_equal(access(path, F_OK), -1);
    assert_ok(export_head(&head, outcome.path));
    assert_true(
        json_equal(json_object_get(json_object_get(head, "machine_card"), "values"),
                   json_object_get(card, "values")));
    mem_free(outcome.path);
    json_decref(head);
    json_decref(card);
}
