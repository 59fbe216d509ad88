#include "baselines/openai_probe.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/utf8.h"
#include "baselines/openai.h"
#include "baselines/sse.h"

#define ASSUMED_VOCAB   1000
#define ASSUMED_MAX_TOK 2048
#define PROBE_TOK       8  /* ids of the prompt tried */
#define PROBE_WORDS     32 /* words of it */
#define PROBE_OUTPUT    2
#define PROBE_S         120 /* the first request may wait for much to be set up */
#define MORE_S          5   /* of a question that need not be answered */
#define FIRST_ID        3

int sut_openai_url(char *out, size_t n, const char *url)
{
    const char *host = strstr(url, "://"), *path;
    size_t len = strlen(url);

    if (!host || (strncmp(url, "http:", 5) != 0 && strncmp(url, "https:", 6) != 0) ||
        !host[3])
        return err_set(ERR_ARG, "%.200s: expected a URL such as http://127.0.0.1:8080",
                       url);
    path = strchr(host + 3, '/');
    while (len && url[len - 1] == '/')
        len--;
    if (snprintf(out, n, "%.*s%s", (int)len, url,
                 path && path < url + len ? "" : "/v1") >= (int)n)
        return err_set(ERR_ARG, "%.60s...: a URL of more than %zu bytes", url, n);
    return OK;
}

/* --- what the server says of itself */

/* The JSON answer of a GET, or NULL. `http` names the address that the path follows. */
static json_t *ask(const struct sut_http_opts *http, const char *path)
{
    struct text answer = {0};
    json_t *j = NULL;
    long status;

    if (sut_http_fetch(http, path, NULL, &answer, &status) != OK || status != 200 ||
        json_read_text(&j, answer.p ? answer.p : "", answer.n, path) != OK)
        j = NULL;
    text_fini(&answer);
    return j;
}

static int refuse(const struct sut_http_opts *http, const char *path, long status,
                  const struct text *answer)
{
    char message[160];
    const bool key = status == 401 || status == 403;

    sut_openai_error(message, sizeof(message), answer->p ? answer->p : "", answer->n);
    return err_set(ERR_IO, "%s%s: the server answers HTTP %ld: %s%s", http->url, path,
                   status, message,
                   key ? " (api_key_env names the variable that holds the key)" : "");
}

static void copy_text(char *out, size_t n, const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    if (text)
        utf8_show(out, n, text);
}

static void take_limit(int64_t *to, const json_t *object, const char *key)
{
    const json_t *n = json_object_get(object, key);

    if (*to <= 0 && json_is_integer(n) && json_integer_value(n) > 0)
        *to = json_integer_value(n);
}

/* The entry of the model in the list, borrowed. */
static const json_t *find_model(const json_t *list, const char *name)
{
    const json_t *data = json_object_get(list, "data");

    for (size_t i = 0; i < json_array_size(data); i++) {
        const json_t *entry = json_array_get(data, i);
        const char *id = json_string_value(json_object_get(entry, "id"));

        if (id && (!name || strcmp(id, name) == 0))
            return entry;
    }
    return NULL;
}

static int read_models(struct sut_openai_probe *p, const struct sut_http_opts *http,
                       const char *name)
{
    struct text answer = {0};
    json_t *list = NULL;
    const json_t *entry, *meta;
    long status;
    int rc = sut_http_fetch(http, "/models", NULL, &answer, &status);

    if (rc == OK && status != 200)
        rc = refuse(http, "/models", status, &answer);
    if (rc == OK)
        rc = json_read_text(&list, answer.p ? answer.p : "", answer.n, "/models");
    text_fini(&answer);
    if (rc != OK)
        return rc == ERR_FORMAT ? err_set(ERR_IO,
                                          "%s/models: not a list of models: no server of "
                                          "the OpenAI protocol",
                                          http->url)
                                : rc;
    entry = find_model(list, name);
    if (!entry)
        rc = err_set(ERR_IO, "%s/models: the server lists no model%s%s", http->url,
                     name ? " called " : "", name ? name : "");
    meta = json_object_get(entry, "meta");
    copy_text(p->model, sizeof(p->model), entry, "id");
    copy_text(p->kind, sizeof(p->kind), entry, "owned_by");
    take_limit(&p->vocab, meta, "n_vocab");
    take_limit(&p->max_tok, entry, "max_model_len"); /* vLLM */
    json_decref(list);
    return rc;
}

/* Facts that servers state outside of the protocol. */
static void read_more(struct sut_openai_probe *p, const struct sut_http_opts *http)
{
    static const char *const versions[] = {"/version", "/api/version"}; /* vLLM, Ollama */
    struct sut_http_opts at_root = *http;
    const char *host = strstr(http->url, "://") + 3;
    char root[1024];
    json_t *j;

    snprintf(root, sizeof(root), "%.*s%.*s", (int)(host - http->url), http->url,
             (int)strcspn(host, "/"), host);
    at_root.url = root;
    at_root.timeout_s = MORE_S;
    j = ask(&at_root, "/props"); /* llama-server */
    take_limit(&p->max_tok, json_object_get(j, "default_generation_settings"), "n_ctx");
    copy_text(p->version, sizeof(p->version), j, "build_info");
    json_decref(j);
    for (int i = 0; i < 2 && !p->version[0]; i++) {
        j = ask(&at_root, versions[i]);
        copy_text(p->version, sizeof(p->version), j, "version");
        json_decref(j);
    }
}

