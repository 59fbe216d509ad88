#include "http/request.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/name.h"

#define WHERE "request"

enum kind {
    BOOL,
    INT,
    NUM,
    STR,
    OWN,     /* read by a function below */
    NEUTRAL, /* not offered: only the value `min`, or one that is empty or false */
    IGNORED, /* has no effect on the answer */
};
enum {
    COMPLETION = 1 << HTTP_COMPLETION,
    CHAT = 1 << HTTP_CHAT,
    TOKENIZE = 1 << HTTP_TOKENIZE,
    DETOKENIZE = 1 << HTTP_DETOKENIZE,
    BOTH = COMPLETION | CHAT
};

static const struct key {
    const char *name;
    unsigned apis;
    enum kind kind;
    size_t at; /* of the member */
    double min, max;
    const char *word; /* NEUTRAL: also this text, alone or as the member "type" */
} keys[] = {
#define AT(member) offsetof(struct http_request, member)
    {"model", BOTH | TOKENIZE | DETOKENIZE, STR, AT(model), 0, 0, NULL},
    {"prompt", COMPLETION | TOKENIZE, OWN, 0, 0, 0, NULL},
    {"content", TOKENIZE, OWN, 0, 0, 0, NULL},
    {"tokens", DETOKENIZE, OWN, 0, 0, 0, NULL},
    {"messages", CHAT | TOKENIZE, OWN, 0, 0, 0, NULL},
    {"add_special", TOKENIZE, BOOL, AT(bos), 0, 0, NULL},        /* llama-server's */
    {"add_special_tokens", TOKENIZE, BOOL, AT(bos), 0, 0, NULL}, /* vLLM's */
    {"parse_special", TOKENIZE, BOOL, AT(special), 0, 0, NULL},
    {"with_pieces", TOKENIZE, BOOL, AT(pieces), 0, 0, NULL},
    {"return_token_strs", TOKENIZE, BOOL, AT(strings), 0, 0, NULL},
    {"max_tokens", BOTH, INT, AT(max_new), 0, 1 << 24, NULL},
    {"max_completion_tokens", CHAT, INT, AT(max_new), 1, 1 << 24, NULL},
    {"temperature", BOTH, NUM, AT(sampling.temperature), 0, 100, NULL},
    {"top_p", BOTH, NUM, AT(sampling.top_p), 0, 1, NULL},
    {"min_p", BOTH, NUM, AT(sampling.min_p), 0, 1, NULL},
    {"top_k", BOTH, INT, AT(sampling.top_k), -1, 1 << 24, NULL},
    {"seed", BOTH, INT, AT(sampling.seed), -9.2e18, 9.2e18, NULL},
    {"stop", BOTH, OWN, 0, 0, 0, NULL},
    {"stream", BOTH, BOOL, AT(stream), 0, 0, NULL},
    {"stream_options", BOTH, OWN, 0, 0, 0, NULL},
    {"logprobs", BOTH, OWN, 0, 0, 0, NULL},
    {"top_logprobs", CHAT, INT, AT(n_top), 0, HTTP_TOP_MAX, NULL},
    {"ignore_eos", BOTH, BOOL, AT(ignore_eos), 0, 0, NULL},
    {"return_token_ids", BOTH, BOOL, AT(token_ids), 0, 0, NULL},
    {"n", BOTH, INT, AT(n), 1, HTTP_SEQS_MAX, NULL},
    {"best_of", COMPLETION, NEUTRAL, 0, 1, 0, NULL},
    {"echo", COMPLETION, BOOL, AT(echo), 0, 0, NULL},
    {"special", COMPLETION, BOOL, AT(special), 0, 0, NULL},
    {"suffix", COMPLETION, NEUTRAL, 0, 0, 0, NULL},
    {"typical_p", BOTH, NUM, AT(sampling.typical_p), 0, 1, NULL},
    {"frequency_penalty", BOTH, NUM, AT(sampling.frequency_penalty), -2, 2, NULL},
    {"presence_penalty", BOTH, NUM, AT(sampling.presence_penalty), -2, 2, NULL},
    {"repetition_penalty", BOTH, NUM, AT(sampling.repetition_penalty), 0.01, 100, NULL},
    {"logit_bias", BOTH, OWN, 0, 0, 0, NULL},
    {"stop_token_ids", BOTH, OWN, 0, 0, 0, NULL},
    {"min_tokens", BOTH, INT, AT(min_new), 0, 1 << 24, NULL},
    {"tools", CHAT | TOKENIZE, OWN, 0, 0, 0, NULL},
    {"tool_choice", CHAT, OWN, 0, 0, 0, NULL},
    {"chat_template_kwargs", CHAT | TOKENIZE, OWN, 0, 0, 0, NULL},
    {"continue_final_message", CHAT | TOKENIZE, BOOL, AT(continue_final), 0, 0, NULL},
    {"add_generation_prompt", CHAT | TOKENIZE, OWN, 0, 0, 0, NULL},
    {"functions", CHAT, NEUTRAL, 0, 0, 0, NULL},
    {"function_call", CHAT, NEUTRAL, 0, 0, 0, "none"},
    {"response_format", BOTH, OWN, 0, 0, 0, NULL},
    {"json_schema", BOTH, OWN, 0, 0, 0, NULL},
    {"grammar", BOTH, OWN, 0, 0, 0, NULL},
    {"user", BOTH, IGNORED, 0, 0, 0, NULL},
    {"metadata", BOTH, IGNORED, 0, 0, 0, NULL},
    {"store", BOTH, IGNORED, 0, 0, 0, NULL},
    {"service_tier", BOTH, IGNORED, 0, 0, 0, NULL},
    {"cache_prompt", BOTH, IGNORED, 0, 0, 0, NULL}, /* --kv-reuse is for all requests */
    {"reasoning_effort", BOTH, IGNORED, 0, 0, 0, NULL},
    {"safety_identifier", BOTH, IGNORED, 0, 0, 0, NULL},
    {"prompt_cache_key", BOTH, IGNORED, 0, 0, 0, NULL},
    {"parallel_tool_calls", CHAT, IGNORED, 0, 0, 0, NULL},
};
#define N_KEYS ((int)(sizeof(keys) / sizeof(keys[0])))
_Static_assert(N_KEYS <= 64, "http_request.no_effect has a bit for each");

