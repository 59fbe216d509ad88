/* Bodies of requests: what they mean, what is refused, and damaged ones. */
#include "http/request.h"

#include "tests/support/mutate.h"
#include "tests/support/test.h"

static int parse(struct http_request *r, enum http_api api, const char *body)
{
    return http_request_parse(r, api, body, strlen(body));
}

TEST(test_all_keys)
{
    struct http_request r;

    assert_ok(
        parse(&r, HTTP_COMPLETION,
              "{\"model\": \"m\", \"prompt\": [\"a\\u00e9\"], \"max_tokens\": 7, "
              "\"temperature\": 0.5, \"top_p\": 0.25, \"min_p\": 0.125, \"top_k\": "
              "3, \"seed\": -5, \"stop\": [\"x\", \"yz\"], \"stream\": true, "
              "\"stream_options\": {\"include_usage\": true}, \"logprobs\": 2, "
              "\"ignore_eos\": true, \"return_token_ids\": true, \"user\": \"u\"}"));
    assert_string_equal(r.model, "m");
    assert_int_equal(json_string_length(http_request_prompt(&r, 0)), 3);
    assert_string_equal(json_string_value(http_request_prompt(&r, 0)), "a\xc3\xa9");
    assert_true(r.n_prompts == 1 && r.n == 1 && r.several);
    assert_int_equal(r.max_new, 7);
    assert_true(r.sampling.temperature == 0.5 && r.sampling.top_p == 0.25);
    assert_true(r.sampling.min_p == 0.125 && r.sampling.top_k == 3);
    assert_true(r.has_seed && r.sampling.seed == -5);
    assert_int_equal(r.n_stop, 2);
    assert_string_equal(json_string_value(r.stop[1]), "yz");
    assert_true(r.stream && r.usage && r.ignore_eos && r.token_ids && r.logprobs);
    assert_int_equal(r.n_top, 2);
    http_request_fini(&r);
}

TEST(test_what_changes_logits)
{
    struct http_request r;

    assert_ok(parse(&r, HTTP_COMPLETION,
                    "{\"prompt\": \"a\", \"presence_penalty\": 0.5, "
                    "\"frequency_penalty\": -1, \"repetition_penalty\": 1.25, "
                    "\"typical_p\": 0.5, \"min_tokens\": 3, \"stop_token_ids\": [7, 8], "
                    "\"logit_bias\": {\"5\": -100, \"6\": 1.5}}"));
    assert_true(r.sampling.presence_penalty == 0.5 && r.sampling.frequency_penalty == -1);
    assert_true(r.sampling.repetition_penalty == 1.25 && r.sampling.typical_p == 0.5);
    assert_true(r.min_new == 3 && r.n_stop_ids == 2 && r.n_bias == 2);
    assert_true(r.stop_ids[0] == 7 && r.stop_ids[1] == 8);
    assert_true(r.bias[0].id == 5 && r.bias[0].bias == -100);
    assert_true(r.bias[1].id == 6 && r.bias[1].bias == 1.5f);
    http_request_fini(&r);
}

TEST(test_defaults)
{
    struct http_request r;

    assert_ok(parse(&r, HTTP_CHAT,
                    "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], "
                    "\"max_tokens\": null, \"seed\": null, \"stop\": null}"));
    assert_true(r.sampling.temperature == 1 && r.sampling.top_p == 1);
    assert_true(r.max_new == 0 && !r.has_seed && r.n_stop == 0 && !r.stream);
    assert_int_equal(json_array_size(r.chat), 1);
    http_request_fini(&r);
    assert_ok(parse(&r, HTTP_COMPLETION, "{\"prompt\": [[4, 5]], \"top_p\": 0}"));
    assert_int_equal(json_array_size(http_request_prompt(&r, 0)), 2);
    assert_true(r.sampling.top_k == 1 && r.sampling.top_p == 1); /* greedy */
    http_request_fini(&r);
    assert_ok(parse(&r, HTTP_COMPLETION, "{\"prompt\": \"\", \"top_k\": -1}"));
    assert_int_equal(json_string_length(http_request_prompt(&r, 0)), 0);
    assert_int_equal(r.sampling.top_k, 0);
    http_request_fini(&r);
}

