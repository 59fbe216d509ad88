/* A model's templates and special tokens, where its files keep them; templates for models without
 * one; and conversations written with them. */
#include "chat/chat.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "format/gguf.h"

#define VARIABLES_MAX    40
#define CONFIG_BYTES_MAX ((size_t)64 << 20)
#define PATH_BYTES       4096

struct chat {
    struct chat_template *usual, *tool_use; /* tool_use: NULL where there is none */
    json_t *tokens;                         /* object: bos_token ... by name */
    const struct chat_call_format *calls;   /* NULL: not known */
    bool typed;     /* contents are lists of parts for it, never texts */
    bool lists;     /* it writes all parts of a list */
    bool developer; /* it knows this role */
    char origin[300];
};

/* ---- what a model carries ---- */

/* A model's files hold these for chats. */
struct source {
    char *usual, *tool_use; /* mem_free(); NULL: none */
    json_t *tokens;
};

static int copy(char **out, const char *s, size_t n)
{
    *out = mem_strndup(MEM_OTHER, s, n);
    return *out ? OK : ERR_NOMEM;
}

/* A special token by name, unless it is set. */
static int put_token(struct source *s, const char *name, const char *text, size_t n)
{
    if (json_object_get(s->tokens, name))
        return OK;
    if (json_object_set_new(s->tokens, name, json_stringn_lossy(text, n)) != 0)
        return err_set(ERR_NOMEM, "no memory for the text of a token");
    return OK;
}

static int put_id(struct source *s, const char *name, const struct tok *tok, int64_t id)
{
    const char *text;
    size_t n;

    if (id < 0 || id >= tok_vocab(tok))
        return OK;
    TRY(tok_piece(tok, (int32_t)id, true, &text, &n));
    return put_token(s, name, text, n);
}

/* ---- GGUF ---- */

static int read_key(const struct gguf *g, const char *key, char **out)
{
    const char *text;
    size_t n;

    if (!gguf_has(g, key))
        return OK;
    TRY(gguf_get_str(g, key, &text, &n));
    return copy(out, text, n);
}

static int read_gguf(struct source *s, const struct gguf *g, const char *name,
                     const struct tok *tok)
{
    int64_t unk = -1, pad = -1;
    char key[200];

    snprintf(key, sizeof(key), "tokenizer.chat_template%s%s", name ? "." : "",
             name ? name : "");
    TRY(read_key(g, key, &s->usual));
    if (!s->usual && name && strcmp(name, "default") == 0)
        TRY(read_key(g, "tokenizer.chat_template", &s->usual));
    if (!name)
        TRY(read_key(g, "tokenizer.chat_template.tool_use", &s->tool_use));
    TRY(gguf_opt_int(g, "tokenizer.ggml.unknown_token_id", &unk));
    TRY(gguf_opt_int(g, "tokenizer.ggml.padding_token_id", &pad));
    TRY(put_id(s, "unk_token", tok, unk));
    return put_id(s, "pad_token", tok, pad);
}

/* ---- folders ---- */

/* OK with *out NULL: there is no such file. */
static int read_file(char **out, const char *dir, const char *file)
{
    char path[PATH_BYTES];
    struct stat st;
    char *text;
    size_t n;
    int rc;

    if ((size_t)snprintf(path, sizeof(path), "%s/%s", dir, file) >= sizeof(path))
        return err_set(ERR_ARG, "path of %zu bytes is too long", strlen(dir));
    if (stat(path, &st) != 0)
        return OK;
    TRY(file_read(&text, &n, path, CHAT_SOURCE_MAX));
    rc = copy(out, text, n);
    mem_free(text);
    return rc;
}

static int copy_json(char **out, const json_t *v)
{
    if (*out || !json_is_string(v))
        return OK;
    return copy(out, json_string_value(v), json_string_length(v));
}