const char *http_request_key(int i)
{
    return i < N_KEYS ? keys[i].name : NULL;
}

static int find_key(struct http_request *r, const char *name, const struct key **out)
{
    const char *words[N_KEYS + 1] = {0};
    int n = 0;

    for (int i = 0; i < N_KEYS; i++) {
        if (!(keys[i].apis & 1u << r->api))
            continue;
        *out = &keys[i];
        words[n++] = keys[i].name;
        if (strcmp(name, keys[i].name) == 0)
            return OK;
    }
    return name_unknown(ERR_ARG, name, words, WHERE ": unknown key \"%.60s\"", name);
}

/* ---- the values that have rules of their own ---- */

static int check_ids(const json_t *v, const char *key)
{
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *id = json_array_get(v, i);

        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) > INT32_MAX)
            return err_set(ERR_ARG, WHERE ": %s: element %zu: expected a token id", key,
                           i);
    }
    return json_is_array(v)
               ? OK
               : err_set(ERR_ARG, WHERE ": %s: expected an array of token ids", key);
}

/* A text, an array of token ids, or an array of these. */
static int read_prompt(struct http_request *r, const json_t *v)
{
    r->prompt = v;
    r->several = json_is_array(v) && json_array_size(v) > 0 &&
                 !json_is_integer(json_array_get(v, 0));
    if (r->several && json_array_size(v) > HTTP_SEQS_MAX)
        return err_set(ERR_LIMIT,
                       WHERE ": prompt: expected at most %d prompts, found %zu",
                       HTTP_SEQS_MAX, json_array_size(v));
    r->n_prompts = r->several ? (int)json_array_size(v) : 1;
    for (int i = 0; i < r->n_prompts; i++) {
        const json_t *one = http_request_prompt(r, i);

        if (json_is_string(one))
            continue;
        if (!json_is_array(one))
            return err_set(ERR_ARG,
                           WHERE ": prompt: expected text or an array of token ids");
        TRY(check_ids(one, "prompt"));
    }
    return OK;
}

