/* The runner against the scripted adapter, which publishes when it reported each event.
 * Nothing here compares with a wished-for duration from above: a stamp must lie between
 * the adapter's own stamps before and after its report, and a programmed wait is a lower
 * bound. */
#include "tests/metrics/rows.h"

#include "experiments/run/run.h"
#include "cpu/energy.h"
#include "tests/support/fake_root.h"
#include "tests/support/faults.h"

/* Regression: a scripted request was freed after its end was reported. */

struct fixture {
    struct run_system *system;
    struct run_requests requests;
    struct run_result result;
};

struct item {
    const char *text;
    int64_t n_prompt, n_output;
};

static const struct dataset_opts wide = {
    .min_prompt_tok = 1, .max_prompt_tok = 1 << 20, .max_output_tok = 1 << 20};
static const struct load_seeds seeds = {1, 1, 1, 1};

static void open_system(struct fixture *x, const char *config)
{
    json_t *j = json_loads(config, 0, NULL);

    assert_non_null(j);
    assert_ok(run_system_open(&x->system, j));
    json_decref(j);
}

static int make_requests(struct fixture *x, const struct item *items, int64_t n,
                         const struct load_opts *load)
{
    struct dataset_item *v = mem_new(MEM_TEST, (size_t)n, sizeof(*v));
    struct dataset d = {.source = "test", .items = v, .n_items = n};
    int rc;

    assert_non_null(v);
    for (int64_t i = 0; i < n; i++)
        v[i] =
            (struct dataset_item){.text = items[i].text,
                                  .text_bytes = items[i].text ? strlen(items[i].text) : 0,
                                  .n_prompt = items[i].text ? -1 : items[i].n_prompt,
                                  .n_output = items[i].n_output,
                                  .arrival_s = NAN};
    rc = run_requests_new(&x->requests, x->system, &d, &wide, load, &seeds);
    mem_free(v);
    return rc;
}

/* n requests of 5 prompt tokens and n_output each. */
static void run_plain(struct fixture *x, const char *config, int64_t n_output,
                      const struct load_opts *load)
{
    struct item item = {.n_prompt = 5, .n_output = n_output};

    open_system(x, config);
    assert_ok(make_requests(x, &item, 1, load));
    assert_ok(run_cell(&x->result, x->system, &x->requests, load, NULL, NULL));
}

static void close_system(struct fixture *x)
{
    run_system_close(&x->system);
    run_result_fini(&x->result);
    run_requests_fini(&x->requests);
}

static struct load_opts closed(int64_t n, int64_t concurrency)
{
    static char name[] = "closed";

    return (struct load_opts){
        .process = name, .concurrency = concurrency, .n_requests = n};
}

static struct load_opts constant(int64_t n, double rate)
{
    static char name[] = "constant";

    return (struct load_opts){
        .process = name, .concurrency = 1, .n_requests = n, .rate_rps = rate};
}

/* --- against the adapter's own account */

struct event {
    long long request;
    char kind[8];
    unsigned long long before, after;
};

static size_t read_log(const char *path, struct event *e, size_t max)
{
    FILE *f = fopen(path, "r");
    char line[128];
    size_t n = 0;

    assert_non_null(f);
    assert_non_null(fgets(line, sizeof(line), f));
    while (n < max && fscanf(f, "%lld,%7[a-z],%llu,%llu\n", &e[n].request, e[n].kind,
                             &e[n].before, &e[n].after) == 4)
        n++;
    fclose(f);
    return n;
}

/* The k-th token of a request in the log. */
static const struct event *logged(const struct event *e, size_t n, int64_t request,
                                  const char *kind, int64_t k)
{
    for (size_t i = 0; i < n; i++)
        if (e[i].request == request && strcmp(e[i].kind, kind) == 0 && k-- == 0)
            return &e[i];
    fail_msg("request %lld: no %s in the log", (long long)request, kind);
    return NULL;
}

/* Stamps are relative to the cell's start, which the log does not know: differences to
 * the first token of request 0 are compared, within the two reports' own widths. */
static void assert_between(int64_t stamp, int64_t zero, const struct event *e,
                           const struct event *first)
{
    int64_t low = (int64_t)(e->before - first->after);
    int64_t high = (int64_t)(e->after - first->before);

    assert_true(stamp - zero >= low);
    assert_true(stamp - zero <= high);
}

