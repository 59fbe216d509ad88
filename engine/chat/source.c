/* A model's templates and special tokens, where its files keep them. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "chat/chat_impl.h"
#include "format/gguf.h"

#define CONFIG_BYTES_MAX ((size_t)64 << 20)
#define PATH_BYTES       4096

static int copy(char **out, const char *s, size_t n)
{
    *out = mem_strndup(MEM_OTHER, s, n);
    return *out ? OK : ERR_NOMEM;
}

/* A special token by name, unless it is set. */
static int put_token(struct chat_source *s, const char *name, const char *text, size_t n)
{
    if (json_object_get(s->tokens, name))
        return OK;
    if (json_object_set_new(s->tokens, name, json_stringn_lossy(text, n)) != 0)
        return err_set(ERR_NOMEM, "no memory for the text of a token");
    return OK;
}

static int put_id(struct chat_source *s, const char *name, const struct tok *tok,
                  int64_t id)
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

static int read_gguf(struct chat_source *s, const struct gguf *g, const char *name,
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
static int read_templates(struct chat_source *s, const json_t *v, const char *name)
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
static int read_tokens(struct chat_source *s, json_t *config)
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

static int read_config(struct chat_source *s, const char *dir, const char *name)
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

static int read_folder(struct chat_source *s, const char *dir, const char *name)
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

int chat_source_read(struct chat_source *s, const char *path, const char *name,
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

void chat_source_fini(struct chat_source *s)
{
    mem_free(s->usual);
    mem_free(s->tool_use);
    json_decref(s->tokens);
    *s = (struct chat_source){0};
}
