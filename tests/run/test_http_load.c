/* Load over HTTP on a server that does what it was told: the reported times are those of the
 * server, none is early, and a stall is charged to all that were due meanwhile. Programmed
 * waits are lower bounds; nothing here is bounded from above. */
#include "tests/run/http_run.h"

#include <stdint.h>

#include "baselines/http.h"
#include "base/json.h"
#include "experiments/load/stages.h"
#include "experiments/record/head.h"
#include "experiments/run/bench.h"

/* --- TTFT and TPOT */

/* The server's clock is ours, but the cell's start is not known: each request was got after
 * its dispatch, and each token came after it was sent, so the start is between the latest
 * `sent - came` and the earliest `got - dispatched`. One early stamp would turn these
 * around. */
TEST(stamps_are_the_servers)
{
    struct web_script s = {.dialect = WEB_VLLM, .ttft_ms = 12, .itl_ms = 4};
    int64_t low = INT64_MIN, high = INT64_MAX;
    struct fixture x;
    struct metrics m;

    run(&x, &s, "constant", 20, 50, 6, 0);
    assert_int_equal(web_n_seen(x.web), 21);
    for (size_t i = 0; i < x.result.n; i++) {
        const struct metrics_row *r = &x.result.rows[i];
        struct web_seen seen = seen_of(&x, i);

        assert_int_equal(r->status, METRICS_OK);
        assert_int_equal(r->n_tok, 6);
        if ((int64_t)seen.received_ns - r->dispatch_ns < high)
            high = (int64_t)seen.received_ns - r->dispatch_ns;
        for (int k = 0; k < 6; k++) {
            if ((int64_t)seen.sent_ns[k] - r->token_ns[k] > low)
                low = (int64_t)seen.sent_ns[k] - r->token_ns[k];
            assert_true(r->token_ns[k] - r->dispatch_ns >= (12 + 4 * k) * MS);
        }
        assert_true(metrics_ttft_ms(r) >= 12);
        assert_true(metrics_e2e_ms(r) >= 12 + 5 * 4);
    }
    assert_true(low <= high);
    compute(&m, &x, 1000, 1000);
    assert_true(metric(&m, "min_ttft_ms") >= 12);
    assert_true(metric(&m, "min_e2e_ms") >= 32);
    assert_true(metric(&m, "identity_e2e_error_ms") < 1e-3);
    metrics_fini(&m);
    end(&x);
}

/* Two tokens in one event have one time, and are on record as such. */
TEST(tokens_of_one_event_share_a_time)
{
    struct web_script s = {.dialect = WEB_LLAMA, .itl_ms = 10};
    struct fixture x;
    json_t *d;

    run(&x, &s, "closed", 4, 0, 6, 0);
    for (size_t i = 0; i < x.result.n; i++) {
        const struct metrics_row *r = &x.result.rows[i];

        assert_int_equal(r->n_tok, 6); /* 1, 2 + 3, 4, 5 + 6: by the script */
        assert_true(r->token_ns[1] - r->dispatch_ns >= 20 * MS);
        assert_true(r->token_ns[5] - r->dispatch_ns >= 50 * MS);
    }
    assert_ok(run_system_describe(x.system, &d));
    assert_int_equal(json_integer_value(json_object_get(json_object_get(d, "streams"),
                                                        "n_tok_of_an_event_max")),
                     2);
    json_decref(d);
    end(&x);
}

/* --- goodput */

/* Each third request is slow by more than the objective; it cannot count as met, and what
 * is reported is the share of rows that meet it. */
TEST(attainment_counts_what_was_slow)
{
    struct web_script s = {.dialect = WEB_VLLM, .slow_every = 3, .slow_ms = 400};
    size_t n_met = 0;
    struct fixture x;
    struct metrics m;

    run(&x, &s, "constant", 30, 200, 2, 0);
    for (size_t i = 0; i < x.result.n; i++) {
        const struct metrics_row *r = &x.result.rows[i];

        n_met += metrics_ttft_ms(r) <= 300;
    }
    assert_true(n_met <= 20);
    compute(&m, &x, 300, 0);
    assert_true(fabs(metric(&m, "slo_attainment_frac") - (double)n_met / 30) < 1e-12);
    assert_true(fabs(metric(&m, "request_goodput_rps") * metric(&m, "duration_s") -
                     (double)n_met) < 1e-9);
    metrics_fini(&m);
    end(&x);
}

