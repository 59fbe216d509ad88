/* Load from several machines, which are processes here, one of them with another clock: what each
 * sends and when, on one clock that is held to the server's own, and clients that fail. */
#include "tests/run/http_run.h"

#include <unistd.h>

#include "base/build.h"
#include "base/json.h"
#include "experiments/record/head.h"
#include "experiments/run/bench.h"
#include "experiments/run/clients.h"

/* ---- clocks ---- */

/* Whatever part of a round trip is which way, the truth is within the bounds, which are as far from
 * it as the quickest way there and the quickest way back. */
TEST(round_trips_bound_a_clock)
{
    struct rng r;

    rng_init(&r, test_seed(), "clock");
    for (int i = 0; i < 2000; i++) {
        const int64_t ahead = (int64_t)rng_below(&r, 1 << 30) - (1 << 29);
        const int n = 1 + (int)rng_below(&r, 9);
        struct run_round_trip v[9];
        int64_t there = INT64_MAX, back = INT64_MAX, at = 1000;
        struct run_clock c;

        for (int k = 0; k < n; k++) {
            const int64_t to = (int64_t)rng_below(&r, 1 << (1 + k)),
                          from = (int64_t)rng_below(&r, 1000);

            v[k] = (struct run_round_trip){at, at + to + ahead, at + to + from};
            at += 1 + to + from + (int64_t)rng_below(&r, 5000);
            there = to < there ? to : there;
            back = from < back ? from : back;
        }
        c = run_clock_of(v, n);
        assert_int_equal(c.lo_ns, ahead - back);
        assert_int_equal(c.hi_ns, ahead + there);
    }
}

/* A clock that was set by 100 between two round trips of 4: both are possible, and all between. */
TEST(clocks_that_run_unlike)
{
    static const struct run_round_trip v[] = {{0, 2, 4}, {10, 112, 14}};
    struct run_clock c = run_clock_of(v, 2);

    assert_true(c.lo_ns <= 2 && c.hi_ns >= 98);
    c = run_clock_join((struct run_clock){5, 9}, (struct run_clock){-3, 7});
    assert_true(c.lo_ns == -3 && c.hi_ns == 9);
}

/* ---- shares ---- */

/* Each request is in one share, in order, conversations whole; users and warm-up are divided. */
TEST(shares_are_the_whole)
{
    struct rng r;

    rng_init(&r, test_seed(), "shares");
    for (int i = 0; i < 500; i++) {
        const int n = 1 + (int)rng_below(&r, 4), n_users = n + (int)rng_below(&r, 9);
        const size_t n_rows = rng_below(&r, 40), n_warmup = rng_below(&r, n_rows + 1);
        const bool turns = rng_below(&r, 2), open = rng_below(&r, 2);
        bool follows[40];
        int share_of[40] = {0}, users = 0, n_seen = 0;
        size_t warmup = 0;

        for (size_t k = 0; k < n_rows; k++)
            follows[k] = turns && k > 0 && rng_below(&r, 3) > 0;
        for (int share = 0; share < n; share++) {
            struct sut_request v[40];
            double at[40], pause[40];
            bool f[40];
            struct load_opts load = {.concurrency = n_users};
            struct run_requests q = {.v = v,
                                     .n = n_rows,
                                     .n_warmup = n_warmup,
                                     .arrival_s = open ? at : NULL,
                                     .follows = turns ? f : NULL,
                                     .pause_s = turns ? pause : NULL};
            int64_t last = -1;

            for (size_t k = 0; k < n_rows; k++) {
                v[k] = (struct sut_request){.seed = (int64_t)k};
                at[k] = pause[k] = (double)k;
                f[k] = follows[k];
            }
            run_requests_share(&q, &load, share, n);
            for (size_t k = 0; k < q.n; k++) {
                const int64_t which = v[k].seed;

                assert_true(which > last && share_of[which] == 0);
                assert_true(!turns ||
                            (f[k] == follows[which] && pause[k] == (double)which));
                assert_true(!open || at[k] == (double)which);
                assert_true(k > 0 || !turns || !f[k]);
                assert_true((which < (int64_t)n_warmup) == (k < q.n_warmup));
                share_of[which] = share + 1;
                last = which;
                n_seen++;
            }
            users += (int)load.concurrency;
            warmup += q.n_warmup;
            assert_true(load.concurrency >= n_users / n);
        }
        assert_true(n_seen == (int)n_rows && users == n_users && warmup == n_warmup);
        for (size_t k = 1; k < n_rows; k++)
            assert_true(!follows[k] || share_of[k] == share_of[k - 1]);
    }
}

/* ---- clients on this machine ---- */

#define DAY_S 86400

/* Clients for $HOST by a script. "later": by a clock that is a day ahead, where this process may
 * make one. */