/* A prompt may hold the character U+0000, which is a token like others; a text that is read up to
 * its end as C has it may not. */
TEST(test_nul)
{
    static const char *const prompts[] = {"{\"prompt\": \"a\\u0000b\"}",
                                          "{\"prompt\": [\"a\\u0000b\"]}"};
    static const char *const others[] = {
        "{\"prompt\": \"a\", \"stop\": \"a\\u0000b\"}",
        "{\"prompt\": \"a\", \"model\": \"\\u0000\"}",
        "{\"prompt\": \"a\", \"user\": {\"x\": [\"\\u0000\"]}}",
        "{\"prompt\": [\"a\", \"b\"], \"suffix\": \"\\u0000\"}"};
    struct http_request r;

    for (int i = 0; i < 2; i++) {
        assert_ok(parse(&r, HTTP_COMPLETION, prompts[i]));
        assert_int_equal(json_string_length(http_request_prompt(&r, 0)), 3);
        assert_memory_equal(json_string_value(http_request_prompt(&r, 0)), "a\0b", 3);
        http_request_fini(&r);
    }
    for (int i = 0; i < 4; i++) {
        assert_err(parse(&r, HTTP_COMPLETION, others[i]), ERR_FORMAT, "in a prompt only");
        http_request_fini(&r);
    }
    assert_err(parse(&r, HTTP_CHAT, "{\"messages\": [{\"content\": \"\\u0000\"}]}"),
               ERR_FORMAT, "in a prompt only");
    http_request_fini(&r);
}

/* Several prompts, several choices, and keys that change nothing. */
TEST(test_several)
{
    struct http_request r;
    int n = 0;

    assert_ok(parse(&r, HTTP_COMPLETION,
                    "{\"prompt\": [\"a\", [7, 8, 9]], \"n\": 3, \"store\": true, "
                    "\"cache_prompt\": false}"));
    assert_true(r.n_prompts == 2 && r.n == 3);
    assert_string_equal(json_string_value(http_request_prompt(&r, 0)), "a");
    assert_int_equal(json_array_size(http_request_prompt(&r, 1)), 3);
    for (int i = 0; http_request_key(i); i++)
        if (r.no_effect >> i & 1) {
            assert_true(strcmp(http_request_key(i), "store") == 0 ||
                        strcmp(http_request_key(i), "cache_prompt") == 0);
            n++;
        }
    assert_int_equal(n, 2);
    http_request_fini(&r);
    assert_err(parse(&r, HTTP_COMPLETION, "{\"prompt\": [\"a\", 7]}"), ERR_ARG,
               "expected text or an array of token ids");
    http_request_fini(&r);
    assert_err(parse(&r, HTTP_COMPLETION, "{\"prompt\": [\"a\", \"b\"], \"n\": 65}"),
               ERR_LIMIT, "65 choices of 2 prompts: expected at most 128");
    http_request_fini(&r);
}

/* The defaults of llama-server and of vLLM, who call the same by other names. */
TEST(test_tokenize)
{
    struct http_request r;

    assert_ok(parse(&r, HTTP_TOKENIZE, "{\"content\": \"a\"}"));
    assert_true(!r.bos && r.special && r.n_prompts == 1);
    http_request_fini(&r);
    assert_ok(parse(&r, HTTP_TOKENIZE, "{\"content\": \"a\", \"add_special\": true}"));
    assert_true(r.bos);
    http_request_fini(&r);
    assert_ok(parse(&r, HTTP_TOKENIZE, "{\"prompt\": \"a\"}"));
    assert_true(r.bos);
    http_request_fini(&r);
    assert_ok(parse(&r, HTTP_DETOKENIZE, "{\"tokens\": [1, 2]}"));
    assert_int_equal(json_array_size(r.prompt), 2);
    http_request_fini(&r);
    assert_err(parse(&r, HTTP_DETOKENIZE, "{\"tokens\": \"a\"}"), ERR_ARG, "token ids");
    http_request_fini(&r);
}

#define P "{\"prompt\": \"a\", "
#define M "{\"messages\": [{}], "

