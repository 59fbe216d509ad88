#include "baselines/openai.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"

/* --- requests */

enum extra {
    IGNORE_EOS,
    MIN_TOKENS,
    STREAM_OPTIONS,
    RUNNING_USAGE,
    TOKEN_IDS,
    TIMINGS,
    CACHE,
    SEED
};

const char *const sut_openai_extras[] = {
    [IGNORE_EOS] = "ignore_eos",                /* vLLM, llama-server, this project */
    [MIN_TOKENS] = "min_tokens",                /* vLLM */
    [STREAM_OPTIONS] = "stream_options",        /* OpenAI */
    [RUNNING_USAGE] = "continuous_usage_stats", /* vLLM, in stream_options */
    [TOKEN_IDS] = "return_token_ids",           /* vLLM */
    [TIMINGS] = "timings_per_token",            /* llama-server */
    [CACHE] = "cache_prompt", /* llama-server: repeated prompts cost again */
    [SEED] = "seed",
    [SUT_OPENAI_N_EXTRAS] = NULL,
};

/* Digits by hand: a prompt of thousands of ids is written while others are due. */
static void put_int(struct text *t, int64_t v)
{
    char digits[24];
    size_t at = sizeof(digits);
    uint64_t rest = v < 0 ? -(uint64_t)v : (uint64_t)v;

    do
        digits[--at] = (char)('0' + rest % 10);
    while (rest /= 10);
    if (v < 0)
        digits[--at] = '-';
    text_put(t, digits + at, sizeof(digits) - at);
}

static void put_string(struct text *t, const char *s)
{
    json_t *j = json_string_lossy(s);
    char *text = j ? json_text(j, JSON_ENCODE_ANY) : NULL;

    if (text)
        text_puts(t, text);
    else if (t->rc == OK)
        t->rc = ERR_NOMEM;
    mem_free(text);
    json_decref(j);
}

/* Words that are one token each in every common vocabulary, in an order that the ids
 * choose: equal prompts stay equal, others differ. */
static void put_words(struct text *t, const struct sut_openai_request *r)
{
    static const char *const words[] = {" time",  " year",   " people", " way",
                                        " day",   " man",    " thing",  " woman",
                                        " life",  " child",  " world",  " school",
                                        " state", " family", " group",  " country"};
    const size_t n_words = sizeof(words) / sizeof(words[0]);

    for (int64_t i = 0; i < r->n_text_words; i++)
        text_puts(t, words[(uint32_t)r->prompt[i % r->n_prompt] % n_words]);
}

static void put_ids(struct text *t, const struct sut_openai_request *r)
{
    for (int64_t i = 0; i < r->n_prompt; i++) {
        if (i)
            text_put(t, ",", 1);
        put_int(t, r->prompt[i]);
    }
}

static void put_extra(struct text *t, const struct sut_openai_request *r, enum extra e)
{
    text_printf(t, ",\"%s\":", sut_openai_extras[e]);
    if (e == MIN_TOKENS)
        put_int(t, r->n_output);
    else if (e == STREAM_OPTIONS)
        text_puts(t, r->extras & 1u << RUNNING_USAGE
                         ? "{\"include_usage\":true,\"continuous_usage_stats\":true}"
                         : "{\"include_usage\":true}");
    else if (e == SEED)
        put_int(t, r->seed & 0x7fffffff); /* what every server can hold */
    else
        text_puts(t, e == CACHE ? "false" : "true");
}

unsigned sut_openai_named(const char *message)
{
    unsigned named = 0;

    for (int i = 0; i < SUT_OPENAI_N_EXTRAS; i++)
        if (strstr(message, sut_openai_extras[i]))
            named |= 1u << i;
    if (named & 1u << RUNNING_USAGE) /* a member is refused, not its object */
        named &= ~(1u << STREAM_OPTIONS);
    return named;
}

const char *sut_openai_path(bool as_chat)
{
    return as_chat ? "/chat/completions" : "/completions";
}

/* The turns before, and this one's prompt, whose message stays open. */
static void put_prompt(struct text *out, const struct sut_openai_request *r)
{
    text_puts(out, r->before ? r->before : "");
    text_puts(out, r->as_chat ? "{\"role\":\"user\",\"content\":\"" : "");
    if (r->as_text)
        put_words(out, r);
    else
        put_ids(out, r);
}

int sut_openai_turn(struct text *out, const struct sut_openai_request *r,
                    const struct text *answer)
{
    put_prompt(out, r);
    text_puts(out, r->as_chat   ? "\"},{\"role\":\"assistant\",\"content\":\""
                   : r->as_text ? ""
                                : ",");
    text_put(out, answer->p, answer->n);
    text_puts(out, r->as_chat ? "\"}," : "");
    text_put(out, "", 1);
    return out->rc;
}

