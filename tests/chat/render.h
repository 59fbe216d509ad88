/* tests/chat/render.h - templates opened and rendered as the tests of chat/ need it. */
#ifndef TESTS_CHAT_RENDER_H
#define TESTS_CHAT_RENDER_H

#include "chat/template.h"
#include "tests/support/test.h"

#define DAY 1753012800 /* 20 July 2025 */

#define VARS                                                                             \
    "{\"bos_token\": \"<s>\", \"u\": \"ab-cD\", \"n\": 5, \"l\": [\"x\", \"y\"], "       \
    "\"d\": {\"k\": \"v\"}, \"blank\": \"  w \"}"

static inline struct chat_template *open_template(const char *source)
{
    struct chat_template *t;

    assert_ok(chat_template_open(&t, source, strlen(source), "template"));
    return t;
}

/* Render with `variables`, a JSON object, of which those named *_token may hold control
 * tokens. */
static inline int render(const struct chat_template *t, const json_t *variables,
                         bool refuse_unread, struct chat_prompt *p)
{
    struct chat_variable v[16];
    struct chat_input in = {.variables = v,
                            .time_s = DAY,
                            .max_bytes = 1 << 20,
                            .refuse_unread = refuse_unread};
    const char *key;
    json_t *value;

    *p = (struct chat_prompt){0};
    json_object_foreach((json_t *)variables, key, value)
    {
        assert_true(in.n_variables < 16);
        v[in.n_variables++] = (struct chat_variable){
            .name = key, .value = value, .trusted = strstr(key, "_token") != NULL};
    }
    return chat_template_render(t, &in, p);
}

static inline int run(const char *source, const char *variables, struct chat_prompt *p)
{
    struct chat_template *t = open_template(source);
    json_t *v = json_loads(variables, 0, NULL);
    int rc;

    assert_non_null(v);
    rc = render(t, v, false, p);
    json_decref(v);
    chat_template_close(&t);
    return rc;
}

static inline char *read_template(const char *name)
{
    char path[400], *data, *text;
    size_t n;

    snprintf(path, sizeof(path), "tests/chat/templates/%s", name);
    data = test_read(path, &n);
    text = mem_strndup(MEM_TEST, data, n);
    mem_free(data);
    return text;
}

#endif