/* --- a queue of one, and coordinated omission */

/* One request is served at a time and takes 5 ms, and they come each 2 ms: whatever the
 * order, the k-th end is no earlier than in a queue that never idles longer. */
TEST(a_queue_of_one_is_seen_as_one)
{
    struct web_script s = {.dialect = WEB_VLLM, .ttft_ms = 5, .slots = 1};
    int64_t last = 0;
    struct fixture x;

    run(&x, &s, "constant", 40, 500, 1, 0);
    for (size_t i = 0; i < x.result.n; i++) {
        const struct metrics_row *r = &x.result.rows[i];
        size_t n_before = 0;

        last = (last > r->dispatch_ns ? last : r->dispatch_ns) + 5 * MS;
        for (size_t k = 0; k < x.result.n; k++)
            n_before += x.result.rows[k].first_token_ns < last;
        assert_true(n_before <= i); /* the (i + 1)-th end is not before `last` */
    }
    end(&x);
}

/* The server stalls for 150 ms at the fifth request. Those that were due meanwhile waited
 * from when they were due, although each was answered at once when it was its turn. */
TEST(a_stall_is_charged_to_all)
{
    struct web_script s = {
        .dialect = WEB_VLLM, .slots = 1, .stall_request = 5, .stall_ms = 150};
    int64_t stalled;
    struct fixture x;
    int n_charged = 0;

    run(&x, &s, "constant", 24, 100, 1, 0);
    stalled = x.result.rows[4].dispatch_ns + 150 * MS; /* not over before */
    for (size_t i = 5; i < x.result.n; i++) {
        const struct metrics_row *r = &x.result.rows[i];

        assert_int_equal(r->intended_ns, (int64_t)i * 10 * MS);
        if (r->intended_ns < stalled && r->first_token_ns >= stalled) {
            assert_true(metrics_ttft_ms(r) >= (double)(stalled - r->intended_ns) / 1e6);
            n_charged++;
        }
    }
    /* The trial is request 0 and the first of the cell request 1, so row 4 stalls. Those
     * behind it cannot be served before it; one that overtook it cannot have come later. */
    assert_true(n_charged >= 10);
    end(&x);
}

/* --- the end of a request */

TEST(a_trickle_ends_at_the_deadline)
{
    struct web_script s = {.fault = WEB_TRICKLE, .fault_from = 1};
    struct fixture x;

    run(&x, &s, "constant", 5, 100, 4, 0.3);
    assert_false(x.result.system_stuck);
    for (size_t i = 0; i < x.result.n; i++) {
        assert_int_equal(x.result.rows[i].status, METRICS_TIMEOUT);
        assert_true(x.result.rows[i].n_tok <= 1);
        assert_true(x.result.rows[i].done_ns - x.result.rows[i].intended_ns >= 300 * MS);
    }
    end(&x);
}

TEST(faults_are_rows)
{
    struct web_script s = {.fault = WEB_429, .fault_from = 4};
    int n_failed = 0;
    struct fixture x;

    run(&x, &s, "closed", 12, 0, 3, 0);
    for (size_t i = 0; i < x.result.n; i++) {
        const struct metrics_row *r = &x.result.rows[i];

        assert_true(r->status == METRICS_OK || r->status == METRICS_FAILED);
        n_failed += r->status == METRICS_FAILED;
        if (r->status == METRICS_FAILED)
            assert_string_equal(r->error, "HTTP 429 (retry after 7 s): slow down");
    }
    assert_int_equal(n_failed, 9);
    assert_int_equal(web_n_seen(x.web), 13);
    end(&x);
}