int sut_openai_body(struct text *out, const struct sut_openai_request *r)
{
    text_puts(out, "{\"model\":");
    put_string(out, r->model);
    text_puts(out, ",\"stream\":true,\"temperature\":0,\"max_tokens\":");
    put_int(out, r->n_output);
    for (int e = 0; e < SUT_OPENAI_N_EXTRAS; e++)
        if (r->extras & 1u << e && e != RUNNING_USAGE &&
            !(e == CACHE && (r->before || r->keeps)))
            put_extra(out, r, (enum extra)e);
    text_puts(out, r->as_chat   ? ",\"messages\":["
                   : r->as_text ? ",\"prompt\":\""
                                : ",\"prompt\":[");
    put_prompt(out, r);
    text_puts(out, r->as_chat ? "\"}]}" : r->as_text ? "\"}" : "]}");
    text_put(out, "", 1);
    return out->rc;
}

/* --- answers */

const char *const sut_openai_source_names[SUT_OPENAI_N_SOURCES] = {
    "token_ids", "running_count", "logprobs", "one_per_text"};

/* A server may cut a character in two, or send the NUL that a token may stand for; the text
 * itself is of no interest here. */
static void mend_text(char *p, size_t n)
{
    static const char nul[] = "\\u0000";

    for (size_t i = 0; i < n;) {
        int len = utf8_len(p + i, n - i);

        if (len > 0)
            i += (size_t)len;
        else
            p[i++] = '?';
    }
    while ((p = strstr(p, nul)) != NULL)
        memcpy(p, "\\u0020", sizeof(nul) - 1);
}

static void read_usage(struct sut_openai_stream *s, const json_t *event)
{
    const json_t *usage = json_object_get(event, "usage");
    const json_t *prompt = json_object_get(usage, "prompt_tokens");
    const json_t *completion = json_object_get(usage, "completion_tokens");

    if (json_is_integer(prompt))
        s->n_prompt = json_integer_value(prompt);
    if (json_is_integer(completion))
        s->n_completion = json_integer_value(completion);
}

/* The server's count of all tokens so far, or -1. */
static int64_t running_count(const json_t *event)
{
    const json_t *n =
        json_object_get(json_object_get(event, "usage"), "completion_tokens");

    if (!json_is_integer(n))
        n = json_object_get(json_object_get(event, "timings"), "predicted_n");
    return json_is_integer(n) ? json_integer_value(n) : -1;
}

static size_t n_logprobs(const json_t *choice)
{
    const json_t *l = json_object_get(choice, "logprobs");
    const json_t *list = json_object_get(l, "tokens");

    return json_array_size(list ? list : json_object_get(l, "content"));
}

/* Does it bring text: of a completion, or of a chat, whose reasoning comes first and is of the
 * model's tokens as much as what follows? */
static bool has_text(const json_t *choice)
{
    static const char *const members[] = {"content", "reasoning_content", "reasoning"};
    const json_t *delta = json_object_get(choice, "delta");
    bool any = json_string_length(json_object_get(choice, "text")) > 0;

    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++)
        any |= json_string_length(json_object_get(delta, members[i])) > 0;
    return any;
}

/* How many tokens this choice brings, by the best statement in the event. */
static int64_t count_new(const struct sut_openai_stream *s, const json_t *event,
                         const json_t *choice, enum sut_openai_source *source)
{
    const json_t *ids = json_object_get(choice, "token_ids");
    int64_t total = running_count(event);

    *source = SUT_OPENAI_IDS;
    if (json_is_array(ids))
        return (int64_t)json_array_size(ids);
    *source = SUT_OPENAI_COUNT;
    if (total >= 0)
        return total > s->n_tok ? total - s->n_tok : 0;
    *source = SUT_OPENAI_LOGPROBS;
    if (n_logprobs(choice))
        return (int64_t)n_logprobs(choice);
    *source = SUT_OPENAI_TEXT;
    return has_text(choice);
}

static int add_tokens(struct sut_openai_stream *s, int64_t n)
{
    if (n > s->n_limit - s->n_tok)
        return err_set(ERR_FORMAT, "the server sent more than the %lld tokens asked for",
                       (long long)s->n_limit);
    s->n_tok += n;
    if (n > s->n_tok_event_max)
        s->n_tok_event_max = n;
    return OK;
}

/* The text as the inside of a JSON string. */
static void put_inside(struct text *t, const json_t *string)
{
    char *quoted = json_is_string(string) ? json_text(string, JSON_ENCODE_ANY) : NULL;

    if (quoted)
        text_put(t, quoted + 1, strlen(quoted) - 2);
    mem_free(quoted);
}

