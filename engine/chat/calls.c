#include "chat/calls.h"

#include <string.h>

#include "base/json.h"
#include "base/mem.h"

static const struct chat_call_format formats[] = {
    /* Qwen 2.5 and 3, Hermes. Qwen 3 Coder has tags in place of JSON. */
    {.name = "hermes",
     .marks = {"<tool_call>"},
     .without = "<function=",
     .open = "<tool_call>",
     .close = "</tool_call>",
     .arguments = "arguments"},
    /* Llama 3.1 to 3.3: an answer that is an object is a call. */
    {.name = "llama-3",
     .marks = {"{\"name\": function name", "\"parameters\": "},
     .open = "",
     .close = "",
     .arguments = "parameters"},
};
const char chat_call_formats[] = "hermes (Qwen 2.5 and 3) or llama-3 (3.1 to 3.3)";

static bool holds(const char *source, size_t n, const char *mark)
{
    return mark && memmem(source, n, mark, strlen(mark));
}

const struct chat_call_format *chat_call_format_of(const char *source, size_t n)
{
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
        const struct chat_call_format *f = &formats[i];

        if (holds(source, n, f->marks[0]) &&
            (!f->marks[1] || holds(source, n, f->marks[1])) &&
            !holds(source, n, f->without))
            return f;
    }
    return NULL;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static void forget(struct chat_call_parser *p)
{
    p->held.n = 0;
    p->object_at = p->arguments_at = p->arguments_end = p->n_matched = 0;
    p->depth = 0;
    p->in_string = p->escaped = false;
    json_decref(p->call);
    p->call = NULL;
}

/* What is held is not a call, but content. */
static void give_back(struct chat_call_parser *p)
{
    text_put(&p->content, p->held.p ? p->held.p : "", p->held.n);
    p->state = *p->format->open ? CHAT_CALL_NONE : CHAT_CALL_NEVER;
    forget(p);
}

static void take_call(struct chat_call_parser *p)
{
    if (!p->calls)
        p->calls = json_array();
    if (json_array_append(p->calls, p->call) != 0)
        p->content.rc = err_set(ERR_NOMEM, "no memory for the call of a tool");
    p->n_calls++;
    p->state = CHAT_CALL_NONE;
    forget(p);
}

/* ---- the object of a call ---- */

/* The object is whole; a call has a name and arguments, which are an object, too. */
static bool read_call(struct chat_call_parser *p)
{
    const char *at = p->held.p + p->object_at, *args = p->held.p + p->arguments_at;
    size_t n = p->arguments_end - p->arguments_at;
    json_t *j = NULL;
    const char *name;

    if (json_read_text(&j, at, p->held.n - p->object_at, "call") != OK) {
        err_clear();
        return false;
    }
    name = json_string_value(json_object_get(j, "name"));
    while (p->arguments_at > 0 && n > 0 && is_space(*args))
        args++, n--;
    while (p->arguments_at > 0 && n > 0 && is_space(args[n - 1]))
        n--;
    if (name && p->arguments_at > 0 &&
        json_is_object(json_object_get(j, p->format->arguments)))
        p->call = json_pack("{s:s, s:s%}", "name", name, "arguments", args, n);
    json_decref(j);
    return p->call != NULL;
}

/* Behind a colon outside of all values: was it that of the arguments? */
static bool is_key(const struct chat_call_parser *p)
{
    const char *key = p->format->arguments;
    const size_t n_key = strlen(key);
    size_t n = p->held.n - 1;

    while (n > p->object_at && is_space(p->held.p[n - 1]))
        n--;
    return n >= p->object_at + n_key + 2 && p->held.p[n - 1] == '"' &&
           p->held.p[n - n_key - 2] == '"' &&
           memcmp(p->held.p + n - n_key - 1, key, n_key) == 0;
}

static void in_object(struct chat_call_parser *p, char c)
{
    if (p->depth == 0 && is_space(c))
        return;
    if (p->depth == 0 && c != '{') {
        give_back(p);
        return;
    }
    if (p->in_string) {
        p->in_string = p->escaped || c != '"';
        p->escaped = !p->escaped && c == '\\';
        return;
    }
    p->in_string = c == '"';
    if (c == ':' && p->depth == 1 && is_key(p))
        p->arguments_at = p->held.n, p->arguments_end = 0;
    if (p->depth == 1 && (c == ',' || c == '}') && p->arguments_end == 0)
        p->arguments_end = p->held.n - 1;
    p->depth += (c == '{' || c == '[') - (c == '}' || c == ']');
    if (p->depth > 0)
        return;
    if (!read_call(p))
        give_back(p);
    else if (*p->format->close)
        p->state = CHAT_CALL_CLOSE;
    else
        take_call(p);
}

/* ---- before and behind it ---- */

static void before_open(struct chat_call_parser *p, char c)
{
    const char *open = p->format->open;
    /* Calls without marks begin the answer; further ones may stand behind a semicolon. */
    const bool between = is_space(c) || (!*open && c == ';' && p->n_calls > 0);

    if (p->n_matched == 0 && between)
        return;
    if (!*open && c == '{') {
        p->state = CHAT_CALL_OBJECT;
        p->object_at = p->held.n - 1;
        in_object(p, c);
    } else if (*open && c == open[p->n_matched]) {
        if (!open[++p->n_matched]) {
            p->state = CHAT_CALL_OBJECT;
            p->object_at = p->held.n;
            p->n_matched = 0;
        }
    } else if (p->n_matched > 0) { /* once more: it may be the first byte of another */
        p->held.n--;
        give_back(p);
        text_put(&p->held, &c, 1);
        before_open(p, c);
    } else {
        give_back(p);
    }
}

static void before_close(struct chat_call_parser *p, char c)
{
    const char *close = p->format->close;

    if (p->n_matched == 0 && is_space(c))
        return;
    if (c != close[p->n_matched])
        give_back(p);
    else if (!close[++p->n_matched])
        take_call(p);
}

void chat_call_parser_put(struct chat_call_parser *p, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (p->state == CHAT_CALL_NEVER) {
            text_put(&p->content, text + i, n - i);
            return;
        }
        text_put(&p->held, text + i, 1);
        if (p->held.rc != OK)
            return;
        if (p->state == CHAT_CALL_NONE)
            before_open(p, text[i]);
        else if (p->state == CHAT_CALL_OBJECT)
            in_object(p, text[i]);
        else
            before_close(p, text[i]);
    }
}

void chat_call_parser_end(struct chat_call_parser *p)
{
    bool spaces = p->n_calls > 0;

    for (size_t i = 0; i < p->held.n; i++)
        spaces &= is_space(p->held.p[i]);
    if (p->call && p->n_matched == 0) /* its end stands for the mark */
        take_call(p);
    else if (spaces)
        forget(p);
    else
        give_back(p);
}

int chat_call_parser_rc(const struct chat_call_parser *p)
{
    return p->held.rc != OK ? p->held.rc : p->content.rc;
}

void chat_call_parser_fini(struct chat_call_parser *p)
{
    forget(p);
    text_fini(&p->held);
    text_fini(&p->content);
    json_decref(p->calls);
    p->calls = NULL;
}