TEST(test_refusals)
{
    static const struct {
        enum http_api api;
        const char *body;
        int rc;
        const char *param, *part;
    } cases[] = {
        {HTTP_COMPLETION, "", ERR_FORMAT, NULL, "line 1"},
        {HTTP_COMPLETION, "7", ERR_FORMAT, NULL, "request"},
        {HTTP_COMPLETION, "[]", ERR_FORMAT, NULL, "object"},
        {HTTP_COMPLETION, "{}", ERR_ARG, "prompt", "missing"},
        {HTTP_CHAT, "{}", ERR_ARG, "messages", "missing"},
        {HTTP_CHAT, "{\"messages\": {}}", ERR_ARG, "messages", "array"},
        {HTTP_CHAT, "{\"prompt\": \"a\"}", ERR_ARG, NULL, "unknown key \"prompt\""},
        {HTTP_COMPLETION, M "}", ERR_FORMAT, NULL, "line 1"},
        {HTTP_COMPLETION, "{\"prompt\": [\"a\", 1]}", ERR_ARG, "prompt", "token ids"},
        {HTTP_COMPLETION, "{\"prompt\": [1, \"a\"]}", ERR_ARG, "prompt", "element 1"},
        {HTTP_COMPLETION, "{\"prompt\": [2147483648]}", ERR_ARG, "prompt", "element 0"},
        {HTTP_COMPLETION, P "\"max_tokens\": 0}", ERR_ARG, "max_tokens", "at least 1"},
        {HTTP_CHAT, M "\"max_tokens\": 0}", ERR_ARG, "max_tokens", "at least 1"},
        {HTTP_COMPLETION, P "\"echo\": true, \"max_tokens\": 0}", ERR_ARG, "echo",
         "logprobs"},
        {HTTP_COMPLETION, P "\"max_tokens\": 1.5}", ERR_FORMAT, "max_tokens", "integer"},
        {HTTP_COMPLETION, P "\"max_tokens\": 99999999}", ERR_FORMAT, "max_tokens", "["},
        {HTTP_COMPLETION, P "\"max_completion_tokens\": 1}", ERR_ARG, NULL, "unknown"},
        {HTTP_COMPLETION, P "\"temperature\": 101}", ERR_ARG, "temperature", "100"},
        {HTTP_COMPLETION, P "\"top_p\": 1.01}", ERR_ARG, "top_p", "0 to 1"},
        {HTTP_COMPLETION, P "\"min_p\": -0.1}", ERR_ARG, "min_p", "0 to 1"},
        {HTTP_COMPLETION, P "\"top_k\": -2}", ERR_FORMAT, "top_k", "[-1"},
        {HTTP_COMPLETION, P "\"stream\": 1}", ERR_FORMAT, "stream", "true or false"},
        {HTTP_COMPLETION, P "\"stop\": [1]}", ERR_ARG, "stop", "texts"},
        {HTTP_COMPLETION, P "\"stop\": [\"\"]}", ERR_ARG, "stop", "1 to 1024"},
        {HTTP_COMPLETION, P "\"logprobs\": 21}", ERR_FORMAT, "logprobs", "20"},
        {HTTP_CHAT, M "\"logprobs\": 5}", ERR_ARG, "logprobs", "true or false"},
        {HTTP_CHAT, M "\"top_logprobs\": 5}", ERR_ARG, "top_logprobs", "logprobs"},
        {HTTP_COMPLETION, P "\"n\": 0}", ERR_FORMAT, "n", "[1, 128]"},
        {HTTP_COMPLETION, P "\"n\": \"1\"}", ERR_FORMAT, "n", "integer"},
        {HTTP_COMPLETION, P "\"best_of\": 3}", ERR_UNSUPPORTED, "best_of", "only 1"},
        {HTTP_COMPLETION, P "\"presence_penalty\": 2.5}", ERR_ARG, "presence_penalty",
         "-2 to 2"},
        {HTTP_COMPLETION, P "\"repetition_penalty\": 0}", ERR_ARG, "repetition_penalty",
         "0.01 to 100"},
        {HTTP_COMPLETION, P "\"logit_bias\": {\"5\": 101}}", ERR_ARG, "logit_bias",
         "-100 to 100"},
        {HTTP_COMPLETION, P "\"logit_bias\": {\"x\": 1}}", ERR_ARG, "logit_bias",
         "\"x\""},
        {HTTP_COMPLETION, P "\"logit_bias\": {\"-1\": 1}}", ERR_ARG, "logit_bias", "id"},
        {HTTP_COMPLETION, P "\"logit_bias\": [5]}", ERR_ARG, "logit_bias", "object"},
        {HTTP_COMPLETION, P "\"stop_token_ids\": [-1]}", ERR_ARG, "stop_token_ids",
         "token id"},
        {HTTP_COMPLETION,
         P "\"stop_token_ids\": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, "
           "17]}",
         ERR_LIMIT, "stop_token_ids", "at most 16, found 17"},
        {HTTP_COMPLETION, P "\"min_tokens\": -1}", ERR_FORMAT, "min_tokens", "[0"},
        {HTTP_CHAT, M "\"tool_choice\": \"required\"}", ERR_ARG, "tool_choice",
         "expected tools"},
        {HTTP_CHAT, M "\"tool_choice\": {\"type\": \"function\"}}", ERR_ARG,
         "tool_choice", "none"},
        {HTTP_CHAT, M "\"tools\": {}}", ERR_ARG, "tools", "array"},
        {HTTP_CHAT, M "\"tools\": [{}, 5]}", ERR_ARG, "tools", "element 1"},
        {HTTP_COMPLETION, P "\"tools\": []}", ERR_ARG, NULL, "unknown"},
        {HTTP_CHAT, M "\"chat_template_kwargs\": 5}", ERR_ARG, "chat_template_kwargs",
         "object"},
        {HTTP_CHAT, M "\"response_format\": {\"type\": \"xml\"}}", ERR_ARG,
         "response_format", "expected {\"type\": \"text\"}"},
        {HTTP_CHAT, M "\"response_format\": 5}", ERR_ARG, "response_format",
         "expected {"},
        {HTTP_CHAT, M "\"response_format\": {\"type\": \"json_schema\"}}", ERR_ARG,
         "response_format", "\"schema\""},
        {HTTP_CHAT, M "\"json_schema\": [1]}", ERR_ARG, "json_schema", "a JSON schema"},
        {HTTP_COMPLETION, P "\"grammar\": {}}", ERR_ARG, "grammar", "in GBNF"},
        {HTTP_COMPLETION, P "\"grammar\": \"root ::= .\", \"json_schema\": {}}", ERR_ARG,
         "json_schema", "expected one of"},
        {HTTP_COMPLETION, P "\"stream_options\": {\"a\": 1}, \"stream\": true}",
         ERR_FORMAT, "stream_options", "\"a\""},
        {HTTP_COMPLETION, P "\"max_tokns\": 1}", ERR_ARG, NULL, "\"max_tokens\""},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct http_request r;
        int rc = parse(&r, cases[i].api, cases[i].body);

        if (rc != cases[i].rc || !strstr(err_msg(), cases[i].part))
            fail_msg("%s: got %s \"%s\"", cases[i].body, err_name(rc), err_msg());
        if (cases[i].param)
            assert_string_equal(r.param, cases[i].param);
        http_request_fini(&r);
    }
}

