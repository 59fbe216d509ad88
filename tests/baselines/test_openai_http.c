/* The adapter of OpenAI servers against a scripted one: every dialect's tokens are counted,
 * every fault ends its request, and only its, with one line that names it. */
#include "tests/support/faults.h"
#include "tests/support/leftovers.h"
#include "tests/support/test.h"
#include "tests/support/web_server.h"

#include <pthread.h>
#include <jansson.h>

#include "base/clock.h"
#include "baselines/http.h"
#include "baselines/openai.h"
#include "baselines/openai_probe.h"
#include "baselines/sse.h"
#include "baselines/sut.h"

#define MAX_REQUESTS 256
#define MAX_TOK      64

struct got {
    int n_tok, ended, failed;
    int32_t token[MAX_TOK];
    uint64_t at_ns[MAX_TOK];
    char error[256];
};

struct fixture {
    struct web_server *web;
    const struct sut_adapter *adapter;
    struct sut *sut;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct got got[MAX_REQUESTS];
    int n_ended;
};

static void on_event(void *ctx, const struct sut_event *e)
{
    struct fixture *x = ctx;
    struct got *g = &x->got[e->request];

    pthread_mutex_lock(&x->lock);
    assert_false(g->ended);
    if (e->kind == SUT_TOKEN) {
        assert_true(g->n_tok < MAX_TOK);
        g->at_ns[g->n_tok] = clock_ns();
        g->token[g->n_tok++] = e->token;
    } else {
        g->ended = 1;
        g->failed = e->kind == SUT_FAILED;
        snprintf(g->error, sizeof(g->error), "%s", g->failed ? e->error : "");
        x->n_ended++;
        pthread_cond_signal(&x->changed);
    }
    pthread_mutex_unlock(&x->lock);
}

static int try_open(struct fixture *x, const char *url, const char *more)
{
    char text[1024];
    json_t *config;
    int rc;

    pthread_mutex_init(&x->lock, NULL);
    pthread_cond_init(&x->changed, NULL);
    snprintf(text, sizeof(text), "{\"url\": \"%s\"%s}", url, more);
    config = json_loads(text, 0, NULL);
    assert_non_null(config);
    assert_ok(sut_adapter_find("openai_http", &x->adapter));
    rc = x->adapter->open(&x->sut, config, on_event, x);
    json_decref(config);
    return rc;
}

static void open_both(struct fixture *x, const struct web_script *s, const char *more)
{
    *x = (struct fixture){.web = web_start(s)};
    assert_ok(try_open(x, web_url(x->web), more));
}

static void close_both(struct fixture *x)
{
    if (x->sut)
        x->adapter->close(&x->sut);
    web_stop(x->web);
}

static int32_t prompt[600];

static void submit(struct fixture *x, int64_t request, int64_t n_prompt, int64_t n_output)
{
    const struct sut_request r = {.request = request,
                                  .prompt = prompt,
                                  .n_prompt = n_prompt,
                                  .n_output = n_output,
                                  .seed = INT64_MAX};

    assert_ok(x->adapter->submit(x->sut, &r));
}

static void wait_ended(struct fixture *x, int n)
{
    pthread_mutex_lock(&x->lock);
    while (x->n_ended < n)
        pthread_cond_wait(&x->changed, &x->lock);
    pthread_mutex_unlock(&x->lock);
}

static json_t *described(struct fixture *x)
{
    json_t *d;

    assert_ok(x->adapter->describe(x->sut, &d));
    return d;
}

static json_int_t stream_count(const json_t *d, const char *key)
{
    const json_t *n = json_object_get(json_object_get(d, "streams"), key);

    assert_true(json_is_integer(n));
    return json_integer_value(n);
}

/* --- tokens */

/* Regression: an event whose text was the NUL character failed its request, and so did events
 * that keep a connection alive, "error": null, and a content type in capitals. */