/* A server that refuses connections gives no reason; the row states the likely one. */
TEST(a_limit_of_connections_is_suspected)
{
    struct web_script s = {
        .dialect = WEB_VLLM, .ttft_ms = 30, .slots = 1, .max_connections = 66};
    int n_suspected = 0;
    struct fixture x;

    run(&x, &s, "constant", 100, 20000, 1, 0); /* in 5 ms, before the first has ended */
    for (size_t i = 0; i < x.result.n; i++) {
        const struct metrics_row *r = &x.result.rows[i];

        n_suspected += r->status == METRICS_FAILED &&
                       strstr(r->error, "connections open: a limit of the server?");
    }
    assert_true(n_suspected > 0);
    end(&x);
}

/* P9: each request's own lateness stands in the record. */
TEST(dispatch_lag_is_recorded)
{
    struct fixture x;
    const json_t *lag;
    json_t *d;

    run(&x, &(struct web_script){.dialect = WEB_VLLM}, "poisson", 30, 300, 3, 0);
    assert_ok(run_system_describe(x.system, &d));
    lag = json_object_get(json_object_get(d, "streams"), "dispatch_lag_ms");
    assert_int_equal(json_integer_value(json_object_get(lag, "n")), 30);
    assert_true(json_real_value(json_object_get(lag, "p50")) > 0);
    assert_true(json_real_value(json_object_get(lag, "max")) >=
                json_real_value(json_object_get(lag, "p50")));
    json_decref(d);
    end(&x);
}

/* --- testbed bench */

static char *bench_for(const char *url, double ttft_ms, int64_t prompt_tok,
                       double budget_s, int *rc)
{
    struct run_bench_opts o;
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);

    assert_non_null(f);
    assert_ok(opt_init(run_bench_opt_table, &o));
    o.budget_s = budget_s;
    o.output_tok = 4;
    o.prompt_tok = prompt_tok;
    o.slo_ttft_ms = ttft_ms;
    *rc = run_bench(url, &o, f);
    fclose(f);
    return text;
}

static char *bench_of(const char *url, double ttft_ms, int64_t prompt_tok, int *rc)
{
    return bench_for(url, ttft_ms, prompt_tok, 3, rc);
}

static char *bench(const char *url, double ttft_ms, int *rc)
{
    return bench_of(url, ttft_ms, 8, rc);
}

static int n_lines(const char *text)
{
    int n = 0;

    for (; *text; text++)
        n += *text == '\n';
    return n;
}

TEST(bench_answers_in_sentences_and_a_table)
{
    struct web_server *w = web_start(&(struct web_script){
        .dialect = WEB_VLLM, .ttft_ms = 20, .itl_ms = 2, .slots = 1});
    char *text;
    int rc;

    text = bench(web_url(w) + strlen("http://"), 500, &rc);
    assert_ok(rc);
    assert_non_null(strstr(text, "serves scripted-model"));
    assert_non_null(strstr(text, "(scripted, version 1.2.3)"));
    assert_non_null(strstr(text, "a prompt of 8 token ids and an answer of 4 tokens"));
    assert_non_null(strstr(text, "One user at a time waits "));
    assert_non_null(strstr(text, "\n| one user | "));
    assert_true(n_lines(text) >= 5);
    free(text);
    text = bench(web_url(w), 10, &rc); /* the server needs 20 ms */
    assert_ok(rc);
    assert_non_null(strstr(text, "Even alone, this user does not get the objectives"));
    assert_int_equal(n_lines(text), 5);
    free(text);
    web_stop(w);
}