/* The key is a text, or a list of named ones. */
static int read_templates(struct source *s, const json_t *v, const char *name)
{
    const char *usual = name ? name : "default";

    if (!name || strcmp(name, "default") == 0)
        TRY(copy_json(&s->usual, v));
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *one = json_array_get(v, i),
                     *text = json_object_get(one, "template");
        const char *is = json_str_at(one, "name", "");

        if (strcmp(is, usual) == 0)
            TRY(copy_json(&s->usual, text));
        if (!name && strcmp(is, "tool_use") == 0)
            TRY(copy_json(&s->tool_use, text));
    }
    return OK;
}

/* Keys that end in _token: a text, or an object with the text; null: the model has none. */
static int read_tokens(struct source *s, json_t *config)
{
    const char *key;
    json_t *v;

    json_object_foreach(config, key, v)
    {
        size_t n = strlen(key);
        const json_t *text = json_is_object(v) ? json_object_get(v, "content") : v;

        if (n < 6 || strcmp(key + n - 6, "_token") != 0)
            continue;
        if (json_is_string(text))
            TRY(put_token(s, key, json_string_value(text), json_string_length(text)));
        else if (json_is_null(v) && json_object_set_new(s->tokens, key, json_null()) != 0)
            return err_set(ERR_NOMEM, "no memory for the name of a token");
    }
    return OK;
}

static int read_config(struct source *s, const char *dir, const char *name)
{
    char path[PATH_BYTES];
    json_t *config = NULL;
    struct stat st;
    int rc;

    if ((size_t)snprintf(path, sizeof(path), "%s/tokenizer_config.json", dir) >=
        sizeof(path))
        return err_set(ERR_ARG, "path of %zu bytes is too long", strlen(dir));
    if (stat(path, &st) != 0)
        return OK;
    rc = json_read_file(&config, path, CONFIG_BYTES_MAX);
    if (rc == OK)
        rc = read_tokens(s, config);
    if (rc == OK)
        rc = read_templates(s, json_object_get(config, "chat_template"), name);
    json_decref(config);
    return rc;
}

static int read_folder(struct source *s, const char *dir, const char *name)
{
    char file[200];

    if (!name || strcmp(name, "default") == 0)
        TRY(read_file(&s->usual, dir, "chat_template.jinja"));
    snprintf(file, sizeof(file), "additional_chat_templates/%s.jinja",
             name ? name : "tool_use");
    if (!name || !strchr(name, '/'))
        TRY(read_file(name ? &s->usual : &s->tool_use, dir, file));
    return read_config(s, dir, name);
}

static int source_read(struct source *s, const char *path, const char *name,
                       const struct tok *tok)
{
    struct gguf *g = NULL;
    struct stat st;
    int rc;

    if (!s->tokens)
        s->tokens = json_object();
    if (!s->tokens)
        return err_set(ERR_NOMEM, "no memory for the special tokens");
    if (stat(path, &st) != 0)
        return err_set(ERR_IO, "%s: %m", path);
    if (S_ISDIR(st.st_mode)) {
        rc = read_folder(s, path, name);
    } else {
        rc = gguf_open(&g, path);
        if (rc == OK)
            rc = read_gguf(s, g, name, tok);
        gguf_close(&g);
        if (rc == ERR_FORMAT) /* another kind of file, which holds no template */
            rc = OK;
    }
    if (rc == OK)
        rc = put_id(s, "bos_token", tok, tok_bos(tok));
    if (rc == OK)
        rc = put_id(s, "eos_token", tok, tok_eos(tok));
    if (rc == OK && !s->usual)
        rc = err_set(ERR_NOTFOUND, "%s: there is no chat template%s%.60s", path,
                     name ? " named " : "", name ? name : "");
    return rc;
}

static void source_fini(struct source *s)
{
    mem_free(s->usual);
    mem_free(s->tool_use);
    json_decref(s->tokens);
    *s = (struct source){0};
}

/* ---- templates for models that carry none ----
 *
 * A system message that has no place of its own goes into the first user message, or in later
 * Mistral models into the last. */

struct builtin_template {
    const char *name, *source;
    const char *needs[4]; /* control tokens */
};