TEST(every_token_is_reported_once)
{
    static const char *const counted_by[] = {"one_per_text", "token_ids", "running_count",
                                             "one_per_text"};
    for (int dialect = WEB_PLAIN; dialect <= WEB_HELD; dialect++) {
        for (int split = 0; split < 3; split++) {
            struct web_script s = {.dialect = (enum web_dialect)dialect,
                                   .ttft_ms = 2,
                                   .itl_ms = 1,
                                   .split_bytes = split,
                                   .chatty = split == 2};
            struct fixture x;
            json_t *d;

            open_both(&x, &s, "");
            for (int i = 0; i < 6; i++)
                submit(&x, i, 5 + 90 * i, 1 + 4 * i);
            wait_ended(&x, 6);
            for (int i = 0; i < 6; i++) {
                assert_string_equal(x.got[i].error, "");
                assert_int_equal(x.got[i].n_tok, 1 + 4 * i);
                for (int k = 0; k < x.got[i].n_tok; k++)
                    assert_int_equal(x.got[i].token[k],
                                     dialect == WEB_VLLM ? 100 + k : -1);
            }
            d = described(&x);
            assert_int_equal(stream_count(d, "n_requests"), 6);
            assert_int_equal(stream_count(d, "n_failed"), 0);
            assert_int_equal(stream_count(d, "n_prompt_counts_that_differ"), 0);
            assert_int_equal(stream_count(d, "n_tok_shown_at_the_end_only"),
                             dialect == WEB_HELD ? 6 : 0);
            assert_int_equal(stream_count(d, "n_tok_of_an_event_max"),
                             dialect == WEB_LLAMA ? 2 : 1);
            assert_true(
                json_integer_value(json_object_get(
                    json_object_get(json_object_get(d, "streams"), "n_events_counted_by"),
                    counted_by[dialect])) > 0);
            json_decref(d);
            close_both(&x);
        }
    }
}

/* No token is reported before the server has sent it, nor earlier than programmed; the
 * server has got each request as it was meant. */
TEST(stamps_follow_the_server)
{
    struct web_script s = {.dialect = WEB_VLLM, .ttft_ms = 20, .itl_ms = 3};
    struct fixture x;
    uint64_t start;

    open_both(&x, &s, "");
    start = clock_ns();
    submit(&x, 0, 7, 8);
    wait_ended(&x, 1);
    for (int k = 0; k < 8; k++) {
        struct web_seen seen = web_seen_at(x.web, 1);

        assert_true(x.got[0].at_ns[k] >= seen.sent_ns[k]);
        assert_true(x.got[0].at_ns[k] - start >= (uint64_t)(20 + 3 * k) * 1000000);
    }
    assert_non_null(strstr(web_seen_at(x.web, 1).body, "\"prompt\":[11,12,13"));
    assert_non_null(strstr(web_seen_at(x.web, 1).body, "\"max_tokens\":8"));
    assert_non_null(strstr(web_seen_at(x.web, 1).body, "\"ignore_eos\":true"));
    assert_non_null(strstr(web_seen_at(x.web, 1).body, "\"seed\":2147483647"));
    assert_non_null(strstr(web_seen_at(x.web, 1).body, "scripted-model"));
    close_both(&x);
}

TEST(many_streams_share_one_thread)
{
    struct web_script s = {.dialect = WEB_LLAMA, .itl_ms = 1};
    struct fixture x;
    json_t *d;

    open_both(&x, &s, "");
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 64; i++)
            submit(&x, 64 * round + i, 20, 10);
        wait_ended(&x, 64 * (round + 1));
    }
    for (int i = 0; i < 128; i++)
        assert_int_equal(x.got[i].n_tok, 10);
    d = described(&x);
    assert_int_equal(
        json_integer_value(json_object_get(
            json_object_get(json_object_get(d, "streams"), "dispatch_lag_ms"), "n")),
        128);
    json_decref(d);
    d = described(&x); /* the account starts again */
    assert_int_equal(stream_count(d, "n_requests"), 0);
    json_decref(d);
    close_both(&x);
}

/* --- faults */