/* Tools are for the template, unless they are not to be used. */
TEST(test_tools)
{
    static const struct {
        const char *body;
        int n_tools; /* 0: none */
    } cases[] = {
        {M "\"tools\": [{}, {}], \"tool_choice\": \"auto\"}", 2},
        {M "\"tools\": [{}]}", 1},
        {M "\"tools\": [{}], \"tool_choice\": \"required\"}", 1},
        {M "\"tools\": []}", 0},
        {M "\"tool_choice\": \"none\", \"tools\": [{}]}", 0},
    };
    struct http_request r;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_ok(parse(&r, HTTP_CHAT, cases[i].body));
        assert_int_equal(json_array_size(r.tools), cases[i].n_tools);
        assert_true((r.tools != NULL) == (cases[i].n_tools > 0));
        http_request_fini(&r);
    }
    assert_ok(parse(&r, HTTP_CHAT, M "\"chat_template_kwargs\": {\"a\": 1}}"));
    assert_int_equal(json_object_size(r.template_variables), 1);
    http_request_fini(&r);
}

/* Three keys say what the text obeys; a chat's begins a text. */
TEST(test_grammars)
{
    static const struct {
        const char *body, *text;
        bool is_schema;
    } cases[] = {
        {P "\"grammar\": \"root ::= .\"}", "root ::= .", false},
        {P "\"json_schema\": {\"b\": 1, \"a\": [true]}}", "{\"b\":1,\"a\":[true]}", true},
        {P "\"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"name\": "
           "\"x\", \"strict\": true, \"schema\": {\"type\": \"null\"}}}}",
         "{\"type\":\"null\"}", true},
        {P "\"response_format\": {\"type\": \"json_object\"}}", "{\"type\": \"object\"}",
         true},
        {P "\"response_format\": {\"type\": \"text\"}, \"grammar\": null}", NULL, false},
    };
    struct http_request r;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_ok(parse(&r, HTTP_COMPLETION, cases[i].body));
        assert_true((r.grammar.text != NULL) == (cases[i].text != NULL));
        assert_int_equal(r.grammar.is_schema, cases[i].is_schema);
        assert_false(r.grammar.at_start);
        if (cases[i].text)
            assert_string_equal(r.grammar.text, cases[i].text);
        assert_int_equal(r.grammar.n, cases[i].text ? strlen(cases[i].text) : 0);
        http_request_fini(&r);
    }
    assert_ok(parse(&r, HTTP_CHAT, M "\"grammar\": \"root ::= .\"}"));
    assert_true(r.grammar.at_start);
    http_request_fini(&r);
}