/* llama-server's name for a prompt that is a text. */
static int read_content(struct http_request *r, const json_t *v)
{
    return json_is_string(v) ? read_prompt(r, v)
                             : err_set(ERR_ARG, WHERE ": content: expected a text");
}

static int read_tokens(struct http_request *r, const json_t *v)
{
    r->prompt = v;
    r->n_prompts = 1;
    return check_ids(v, "tokens");
}

static int read_messages(struct http_request *r, const json_t *v)
{
    if (!json_is_array(v) || json_array_size(v) == 0)
        return err_set(ERR_ARG,
                       WHERE ": messages: expected an array of at least one message");
    r->chat = v;
    r->n_prompts = 1;
    return OK;
}

static int add_stop(struct http_request *r, const json_t *v)
{
    size_t n = json_string_length(v);

    if (!json_is_string(v) || n == 0 || n > HTTP_STOP_BYTES_MAX)
        return err_set(ERR_ARG, WHERE ": stop: expected texts of 1 to %d bytes",
                       HTTP_STOP_BYTES_MAX);
    r->stop[r->n_stop++] = v;
    return OK;
}

static int read_stop(struct http_request *r, const json_t *v)
{
    if (!json_is_array(v))
        return add_stop(r, v);
    if (json_array_size(v) > HTTP_STOP_MAX)
        return err_set(ERR_LIMIT, WHERE ": stop: expected at most %d texts, found %zu",
                       HTTP_STOP_MAX, json_array_size(v));
    for (size_t i = 0; i < json_array_size(v); i++)
        TRY(add_stop(r, json_array_get(v, i)));
    return OK;
}

/* {"id": bias}; a list is one that asks for nothing. */
static int read_logit_bias(struct http_request *r, const json_t *v)
{
    const char *key;
    json_t *bias;

    if (json_is_array(v) && json_array_size(v) == 0)
        return OK;
    if (!json_is_object(v) || json_object_size(v) > HTTP_BIAS_MAX)
        return err_set(ERR_ARG,
                       WHERE ": logit_bias: expected an object of at most %d ids",
                       HTTP_BIAS_MAX);
    json_object_foreach((json_t *)v, key, bias)
    {
        char *end;
        const long id = strtol(key, &end, 10);
        const double x = json_number_value(bias);

        if (end == key || *end || id < 0 || id > INT32_MAX || !json_is_number(bias) ||
            x < -100 || x > 100)
            return err_set(ERR_ARG,
                           WHERE ": logit_bias: \"%.20s\": expected a token id with a "
                                 "number from -100 to 100",
                           key);
        r->bias[r->n_bias++] = (struct sampler_bias){(int32_t)id, (float)x};
    }
    return OK;
}

static int read_stop_token_ids(struct http_request *r, const json_t *v)
{
    TRY(check_ids(v, "stop_token_ids"));
    if (json_array_size(v) > SERVE_STOP_IDS_MAX)
        return err_set(ERR_LIMIT,
                       WHERE ": stop_token_ids: expected at most %d, found %zu",
                       SERVE_STOP_IDS_MAX, json_array_size(v));
    for (size_t i = 0; i < json_array_size(v); i++)
        r->stop_ids[r->n_stop_ids++] = (int32_t)json_integer_value(json_array_get(v, i));
    return OK;
}

static int set_grammar(struct http_request *r, const char *text, bool is_schema)
{
    if (r->grammar.text)
        return err_set(ERR_ARG,
                       WHERE ": expected one of response_format, json_schema and "
                             "grammar, found several");
    r->grammar =
        (struct serve_grammar){text, strlen(text), is_schema, r->api == HTTP_CHAT};
    return OK;
}