TEST(each_fault_ends_its_request)
{
    static const struct {
        enum web_fault fault;
        const char *error;
        int n_tok; /* -1: any */
    } cases[] = {
        {WEB_500, "HTTP 500: kv cache is full", 0},
        {WEB_401, "HTTP 401: no such key", 0},
        {WEB_429, "HTTP 429 (retry after 7 s): slow down", 0},
        {WEB_CLOSED, "transfer closed", 1},
        {WEB_GARBAGE, "event", 1},
        {WEB_NO_EVENTS, "the stream ended after 0 of 6 tokens, without [DONE]", 0},
        {WEB_HEADERS, "headers of more than 65536 bytes", 0},
        {WEB_WRONG_TYPE,
         "expected a stream of type text/event-stream, found "
         "\"application/json\"",
         0},
        {WEB_TRICKLE, "timed out", -1},
        {WEB_HANG, "timed out", 0},
        {WEB_NO_DONE, "the stream ended after 6 of 6 tokens, without [DONE]", 6},
        {WEB_SHORT, "ended after 5 of 6 tokens (finish_reason stop)", 5},
        {WEB_LONG, "more than the 6 tokens asked for", -1},
        {WEB_ERROR_EVENT, "the server reports: out of blocks", 1},
        {WEB_ENDLESS_EVENT, "an event of more than 1048576 bytes", 1},
        {WEB_BIG_COUNT, "more than the 6 tokens asked for", 1},
        {WEB_LONG_ERROR, "HTTP 500", 0},
    };
    assert_int_equal(sizeof(cases) / sizeof(cases[0]), WEB_N_FAULTS - 1);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct web_script s = {.dialect = i % 2 ? WEB_PLAIN : WEB_VLLM,
                               .fault = cases[i].fault,
                               .fault_from = 2};
        bool waits = cases[i].fault == WEB_HANG || cases[i].fault == WEB_TRICKLE;
        int before = left_fds();
        struct fixture x;
        json_t *d;

        open_both(&x, &s, waits ? ", \"timeout_s\": 0.3" : "");
        submit(&x, 0, 9, 6);
        wait_ended(&x, 1);
        submit(&x, 1, 9, 6);
        wait_ended(&x, 2);
        assert_int_equal(x.got[0].failed, 0);
        assert_int_equal(x.got[1].failed, 1);
        if (!strstr(x.got[1].error, cases[i].error))
            fail_msg("fault %d: \"%s\", wanted \"%s\"", (int)cases[i].fault,
                     x.got[1].error, cases[i].error);
        assert_null(strchr(x.got[1].error, '\n'));
        if (cases[i].n_tok >= 0)
            assert_int_equal(x.got[1].n_tok, cases[i].n_tok);
        d = described(&x);
        assert_int_equal(stream_count(d, "n_failed"), 1);
        json_decref(d);
        close_both(&x);
        assert_int_equal(left_fds(), before);
    }
}

/* A server that ends answers early: failed, unless what comes is asked for. */
TEST(any_length_is_complete)
{
    static const struct web_script s = {.fault = WEB_SHORT, .fault_from = 1};

    for (int any = 0; any < 2; any++) {
        struct fixture x;

        open_both(&x, &s, any ? ", \"any_length\": true" : "");
        submit(&x, 0, 9, 6);
        submit(&x, 1, 9, 1); /* of which no token comes */
        wait_ended(&x, 2);
        assert_int_equal(x.got[0].failed, !any);
        assert_int_equal(x.got[0].n_tok, 5);
        assert_int_equal(x.got[1].failed, 1);
        close_both(&x);
    }
}

/* A server that is gone: the request fails, and so does opening. */
TEST(a_refused_connection_is_one_line)
{
    struct fixture x;
    char url[64];

    open_both(&x, &(struct web_script){0}, "");
    snprintf(url, sizeof(url), "%s", web_url(x.web));
    web_stop(x.web);
    submit(&x, 0, 9, 6);
    wait_ended(&x, 1);
    assert_int_equal(x.got[0].failed, 1);
    assert_non_null(strstr(x.got[0].error, "Failed to connect to 127.0.0.1"));
    x.adapter->close(&x.sut);
    assert_err(try_open(&x, url, ""), ERR_IO, "/v1/models: Failed to connect");
    assert_null(x.sut);
}

/* Canceled while it waits, while it streams, and when it has never begun: each ends once,
 * and the server sees the connection close. */
TEST(cancel_closes_the_stream)
{
    struct web_script s = {.dialect = WEB_VLLM, .itl_ms = 20};
    struct fixture x;

    open_both(&x, &s, "");
    submit(&x, 0, 9, 60);
    submit(&x, 1, 9, 2);
    wait_ended(&x, 1);
    x.adapter->cancel(x.sut, 0);
    x.adapter->cancel(x.sut, 77);
    wait_ended(&x, 2);
    assert_string_equal(x.got[0].error, "canceled");
    assert_int_equal(x.got[1].failed, 0);
    submit(&x, 2, 9, 60);
    x.adapter->cancel(x.sut, 2);
    wait_ended(&x, 3);
    assert_string_equal(x.got[2].error, "canceled");
    while (!web_seen_at(x.web, 1).closed_by_client &&
           !web_seen_at(x.web, 2).closed_by_client)
        clock_sleep_until_ns(clock_ns() + 1000000, 0);
    close_both(&x);
}