TEST(stamps_are_what_the_system_reported)
{
    struct load_opts load = constant(12, 400);
    struct fixture x = {0};
    struct event *e = mem_new(MEM_TEST, 1000, sizeof(*e));
    char config[512], log[300];
    struct run_result r;
    size_t n;

    snprintf(log, sizeof(log), "%s/events.csv", test_dir());
    snprintf(
        config, sizeof(config),
        "{\"adapter\": \"scripted\", \"ttft_ms\": 3, \"itl_ms\": 1, \"log\": \"%s\"}",
        log);
    run_plain(&x, config, 4, &load);
    r = x.result;
    x.result = (struct run_result){0};
    close_system(&x); /* writes the log */
    n = read_log(log, e, 1000);
    assert_int_equal(n, 12 * 5);
    for (size_t i = 0; i < r.n; i++) {
        const struct event *first = logged(e, n, 0, "token", 0);
        int64_t zero = r.rows[0].first_token_ns;

        assert_int_equal(r.rows[i].status, METRICS_OK);
        assert_int_equal(r.rows[i].n_tok, 4);
        assert_int_equal(r.rows[i].first_token_ns, r.rows[i].token_ns[0]);
        for (int64_t k = 0; k < 4; k++)
            assert_between(r.rows[i].token_ns[k], zero,
                           logged(e, n, r.rows[i].request, "token", k), first);
        assert_between(r.rows[i].done_ns, zero,
                       logged(e, n, r.rows[i].request, "done", 0), first);
    }
    run_result_fini(&r);
    mem_free(e);
}

TEST(open_loop_keeps_its_schedule)
{
    struct load_opts load = constant(10, 500);
    struct fixture x = {0};

    run_plain(&x, "{\"adapter\": \"scripted\", \"ttft_ms\": 20}", 1, &load);
    for (size_t i = 0; i < x.result.n; i++) {
        assert_int_equal(x.result.rows[i].intended_ns, (int64_t)i * 2 * MS);
        assert_true(x.result.rows[i].dispatch_ns >= x.result.rows[i].intended_ns);
        assert_true(x.result.rows[i].first_token_ns - x.result.rows[i].dispatch_ns >=
                    20 * MS);
    }
    assert_true(x.result.n_timer_error > 0);
    for (size_t i = 0; i < x.result.n_timer_error; i++)
        assert_true(x.result.timer_error_us[i] >= 0);
    close_system(&x);
}

/* Submitting request 3 blocks us for 60 ms: requests 4 to 8 were due meanwhile, at 10 ms
 * spacing, and their latency counts from then although the system answered each quickly.
 */
TEST(a_blocked_sender_hides_nothing)
{
    struct load_opts load = constant(10, 100);
    struct fixture x = {0};

    run_plain(&x,
              "{\"adapter\": \"scripted\", \"ttft_ms\": 1, \"block_request\": 3, "
              "\"block_ms\": 60}",
              1, &load);
    for (int64_t i = 4; i <= 8; i++) {
        const struct metrics_row *r = &x.result.rows[i];
        int64_t blocked_until = x.result.rows[3].dispatch_ns + 60 * MS;

        assert_int_equal(r->intended_ns, i * 10 * MS);
        assert_true(r->dispatch_ns >= blocked_until);
        assert_true(metrics_ttft_ms(r) >= (double)(90 - 10 * i));
        assert_true(metrics_ttft_ms(r) > metrics_ttft_service_ms(r));
    }
    close_system(&x);
}

/* The whole system stalls for 50 ms when request 2 starts; those sent meanwhile wait. */
TEST(a_stalled_system_is_seen)
{
    struct load_opts load = constant(6, 200);
    struct fixture x = {0};

    run_plain(&x,
              "{\"adapter\": \"scripted\", \"slots\": 1, \"stall_request\": 2, "
              "\"stall_ms\": 50}",
              1, &load);
    assert_true(metrics_ttft_ms(&x.result.rows[2]) >= 50);
    assert_true(x.result.rows[5].first_token_ns >= x.result.rows[2].first_token_ns);
    close_system(&x);
}

/* A counter that a test moves: 1 J more whenever the cell reports its progress. */
#define PACKAGE "/sys/class/powercap/intel-rapl:0"
static const char *counter_root;
static long long counter_uj;