static char *command(bool *has_later)
{
    static char line[1300];
    const char *build = getenv("BUILD"), *path = test_path("client.sh");
    FILE *f = fopen(path, "w");

    *has_later = system("unshare -T --monotonic 86400 --fork true 2>/dev/null") == 0;
    assert_non_null(f);
    fprintf(f,
            "host=$1; shift\ncase $host in\n"
            "later) exec %s '%s/testbed' \"$@\" ;;\n"
            "silent) exit 3 ;;\nchatty) echo Welcome; exec cat >/dev/null ;;\n"
            "*) exec '%s/testbed' \"$@\" ;;\nesac\n",
            *has_later ? "unshare -T --monotonic 86400 --kill-child --fork" : "",
            build ? build : "build", build ? build : "build");
    fclose(f);
    snprintf(line, sizeof(line), "sh '%s' \"$HOST\"", path);
    return line;
}

static void check_clock(const json_t *client, double ahead_ms)
{
    const double error_ms = json_f64_at(client, "clock_error_ms");

    assert_true(error_ms > 0);
    assert_true(fabs(json_f64_at(client, "clock_ahead_ms") - ahead_ms) <= error_ms);
    assert_int_equal(json_int_at(client, "n_requests"), 10);
}

/* The rows of two clients are on one clock, this one: the server, in this process, got each request
 * after it was sent and sent each token before it came. A clock that is wrong by more than its
 * error and a round trip turns these around. */
TEST(rows_of_two_clocks_are_the_servers)
{
    const struct web_script s = {.dialect = WEB_VLLM, .ttft_ms = 12, .itl_ms = 4};
    static const struct dataset_opts wide = {
        .min_prompt_tok = 1, .max_prompt_tok = 1 << 20, .max_output_tok = 1 << 20};
    static const struct load_seeds seeds = {5, 5, 5, 5};
    struct dataset_item item = {.n_prompt = 6, .n_output = 6, .arrival_s = NAN};
    const struct dataset d = {.source = "test", .items = &item, .n_items = 1};
    struct fixture x = {.web = web_start(&s)};
    int64_t low = INT64_MIN, high = INT64_MAX, by[2] = {0};
    json_t *config =
        json_pack("{s:s, s:s}", "adapter", "openai_http", "url", web_url(x.web));
    json_t *hello, *clients;
    struct run_bench_opts o;
    struct run_clients *c;
    struct load_opts load;
    double error_ns = 0;
    bool has_later;
    char *line = command(&has_later);

    assert_ok(opt_init(run_bench_opt_table, &o));
    o.prompt_tok = o.output_tok = 6;
    assert_ok(opt_init(load_opt_table, &load));
    assert_ok(opt_set(load_opt_table, &load, "process", "constant", "test"));
    load.rate_rps = 50;
    load.n_requests = 20;
    assert_ok(run_system_open(&x.system, config));
    assert_ok(run_requests_new(&x.requests, x.system, &d, &wide, &load, &seeds));
    hello = json_pack("{s:s s:s s:o}", "url", web_url(x.web), "commit", build_info.commit,
                      "options", opt_to_json(run_bench_opt_table, &o));
    assert_ok(run_clients_open(&c, "here,later", line, hello));
    assert_ok(run_clients_cell(&x.result, c, &load, 5, 20, 0));
    clients = run_clients_json(c);
    check_clock(json_array_get(clients, 0), 0);
    check_clock(json_array_get(clients, 1), has_later ? DAY_S * 1e3 : 0);
    for (int i = 0; i < 2; i++)
        error_ns = fmax(error_ns, 1e6 * json_f64_at(json_array_get(clients, (size_t)i),
                                                    "clock_error_ms"));
    assert_int_equal(x.result.n, 20);
    for (size_t i = 0; i < x.result.n; i++) {
        const struct metrics_row *r = &x.result.rows[i];
        const int share = r->request >= 10;
        const size_t which = 2 * (size_t)(r->request - 10 * share) + (size_t)share;
        const struct web_seen seen = seen_of(&x, which);
        const int64_t late =
            r->intended_ns - (int64_t)(x.requests.arrival_s[which] * 1e9);

        assert_int_equal(r->status, METRICS_OK);
        assert_int_equal(r->n_tok, 6);
        assert_true(i == 0 || r->intended_ns >= r[-1].intended_ns);
        /* A client's requests are due when they are in the whole, from its beginning on. */
        assert_true(late >= 0);
        assert_true(r->request % 10 == 0 || late == by[share]);
        by[share] = late;
        if ((int64_t)seen.received_ns - r->dispatch_ns < high)
            high = (int64_t)seen.received_ns - r->dispatch_ns;
        for (int k = 0; k < 6; k++)
            if ((int64_t)seen.sent_ns[k] - r->token_ns[k] > low)
                low = (int64_t)seen.sent_ns[k] - r->token_ns[k];
    }
    assert_true((double)low <= (double)high + 2 * error_ns);
    assert_true(x.result.n_timer_error > 0 && x.result.wall_s > 0.3);
    run_clients_close(&c);
    opt_free(load_opt_table, &load);
    opt_free(run_bench_opt_table, &o);
    json_decref(clients);
    json_decref(hello);
    json_decref(config);
    end(&x);
    if (!has_later)
        test_skip("no clock of its own: unshare -T is not allowed here");
}