/* Mistral's turns: `open` and `close` around a user's text, `before` an answer. */
#define MISTRAL(which, open, close, before)                                              \
    "{{ bos_token }}"                                                                    \
    "{% set system = messages[0].content if messages[0].role == 'system' else '' %}"     \
    "{% set turns = messages[1:] if system else messages %}"                             \
    "{% set last = namespace(user=0) %}"                                                 \
    "{% for m in turns if m.role == 'user' %}{% set last.user = loop.index %}"           \
    "{% endfor %}{% set at = namespace(user=0) %}"                                       \
    "{% for m in turns %}"                                                               \
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) or m.role not in "               \
    "['user', 'assistant'] %}"                                                           \
    "{{ raise_exception('expected an optional system message and then user and "         \
    "assistant in turn') }}{% endif %}"                                                  \
    "{% if m.role == 'user' %}{% set at.user = at.user + 1 %}{{ '" open "' }}"           \
    "{% if system and at.user == " which " %}{{ system ~ '\\n\\n' }}{% endif %}"         \
    "{{ m.content ~ '" close "' }}"                                                      \
    "{% else %}{{ '" before "' ~ m.content ~ eos_token }}{% endif %}{% endfor %}"

static const struct builtin_template known[] = {
    {.name = "chatml",
     .source =
         "{% for m in messages %}"
         "{{ '<|im_start|>' ~ m.role ~ '\\n' ~ m.content ~ '<|im_end|>\\n' }}"
         "{% endfor %}"
         "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
     .needs = {"<|im_start|>", "<|im_end|>"}},
    {.name = "llama-2",
     .source =
         "{% set system = messages[0].content if messages[0].role == 'system' else '' %}"
         "{% set turns = messages[1:] if system else messages %}"
         "{% for m in turns %}"
         "{% if (m.role == 'user') != (loop.index0 % 2 == 0) or m.role not in "
         "['user', 'assistant'] %}"
         "{{ raise_exception('expected an optional system message and then user and "
         "assistant in turn') }}{% endif %}"
         "{% set text = m.content %}"
         "{% if loop.first and system %}"
         "{% set text = '<<SYS>>\\n' ~ system ~ '\\n<</SYS>>\\n\\n' ~ text %}{% endif %}"
         "{% if m.role == 'user' %}{{ bos_token ~ '[INST] ' ~ text.strip() ~ ' [/INST]' "
         "}}"
         "{% else %}{{ ' ' ~ text.strip() ~ ' ' ~ eos_token }}{% endif %}{% endfor %}",
     .needs = {"<s>", "</s>"}},
    {.name = "llama-3",
     .source = "{{ '<|begin_of_text|>' }}{% for m in messages %}"
               "{{ '<|start_header_id|>' ~ m.role ~ '<|end_header_id|>\\n\\n' ~ "
               "m.content | trim ~ '<|eot_id|>' }}{% endfor %}"
               "{% if add_generation_prompt %}"
               "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}",
     .needs = {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
               "<|eot_id|>"}},
    {.name = "mistral-v1",
     .source = MISTRAL("1", "[INST] ", " [/INST]", " "),
     .needs = {"<s>", "</s>"}},
    {.name = "mistral-v3",
     .source = MISTRAL("last.user", "[INST] ", "[/INST]", " "),
     .needs = {"<s>", "</s>", "[INST]", "[/INST]"}},
    {.name = "mistral-tekken",
     .source = MISTRAL("last.user", "[INST]", "[/INST]", ""),
     .needs = {"<s>", "</s>", "[INST]", "[/INST]"}},
};

static const struct builtin_template *known_named(const char *name)
{
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(known[i].name, name) == 0)
            return &known[i];
    return NULL;
}

/* ---- opening ---- */

static int check_needs(const struct builtin_template *k, const struct tok *tok)
{
    for (int i = 0; i < 4 && k->needs[i]; i++) {
        size_t n_ids = 0;
        int32_t *ids;

        TRY(tok_encode(tok, k->needs[i], strlen(k->needs[i]), TOK_SPECIAL, &ids, &n_ids));
        mem_free(ids);
        if (n_ids != 1)
            return err_set(
                ERR_UNSUPPORTED,
                "chat template %s needs the token %s, which the tokenizer does "
                "not have",
                k->name, k->needs[i]);
    }
    return OK;
}