/* --- what it accepts */

struct attempt {
    struct sut_openai_stream stream;
    struct text answer;
    long status;
    char refusal[200]; /* the message of a 4xx */
};

static int on_event(void *ctx, char *data, size_t n)
{
    struct attempt *a = ctx;
    int64_t n_new, n_ids;
    int32_t id;

    return sut_openai_event(&a->stream, data, n, &n_new, &id, 1, &n_ids);
}

static int try_request(struct attempt *a, const struct sut_openai_probe *p,
                       const struct sut_http_opts *http)
{
    const char *path = sut_openai_path(p->as_chat);
    int32_t prompt[PROBE_WORDS];
    const struct sut_openai_request q = {.model = p->model,
                                         .prompt = prompt,
                                         .n_prompt = PROBE_TOK,
                                         .n_output = PROBE_OUTPUT,
                                         .as_text = p->as_text,
                                         .n_text_words = PROBE_WORDS,
                                         .as_chat = p->as_chat,
                                         .extras = p->extras};
    struct text body = {0};
    struct sut_sse sse = {0};
    int rc;

    for (int i = 0; i < PROBE_WORDS; i++)
        prompt[i] = FIRST_ID + i % PROBE_TOK;
    a->stream = (struct sut_openai_stream){.n_limit = PROBE_OUTPUT};
    rc = sut_openai_body(&body, &q);
    if (rc == OK)
        rc = sut_http_fetch(http, path, body.p, &a->answer, &a->status);
    text_put(&a->answer, "", 1);
    if (rc == OK && a->status == 200) {
        rc = sut_sse_feed(&sse, a->answer.p, a->answer.n - 1, on_event, a);
        if (rc == OK && !a->stream.done)
            rc = err_set(ERR_IO, "it does not stream: no [DONE] came");
        if (rc != OK)
            rc = err_prefix(ERR_IO, "%s%s", http->url, path);
    } else if (rc == OK && (a->status == 400 || a->status == 422)) {
        sut_openai_error(a->refusal, sizeof(a->refusal), a->answer.p, a->answer.n - 1);
    } else if (rc == OK) {
        a->answer.n--;
        rc = refuse(http, path, a->status, &a->answer);
    }
    sut_sse_fini(&sse);
    text_fini(&body);
    text_fini(&a->answer);
    return rc;
}

/* Ids that the server took for something else are no prompt of ids. */
static bool took_ids(struct sut_openai_probe *p, const struct attempt *a)
{
    int64_t extra = a->stream.n_prompt ? a->stream.n_prompt - PROBE_TOK : 0;

    if (extra < 0 || extra > 2) {
        snprintf(p->why_text, sizeof(p->why_text),
                 "a prompt of %d ids counts as %lld tokens", PROBE_TOK,
                 (long long)a->stream.n_prompt);
        return false;
    }
    p->n_prompt_extra = extra;
    return true;
}

/* Try with fewer and fewer fields beyond the standard. ERR_UNSUPPORTED: refused each time, with the
 * first refusal. */
static int try_fields(struct sut_openai_probe *p, const struct sut_http_opts *http,
                      struct attempt *a)
{
    static const unsigned offers[] = {SUT_OPENAI_ALL_EXTRAS, SUT_OPENAI_BASIC_EXTRAS, 0};
    char first[200] = "";
    unsigned refused = 0, named;

    for (int i = 0; i < 3;) {
        p->extras = offers[i] & ~refused;
        *a = (struct attempt){0};
        TRY(try_request(a, p, http));
        if (a->status == 200)
            return OK;
        if (!first[0])
            snprintf(first, sizeof(first), "%s", a->refusal);
        named = sut_openai_named(a->refusal) & p->extras;
        refused |= named;
        i += !named;
    }
    return err_set(ERR_UNSUPPORTED, "%s", first);
}

static int find_prompt(struct sut_openai_probe *p, const struct sut_http_opts *http,
                       enum sut_openai_prompt wanted)
{
    struct attempt a;
    int rc;

    if (wanted != SUT_OPENAI_PROMPT_WORDS) {
        rc = try_fields(p, http, &a);
        if (rc == OK && took_ids(p, &a))
            return OK;
        p->as_chat = rc == ERR_IO && wanted == SUT_OPENAI_AUTO &&
                     (a.status == 404 || a.status == 405);
        if (rc != OK && rc != ERR_UNSUPPORTED && !p->as_chat)
            return rc;
        if (rc != OK)
            snprintf(p->why_text, sizeof(p->why_text), "%s", err_msg());
        if (wanted == SUT_OPENAI_PROMPT_IDS)
            return err_set(ERR_UNSUPPORTED, "%s/completions: does not take token ids: %s",
                           http->url, p->why_text);
    } else {
        snprintf(p->why_text, sizeof(p->why_text), "prompt: words was asked for");
    }
    p->as_text = true;
    rc = try_fields(p, http, &a);
    if (rc == OK && a.stream.n_prompt)
        p->n_text_extra = a.stream.n_prompt - PROBE_WORDS;
    return rc == ERR_UNSUPPORTED ? err_prefix(rc, "%s%s: refuses every form of request",
                                              http->url, sut_openai_path(p->as_chat))
                                 : rc;
}