/* Later prompts do not hold the reasoning. */
static void keep_answer(struct sut_openai_stream *s, const json_t *choice,
                        const int32_t *ids, int64_t n_ids, int64_t n_new)
{
    if (!s->answer)
        return;
    s->answer_lost |= s->answer_as_ids && n_ids < n_new;
    for (int64_t i = 0; i < n_ids && s->answer_as_ids; i++) {
        put_int(s->answer, ids[i]);
        text_put(s->answer, ",", 1);
    }
    if (s->answer_as_ids)
        return;
    put_inside(s->answer, json_object_get(choice, "text"));
    put_inside(s->answer, json_object_get(json_object_get(choice, "delta"), "content"));
}

static int64_t take_ids(const json_t *choice, int32_t *ids, int64_t max)
{
    const json_t *from = json_object_get(choice, "token_ids");
    int64_t n = (int64_t)json_array_size(from);

    if (n > max)
        n = max;
    for (int64_t i = 0; i < n; i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(from, (size_t)i));
    return n;
}

static int read_choice(struct sut_openai_stream *s, const json_t *event,
                       const json_t *choice, int64_t *n_new)
{
    const char *finish = json_string_value(json_object_get(choice, "finish_reason"));
    enum sut_openai_source source;

    *n_new = count_new(s, event, choice, &source);
    s->n_events[source] += *n_new > 0;
    if (finish)
        utf8_show(s->finish, sizeof(s->finish), finish);
    return add_tokens(s, *n_new);
}

/* An event without a choice may close the account: tokens that no event has shown. */
static int read_total(struct sut_openai_stream *s, int64_t *n_new)
{
    *n_new = s->n_completion > s->n_tok ? s->n_completion - s->n_tok : 0;
    s->n_late += *n_new;
    return add_tokens(s, *n_new);
}

/* Gateways send the member in every event, with a value that says nothing. */
static bool says_something(const json_t *v)
{
    return v && !json_is_null(v) && !json_is_false(v) &&
           !(json_is_string(v) && json_string_length(v) == 0) &&
           !((json_is_object(v) || json_is_array(v)) && json_object_size(v) == 0 &&
             json_array_size(v) == 0);
}

/* An event that only keeps the connection alive. */
static bool is_ping(const json_t *event)
{
    const char *type = json_string_value(json_object_get(event, "type"));

    return json_object_size(event) == 0 || (type && strcmp(type, "ping") == 0);
}

static bool has_usage(const json_t *event)
{
    return json_is_object(json_object_get(event, "usage"));
}

int sut_openai_event(struct sut_openai_stream *s, char *data, size_t n, int64_t *n_new,
                     int32_t *ids, int64_t max_ids, int64_t *n_ids)
{
    json_t *event = NULL;
    const json_t *choices, *choice;
    char message[160];
    int rc;

    *n_new = *n_ids = 0;
    if (strcmp(data, "[DONE]") == 0) {
        s->done = true;
        return OK;
    }
    mend_text(data, n);
    rc = json_read_text(&event, data, n, "event");
    if (rc != OK)
        return rc;
    choices = json_object_get(event, "choices");
    choice = json_array_get(choices, 0);
    read_usage(s, event);
    if (says_something(json_object_get(event, "error")) || !json_is_object(event)) {
        sut_openai_error(message, sizeof(message), data, n);
        rc = err_set(ERR_IO, "the server reports: %s", message);
    } else if (is_ping(event)) {
        rc = OK;
    } else if (!json_is_array(choices) && !json_is_null(choices) && !has_usage(event)) {
        utf8_show(message, 60, data);
        rc = err_set(ERR_FORMAT, "an event without \"choices\": %s", message);
    } else if (choice) {
        rc = read_choice(s, event, choice, n_new);
        *n_ids = rc == OK ? take_ids(choice, ids, max_ids) : 0;
        keep_answer(s, choice, ids, *n_ids, *n_new);
    } else {
        rc = read_total(s, n_new);
        s->answer_lost |= s->answer_as_ids && *n_new > 0;
    }
    json_decref(event);
    return rc;
}

void sut_openai_error(char *out, size_t capacity, const char *body, size_t n)
{
    json_t *j = NULL;
    const json_t *error;
    const char *text = NULL;
    char *copy = mem_strndup(MEM_HARNESS, body, n);

    if (json_read_text(&j, body, n, "answer") == OK) {
        error = json_object_get(j, "error");
        if (!error)
            error = j;
        text = json_string_value(error);
        if (!text)
            text = json_string_value(json_object_get(error, "message"));
        if (!text)
            text = json_string_value(json_object_get(error, "detail"));
    }
    utf8_show(out, capacity, text ? text : copy ? copy : "");
    for (char *p = out; *p; p++)
        if (*p == '\n')
            *p = ' ';
    mem_free(copy);
    json_decref(j);
}