static char *bench(const struct web_script *s, const char *clients,
                   struct run_bench_opts *o, int *rc)
{
    struct web_server *w = web_start(s);
    bool has_later;
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);

    assert_non_null(f);
    o->clients = (char *)clients;
    o->client_command = command(&has_later);
    o->prompt_tok = 8;
    o->output_tok = 4;
    *rc = run_bench(web_url(w), o, f);
    fclose(f);
    web_stop(w);
    return text;
}

static const struct web_script quick = {.dialect = WEB_VLLM, .ttft_ms = 5, .itl_ms = 1};

TEST(bench_with_users_on_clients)
{
    struct run_bench_opts o;
    json_t *answer, *head;
    char *text;
    int rc;

    assert_ok(opt_init(run_bench_opt_table, &o));
    mem_free(o.client_command);
    o.users = 3;
    o.requests = 21;
    o.json = true;
    o.out = (char *)test_path("clients");
    text = bench(&quick, "here,later", &o, &rc);
    assert_ok(rc);
    assert_ok(json_read_text(&answer, text, strlen(text), "answer"));
    assert_int_equal(json_array_size(json_object_get(answer, "clients")), 2);
    assert_ok(export_head(&head, json_string_value(json_object_get(answer, "record"))));
    assert_null(json_object_get(head, "fault"));
    json_decref(head);
    json_decref(answer);
    free(text);
    o.json = false;
    o.out = NULL;
    text = bench(&quick, "here,later", &o, &rc);
    assert_ok(rc);
    assert_non_null(strstr(text, "Machines that sent the load: 2, of which each clock"));
    assert_non_null(strstr(text, "Of 21 requests, 0 did not complete"));
    free(text);
    o.requests = 400; /* and a limit, which each client keeps */
    o.limit = (char[]){"1"};
    text = bench(&(struct web_script){.dialect = WEB_VLLM, .ttft_ms = 200}, "here,later",
                 &o, &rc);
    assert_ok(rc);
    assert_non_null(strstr(text, " The time of --limit was over before "));
    free(text);
}

TEST(bench_searches_with_clients)
{
    const struct web_script one_slot = {
        .dialect = WEB_VLLM, .ttft_ms = 20, .itl_ms = 2, .slots = 1};
    struct run_bench_opts o;
    char *text;
    int rc;

    assert_ok(opt_init(run_bench_opt_table, &o));
    mem_free(o.client_command);
    o.budget_s = 4;
    o.slo_ttft_ms = 500;
    text = bench(&one_slot, "here,later", &o, &rc);
    assert_ok(rc);
    assert_non_null(strstr(text, "\n| one user | "));
    assert_non_null(strstr(text, "Machines that sent the load: "));
    free(text);
}

TEST(clients_that_fail_are_named)
{
    static const struct {
        const char *clients;
        int rc;
        const char *why;
    } all[] = {{"here,silent", ERR_IO, "silent: it has ended"},
               {"chatty", ERR_FORMAT, "chatty: a line"},
               {"here,,later", ERR_ARG, "expected names of hosts"},
               {"it's", ERR_ARG, "expected names of hosts"}};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        struct run_bench_opts o;
        char *text;
        int rc;

        assert_ok(opt_init(run_bench_opt_table, &o));
        mem_free(o.client_command);
        o.users = 2;
        text = bench(&quick, all[i].clients, &o, &rc);
        assert_err(rc, all[i].rc, all[i].why);
        assert_string_equal(text, "");
        free(text);
    }
}

/* A client says what is wrong to the one that asked. */
TEST(a_client_answers_with_its_error)
{
    static const struct {
        const char *hello, *why;
    } all[] = {{"{\"commit\": \"another\", \"url\": \"x\"}\n", "is of commit"},
               {"Hello\n", "a line"},
               {"", "it has ended"}};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        FILE *in = tmpfile(), *out;
        char *text = NULL;
        size_t n;

        assert_non_null(in);
        fputs(all[i].hello, in);
        rewind(in);
        assert_non_null(out = open_memstream(&text, &n));
        assert_ok(run_bench_client(in, out));
        fclose(out);
        fclose(in);
        assert_non_null(strstr(text, "{\"error\":\""));
        assert_non_null(strstr(text, all[i].why));
        free(text);
    }
}