static void count_on(void *ctx, size_t n_ended, size_t n_failed)
{
    char path[1024], text[32];

    (void)ctx, (void)n_ended, (void)n_failed;
    counter_uj += 1000000;
    snprintf(path, sizeof(path), "%s" PACKAGE "/energy_uj", counter_root);
    snprintf(text, sizeof(text), "%lld\n", counter_uj);
    test_write(path, text, strlen(text));
}

static void run_counted(struct fixture *x, const struct fake_file *files,
                        run_tick_fn tick)
{
    static struct item item = {.n_prompt = 5, .n_output = 3};
    struct load_opts load = constant(4, 10);

    counter_root = fake_root(files);
    counter_uj = 7000000;
    cpu_energy_set_root(counter_root);
    open_system(x, "{\"adapter\": \"scripted\", \"ttft_ms\": 5, \"itl_ms\": 5}");
    assert_ok(make_requests(x, &item, 1, &load));
    assert_ok(run_cell(&x->result, x->system, &x->requests, &load, tick, NULL));
    cpu_energy_set_root(NULL);
}

TEST(energy_is_read_while_a_cell_runs)
{
    static const struct fake_file files[] = {
        {PACKAGE "/name", "package-0\n"},
        {PACKAGE "/energy_uj", "7000000\n"},
        {PACKAGE "/max_energy_range_uj", "99999999\n"},
        {0}};
    struct fixture x = {0};
    const struct run_energy *e = &x.result.energy;
    double last_s;

    run_counted(&x, files, count_on);
    assert_string_equal(e->why, "");
    assert_true(e->n >= 3);
    last_s = (double)x.result.rows[3].done_ns / 1e9;
    assert_true(e->s[0] < 0 &&
                e->s[e->n - 1] >= last_s); /* so that each phase has readings */
    assert_true(e->joules[0] == 0);
    for (size_t i = 1; i < e->n; i++)
        assert_true(e->s[i] >= e->s[i - 1] && e->joules[i] >= e->joules[i - 1]);
    assert_near(e->joules[e->n - 1], (double)(counter_uj - 7000000) / 1e6, 1e-9);
    close_system(&x);
}

TEST(energy_that_cannot_be_read_is_explained)
{
    static const struct fake_file none[] = {{"/sys/class/net/lo/name", "lo\n"}, {0}};
    struct fixture x = {0};

    run_counted(&x, none, NULL);
    assert_int_equal(x.result.energy.n, 0);
    assert_non_null(strstr(x.result.energy.why, "shows no counter"));
    close_system(&x);
}

TEST(closed_loop_keeps_its_number)
{
    struct load_opts load = closed(12, 3);
    struct fixture x = {0};

    run_plain(&x, "{\"adapter\": \"scripted\", \"ttft_ms\": 2, \"itl_ms\": 1}", 3, &load);
    for (size_t i = 0; i < x.result.n; i++) {
        const struct metrics_row *r = &x.result.rows[i];
        int together = 0;

        for (size_t k = 0; k < x.result.n; k++)
            together += x.result.rows[k].dispatch_ns <= r->dispatch_ns &&
                        x.result.rows[k].done_ns > r->dispatch_ns;
        assert_true(together <= 3);
        assert_int_equal(r->status, METRICS_OK);
        if (i < 3) {
            assert_int_equal(r->intended_ns, 0);
        } else { /* the moment some slot became free */
            bool found = false;

            for (size_t k = 0; k < i; k++)
                found = found || x.result.rows[k].done_ns == r->intended_ns;
            assert_true(found);
        }
    }
    close_system(&x);
}

TEST(failures_are_rows)
{
    struct load_opts load = closed(6, 1);
    struct fixture x = {0};

    load.timeout_s = 0.05;
    load.warmup_requests = 1;
    run_plain(&x,
              "{\"adapter\": \"scripted\", \"ttft_ms\": 1, \"fail_request\": 2, "
              "\"short_request\": 3, \"hang_request\": 4}",
              3, &load);
    assert_int_equal(x.result.n, 7);
    assert_true(x.result.rows[0].warmup);
    assert_false(x.result.rows[1].warmup);
    assert_int_equal(x.result.rows[1].status, METRICS_OK);
    assert_int_equal(x.result.rows[2].status, METRICS_FAILED);
    assert_string_equal(x.result.rows[2].error, "failed as scripted");
    assert_int_equal(x.result.rows[2].n_tok, 1);
    assert_int_equal(x.result.rows[3].status, METRICS_FAILED);
    assert_string_equal(x.result.rows[3].error, "ended after 2 tokens, asked for 3");
    assert_int_equal(x.result.rows[4].status, METRICS_TIMEOUT);
    assert_int_equal(x.result.rows[4].first_token_ns, METRICS_NEVER);
    assert_true(x.result.rows[4].done_ns - x.result.rows[4].intended_ns >= 50 * MS);
    assert_int_equal(x.result.rows[5].status, METRICS_OK);
    assert_false(x.result.system_stuck);
    close_system(&x);
}