/* The model's own, or one of its own by name: next to the model, else next to its tokenizer. */
static int read_own(struct source *s, const struct chat_opts *o, const char *name,
                    const char **from)
{
    int rc = source_read(s, o->model, name, o->tok);

    *from = o->model;
    if (rc == ERR_NOTFOUND && o->tokenizer && strcmp(o->tokenizer, o->model) != 0) {
        source_fini(s); /* special tokens are named there, too */
        rc = source_read(s, o->tokenizer, name, o->tok);
        *from = o->tokenizer;
    }
    return rc;
}

static int open_own(struct chat *c, const struct source *s, const char *from,
                    const char *name)
{
    char where[300];

    snprintf(where, sizeof(where), "%.200s: chat template%s%.60s", from, name ? " " : "",
             name ? name : "");
    snprintf(c->origin, sizeof(c->origin), "%s", where);
    TRY(chat_template_open(&c->usual, s->usual, strlen(s->usual), where));
    if (s->tool_use)
        TRY(chat_template_open(&c->tool_use, s->tool_use, strlen(s->tool_use), where));
    c->developer = strstr(s->usual, "developer") != NULL;
    c->calls = s->tool_use ? chat_call_format_of(s->tool_use, strlen(s->tool_use))
                           : chat_call_format_of(s->usual, strlen(s->usual));
    return OK;
}

static int open_file(struct chat *c, const char *path)
{
    char *text = NULL;
    size_t n;
    int rc = file_read(&text, &n, path, CHAT_SOURCE_MAX);

    if (rc == ERR_NOTFOUND)
        return err_set(ERR_NOTFOUND,
                       "no chat template \"%.200s\": expected " CHAT_KNOWN_NAMES
                       ", one of the model's own by name, or a file",
                       path);
    if (rc == OK)
        rc = chat_template_open(&c->usual, text, n, path);
    if (rc == OK) {
        c->developer = memmem(text, n, "developer", 9) != NULL;
        c->calls = chat_call_format_of(text, n);
    }
    snprintf(c->origin, sizeof(c->origin), "%.290s", path);
    mem_free(text);
    return rc;
}

static int open_asked(struct chat *c, struct source *s, const struct chat_opts *o)
{
    const struct builtin_template *k = known_named(o->template);
    const char *from;
    int rc;

    if (k) {
        snprintf(c->origin, sizeof(c->origin), "%s", k->name);
        TRY(check_needs(k, o->tok));
        return chat_template_open(&c->usual, k->source, strlen(k->source), k->name);
    }
    rc = read_own(s, o, o->template, &from);
    if (rc != ERR_NOTFOUND)
        return rc == OK ? open_own(c, s, from, o->template) : rc;
    return open_file(c, o->template);
}

static int render(const struct chat *c, const struct chat_template *t,
                  struct chat_conversation *in, const json_t *messages,
                  struct chat_prompt *out);

/* Whether the text of a user's message is in what the template writes, as it stands: in a list
 * that is written as a value the newline is an escape. n_parts 0: the content is a text. */
static int writes(const struct chat *c, int n_parts, bool *found)
{
    static const char mark[] = "a text that only\nthis message has", first[] = "a\npart";
    json_t *m = json_pack("[{s:s, s:[{s:s, s:s}]}]", "role", "user", "content", "type",
                          "text", "text", mark);
    json_t *user = json_array_get(m, 0);
    struct chat_conversation in = {.messages = m, .max_bytes = 1 << 20};
    struct chat_prompt p = {0};
    int rc = m ? OK : err_set(ERR_NOMEM, "no memory for a message");

    *found = false;
    if (rc == OK && n_parts != 1 &&
        (n_parts == 0 ? json_object_set_new(user, "content", json_string(mark))
                      : json_array_insert_new(
                            json_object_get(user, "content"), 0,
                            json_pack("{s:s, s:s}", "type", "text", "text", first))) != 0)
        rc = err_set(ERR_NOMEM, "no memory for a message");
    if (rc == OK)
        rc = render(c, c->usual, &in, m, &p);
    if (rc == OK)
        *found = p.text.p && memmem(p.text.p, p.text.n, mark, sizeof(mark) - 1) &&
                 (n_parts < 2 || memmem(p.text.p, p.text.n, first, sizeof(first) - 1));
    chat_prompt_fini(&p);
    json_decref(m);
    return rc == ERR_NOMEM ? rc : OK;
}