TEST(bench_refuses_in_one_line)
{
    struct web_server *w = web_start(&(struct web_script){.no_models = 1});
    char *text;
    int rc;

    text = bench(web_url(w), 500, &rc);
    assert_int_equal(rc, ERR_IO);
    assert_non_null(strstr(err_msg(), "/v1/models: the server answers HTTP 404"));
    assert_string_equal(text, "");
    free(text);
    web_stop(w);
    w = web_start(&(struct web_script){.fault = WEB_500, .fault_from = 1});
    text = bench(web_url(w), 500, &rc);
    assert_int_equal(rc, ERR_IO);
    assert_string_equal(err_msg(),
                        "the first request failed: HTTP 500: kv cache is full");
    free(text);
    web_stop(w);
    w = web_start(&(struct web_script){0});
    text = bench_of(web_url(w), 500, 5000, &rc); /* it takes 4096 */
    assert_int_equal(rc, ERR_ARG);
    assert_non_null(strstr(err_msg(), "more than the longest sequence"));
    free(text);
    web_stop(w);
    text = bench("ftp://x", 500, &rc);
    assert_int_equal(rc, ERR_ARG);
    free(text);
}

/* What servers that do not answer, or never to the end, make of a measurement of two seconds.
 * Each wait had a limit of its own: the probe 120 s a question, a request half of the time for
 * all. A hang here is the failure. */
TEST(bench_ends_whatever_the_server_does)
{
    static const enum web_fault faults[] = {WEB_HANG, WEB_TRICKLE};
    static const struct {
        int from;
        const char *says; /* NULL: the answer for people */
    } cases[] = {{0, "/completions: "},
                 {1, "the first request got no whole answer within"},
                 {4, "the server answers no more: of "},
                 {40, NULL}};

    for (size_t i = 0; i < 2 * sizeof(cases) / sizeof(cases[0]); i++) {
        const char *says = cases[i / 2].says;
        struct web_server *w =
            web_start(&(struct web_script){.dialect = WEB_VLLM,
                                           .itl_ms = 1,
                                           .fault = faults[i % 2],
                                           .fault_from = cases[i / 2].from});
        int rc;
        char *text = bench_for(web_url(w), 500, 8, 2, &rc);

        printf("# fault %d from request %d on: %s\n", faults[i % 2], cases[i / 2].from,
               text);
        assert_int_equal(rc, says ? ERR_IO : OK);
        if (says)
            assert_non_null(strstr(err_msg(), says));
        else
            assert_non_null(strstr(text, " % of them"));
        assert_int_equal(text[0] == '\0', says != NULL);
        free(text);
        web_stop(w);
    }
}

/* A server whose answers all end early had "nan ms" and status 0. */
TEST(bench_of_answers_that_end_early)
{
    struct run_bench_opts o;

    for (int any = 0; any < 2; any++)
        for (int from = 1; from < 3; from++) {
            struct web_server *w = web_start(&(struct web_script){
                .fault = WEB_SHORT, .fault_from = from, .itl_ms = 20, .slots = 1});
            char *text = NULL;
            size_t n;
            FILE *f = open_memstream(&text, &n);
            int rc;

            assert_non_null(f);
            assert_ok(opt_init(run_bench_opt_table, &o));
            o.budget_s = 1;
            o.output_tok = 4;
            o.prompt_tok = 8;
            o.any_length = any;
            rc = run_bench(web_url(w), &o, f);
            fclose(f);
            if (any) {
                assert_ok(rc);
                assert_non_null(strstr(text, "an answer of at most 4 tokens"));
                assert_null(strstr(text, "nan"));
            } else {
                assert_err(rc, ERR_IO, "ended after 3 of 4 tokens (finish_reason stop)");
                assert_non_null(strstr(err_msg(), from == 1 ? "the first request failed"
                                                            : "none of "));
                assert_string_equal(text, "");
            }
            free(text);
            web_stop(w);
        }
}

/* --- chats with the server's own answers */