static int read_grammar(struct http_request *r, const json_t *v)
{
    if (json_string_length(v) == 0)
        return err_set(ERR_ARG, WHERE ": grammar: expected a text of rules in GBNF");
    return set_grammar(r, json_string_value(v), false);
}

static int read_json_schema(struct http_request *r, const json_t *v)
{
    if (!json_is_object(v))
        return err_set(ERR_ARG, WHERE ": json_schema: expected a JSON schema");
    if (!r->schema)
        r->schema = json_text(v, JSON_COMPACT);
    return r->schema ? set_grammar(r, r->schema, true) : ERR_NOMEM;
}

static int read_response_format(struct http_request *r, const json_t *v)
{
    const char *type = json_str_at(v, "type", "");

    if (strcmp(type, "text") == 0)
        return OK;
    if (strcmp(type, "json_object") == 0)
        return set_grammar(r, "{\"type\": \"object\"}", true);
    v = json_object_get(json_object_get(v, "json_schema"), "schema");
    if (strcmp(type, "json_schema") == 0 && v)
        return read_json_schema(r, v);
    return err_set(ERR_ARG, WHERE
                   ": response_format: expected {\"type\": \"text\"}, \"json_object\", "
                   "or \"json_schema\" with {\"json_schema\": {\"schema\": ...}}");
}

static int read_stream_options(struct http_request *r, const json_t *v)
{
    static const char *const known[] = {"include_usage", "continuous_usage_stats",
                                        "include_obfuscation", NULL};

    if (!json_is_object(v))
        return err_set(ERR_ARG, WHERE ": stream_options: expected an object");
    TRY(json_check_keys(v, known, WHERE ": stream_options"));
    TRY(json_opt_bool(v, "include_usage", &r->usage, WHERE ": stream_options"));
    return json_opt_bool(v, "continuous_usage_stats", &r->usage_always,
                         WHERE ": stream_options");
}

static int read_tools(struct http_request *r, const json_t *v)
{
    for (size_t i = 0; i < json_array_size(v); i++)
        if (!json_is_object(json_array_get(v, i)))
            return err_set(ERR_ARG, WHERE ": tools: element %zu: expected an object", i);
    if (!json_is_array(v))
        return err_set(ERR_ARG, WHERE ": tools: expected an array of objects");
    r->tools = json_array_size(v) > 0 ? v : NULL;
    return OK;
}

/* Whether the model calls a tool, and which: its own choice, none, any, or the one of this name. */
static int read_tool_choice(struct http_request *r, const json_t *v)
{
    const char *word = json_str_at(v, "type", json_string_value(v));

    r->tool = json_str_at(json_object_get(v, "function"), "name", NULL);
    if (word && strcmp(word, "none") == 0)
        r->tool_choice = HTTP_TOOL_NONE;
    else if (word && (json_is_object(v) ? r->tool && strcmp(word, "function") == 0
                                        : strcmp(word, "required") == 0))
        r->tool_choice = HTTP_TOOL_REQUIRED;
    else if (!word || strcmp(word, "auto") != 0)
        return err_set(ERR_ARG, WHERE
                       ": tool_choice: expected \"auto\", \"none\", \"required\" or "
                       "{\"type\": \"function\", \"function\": {\"name\": ...}}");
    return OK;
}

static int read_template_variables(struct http_request *r, const json_t *v)
{
    if (!json_is_object(v))
        return err_set(ERR_ARG, WHERE ": chat_template_kwargs: expected an object");
    r->template_variables = v;
    return OK;
}

/* vLLM's clients say it together with continue_final_message; see check_together(). */
static int read_generation_prompt(struct http_request *r, const json_t *v)
{
    (void)r;
    return json_is_boolean(v)
               ? OK
               : err_set(ERR_ARG,
                         WHERE ": add_generation_prompt: expected true or false");
}

/* A number of alternatives for completions, a switch for chats. */
static int read_logprobs(struct http_request *r, const json_t *v)
{
    if (r->api == HTTP_CHAT) {
        if (!json_is_boolean(v))
            return err_set(ERR_ARG, WHERE ": logprobs: expected true or false");
        r->logprobs = json_is_true(v);
        return OK;
    }
    r->logprobs = true;
    return json_get_int(r->body, "logprobs", 0, HTTP_TOP_MAX, &r->n_top, WHERE);
}

