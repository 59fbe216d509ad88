#include "http/template.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file_map.h"
#include "base/json.h"
#include "base/mem.h"
#include "format/gguf.h"

#define CONFIG_BYTES_MAX ((size_t)64 << 20)
#define MARKS_MAX        3

enum role { SYSTEM, USER, ASSISTANT, N_ROLES };
static const char *const role_name[] = {"system", "user", "assistant"};

/* How one published template writes conversations. */
struct http_template {
    const char *name;
    const char
        *marks[MARKS_MAX]; /* texts that the model's own template has, all of them */
    const char *start;     /* before everything */
    const char *open[N_ROLES], *close[N_ROLES]; /* around a message */
    const char *answer;                         /* begins the answer */
    const char *default_system; /* written where the conversation has no system message */
    const char *control[4];     /* what the tokenizer needs to have */
    /* Where the system message stands: in a turn of its own, or between `open` and `close`
     * before the text of the first or the last user message. */
    enum { OWN_ROLE, IN_FIRST_USER, IN_LAST_USER } system;
    bool trim; /* messages lose whitespace at both ends */
};

#define CHATML                                                                           \
    .open = {"<|im_start|>system\n", "<|im_start|>user\n", "<|im_start|>assistant\n"},   \
    .close = {"<|im_end|>\n", "<|im_end|>\n", "<|im_end|>\n"},                           \
    .answer = "<|im_start|>assistant\n", .control = {"<|im_start|>", "<|im_end|>"}

/* In the order in which they are recognised: what has more marks comes first. */
static const struct http_template templates[] = {
    {.name = "llama-3",
     .marks = {"<|start_header_id|>", "<|eot_id|>"},
     .start = "<|begin_of_text|>",
     .open = {"<|start_header_id|>system<|end_header_id|>\n\n",
              "<|start_header_id|>user<|end_header_id|>\n\n",
              "<|start_header_id|>assistant<|end_header_id|>\n\n"},
     .close = {"<|eot_id|>", "<|eot_id|>", "<|eot_id|>"},
     .answer = "<|start_header_id|>assistant<|end_header_id|>\n\n",
     .control = {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
                 "<|eot_id|>"},
     .trim = true},
    {.name = "qwen2.5",
     .marks = {"<|im_start|>", "You are Qwen, created by Alibaba Cloud."},
     .default_system =
         "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.",
     CHATML},
    {.name = "smollm2",
     .marks = {"<|im_start|>", "You are a helpful AI assistant named SmolLM"},
     .default_system =
         "You are a helpful AI assistant named SmolLM, trained by Hugging Face",
     CHATML},
    {.name = "qwen2",
     .marks = {"<|im_start|>", "You are a helpful assistant"},
     .default_system = "You are a helpful assistant.",
     CHATML},
    {.name = "chatml", .marks = {"<|im_start|>"}, CHATML},
    {.name = "llama-2",
     .marks = {"[INST]", "<<SYS>>"},
     .open = {"<<SYS>>\n", "<s>[INST] ", " "},
     .close = {"\n<</SYS>>\n\n", " [/INST]", " </s>"},
     .answer = "",
     .control = {"<s>", "</s>"},
     .system = IN_FIRST_USER,
     .trim = true},
    {.name = "mistral-v7",
     .marks = {"[INST] ", "[SYSTEM_PROMPT] "},
     .start = "<s>",
     .open = {"[SYSTEM_PROMPT] ", "[INST] ", " "},
     .close = {"[/SYSTEM_PROMPT]", "[/INST]", "</s>"},
     .answer = "",
     .control = {"<s>", "</s>", "[INST]", "[/INST]"}},
    {.name = "mistral-v7-tekken",
     .marks = {"[INST]", "[SYSTEM_PROMPT]"},
     .start = "<s>",
     .open = {"[SYSTEM_PROMPT]", "[INST]", ""},
     .close = {"[/SYSTEM_PROMPT]", "[/INST]", "</s>"},
     .answer = "",
     .control = {"<s>", "</s>", "[INST]", "[/INST]"}},
    {.name = "mistral-v1",
     .marks = {"[INST] ", " [/INST]"},
     .start = "<s>",
     .open = {"", "[INST] ", " "},
     .close = {"\n\n", " [/INST]", "</s>"},
     .answer = "",
     .control = {"<s>", "</s>"},
     .system = IN_FIRST_USER},
    {.name = "mistral-v3",
     .marks = {"[INST] ", "[/INST]"},
     .start = "<s>",
     .open = {"", "[INST] ", " "},
     .close = {"\n\n", "[/INST]", "</s>"},
     .answer = "",
     .control = {"<s>", "</s>", "[INST]", "[/INST]"},
     .system = IN_LAST_USER},
    {.name = "mistral-tekken",
     .marks = {"[INST]", "[/INST]"},
     .start = "<s>",
     .open = {"", "[INST]", ""},
     .close = {"\n\n", "[/INST]", "</s>"},
     .answer = "",
     .control = {"<s>", "</s>", "[INST]", "[/INST]"},
     .system = IN_LAST_USER},
};
#define N_TEMPLATES ((int)(sizeof(templates) / sizeof(templates[0])))

