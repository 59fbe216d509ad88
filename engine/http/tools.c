#include "http/tools.h"

#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "grammar/grammar.h"

#define WHERE "request: tools"

/* References within a schema are from its root, which is at `to` of another one. */
static int move_refs(json_t *j, const char *to)
{
    const char *key;
    json_t *v;
    size_t i;

    json_array_foreach(j, i, v)
    {
        TRY(move_refs(v, to));
    }
    json_object_foreach(j, key, v)
    {
        const char *ref = strcmp(key, "$ref") == 0 ? json_string_value(v) : NULL;

        if (!ref || *ref != '#')
            TRY(move_refs(v, to));
        else if (json_object_set_new(j, key, json_sprintf("#%s%s", to, ref + 1)) != 0)
            return err_set(ERR_NOMEM, "no memory for a schema");
    }
    return OK;
}

/* The schema of calls of one tool, as the k-th of several. */
static int call_schema(const json_t *function, const char *arguments, size_t k,
                       json_t **out)
{
    const json_t *given = json_object_get(function, "parameters");
    json_t *schema =
        given ? json_deep_copy(given)
              : json_pack("{s:s, s:b}", "type", "object", "additionalProperties", 0);
    char to[80];
    int rc;

    snprintf(to, sizeof(to), "/anyOf/%zu/properties/%s", k, arguments);
    rc = move_refs(schema, to);
    *out = json_pack("{s:{s:{s:O}, s:o}, s:[s, s]}", "properties", "name", "const",
                     json_object_get(function, "name"), arguments, schema, "required",
                     "name", arguments);
    if (rc == OK && !*out)
        rc = err_set(ERR_NOMEM, "no memory for a schema");
    return rc;
}

/* {"anyOf": [...]}, one for each tool that may be called. */
static int calls_schema(struct http_request *r, json_t **out)
{
    json_t *any = json_array(), *one = NULL;
    int rc = OK;

    *out = json_pack("{s:o}", "anyOf", any);
    for (size_t i = 0; i < json_array_size(r->tools) && rc == OK; i++) {
        const json_t *f = json_object_get(json_array_get(r->tools, i), "function");
        const json_t *parameters = json_object_get(f, "parameters");
        const char *name = json_str_at(f, "name", NULL);

        if (!name || (parameters && !json_is_object(parameters)))
            return err_set(ERR_ARG,
                           WHERE
                           ": element %zu: function: expected an object with a name "
                           "and perhaps parameters, a JSON schema",
                           i);
        if (r->tool && strcmp(name, r->tool) != 0)
            continue;
        rc = call_schema(f, r->calls->arguments, json_array_size(any), &one);
        if (rc != OK)
            json_decref(one);
        else if (json_array_append_new(any, one) != 0)
            rc = err_set(ERR_NOMEM, "no memory for a schema");
    }
    if (rc == OK && json_array_size(any) == 0) {
        r->param = "tool_choice";
        rc = err_set(ERR_ARG, "request: tool_choice: no tool has the name \"%.60s\"",
                     r->tool);
    }
    return rc;
}

static int require_call(struct http_request *r)
{
    json_t *schema = NULL;
    char *text = NULL, root[100] = "r0";
    int rc = calls_schema(r, &schema);

    if (*r->calls->open)
        snprintf(root, sizeof(root), "\"%s\\n\" r0 \"\\n%s\"", r->calls->open,
                 r->calls->close);
    if (rc == OK && !(text = json_text(schema, JSON_COMPACT)))
        rc = ERR_NOMEM;
    if (rc == OK)
        rc = grammar_from_schema(&r->schema, text, strlen(text), root);
    if (rc == OK)
        r->grammar = (struct serve_grammar){r->schema, strlen(r->schema), false, true};
    mem_free(text);
    json_decref(schema);
    return rc;
}

int http_tools_prepare(struct http_request *r, const struct chat *chat)
{
    int rc;

    r->param = "tools";
    r->calls = chat_calls_of(chat);
    if (!r->calls)
        return err_set(ERR_UNSUPPORTED,
                       WHERE ": %s: it is not known how its model calls them: expected "
                             "a template of the kind %s",
                       chat_origin(chat), chat_call_formats);
    rc = r->tool_choice == HTTP_TOOL_REQUIRED ? require_call(r) : OK;
    if (rc == OK)
        r->param = NULL;
    return rc;
}