static int read_own(struct http_request *r, const char *name, const json_t *v)
{
    static const struct {
        const char *name;
        int (*read)(struct http_request *r, const json_t *v);
    } readers[] = {
        {"prompt", read_prompt},
        {"content", read_content},
        {"tokens", read_tokens},
        {"messages", read_messages},
        {"stop", read_stop},
        {"logit_bias", read_logit_bias},
        {"stop_token_ids", read_stop_token_ids},
        {"response_format", read_response_format},
        {"json_schema", read_json_schema},
        {"grammar", read_grammar},
        {"stream_options", read_stream_options},
        {"logprobs", read_logprobs},
        {"tools", read_tools},
        {"tool_choice", read_tool_choice},
        {"chat_template_kwargs", read_template_variables},
        {"add_generation_prompt", read_generation_prompt},
    };
    size_t i = 0;

    while (strcmp(readers[i].name, name) != 0)
        i++;
    return readers[i].read(r, v);
}

/* ---- all of them ---- */

static bool asks_for_nothing(const struct key *k, const json_t *v)
{
    const char *word =
        json_string_value(json_is_object(v) && k->word ? json_object_get(v, "type") : v);

    if (json_is_number(v))
        return json_number_value(v) == k->min;
    if (k->word && word && strcmp(word, k->word) == 0)
        return true;
    return json_is_false(v) || (json_is_string(v) && json_string_length(v) == 0) ||
           (json_is_array(v) && json_array_size(v) == 0) ||
           (json_is_object(v) && json_object_size(v) == 0);
}

static int read_value(struct http_request *r, const struct key *k, const json_t *v)
{
    void *at = (char *)r + k->at;

    switch (k->kind) {
    case BOOL:
        return json_opt_bool(r->body, k->name, at, WHERE);
    case INT:
        return json_opt_int(r->body, k->name, (int64_t)k->min, (int64_t)k->max, at,
                            WHERE);
    case NUM:
        TRY(json_opt_f64(r->body, k->name, at, WHERE));
        if (*(double *)at >= k->min && *(double *)at <= k->max)
            return OK;
        return err_set(ERR_ARG, WHERE ": %s: expected a number from %g to %g, found %g",
                       k->name, k->min, k->max, *(double *)at);
    case STR:
        return json_opt_str(r->body, k->name, at, WHERE);
    case OWN:
        return read_own(r, k->name, v);
    case NEUTRAL:
        if (asks_for_nothing(k, v))
            return OK;
        if (k->min != 0)
            return err_set(ERR_UNSUPPORTED, WHERE ": %s: this server offers only %g",
                           k->name, k->min);
        return err_set(ERR_UNSUPPORTED, WHERE ": %s: this server does not offer it",
                       k->name);
    case IGNORED:
        r->no_effect |= UINT64_C(1) << (k - keys);
    }
    return OK;
}

static int read_keys(struct http_request *r)
{
    const struct key *k;
    const char *name;
    json_t *v;
    void *next;

    json_object_foreach_safe(r->body, next, name, v)
    {
        if (json_is_null(v)) {
            json_object_del(r->body, name);
            continue;
        }
        TRY(find_key(r, name, &k));
        r->param = k->name;
        TRY(read_value(r, k, v));
        r->param = NULL;
    }
    return OK;
}