/* Some templates expect a content to be a list of parts, and write nothing of a text. */
static int find_type(struct chat *c)
{
    bool text, part;

    TRY(writes(c, 0, &text));
    TRY(writes(c, 1, &part));
    c->typed = !text && part;
    return writes(c, 2, &c->lists);
}

int chat_open(struct chat **out, const struct chat_opts *o)
{
    struct chat *c = mem_new(MEM_OTHER, 1, sizeof(*c));
    struct source s = {0}, own = {0};
    const char *from;
    int rc = c ? OK : ERR_NOMEM;

    *out = NULL;
    if (rc == OK)
        rc = read_own(&own, o, NULL, &from);
    if (rc == OK && !o->template)
        rc = open_own(c, &own, from, NULL);
    else if (o->template && (rc == OK || rc == ERR_NOTFOUND || rc == ERR_LIMIT)) {
        bool replaces = rc == OK;

        rc = open_asked(c, &s, o);
        if (rc == OK && replaces)
            log_info("chats are written by --chat-template %s, not by the template in %s",
                     o->template, from);
    }
    if (rc == OK) {
        c->tokens = json_incref(own.tokens);
        rc = find_type(c);
    }
    if (rc == OK)
        *out = c, c = NULL;
    source_fini(&own);
    source_fini(&s);
    chat_close(&c);
    return rc;
}

void chat_close(struct chat **pc)
{
    struct chat *c = *pc;

    *pc = NULL;
    if (!c)
        return;
    chat_template_close(&c->usual);
    chat_template_close(&c->tool_use);
    json_decref(c->tokens);
    mem_free(c);
}

const char *chat_origin(const struct chat *c)
{
    return c->origin;
}

const struct chat_call_format *chat_calls_of(const struct chat *c)
{
    return c->calls;
}

/* ---- messages as templates expect them ---- */

/* A content in parts: as it is, or (glue) as one text. */
static int put_parts(json_t *m, const json_t *parts, size_t i, bool glue)
{
    struct text all = {0};
    int rc = OK;

    for (size_t k = 0; k < json_array_size(parts) && rc == OK; k++) {
        const json_t *part = json_array_get(parts, k), *s = json_object_get(part, "text");

        if (strcmp(json_str_at(part, "type", ""), "text") != 0 || !json_is_string(s) ||
            json_object_size(part) != 2)
            rc =
                err_set(ERR_UNSUPPORTED,
                        "messages: %zu: content: part %zu: expected type \"text\" with a "
                        "text, and nothing else",
                        i, k);
        else
            text_put(&all, json_string_value(s), json_string_length(s));
    }
    if (rc == OK)
        rc = all.rc;
    if (rc == OK && glue &&
        json_object_set_new(m, "content", json_stringn(all.p ? all.p : "", all.n)) != 0)
        rc = err_set(ERR_NOMEM, "no memory for a message");
    text_fini(&all);
    return rc;
}

static int put_content(const struct chat *c, json_t *m, size_t i)
{
    json_t *v = json_object_get(m, "content");

    if (json_is_array(v)) {
        TRY(put_parts(m, v, i, !c->lists));
        v = json_object_get(m, "content");
    }
    if (json_is_array(v))
        return OK;
    if (json_is_string(v) && c->typed) {
        v = json_pack("[{s:s, s:O}]", "type", "text", "text", v);
        return v && json_object_set_new(m, "content", v) == 0
                   ? OK
                   : err_set(ERR_NOMEM, "no memory for a message");
    }
    if (json_is_string(v) ||
        ((!v || json_is_null(v)) && json_object_get(m, "tool_calls")))
        return OK;
    return err_set(ERR_ARG, "messages: %zu: content: expected text", i);
}

