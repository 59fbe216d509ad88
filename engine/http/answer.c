#include "http/answer.h"

#include <math.h>
#include <string.h>
#include <time.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"

#define TOKEN_TEXT_MAX                                                                   \
    2048 /* of a token as text; the longest special token has 512 bytes */

int http_answer_init(struct http_answer *a, const struct http_request *r,
                     struct http_gen *g, const struct tok *tok, const char *model,
                     uint64_t number)
{
    *a = (struct http_answer){.r = r, .g = g, .tok = tok, .model = model};
    a->created_s = (int64_t)time(NULL);
    snprintf(a->id, sizeof(a->id), "%s-%08llx%08llx",
             r->api == HTTP_CHAT ? "chatcmpl" : "cmpl",
             (unsigned long long)a->created_s & 0xffffffff,
             (unsigned long long)number & 0xffffffff);
    a->decoded = mem_new(MEM_OTHER, (size_t)g->n_seqs, sizeof(*a->decoded));
    if (!a->decoded)
        return ERR_NOMEM;
    if (!tok)
        return OK;
    for (int i = 0; i < g->n_seqs; i++) {
        tok_stream_init(&a->decoded[i].stream, tok);
        a->decoded[i].calls.format = r->calls;
        /* A completion continues the prompt, unless it has it. */
        a->decoded[i].stream.at_start &= r->api == HTTP_CHAT || r->echo;
    }
    a->capacity = 8 + 3 * tok_longest(tok);
    a->piece = mem_new(MEM_OTHER, a->capacity, 1);
    return a->piece ? OK : ERR_NOMEM;
}

void http_answer_fini(struct http_answer *a)
{
    for (int i = 0; a->decoded && i < a->g->n_seqs; i++) {
        text_fini(&a->decoded[i].text);
        chat_call_parser_fini(&a->decoded[i].calls);
    }
    mem_free(a->decoded);
    mem_free(a->piece);
    *a = (struct http_answer){0};
}

/* ---- tokens as text ---- */

static void decode(struct http_answer *a, struct http_decoded *d, int32_t id)
{
    size_t n = 0;

    if (a->tok && tok_stream_put(&d->stream, id, a->piece, a->capacity, &n) == OK)
        text_put(&d->text, a->piece, n);
}

/* A token's own text. Where it is only a part of a character, as OpenAI writes it. */
static json_t *token_text(const struct http_answer *a, int32_t id)
{
    char out[TOKEN_TEXT_MAX] = "bytes:";
    size_t n = 0, at = strlen(out);
    const char *s;

    if (!a->tok || tok_piece(a->tok, id, true, &s, &n) != OK)
        return json_sprintf("token_id:%d", id);
    if (utf8_valid(s, n))
        return json_stringn(s, n);
    for (size_t i = 0; i < n && at + 5 < sizeof(out); i++)
        at +=
            (size_t)snprintf(out + at, sizeof(out) - at, "\\x%02x", (unsigned char)s[i]);
    return json_string(out);
}

static json_t *token_bytes(const struct http_answer *a, int32_t id)
{
    json_t *bytes = json_array();
    size_t n = 0;
    const char *s;

    if (!a->tok || tok_piece(a->tok, id, true, &s, &n) != OK)
        return bytes;
    for (size_t i = 0; i < n; i++)
        json_array_append_new(bytes, json_integer((unsigned char)s[i]));
    return bytes;
}

/* ---- log probabilities of the tokens, one by one ---- */

static json_t *chat_logprob(const struct http_answer *a, int32_t id, float logprob)
{
    return json_pack("{s:o, s:f, s:o}", "token", token_text(a, id), "logprob",
                     (double)logprob, "bytes", token_bytes(a, id));
}

static void add_chat_logprob(const struct http_answer *a, const struct http_seq *q,
                             json_t *into, int64_t at)
{
    const int64_t n_top = a->g->n_top;
    json_t *one = chat_logprob(a, q->tokens[at].id, q->tokens[at].logprob);
    json_t *top = json_array();

    for (int64_t k = 0; k < n_top; k++)
        json_array_append_new(top, chat_logprob(a, q->top[at * n_top + k].id,
                                                q->top[at * n_top + k].logprob));
    json_object_set_new(one, "top_logprobs", top);
    json_array_append_new(json_object_get(into, "content"), one);
}