const char *http_template_name(const struct http_template *t)
{
    return t->name;
}

int http_template_named(const struct http_template **out, const char *name)
{
    *out = NULL;
    for (int i = 0; i < N_TEMPLATES; i++)
        if (strcmp(name, templates[i].name) == 0)
            *out = &templates[i];
    return *out ? OK
                : err_set(ERR_NOTFOUND,
                          "no chat template \"%.60s\": expected " HTTP_TEMPLATE_NAMES,
                          name);
}

int http_template_recognise(const struct http_template **out, const char *text, size_t n)
{
    *out = NULL;
    for (int i = 0; i < N_TEMPLATES && !*out; i++) {
        const struct http_template *t = &templates[i];
        bool all = true;

        for (int m = 0; m < MARKS_MAX && t->marks[m]; m++)
            all = all && memmem(text, n, t->marks[m], strlen(t->marks[m]));
        if (all)
            *out = t;
    }
    return *out ? OK
                : err_set(ERR_UNSUPPORTED,
                          "the model's own chat template is not known; --chat-template "
                          "chooses " HTTP_TEMPLATE_NAMES);
}

/* ---- the model's metadata ---- */

static int of_gguf(const struct http_template **out, const char *path)
{
    struct gguf *g;
    const char *s;
    size_t n;
    int rc = gguf_open(&g, path);

    if (rc != OK)
        return rc;
    rc = gguf_get_str(g, "tokenizer.chat_template", &s, &n);
    if (rc == OK)
        rc = http_template_recognise(out, s, n);
    gguf_close(&g);
    return rc;
}

/* The key is a text, or a list of named ones, of which "default" is meant. */
static const json_t *default_template(const json_t *v)
{
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *one = json_array_get(v, i);
        const char *name = json_string_value(json_object_get(one, "name"));

        if (name && strcmp(name, "default") == 0)
            return json_object_get(one, "template");
    }
    return v;
}

static int of_config(const struct http_template **out, const char *path)
{
    json_t *config = NULL;
    const json_t *v;
    int rc = json_read_file(&config, path, CONFIG_BYTES_MAX);

    if (rc != OK)
        return rc;
    v = default_template(json_object_get(config, "chat_template"));
    if (json_is_string(v))
        rc = http_template_recognise(out, json_string_value(v), json_string_length(v));
    else
        rc = err_set(ERR_NOTFOUND, "%s: there is no chat_template", path);
    json_decref(config);
    return rc;
}

static int of_file(const struct http_template **out, const char *path)
{
    struct file_map map;
    int rc = file_map_open(&map, path);

    if (rc != OK)
        return rc;
    rc = http_template_recognise(out, (const char *)map.base, map.bytes);
    if (file_map_check() != OK)
        rc = ERR_IO;
    file_map_close(&map);
    return rc;
}