/* Arguments of a call come as JSON in a text, and templates expect the object. */
static int put_arguments(json_t *m, size_t i)
{
    const json_t *calls = json_object_get(m, "tool_calls");
    char where[100];

    for (size_t k = 0; k < json_array_size(calls); k++) {
        json_t *f = json_object_get(json_array_get(calls, k), "function"), *object;
        const json_t *s = json_object_get(f, "arguments");

        if (!json_is_string(s) || json_string_length(s) == 0)
            continue;
        snprintf(where, sizeof(where), "messages: %zu: tool_calls: %zu: arguments", i, k);
        TRY(json_read_text(&object, json_string_value(s), json_string_length(s), where));
        if (json_object_set_new(f, "arguments", object) != 0)
            return err_set(ERR_NOMEM, "no memory for a message");
    }
    return OK;
}

static int prepare_message(const struct chat *c, json_t *m, size_t i)
{
    const char *role = json_string_value(json_object_get(m, "role"));

    if (!role)
        return err_set(ERR_ARG, "messages: %zu: expected an object with a role", i);
    if (strcmp(role, "developer") == 0 && !c->developer &&
        json_object_set_new(m, "role", json_string("system")) != 0)
        return err_set(ERR_NOMEM, "no memory for a message");
    TRY(put_content(c, m, i));
    return put_arguments(m, i);
}

static int prepare_messages(const struct chat *c, const json_t *given, json_t **out)
{
    *out = json_deep_copy(given);
    if (!*out)
        return err_set(ERR_NOMEM, "no memory for the messages");
    for (size_t i = 0; i < json_array_size(*out); i++)
        TRY(prepare_message(c, json_array_get(*out, i), i));
    return OK;
}

/* ---- variables ---- */

struct variables {
    struct chat_variable v[VARIABLES_MAX];
    int n;
};

static bool put(struct variables *v, const char *name, const json_t *value, bool trusted)
{
    for (int i = 0; i < v->n; i++)
        if (strcmp(v->v[i].name, name) == 0)
            return false;
    if (v->n == VARIABLES_MAX)
        return false;
    v->v[v->n++] =
        (struct chat_variable){.name = name, .value = value, .trusted = trusted};
    return true;
}

static void put_tokens(struct variables *v, const struct chat *c)
{
    const char *name;
    json_t *text;

    json_object_foreach(c->tokens, name, text)
    {
        if (json_is_string(text))
            (void)put(v, name, text, true);
    }
}

static int put_more(struct variables *v, const json_t *more)
{
    const char *name;
    json_t *value;

    json_object_foreach((json_t *)more, name, value)
    {
        if (!put(v, name, value, false))
            return err_set(
                ERR_ARG,
                "chat_template_kwargs: %.60s: the server sets it, or there are "
                "more than %d variables",
                name, VARIABLES_MAX);
    }
    return OK;
}

static int check_read(struct chat_conversation *in, const struct variables *v)
{
    for (int i = 0; i < v->n; i++) {
        const struct chat_variable *one = &v->v[i];

        if (one->read)
            continue;
        if (in->tools && strcmp(one->name, "tools") == 0) {
            in->param = "tools";
            return err_set(ERR_ARG,
                           "tools: the model's chat template does not read them");
        }
        if (json_object_get(in->more, one->name))
            return err_set(ERR_ARG,
                           "chat_template_kwargs: %.60s: the model's chat template does "
                           "not read it",
                           one->name);
    }
    return OK;
}

static int render(const struct chat *c, const struct chat_template *t,
                  struct chat_conversation *in, const json_t *messages,
                  struct chat_prompt *out)
{
    struct variables v = {0};
    struct chat_input input = {.variables = v.v,
                               .time_s = in->time_s,
                               .max_bytes = in->max_bytes,
                               .refuse_unread = true};
    int rc;