/* Closing ends what is open. */
TEST(close_ends_every_request)
{
    struct web_script s = {.fault = WEB_HANG, .fault_from = 1};
    struct fixture x;

    open_both(&x, &s, "");
    for (int i = 0; i < 20; i++)
        submit(&x, i, 9, 6);
    x.adapter->close(&x.sut);
    assert_int_equal(x.n_ended, 20);
    for (int i = 0; i < 20; i++)
        assert_string_equal(x.got[i].error, "canceled");
    close_both(&x);
}

/* --- what a server is */

TEST(fields_that_are_refused_are_left_out)
{
    struct web_script s = {.dialect = WEB_PLAIN, .refuses = "min_tokens"};
    struct fixture x;
    json_t *d;

    /* A member is refused, not the object that it is in. */
    assert_int_equal(sut_openai_named("stream_options: unknown continuous_usage_stats"),
                     sut_openai_named("continuous_usage_stats"));
    assert_true(sut_openai_named("stream_options") != 0);
    assert_int_equal(sut_openai_named("the prompt is too long"), 0);
    open_both(&x, &s, "");
    submit(&x, 0, 9, 3);
    wait_ended(&x, 1);
    assert_string_equal(x.got[0].error, "");
    d = described(&x);
    assert_string_equal(json_string_value(json_object_get(json_object_get(d, "server"),
                                                          "fields_refused")),
                        "min_tokens");
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(d, "server"), "version")),
        "1.2.3");
    json_decref(d);
    close_both(&x);
}

/* Without ids: as many words as there would be ids, and the reason on record. */
TEST(words_stand_for_ids_where_none_are_taken)
{
    struct web_script s = {
        .dialect = WEB_PLAIN, .refuses = "\"prompt\":[", .prompt_excess = 2};
    struct fixture x;
    const json_t *server;
    json_t *d;

    open_both(&x, &s, "");
    submit(&x, 0, 40, 3);
    wait_ended(&x, 1);
    assert_string_equal(x.got[0].error, "");
    d = described(&x);
    server = json_object_get(d, "server");
    assert_string_equal(json_string_value(json_object_get(server, "prompt")), "words");
    assert_string_equal(json_string_value(json_object_get(server, "why_words")),
                        "unknown field: prompt must be a string");
    assert_int_equal(json_integer_value(json_object_get(server, "prompt_extra_tok")), 2);
    assert_int_equal(stream_count(d, "n_prompt_counts_that_differ"), 0);
    json_decref(d);
    x.adapter->close(&x.sut);
    assert_err(try_open(&x, web_url(x.web), ", \"prompt\": \"ids\""), ERR_UNSUPPORTED,
               "does not take token ids");
    close_both(&x);
}

/* Regression: a server that has only chats was refused with its 404, and a model's reasoning, which
 * comes first, did not count as tokens. */
TEST(chats_are_measured_where_there_is_nothing_else)
{
    struct web_script s = {.dialect = WEB_CHAT};
    const json_t *server;
    struct fixture x;
    json_t *d;

    open_both(&x, &s, "");
    submit(&x, 0, 40, 4);
    wait_ended(&x, 1);
    assert_string_equal(x.got[0].error, "");
    assert_int_equal(x.got[0].n_tok, 4);
    assert_non_null(
        strstr(web_seen_at(x.web, 1).body, "\"messages\":[{\"role\":\"user\""));
    d = described(&x);
    server = json_object_get(d, "server");
    assert_string_equal(json_string_value(json_object_get(server, "path")),
                        "/chat/completions");
    assert_string_equal(json_string_value(json_object_get(server, "prompt")), "words");
    assert_int_equal(stream_count(d, "n_tok_shown_at_the_end_only"), 0);
    assert_int_equal(stream_count(d, "n_prompt_counts_that_differ"), 0);
    json_decref(d);
    x.adapter->close(&x.sut);
    assert_err(try_open(&x, web_url(x.web), ", \"prompt\": \"ids\""), ERR_IO,
               "/completions: the server answers HTTP 404");
    close_both(&x);
}

TEST(a_prompt_that_counts_otherwise_is_on_record)
{
    struct web_script s = {.dialect = WEB_VLLM, .prompt_excess = 1};
    struct fixture x;
    json_t *d;

    open_both(&x, &s, "");
    submit(&x, 0, 40, 3);
    wait_ended(&x, 1);
    d = described(&x);
    assert_int_equal(stream_count(d, "n_prompt_counts_that_differ"), 1);
    assert_int_equal(stream_count(d, "prompt_tok_excess_max"), 1);
    json_decref(d);
    close_both(&x);
}