int http_template_of_model(const struct http_template **out, const char *path)
{
    char inside[4096];
    struct stat st;
    const char *const names[] = {"chat_template.jinja", "tokenizer_config.json"};

    *out = NULL;
    if (stat(path, &st) != 0)
        return err_set(ERR_IO, "%s: %m", path);
    if (!S_ISDIR(st.st_mode))
        return of_gguf(out, path);
    for (int i = 0; i < 2; i++) {
        if ((size_t)snprintf(inside, sizeof(inside), "%s/%s", path, names[i]) >=
            sizeof(inside))
            return err_set(ERR_ARG, "path of %zu bytes is too long", strlen(path));
        if (stat(inside, &st) == 0)
            return i == 0 ? of_file(out, inside) : of_config(out, inside);
    }
    return err_set(ERR_NOTFOUND, "%s: there is neither %s nor %s", path, names[0],
                   names[1]);
}

int http_template_check(const struct http_template *t, const struct tok *tok)
{
    for (int i = 0; i < 4 && t->control[i]; i++) {
        const char *word = t->control[i];
        size_t n_ids = 0;
        int32_t *ids;

        TRY(tok_encode(tok, word, strlen(word), TOK_SPECIAL, &ids, &n_ids));
        mem_free(ids);
        if (n_ids != 1)
            return err_set(
                ERR_UNSUPPORTED,
                "chat template %s needs the token %s, which the tokenizer does "
                "not have",
                t->name, word);
    }
    return OK;
}

/* ---- rendering ---- */

static int put(struct http_prompt *p, const char *s, size_t n, bool special)
{
    struct tok_part *grown;

    if (n == 0)
        return OK;
    text_put(&p->text, s, n);
    if (p->n_parts > 0 && p->parts[p->n_parts - 1].special == special) {
        p->parts[p->n_parts - 1].n += n;
        return p->text.rc;
    }
    if (p->n_parts == p->capacity) {
        grown = mem_resize(MEM_OTHER, p->parts, 2 * p->capacity + 8, sizeof(*grown));
        if (!grown)
            return ERR_NOMEM;
        p->parts = grown;
        p->capacity = 2 * p->capacity + 8;
    }
    p->parts[p->n_parts++] = (struct tok_part){n, special};
    return p->text.rc;
}

static int put_fixed(struct http_prompt *p, const char *s)
{
    return s ? put(p, s, strlen(s), true) : OK;
}

enum trim { TRIM_NONE, TRIM_END, TRIM_BOTH };

static int put_text(struct http_prompt *p, const char *s, size_t n, enum trim trim)
{
    static const char blank[] = " \t\n\r\f\v";

    while (trim == TRIM_BOTH && n > 0 && memchr(blank, s[0], sizeof(blank) - 1))
        s++, n--;
    while (trim != TRIM_NONE && n > 0 && memchr(blank, s[n - 1], sizeof(blank) - 1))
        n--;
    return put(p, s, n, false);
}

/* The content of a message: a text, or parts of type "text". */
static int put_content(struct http_prompt *p, const json_t *message, enum trim trim)
{
    const json_t *v = json_object_get(message, "content");
    struct text all = {0};
    int rc = OK;

    if (json_is_string(v))
        return put_text(p, json_string_value(v), json_string_length(v), trim);
    if (!json_is_array(v))
        return err_set(ERR_ARG, "messages: content: expected text");
    for (size_t i = 0; i < json_array_size(v) && rc == OK; i++) {
        const json_t *part = json_array_get(v, i), *s = json_object_get(part, "text");
        const char *type = json_string_value(json_object_get(part, "type"));

        if (!type || strcmp(type, "text") != 0 || !json_is_string(s))
            rc = err_set(
                ERR_UNSUPPORTED,
                "messages: content: part %zu: expected type \"text\" with a text", i);
        else
            text_put(&all, json_string_value(s), json_string_length(s));
    }
    rc = rc == OK ? all.rc : rc;
    if (rc == OK)
        rc = put_text(p, all.p ? all.p : "", all.n, trim);
    text_fini(&all);
    return rc;
}