TEST(test_values_that_ask_for_nothing)
{
    static const char *const bodies[] = {
        "\"n\": 1, \"best_of\": 1.0, \"echo\": false, \"suffix\": \"\"",
        "\"presence_penalty\": 0, \"frequency_penalty\": 0.0, \"repetition_penalty\": 1",
        "\"logit_bias\": {}, \"response_format\": {\"type\": \"text\"}",
        "\"metadata\": {\"a\": 1}, \"user\": 7",
    };

    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        struct http_request r;
        char body[200];

        snprintf(body, sizeof(body), P "%s}", bodies[i]);
        assert_ok(parse(&r, HTTP_COMPLETION, body));
        http_request_fini(&r);
    }
}

TEST(test_damaged)
{
    static const char body[] =
        M "\"max_tokens\": 7, \"temperature\": 0.5, \"top_p\": 0.25, \"seed\": 5, "
          "\"stop\": [\"x\", \"yz\"], \"stream\": true, \"stream_options\": "
          "{\"include_usage\": true}, \"logprobs\": true, \"top_logprobs\": 2}";
    uint8_t *out = mem_new(MEM_TEST, sizeof(body) + MUTATE_EXTRA, 1);
    int n_ok = 0;
    struct rng rng;

    assert_non_null(out);
    rng_init(&rng, test_seed(), "requests");
    for (int i = 0; i < 3000; i++) {
        size_t n = mutate(&rng, (const uint8_t *)body, sizeof(body) - 1, out);
        struct http_request r;
        int rc;

        err_clear();
        rc = http_request_parse(&r, i % 2 ? HTTP_CHAT : HTTP_COMPLETION,
                                (const char *)out, n);
        n_ok += rc == OK;
        if (rc == OK) {
            assert_true(r.sampling.temperature >= 0 && r.sampling.top_p > 0);
            assert_true(r.n_stop <= HTTP_STOP_MAX && r.n_top <= HTTP_TOP_MAX);
        } else {
            assert_true(err_msg()[0] != '\0');
        }
        http_request_fini(&r);
    }
    assert_true(n_ok > 0 && n_ok < 3000);
    mem_free(out);
}

/* Whatever runs out of memory: an error, and nothing leaks. */
TEST(test_out_of_memory)
{
    static const char body[] =
        "{\"messages\": [{\"role\": \"system\", \"content\": [{\"type\": \"text\", "
        "\"text\": \"a\"}]}, {\"role\": \"user\", \"content\": \"b\"}], \"stop\": "
        "[\"x\"], \"top_p\": 0.5}";
    int rc = ERR_NOMEM;

    for (long n = 0; rc != OK; n++) {
        struct http_request r;

        assert_true(n < 1000);
        err_clear();
        mem_fail_after(n, n % 2);
        rc = parse(&r, HTTP_CHAT, body);
        mem_fail_after(-1, 0);
        if (rc != OK)
            assert_int_equal(rc, ERR_NOMEM);
        http_request_fini(&r);
    }
}