    (void)put(&v, "messages", messages, false);
    (void)put(&v, "tools", in->tools, false);
    (void)put(&v, "documents", NULL, false);
    (void)put(&v, "add_generation_prompt", json_boolean(!in->continue_final), false);
    put_tokens(&v, c);
    in->param = NULL;
    TRY(put_more(&v, in->more));
    input.n_variables = v.n;
    in->param = "messages";
    rc = chat_template_render(t, &input, out);
    in->too_long = input.too_long;
    if (rc != OK)
        return rc;
    in->param = NULL;
    return check_read(in, &v);
}

/* ---- an answer that is to be continued ---- */

static int final_text(const json_t *messages, const char **text, size_t *n)
{
    size_t last = json_array_size(messages) - 1;
    const json_t *m = json_array_get(messages, last), *v = json_object_get(m, "content");
    const char *role = json_string_value(json_object_get(m, "role"));

    if (json_is_array(v)) /* of a template that wants parts */
        v = json_object_get(json_array_get(v, json_array_size(v) - 1), "text");
    *text = json_string_value(v);
    *n = json_string_length(v);
    if (!role || strcmp(role, "assistant") != 0 || *n == 0)
        return err_set(
            ERR_ARG,
            "messages: %zu: expected an assistant's message with a text, which "
            "continue_final_message continues",
            last);
    return OK;
}

/* The end of the last place of text[n] in the prompt; 0: none. Linear in both (Knuth, Morris and
 * Pratt): a client chooses them. */
static int find_last(const struct chat_prompt *p, const char *text, size_t n, size_t *end)
{
    size_t *border = mem_new(MEM_OTHER, n, sizeof(*border)), k = 0;

    *end = 0;
    if (!border)
        return ERR_NOMEM;
    for (size_t i = 1; i < n; i++) {
        while (k > 0 && text[k] != text[i])
            k = border[k - 1];
        k += text[k] == text[i];
        border[i] = k;
    }
    k = 0;
    for (size_t i = 0; i < p->text.n; i++) {
        while (k > 0 && (k == n || text[k] != p->text.p[i]))
            k = border[k - 1];
        k += text[k] == p->text.p[i];
        if (k == n)
            *end = i + 1;
    }
    mem_free(border);
    return OK;
}

static void cut(struct chat_prompt *p, size_t n)
{
    p->text.n = n;
    for (size_t i = 0; i < p->n_parts; i++) {
        if (p->parts[i].n >= n) {
            p->parts[i].n = n;
            p->n_parts = i + 1;
            return;
        }
        n -= p->parts[i].n;
    }
}

/* The text that the template writes behind the last message, such as the end of its turn, goes.
 * Many templates take the white space off a message. */
static int end_in_final(const json_t *messages, struct chat_prompt *p)
{
    static const char spaces[] = " \t\r\n";
    const char *text;
    size_t n, end;

    TRY(final_text(messages, &text, &n));
    TRY(find_last(p, text, n, &end));
    if (end == 0) {
        while (n > 0 && memchr(spaces, text[n - 1], 4))
            n--;
        while (n > 0 && memchr(spaces, *text, 4))
            text++, n--;
        if (n > 0)
            TRY(find_last(p, text, n, &end));
    }
    if (end == 0)
        return err_set(ERR_ARG,
                       "messages: %zu: the chat template changes its text, so that it "
                       "cannot be continued",
                       json_array_size(messages) - 1);
    cut(p, end);
    return OK;
}

int chat_write(const struct chat *c, struct chat_conversation *in,
               struct chat_prompt *out)
{
    const struct chat_template *t = in->tools && c->tool_use ? c->tool_use : c->usual;
    json_t *messages;
    int rc;

    in->param = "messages";
    in->too_long = false;
    rc = prepare_messages(c, in->messages, &messages);
    if (rc == OK)
        rc = render(c, t, in, messages, out);
    if (rc == OK && in->continue_final) {
        in->param = "messages";
        rc = end_in_final(messages, out);
    }
    json_decref(messages);
    return rc;
}