static int role_of(const json_t *message, size_t i, enum role *out)
{
    const char *s = json_string_value(json_object_get(message, "role"));

    if (!s)
        return err_set(ERR_ARG, "messages: %zu: expected an object with a role", i);
    if (strcmp(s, "developer") == 0) /* what OpenAI's newer models call it */
        s = "system";
    for (int r = 0; r < N_ROLES; r++) {
        if (strcmp(s, role_name[r]) != 0)
            continue;
        *out = (enum role)r;
        return OK;
    }
    return err_set(ERR_UNSUPPORTED,
                   "messages: %zu: expected the role system, user or assistant, found "
                   "\"%.40s\"",
                   i, s);
}

/* A conversation alternates, and its system message is the first. *n_user: user messages. */
static int check_order(const struct http_template *t, const json_t *messages,
                       size_t *n_user)
{
    enum role role, last = SYSTEM;

    *n_user = 0;
    for (size_t i = 0; i < json_array_size(messages); i++) {
        TRY(role_of(json_array_get(messages, i), i, &role));
        *n_user += role == USER;
        if (t->system == OWN_ROLE)
            continue;
        if ((role == SYSTEM && i > 0) || (role != SYSTEM && role == last) ||
            (role == ASSISTANT && last == SYSTEM))
            return err_set(ERR_ARG,
                           "messages: %zu: chat template %s expects an optional system "
                           "message and then user and assistant in turn",
                           i, t->name);
        last = role;
    }
    if (t->system != OWN_ROLE && last != USER)
        return err_set(ERR_ARG, "messages: chat template %s expects a user message last",
                       t->name);
    return OK;
}

/* A message of a user that begins with the system message, as one text. */
static int put_with_system(const struct http_template *t, const json_t *system,
                           const json_t *user, struct http_prompt *out)
{
    TRY(put_fixed(out, t->open[SYSTEM]));
    TRY(put_content(out, system, TRIM_NONE));
    TRY(put_fixed(out, t->close[SYSTEM]));
    return put_content(out, user, t->trim ? TRIM_END : TRIM_NONE);
}

int http_template_render(const struct http_template *t, const json_t *messages,
                         struct http_prompt *out)
{
    const json_t *system = NULL, *m;
    size_t n_user, n = 0;
    enum role role = USER;

    TRY(check_order(t, messages, &n_user));
    TRY(role_of(json_array_get(messages, 0), 0, &role));
    TRY(put_fixed(out, t->start));
    if (role == SYSTEM && t->system != OWN_ROLE)
        system = json_array_get(messages, 0);
    if (role != SYSTEM && t->default_system) {
        TRY(put_fixed(out, t->open[SYSTEM]));
        TRY(put_fixed(out, t->default_system));
        TRY(put_fixed(out, t->close[SYSTEM]));
    }
    for (size_t i = system ? 1 : 0; i < json_array_size(messages); i++) {
        m = json_array_get(messages, i);
        TRY(role_of(m, i, &role));
        n += role == USER;
        TRY(put_fixed(out, t->open[role]));
        if (system && role == USER && n == (t->system == IN_FIRST_USER ? 1 : n_user))
            TRY(put_with_system(t, system, m, out));
        else
            TRY(put_content(out, m, t->trim ? TRIM_BOTH : TRIM_NONE));
        TRY(put_fixed(out, t->close[role]));
    }
    return put_fixed(out, t->answer);
}

void http_prompt_fini(struct http_prompt *p)
{
    text_fini(&p->text);
    mem_free(p->parts);
    *p = (struct http_prompt){0};
}