/* Two turns of 6 and 4 tokens, answered by 3 each; the trace's second prompt has all before it. */
static void chat(struct fixture *x, const struct web_script *s, int n)
{
    static struct dataset_item first, second;
    static const struct dataset_opts wide = {.min_prompt_tok = 1,
                                             .turns = DATASET_TURNS_CHAT};
    static const struct load_seeds seeds = {1, 1, 1, 1};
    struct dataset d = {.source = "test", .items = &first, .n_items = 1};
    const struct load_opts load = {
        .process = (char[]){"closed"}, .concurrency = 2, .n_requests = n};
    json_t *config;

    second = (struct dataset_item){
        .n_prompt = 6 + 3 + 4, .n_output = 3, .arrival_s = NAN, .pause_s = 0.02};
    first = (struct dataset_item){
        .n_prompt = 6, .n_output = 3, .arrival_s = NAN, .later = &second};
    *x = (struct fixture){.web = web_start(s)};
    config = json_pack("{s:s, s:s}", "adapter", "openai_http", "url", web_url(x->web));
    assert_ok(run_system_open(&x->system, config));
    json_decref(config);
    assert_ok(run_requests_new(&x->requests, x->system, &d, &wide, &load, &seeds));
    assert_ok(run_cell(&x->result, x->system, &x->requests, &load, NULL, NULL));
}

static const struct metrics_row *row_of(const struct fixture *x, int64_t request)
{
    for (size_t i = 0; i < x->result.n; i++)
        if (x->result.rows[i].request == request)
            return &x->result.rows[i];
    return NULL;
}

TEST(a_turn_has_the_servers_own_answer)
{
    const struct web_script s = {.dialect = WEB_VLLM, .itl_ms = 1};
    struct fixture x;

    chat(&x, &s, 4);
    for (int64_t i = 0; i < 4; i++) {
        const struct metrics_row *r = row_of(&x, i);
        const struct web_seen seen = seen_of(&x, (size_t)i);
        const char *prompt = strstr(seen.body, "\"prompt\":[");
        char want[200] = "\"prompt\":[";

        assert_int_equal(r->status, METRICS_OK);
        assert_int_equal(r->n_prompt_tok, i % 2 ? 13 : 6);
        for (int64_t k = 0; i % 2 && k < 6; k++)
            snprintf(want + strlen(want), 20, "%d,", x.requests.v[i - 1].prompt[k]);
        strcat(want, i % 2 ? "100,101,102," : "");
        for (int64_t k = 0; k < x.requests.v[i].n_prompt; k++)
            snprintf(want + strlen(want), 20, "%s%d", k ? "," : "",
                     x.requests.v[i].prompt[k]);
        strcat(want, "]");
        assert_int_equal(x.requests.v[i].n_prompt, i % 2 ? 4 : 6);
        assert_non_null(prompt);
        if (strncmp(prompt, want, strlen(want)) != 0)
            fail_msg("request %d: %s, wanted %s", (int)i, prompt, want);
        assert_null(strstr(seen.body, "cache_prompt"));
        if (i % 2)
            assert_true(r->intended_ns == row_of(&x, i - 1)->done_ns + 20000000);
    }
    end(&x);
}

/* As messages where the server has chats; reasoning is left out. */
TEST(an_answer_is_a_message)
{
    const struct web_script s = {.dialect = WEB_CHAT, .itl_ms = 1};
    struct fixture x;
    struct web_seen seen;

    chat(&x, &s, 2);
    assert_int_equal(row_of(&x, 1)->status, METRICS_OK);
    seen = seen_of(&x, 0);
    assert_null(strstr(seen.body, "assistant"));
    seen = seen_of(&x, 1);
    assert_non_null(
        strstr(seen.body, "\"messages\":[{\"role\":\"user\",\"content\":\" "));
    assert_non_null(strstr(seen.body, "\"},{\"role\":\"assistant\",\"content\":\""));
    assert_non_null(strstr(seen.body, "\"},{\"role\":\"user\",\"content\":\" "));
    end(&x);
}