int sut_openai_probe(struct sut_openai_probe *out, const struct sut_http_opts *http,
                     const struct sut_openai_probe_opts *o)
{
    struct sut_http_opts asking = *http;

    *out = (struct sut_openai_probe){.vocab = o->vocab, .max_tok = o->max_tok};
    asking.timeout_s = PROBE_S;
    if (o->limit_s > 0)
        asking.end_ns = clock_ns() + (uint64_t)(o->limit_s * 1e9);
    out->url = mem_strdup(MEM_HARNESS, http->url);
    out->api_key = http->api_key ? mem_strdup(MEM_HARNESS, http->api_key) : NULL;
    TRY(read_models(out, &asking, o->model));
    read_more(out, &asking);
    out->vocab_assumed = out->vocab <= 0;
    out->max_tok_assumed = out->max_tok <= 0;
    if (out->vocab_assumed)
        out->vocab = ASSUMED_VOCAB;
    if (out->max_tok_assumed)
        out->max_tok = ASSUMED_MAX_TOK;
    return find_prompt(out, &asking, o->prompt);
}

void sut_openai_probe_fini(struct sut_openai_probe *p)
{
    mem_free(p->url);
    mem_free(p->api_key);
    *p = (struct sut_openai_probe){0};
}

int64_t sut_openai_n_words(const struct sut_openai_probe *p, int64_t n_tok)
{
    int64_t n = n_tok - p->n_text_extra;

    return n > 1 ? n : 1;
}

/* --- its tokenizer */

static int read_ids(const json_t *answer, int32_t **ids, size_t *n_ids)
{
    const json_t *list = json_object_get(answer, "tokens");
    size_t n = json_array_size(list);

    if (!json_is_array(list))
        return err_set(ERR_UNSUPPORTED, "/tokenize: an answer without \"tokens\"");
    *ids = mem_new(MEM_HARNESS, n, sizeof(**ids));
    for (size_t i = 0; i < n; i++)
        (*ids)[i] = (int32_t)json_integer_value(json_array_get(list, i));
    *n_ids = n;
    return OK;
}

int sut_openai_encode(const struct sut_openai_probe *p, const char *text, size_t n,
                      int32_t **ids, size_t *n_ids)
{
    const char *host = strstr(p->url, "://") + 3;
    char root[1024], *body;
    struct sut_http_opts http = {.url = root,
                                 .api_key = p->api_key,
                                 .connect_timeout_s = 10,
                                 .timeout_s = PROBE_S};
    struct text answer = {0};
    /* `content` is llama-server's word, `prompt` vLLM's */
    json_t *q = json_pack("{s:s, s:o, s:o, s:b}", "model", p->model, "content",
                          json_stringn_lossy(text, n), "prompt",
                          json_stringn_lossy(text, n), "add_special", 1),
           *j = NULL;
    long status = 0;
    int rc;

    *ids = NULL;
    *n_ids = 0;
    snprintf(root, sizeof(root), "%.*s%.*s", (int)(host - p->url), p->url,
             (int)strcspn(host, "/"), host);
    body = json_text(q, JSON_COMPACT);
    rc = sut_http_fetch(&http, "/tokenize", body, &answer, &status);
    if (rc == OK && status != 200)
        rc = err_set(ERR_UNSUPPORTED, "%s/tokenize: HTTP %ld: no tokenizer for texts",
                     root, status);
    if (rc == OK)
        rc = json_read_text(&j, answer.p ? answer.p : "", answer.n, "/tokenize");
    if (rc == OK)
        rc = read_ids(j, ids, n_ids);
    text_fini(&answer);
    mem_free(body);
    json_decref(j);
    json_decref(q);
    return rc;
}

/* --- for the record */

json_t *sut_openai_probe_json(const struct sut_openai_probe *p)
{
    char refused[256] = "";

    for (int i = 0; i < SUT_OPENAI_N_EXTRAS; i++)
        if (!(p->extras & 1u << i))
            snprintf(refused + strlen(refused), sizeof(refused) - strlen(refused), "%s%s",
                     refused[0] ? " " : "", sut_openai_extras[i]);
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:b, s:I, s:b, s:s, s:s, s:I, s:s}",
                     "path", sut_openai_path(p->as_chat), "url", p->url, "model",
                     p->model, "kind", p->kind, "version", p->version, "vocab",
                     (json_int_t)p->vocab, "vocab_assumed", p->vocab_assumed, "max_tok",
                     (json_int_t)p->max_tok, "max_tok_assumed", p->max_tok_assumed,
                     "prompt", p->as_text ? "words" : "token ids", "why_words",
                     p->why_text, "prompt_extra_tok",
                     (json_int_t)(p->as_text ? p->n_text_extra : p->n_prompt_extra),
                     "fields_refused", refused);
}