TEST(too_many_outstanding_are_rejected)
{
    struct load_opts load = constant(8, 1000);
    struct fixture x = {0};
    size_t n_rejected = 0;

    load.max_requests_outstanding = 2;
    load.timeout_s = 0.1;
    run_plain(&x, "{\"adapter\": \"scripted\", \"hang_request\": 0, \"ttft_ms\": 100000}",
              1, &load);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(x.result.rows[i].status, METRICS_TIMEOUT);
    for (size_t i = 2; i < x.result.n; i++) {
        n_rejected += x.result.rows[i].status == METRICS_REJECTED;
        if (x.result.rows[i].status == METRICS_REJECTED)
            assert_int_equal(x.result.rows[i].dispatch_ns, METRICS_NEVER);
    }
    assert_true(n_rejected > 0);
    close_system(&x);
}

/* A refused request, and a system used for two cells: no event of the first reaches the
 * second. */
TEST(refusals_and_a_second_cell)
{
    struct load_opts load = constant(3, 2000);
    struct item item = {.n_prompt = 5, .n_output = 2};
    struct fixture x = {0};

    load.timeout_s = 0.5;
    run_plain(&x, "{\"adapter\": \"scripted\", \"max_requests\": 1, \"hang_request\": 0}",
              2, &load);
    assert_int_equal(x.result.rows[0].status, METRICS_TIMEOUT);
    for (size_t i = 1; i < 3; i++)
        if (x.result.rows[i].status == METRICS_FAILED)
            assert_non_null(strstr(x.result.rows[i].error, "table"));
    assert_int_equal(x.result.rows[1].status, METRICS_FAILED);
    run_result_fini(&x.result);
    run_requests_fini(&x.requests);
    load = closed(3, 1);
    assert_ok(make_requests(&x, &item, 1, &load));
    assert_ok(run_cell(&x.result, x.system, &x.requests, &load, NULL, NULL));
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(x.result.rows[i].status, METRICS_OK);
        assert_int_equal(x.result.rows[i].n_tok, 2);
    }
    close_system(&x);
}

TEST(null_answers_inside_submit)
{
    struct load_opts load = closed(200, 4);
    struct fixture x = {0};

    run_plain(&x, "{\"adapter\": \"null\"}", 16, &load);
    for (size_t i = 0; i < x.result.n; i++) {
        assert_int_equal(x.result.rows[i].status, METRICS_OK);
        assert_int_equal(x.result.rows[i].n_tok, 16);
        assert_true(x.result.rows[i].first_token_ns >= x.result.rows[i].dispatch_ns);
    }
    run_bounds(&x.result, x.system);
    assert_true(isnan(x.result.rows[0].decode_bytes));
    assert_false(run_system_has_bound(x.system));
    close_system(&x);
}

/* --- the requests */

TEST(texts_by_the_systems_tokenizer)
{
    const struct item items[] = {{.text = "two words", .n_output = 3},
                                 {.text = "", .n_output = 2},
                                 {.n_prompt = 4, .n_output = 0}};
    struct load_opts load = closed(0, 1);
    struct fixture x = {0};

    open_system(&x, "{\"adapter\": \"scripted\", \"vocab\": 100}");
    assert_ok(make_requests(&x, items, 3, &load));
    assert_int_equal(x.requests.n, 3);
    assert_int_equal(x.requests.v[0].n_prompt, 2);
    assert_int_equal(x.requests.v[0].n_output, 3);
    assert_int_equal(x.requests.v[1].n_prompt, 1); /* never empty */
    assert_int_equal(x.requests.v[2].n_prompt, 4);
    assert_int_equal(x.requests.v[2].n_output, 1); /* at least one */
    for (size_t i = 0; i < 3; i++)
        for (int64_t t = 0; t < x.requests.v[i].n_prompt; t++)
            assert_in_range(x.requests.v[i].prompt[t], 3, 99);
    close_system(&x);

    open_system(&x, "{\"adapter\": \"null\"}");
    assert_err(make_requests(&x, items, 3, &load), ERR_ARG, "no tokenizer");
    close_system(&x);
}