/* What follows a turn that failed, or whose tokens have no ids, is refused with the reason. */
TEST(a_turn_without_an_answer_before_it)
{
    struct web_script s = {.dialect = WEB_PLAIN, .itl_ms = 1};
    struct fixture x;

    chat(&x, &s, 2);
    assert_int_equal(row_of(&x, 1)->status, METRICS_FAILED);
    assert_non_null(strstr(row_of(&x, 1)->error, "sends no token ids"));
    end(&x);
    s = (struct web_script){
        .dialect = WEB_VLLM, .itl_ms = 1, .fault = WEB_500, .fault_from = 1};
    chat(&x, &s, 2);
    assert_int_equal(row_of(&x, 0)->status, METRICS_FAILED);
    assert_string_equal(row_of(&x, 1)->error, "the turn before it failed");
    end(&x);
}

/* --- testbed bench with a load that is given */

static struct run_bench_opts given(void)
{
    struct run_bench_opts o;

    assert_ok(opt_init(run_bench_opt_table, &o));
    o.output_tok = 4;
    o.prompt_tok = 8;
    return o;
}

static char *bench_with(const struct web_script *s, const struct run_bench_opts *o,
                        int *rc)
{
    struct web_server *w = web_start(s);
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);

    assert_non_null(f);
    *rc = run_bench(web_url(w), o, f);
    fclose(f);
    web_stop(w);
    return text;
}

static const struct web_script quick = {.dialect = WEB_VLLM, .ttft_ms = 5, .itl_ms = 1};

TEST(bench_puts_stages_on_a_server)
{
    struct run_bench_opts o = given();
    json_t *answer, *load, *head;
    struct load_stage v[LOAD_STAGES_MAX];
    char *text;
    int rc, n;

    o.stages = (char[]){"20@0.5s,20-60@0.5s"};
    text = bench_with(&quick, &o, &rc);
    assert_ok(rc);
    assert_non_null(strstr(text, "\n| all stages | "));
    assert_non_null(strstr(text, "\n| 20 requests/s, 0.5 s | "));
    assert_non_null(strstr(text, "\n| 20 to 60 requests/s, 0.5 s | "));
    free(text);
    o.json = true;
    o.out = (char *)test_path("stages");
    text = bench_with(&quick, &o, &rc);
    assert_ok(rc);
    assert_ok(json_read_text(&answer, text, strlen(text), "answer"));
    load = json_object_get(answer, "load");
    assert_int_equal(json_array_size(load), 3);
    /* all that are due in the stages are sent, and each is in one of them */
    assert_ok(load_stages_read(v, &n, o.stages, "s"));
    assert_int_equal(
        json_number_value(json_object_get(json_array_get(load, 0), "n_requests")),
        load_stages_arrivals(v, n, 1000, NULL, 0));
    assert_near(
        json_number_value(json_object_get(json_array_get(load, 1), "n_requests")) +
            json_number_value(json_object_get(json_array_get(load, 2), "n_requests")),
        json_number_value(json_object_get(json_array_get(load, 0), "n_requests")), 0);
    assert_int_equal(json_integer_value(json_object_get(answer, "n_not_sent")), 0);
    assert_ok(export_head(&head, json_string_value(json_object_get(answer, "record"))));
    assert_null(json_object_get(head, "fault"));
    assert_near(
        json_number_value(json_object_get(
            json_object_get(json_object_get(head, "headline"), "ttft_p50"), "value")),
        json_number_value(json_object_get(json_array_get(load, 0), "p50_ttft_ms")), 1e-9);
    json_decref(head);
    json_decref(answer);
    free(text);
}

TEST(bench_with_users_ends_in_time)
{
    const struct web_script slow = {.dialect = WEB_VLLM, .ttft_ms = 200, .itl_ms = 1};
    struct run_bench_opts o = given();
    char *text;
    int rc;

    o.users = 2;
    o.requests = 6;
    text = bench_with(&quick, &o, &rc);
    assert_ok(rc);
    assert_non_null(strstr(text, "Of 6 requests, 0 did not complete"));
    assert_non_null(strstr(text, "\n| 2 users at a time | 6 | 0 | "));
    free(text);
    o.requests = 400;
    o.limit = (char[]){"1"};
    text = bench_with(&slow, &o, &rc);
    assert_ok(rc);
    assert_non_null(strstr(text, " The time of --limit was over before "));
    free(text);
}