static void add_completion_logprob(const struct http_answer *a, const struct http_seq *q,
                                   json_t *into, int64_t at, int64_t offset)
{
    const int64_t n_top = a->g->n_top;
    const bool known = !isnan(q->tokens[at].logprob);
    json_t *top = known ? json_object() : json_null();

    for (int64_t k = 0; known && k < n_top; k++) {
        const struct http_top *t = &q->top[at * n_top + k];
        json_t *key = token_text(a, t->id);

        json_object_setn_new(top, json_string_value(key), json_string_length(key),
                             json_real((double)t->logprob));
        json_decref(key);
    }
    json_array_append_new(json_object_get(into, "tokens"),
                          token_text(a, q->tokens[at].id));
    json_array_append_new(json_object_get(into, "token_logprobs"),
                          json_number((double)q->tokens[at].logprob));
    json_array_append_new(json_object_get(into, "top_logprobs"), top);
    json_array_append_new(json_object_get(into, "text_offset"), json_integer(offset));
}

/* An empty list; null if none are asked for. */
static json_t *new_logprobs(const struct http_answer *a)
{
    if (!a->r->logprobs)
        return json_null();
    if (a->r->api == HTTP_CHAT)
        return json_pack("{s:[]}", "content");
    return json_pack("{s:[], s:[], s:[], s:[]}", "tokens", "token_logprobs",
                     "top_logprobs", "text_offset");
}

/* offset: characters before the token. */
static void add_logprob(const struct http_answer *a, const struct http_seq *q,
                        json_t *into, int64_t at, int64_t offset)
{
    if (a->r->logprobs && a->r->api == HTTP_CHAT)
        add_chat_logprob(a, q, into, at);
    else if (a->r->logprobs)
        add_completion_logprob(a, q, into, at, offset);
}

/* ---- the objects ---- */

static json_t *finish_reason(enum http_finish f, bool calls)
{
    if (f == HTTP_LENGTH)
        return json_string("length");
    if (f == HTTP_EOS || f == HTTP_STOPPED)
        return json_string(calls ? "tool_calls" : "stop");
    return json_null();
}

static json_t *token_ids(const struct http_seq *q, int64_t from, int64_t to)
{
    json_t *ids = json_array();

    for (int64_t i = from; i < to; i++)
        json_array_append_new(ids, json_integer(q->tokens[i].id));
    return ids;
}

/* Further text of the i-th sequence, or (ends) its last, as content and calls of tools. */
static json_t *text_and_calls(struct http_answer *a, int i, const char *text, size_t n,
                              bool ends)
{
    struct http_decoded *d = &a->decoded[i];
    struct chat_call_parser *p = &d->calls;
    json_t *m = json_object(), *calls = NULL, *one;
    size_t k;

    if (!p->format)
        return json_object_set_new(m, "content", json_stringn(text, n)), m;
    chat_call_parser_put(p, text, n);
    if (ends)
        chat_call_parser_end(p);
    json_array_foreach(p->calls, k, one)
    {
        const int at = p->n_calls - (int)json_array_size(p->calls) + (int)k;
        json_t *call = json_pack("{s:o, s:s, s:O}", "id",
                                 json_sprintf("call-%s-%d-%d", a->id, i, at), "type",
                                 "function", "function", one);

        if (a->r->stream)
            json_object_set_new(call, "index", json_integer(at));
        calls = calls ? calls : json_array();
        json_array_append_new(calls, call);
    }
    if (p->content.n > 0 || !calls)
        json_object_set_new(m, "content",
                            json_stringn(p->content.p ? p->content.p : "", p->content.n));
    else if (!a->r->stream)
        json_object_set_new(m, "content", json_null());
    if (calls)
        json_object_set_new(m, "tool_calls", calls);
    if (d->text.rc == OK)
        d->text.rc = chat_call_parser_rc(p);
    p->content.n = 0;
    json_decref(p->calls);
    p->calls = NULL;
    return m;
}