TEST(lengths_are_fitted_and_seeded)
{
    const struct item items[] = {{.n_prompt = 50, .n_output = 10},
                                 {.n_prompt = 3, .n_output = 100},
                                 {.n_prompt = 7, .n_output = 7}};
    struct load_opts load = closed(5, 1);
    struct fixture x = {0}, y = {0};

    load.order = LOAD_ORDER_SHUFFLE;
    open_system(&x, "{\"adapter\": \"null\", \"max_tok\": 32}");
    open_system(&y, "{\"adapter\": \"null\", \"max_tok\": 32}");
    assert_ok(make_requests(&x, items, 3, &load));
    assert_ok(make_requests(&y, items, 3, &load));
    assert_int_equal(x.requests.n_repeated, 2);
    assert_true(x.requests.n_cut >= 2);
    for (size_t i = 0; i < 5; i++) {
        const struct sut_request *a = &x.requests.v[i], *b = &y.requests.v[i];

        assert_true(a->n_prompt + a->n_output <= 32);
        assert_int_equal(a->n_prompt, b->n_prompt);
        assert_int_equal(a->seed, b->seed);
        assert_memory_equal(a->prompt, b->prompt, (size_t)a->n_prompt * sizeof(int32_t));
    }
    close_system(&x);
    close_system(&y);
}

TEST(bad_systems_are_refused)
{
    struct run_system *s;
    json_t *j = json_loads("{\"adapter\": \"scriptd\"}", 0, NULL);

    assert_err(run_system_open(&s, j), ERR_NOTFOUND, "did you mean \"scripted\"");
    json_object_set_new(j, "adapter", json_string("scripted"));
    json_object_set_new(j, "ttft", json_integer(1));
    assert_err(run_system_open(&s, j), ERR_ARG, "ttft_ms");
    assert_null(s);
    json_decref(j);
}

/* One slot, 20 ms a request: 50 a second. A waiting loop that is late makes it slower.
 * Regression: a run at ten times the capacity reported latencies without a word of
 * overload. */
TEST(overload_is_seen)
{
    struct load_opts load = constant(30, 500);
    struct metrics_overload over;
    struct fixture x = {0};
    struct metrics m;

    run_plain(&x, "{\"adapter\": \"scripted\", \"slots\": 1, \"ttft_ms\": 20}", 1, &load);
    metrics_compute(&m, &(struct metrics_input){.rows = x.result.rows,
                                                .n_rows = x.result.n,
                                                .read_why = "",
                                                .peak_why = ""});
    assert_near(metric(&m, "offered_rate_rps"), 500, 1e-3);
    assert_true(metric(&m, "achieved_rate_rps") <= 50.0001);
    assert_true(metrics_overloaded(&m, &over));
    assert_near(over.observed, metric(&m, "achieved_rate_rps"), 0);
    assert_near(over.threshold, 0.95 * 500, 1e-3);
    metrics_fini(&m);
    close_system(&x);
}

static int open_and_close(const json_t *config)
{
    struct run_system *s;
    int rc = run_system_open(&s, config);

    assert_true((rc == OK) == (s != NULL));
    run_system_close(&s);
    return rc;
}

/* Of the system's locks, the adapter's, its thread, and the load generator's. */
TEST(a_thread_or_lock_cannot_be_had)
{
    struct load_opts load = closed(2, 1);
    struct item item = {.n_prompt = 5, .n_output = 3};
    json_t *config = json_pack("{s:s}", "adapter", "scripted");
    struct fixture x = {0};

    assert_true(test_thread_faults(open_and_close(config), true) >= 9);
    json_decref(config);
    open_system(&x, "{\"adapter\": \"scripted\"}");
    assert_ok(make_requests(&x, &item, 1, &load));
    assert_int_equal(
        test_thread_faults(run_cell(&x.result, x.system, &x.requests, &load, NULL, NULL),
                           !x.result.rows),
        2);
    assert_int_equal(x.result.n, 2);
    close_system(&x);
}