/* The search leaves a record of each rate, too. */
TEST(bench_searches_with_a_record)
{
    const struct web_script one_slot = {
        .dialect = WEB_VLLM, .ttft_ms = 20, .itl_ms = 2, .slots = 1};
    struct run_bench_opts o = given();
    json_t *answer, *head;
    char *text;
    int rc;

    o.budget_s = 2;
    o.slo_ttft_ms = 500;
    o.json = true;
    o.out = (char *)test_path("search");
    text = bench_with(&one_slot, &o, &rc);
    assert_ok(rc);
    assert_ok(json_read_text(&answer, text, strlen(text), "answer"));
    assert_true(json_number_value(json_object_get(json_object_get(answer, "one_user"),
                                                  "p50_ttft_ms")) >= 20);
    assert_ok(export_head(&head, json_string_value(json_object_get(answer, "record"))));
    assert_null(json_object_get(head, "fault"));
    assert_true(
        json_integer_value(json_object_get(json_object_get(head, "cells"), "done")) >=
        (json_int_t)json_array_size(json_object_get(answer, "rates")) + 1);
    json_decref(head);
    json_decref(answer);
    free(text);
}

TEST(bench_options_that_contradict)
{
    struct run_bench_opts o = given();

    o.users = 1;
    o.stages = (char[]){"1@1s"};
    assert_err(run_bench("http://127.0.0.1:1", &o, stdout), ERR_ARG,
               "at most one, found 2");
    o.users = 0;
    o.stages = NULL;
    o.replay = true;
    assert_err(run_bench("http://127.0.0.1:1", &o, stdout), ERR_ARG,
               "expected --dataset");
    o.replay = false;
    o.limit = (char[]){"1s"};
    assert_err(run_bench("http://127.0.0.1:1", &o, stdout), ERR_ARG, "--budget-s");
    o.limit = NULL;
    o.dataset = (char[]){"absent.json"};
    assert_err(run_bench("http://127.0.0.1:1", &o, stdout), ERR_NOTFOUND, "absent.json");
}

static void end_at_third(void *ctx, size_t n_ended, size_t n_failed)
{
    (void)n_failed;
    if (n_ended >= 3)
        run_cell_end(ctx, "enough");
}

/* A cell that is ended early has a row for every request: what came, what was canceled, and
 * what was not sent. */
TEST(a_cell_ended_early)
{
    static const struct dataset_opts wide = {
        .min_prompt_tok = 1, .max_prompt_tok = 64, .max_output_tok = 64};
    static const struct load_seeds seeds = {1, 1, 1, 1};
    static char closed[] = "closed";
    const struct load_opts load = {.process = closed, .concurrency = 1, .n_requests = 9};
    struct dataset_item item = {.n_prompt = 6, .n_output = 4, .arrival_s = NAN};
    const struct dataset d = {.source = "test", .items = &item, .n_items = 1};
    struct fixture x = {
        .web = web_start(&(struct web_script){.fault = WEB_HANG, .fault_from = 4})};
    json_t *config =
        json_pack("{s:s, s:s}", "adapter", "openai_http", "url", web_url(x.web));
    int n[4] = {0};

    assert_ok(run_system_open(&x.system, config));
    assert_ok(run_requests_new(&x.requests, x.system, &d, &wide, &load, &seeds));
    assert_ok(run_cell(&x.result, x.system, &x.requests, &load, end_at_third, x.system));
    for (size_t i = 0; i < x.result.n; i++) {
        const struct metrics_row *r = &x.result.rows[i];

        assert_in_range(r->status, METRICS_OK, METRICS_REJECTED);
        n[r->status]++;
        if (r->status != METRICS_OK)
            assert_string_equal(r->error, "enough");
    }
    assert_int_equal(n[METRICS_OK], 3);
    assert_int_equal(n[METRICS_TIMEOUT], 1);
    assert_int_equal(n[METRICS_REJECTED], 5);
    assert_false(x.result.system_stuck);
    json_decref(config);
    end(&x);
}