/* The i-th sequence: its tokens [n_told, to), whose text is [n_shown, end). Steals `logprobs`. */
static json_t *choice(struct http_answer *a, int i, int64_t to, size_t end,
                      json_t *logprobs, enum http_finish f)
{
    struct http_decoded *d = &a->decoded[i];
    struct http_seq *q = &a->g->seqs[i];
    const char *text = d->text.p ? d->text.p + d->n_shown : "";
    const size_t n = end - d->n_shown;
    json_t *c = json_pack("{s:i}", "index", i);
    bool whole = !a->r->stream;

    if (a->r->api == HTTP_COMPLETION) {
        json_object_set_new(c, "text", json_stringn(text, n));
    } else {
        json_t *m = text_and_calls(a, i, text, n, f != HTTP_RUNNING);

        if (!d->begun || whole)
            json_object_set_new(m, "role", json_string("assistant"));
        if (whole)
            json_object_set_new(m, "refusal", json_null());
        json_object_set_new(c, whole ? "message" : "delta", m);
    }
    json_object_set_new(c, "logprobs", logprobs);
    json_object_set_new(c, "finish_reason", finish_reason(f, d->calls.n_calls > 0));
    if (a->r->token_ids)
        json_object_set_new(c, "token_ids", token_ids(q, q->n_told, to));
    d->n_shown = end;
    q->n_told = to;
    d->begun = true;
    return c;
}

/* A prompt counts once, however many choices it has. */
static json_t *usage(const struct http_answer *a)
{
    int64_t n_prompt = 0, n_new = 0, n_reused = 0;

    for (int i = 0; i < a->g->n_seqs; i++) {
        const struct http_seq *q = &a->g->seqs[i];

        n_new += q->n_told > q->n_echo ? q->n_told - q->n_echo : 0;
        if (i % a->r->n == 0) {
            n_prompt += q->n_prompt;
            n_reused += q->n_reused;
        }
    }
    return json_pack("{s:I, s:I, s:I, s:{s:I}}", "prompt_tokens", (json_int_t)n_prompt,
                     "completion_tokens", (json_int_t)n_new, "total_tokens",
                     (json_int_t)(n_prompt + n_new), "prompt_tokens_details",
                     "cached_tokens", (json_int_t)n_reused);
}

static const char *object_name(const struct http_answer *a)
{
    if (a->r->api == HTTP_COMPLETION)
        return "text_completion";
    return a->r->stream ? "chat.completion.chunk" : "chat.completion";
}

/* Steals `choices`. */
static json_t *object(const struct http_answer *a, json_t *choices)
{
    return json_pack("{s:s, s:s, s:I, s:s, s:o}", "id", a->id, "object", object_name(a),
                     "created", (json_int_t)a->created_s, "model", a->model, "choices",
                     choices);
}