static int check_together(struct http_request *r)
{
    static const char *const needed[] = {[HTTP_COMPLETION] = "prompt",
                                         [HTTP_CHAT] = "messages",
                                         [HTTP_TOKENIZE] = "content",
                                         [HTTP_DETOKENIZE] = "tokens"};

    r->param = needed[r->api];
    if (r->n_prompts == 0)
        return err_set(ERR_ARG, WHERE ": %s: missing", r->param);
    r->param = "n";
    if (r->n * r->n_prompts > HTTP_SEQS_MAX)
        return err_set(ERR_LIMIT,
                       WHERE
                       ": n: %lld choices of %d prompts: expected at most %d in all",
                       (long long)r->n, r->n_prompts, HTTP_SEQS_MAX);
    if (json_object_get(r->body, "content") && !json_object_get(r->body, "add_special") &&
        !json_object_get(r->body, "add_special_tokens"))
        r->bos = false; /* llama-server's default */
    r->param = "top_logprobs";
    if (r->n_top > 0 && !r->logprobs)
        return err_set(ERR_ARG, WHERE ": top_logprobs: expected \"logprobs\": true "
                                      "together with it");
    r->param = "stream_options";
    if (json_object_get(r->body, r->param) && !r->stream)
        return err_set(ERR_ARG, WHERE ": stream_options: expected \"stream\": true "
                                      "together with it");
    r->param = "max_tokens";
    r->no_new = r->echo && json_object_get(r->body, r->param) && r->max_new == 0;
    if (json_object_get(r->body, r->param) && r->max_new == 0 && !r->no_new)
        return err_set(ERR_ARG, WHERE ": max_tokens: expected a number of at least 1, or "
                                      "0 with \"echo\": true");
    r->param = "echo";
    if (r->echo && r->n_stop > 0)
        return err_set(ERR_UNSUPPORTED,
                       WHERE ": echo: this server does not offer it with stop");
    if (r->no_new && !r->logprobs)
        return err_set(ERR_ARG, WHERE ": echo: expected logprobs with max_tokens 0");
    r->param = "add_generation_prompt";
    if (json_object_get(r->body, r->param) &&
        json_is_true(json_object_get(r->body, r->param)) == r->continue_final)
        return err_set(ERR_ARG,
                       WHERE ": add_generation_prompt: expected %s %s "
                             "continue_final_message",
                       r->continue_final ? "false" : "true",
                       r->continue_final ? "with" : "without");
    r->param = "tool_choice";
    if (r->tool_choice == HTTP_TOOL_REQUIRED && !r->tools)
        return err_set(ERR_ARG, WHERE ": tool_choice: expected tools together with it");
    if (r->tool_choice == HTTP_TOOL_REQUIRED && r->grammar.text)
        return err_set(ERR_ARG,
                       WHERE ": tool_choice: a call is not possible together with "
                             "response_format, json_schema or grammar");
    r->param = "top_p";
    if (r->sampling.top_p == 0) /* what remains is the likeliest token */
        r->sampling.top_p = 1, r->sampling.top_k = 1;
    r->param = NULL;
    if (r->sampling.top_k < 0) /* -1: off */
        r->sampling.top_k = 0;
    if (r->tool_choice == HTTP_TOOL_NONE)
        r->tools = NULL;
    r->has_seed = json_object_get(r->body, "seed");
    return OK;
}

int http_request_parse(struct http_request *r, enum http_api api, const char *body,
                       size_t n)
{
    /* Of a text in which \\u0000 is allowed; a chat has none. */
    static const char *const prompt_key[] = {[HTTP_COMPLETION] = "prompt",
                                             [HTTP_CHAT] = "",
                                             [HTTP_TOKENIZE] = "content",
                                             [HTTP_DETOKENIZE] = ""};

    /* OpenAI's API defines these values for absent keys. */
    *r = (struct http_request){.api = api,
                               .n = 1,
                               .special = true,
                               .bos = true,
                               .sampling = {.temperature = 1, .top_p = 1}};
    TRY(json_read_text_nul(&r->body, body, n, WHERE));
    if (json_has_nul(r->body, json_object_get(r->body, prompt_key[api])))
        return err_set(ERR_FORMAT, WHERE ": \\u0000 is allowed in a prompt only");
    if (!json_is_object(r->body))
        return err_set(ERR_FORMAT, WHERE ": expected a JSON object");
    TRY(read_keys(r));
    return check_together(r);
}

void http_request_fini(struct http_request *r)
{
    json_decref(r->body);
    r->body = NULL;
    mem_free(r->schema);
    r->schema = NULL;
}