TEST(keys_are_sent_and_not_recorded)
{
    struct web_script s = {.dialect = WEB_VLLM, .key = "sk-very-secret"};
    struct fixture x;
    char *text;
    json_t *d;

    setenv("TEST_KEY_OF_SERVER", "sk-very-secret", 1);
    open_both(&x, &s, ", \"api_key_env\": \"TEST_KEY_OF_SERVER\"");
    submit(&x, 0, 4, 3);
    wait_ended(&x, 1);
    assert_string_equal(x.got[0].error, "");
    d = described(&x);
    text = json_dumps(d, 0);
    assert_null(strstr(text, "very-secret"));
    free(text);
    json_decref(d);
    x.adapter->close(&x.sut);
    assert_err(try_open(&x, web_url(x.web), ""), ERR_IO,
               "HTTP 401: no such key (api_key");
    assert_err(try_open(&x, web_url(x.web), ", \"api_key_env\": \"NO_SUCH_VARIABLE_\""),
               ERR_ARG, "$NO_SUCH_VARIABLE_ is not set");
    close_both(&x);
}

TEST(limits_and_ids_are_the_servers)
{
    struct fixture x;
    int64_t vocab, max_tok;
    int32_t *ids;
    size_t n;

    open_both(&x, &(struct web_script){0}, "");
    assert_ok(x.adapter->limits(x.sut, &vocab, &max_tok));
    assert_int_equal(vocab, 32000);
    assert_int_equal(max_tok, 4096);
    assert_ok(x.adapter->encode(x.sut, "one two", 7, &ids, &n));
    assert_int_equal(n, 3);
    assert_int_equal(ids[2], 7);
    mem_free(ids);
    close_both(&x);
}

TEST(options_are_checked)
{
    struct fixture x = {0};
    char url[64];

    assert_err(try_open(&x, "localhost:8000", ""), ERR_ARG, "expected a URL such as");
    assert_err(try_open(&x, "http://h", ", \"system\": \"llama.cpp\""), ERR_ARG,
               "expected url or system, found both");
    assert_err(try_open(&x, "http://h", ", \"model\": \"m.gguf\""), ERR_ARG,
               "are for a server that is started");
    assert_ok(sut_openai_url(url, sizeof(url), "http://h:8/"));
    assert_string_equal(url, "http://h:8/v1");
    assert_ok(sut_openai_url(url, sizeof(url), "https://h:8/v3/"));
    assert_string_equal(url, "https://h:8/v3");
    x.web = web_start(&(struct web_script){.no_models = 1});
    assert_err(try_open(&x, web_url(x.web), ""), ERR_IO,
               "/v1/models: the server answers HTTP 404: no such page");
    web_stop(x.web);
    x.web = web_start(&(struct web_script){0});
    assert_err(try_open(&x, web_url(x.web), ", \"served_name\": \"gpt\""), ERR_IO,
               "the server lists no model called gpt");
    web_stop(x.web);
}

/* --- events alone */

struct events {
    char text[4096];
    int n;
};

static int take_event(void *ctx, char *data, size_t n)
{
    struct events *e = ctx;

    assert_int_equal(strlen(data), n);
    strcat(e->text, data);
    strcat(e->text, "|");
    e->n++;
    return OK;
}

TEST(events_are_whole_wherever_they_are_cut)
{
    static const char stream[] =
        ": a comment\r\n\r\ndata: one\r\n\r\ndata:two\ndata: \xe6\xbc"
        "\xa2\n\nevent: x\nid: 7\ndata: {}\n\nerror: bad\n\n"
        "data: cut off";
    for (size_t piece = 1; piece <= sizeof(stream); piece++) {
        struct sut_sse s = {0};
        struct events e = {0};

        for (size_t at = 0; at < sizeof(stream) - 1; at += piece) {
            size_t n = sizeof(stream) - 1 - at;

            assert_ok(
                sut_sse_feed(&s, stream + at, n < piece ? n : piece, take_event, &e));
        }
        assert_string_equal(e.text, "one|two\n\xe6\xbc\xa2|{}|bad|");
        sut_sse_fini(&s);
    }
}

TEST(a_thread_or_lock_cannot_be_had)
{
    const struct sut_http_opts o = {.url = "http://127.0.0.1:1"};
    struct sut_http *h = NULL;

    assert_int_equal(test_thread_faults(sut_http_open(&h, &o), !h), 3);
    sut_http_close(&h);
}

int main(void)
{
    for (size_t i = 0; i < sizeof(prompt) / sizeof(prompt[0]); i++)
        prompt[i] = 11 + (int32_t)i;
    return test_main();
}