/* Steals j. */
static int put_json(struct text *out, json_t *j)
{
    char *s = j ? json_text(j, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;

    json_decref(j);
    if (!s)
        return err_set(ERR_NOMEM, "no memory for an answer");
    text_puts(out, s);
    mem_free(s);
    return out->rc;
}

static int put_event(struct text *out, json_t *j)
{
    text_puts(out, "data: ");
    TRY(put_json(out, j));
    text_puts(out, "\n\n");
    return out->rc;
}

/* ---- the answers ---- */

/* Is `at` the last token of all? */
static bool is_last(const struct http_seq *q, int64_t at)
{
    return at == q->seen.n - 1 && q->seen.finish != HTTP_RUNNING;
}

/* The end of the text that may be sent after the token `at`. */
static size_t text_end(const struct http_decoded *d, const struct http_seq *q, int64_t at)
{
    size_t n_safe = q->tokens[at].n_safe;

    if (is_last(q, at))
        return q->seen.finish == HTTP_STOPPED ? q->seen.text_end : d->text.n;
    return n_safe < d->text.n ? n_safe : d->text.n;
}

static bool is_fault(const char *s, size_t n)
{
    return n >= 3 && memcmp(s, "\xEF\xBF\xBD", 3) == 0; /* U+FFFD */
}

/* The text and log probability of the token `at` of the i-th sequence. */
static void take_token(struct http_answer *a, int i, int64_t at, json_t *logprobs)
{
    struct http_decoded *d = &a->decoded[i];
    const struct http_seq *q = &a->g->seqs[i];
    const bool last = is_last(q, at);
    size_t from = d->text.n;
    bool held = a->tok && d->stream.n_held > 0;
    int64_t offset = d->n_chars;

    if (!last || q->seen.finish != HTTP_EOS)
        decode(a, d, q->tokens[at].id);
    /* The bytes before it turn out to form no character: what stands for them is theirs. */
    offset += held && d->text.n > from && is_fault(d->text.p + from, d->text.n - from);
    add_logprob(a, q, logprobs, at, offset);
    if (last && a->tok)
        text_put(&d->text, a->piece, tok_stream_flush(&d->stream, a->piece, a->capacity));
    for (size_t k = from; k < d->text.n; k++)
        d->n_chars += (d->text.p[k] & 0xc0) != 0x80;
}

/* Write the end of a stream that has failed or was cut off. */
static int put_failure(struct http_answer *a, struct text *out, enum http_finish f)
{
    const char *why = f == HTTP_FAILED ? a->g->why : "the server is shutting down";

    text_puts(out, "data: ");
    TRY(http_error_text(out, why, "server_error", NULL, NULL));
    text_puts(out, "\n\n");
    return out->rc;
}

static int stream_seq(struct http_answer *a, int i, struct text *out)
{
    struct http_seq *q = &a->g->seqs[i];

    while (q->n_told < q->seen.n) {
        int64_t at = q->n_told;
        json_t *j, *logprobs = new_logprobs(a);

        take_token(a, i, at, logprobs);
        j = object(
            a, json_pack("[o]",
                         choice(a, i, at + 1, text_end(&a->decoded[i], q, at), logprobs,
                                is_last(q, at) ? q->seen.finish : HTTP_RUNNING)));
        if (a->r->usage)
            json_object_set_new(j, "usage", a->r->usage_always ? usage(a) : json_null());
        TRY(put_event(out, j));
    }
    q->told_end = q->seen.finish != HTTP_RUNNING;
    return a->decoded[i].text.rc;
}

int http_answer_stream(struct http_answer *a, struct text *out)
{
    bool all = true;
    json_t *j;

    for (int i = 0; i < a->g->n_seqs && !a->ended; i++) {
        const enum http_finish f = a->g->seqs[i].seen.finish;

        TRY(stream_seq(a, i, out));
        all &= f != HTTP_RUNNING;
        if (f == HTTP_FAILED || f == HTTP_CANCELED) {
            a->ended = true;
            return put_failure(a, out, f);
        }
    }
    if (!all || a->ended)
        return OK;
    a->ended = true;
    if (a->r->usage) {
        j = object(a, json_array());
        json_object_set_new(j, "usage", usage(a));
        TRY(put_event(out, j));
    }
    text_puts(out, "data: [DONE]\n\n");
    return out->rc;
}

int http_answer_whole(struct http_answer *a, struct text *out)
{
    json_t *j, *choices = json_array();
    int rc = OK;

    for (int i = 0; i < a->g->n_seqs; i++) {
        const struct http_seq *q = &a->g->seqs[i];
        json_t *logprobs = new_logprobs(a);
        const int64_t n = q->seen.n;

        for (int64_t at = 0; at < n; at++)
            take_token(a, i, at, logprobs);
        json_array_append_new(
            choices, choice(a, i, n, n > 0 ? text_end(&a->decoded[i], q, n - 1) : 0,
                            logprobs, q->seen.finish));
        rc = rc == OK ? a->decoded[i].text.rc : rc;
    }
    j = object(a, choices);
    json_object_set_new(j, "usage", usage(a));
    return put_json(out, rc == OK ? j : (json_decref(j), NULL));
}

int http_error_text(struct text *out, const char *message, const char *type,
                    const char *code, const char *param)
{
    return put_json(out, json_pack("{s:{s:o, s:s, s:s?, s:s?}}", "error", "message",
                                   json_string_lossy(message), "type", type, "code", code,
                                   "param", param));
}
