#include "experiments/conformance/answer.h"

#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "baselines/openai.h"

void conform_answer_fini(struct conform_answer *a)
{
    text_fini(&a->text);
    mem_free(a->ids);
    *a = (struct conform_answer){0};
}

bool conform_answer_whole(const struct conform_answer *a)
{
    return a->status == 200 && a->ended && !a->hung && !a->left && !a->error[0] &&
           !a->malformed[0];
}

static void take_count(int64_t *to, const json_t *usage, const char *key)
{
    const json_t *n = json_object_get(usage, key);

    if (json_is_integer(n))
        *to = json_integer_value(n);
}

static int take_ids(struct conform_answer *a, const json_t *list, const char *key)
{
    size_t n = json_array_size(list);
    int32_t *ids;

    if (!json_is_array(list))
        return OK;
    ids = mem_resize(MEM_HARNESS, a->ids, (size_t)a->n_ids + n + 1, sizeof(*ids));
    if (!ids)
        return ERR_NOMEM;
    a->ids = ids;
    a->has_ids = true;
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(list, i);

        if (key)
            id = json_object_get(id, key);
        ids[a->n_ids++] = (int32_t)json_integer_value(id);
    }
    return OK;
}

/* Ids as vLLM and this project send them, or as llama-server does with log probabilities. */
static int take_choice(struct conform_answer *a, const json_t *choice)
{
    const json_t *finish = json_object_get(choice, "finish_reason");
    const json_t *text = json_object_get(choice, "text");
    const json_t *content =
        json_object_get(json_object_get(choice, "logprobs"), "content");

    if (json_is_string(text))
        text_put(&a->text, json_string_value(text), json_string_length(text));
    if (json_is_string(finish)) {
        a->has_finish = true;
        utf8_show(a->finish, sizeof(a->finish), json_string_value(finish));
    }
    if (json_is_array(json_object_get(choice, "token_ids")))
        TRY(take_ids(a, json_object_get(choice, "token_ids"), NULL));
    else if (json_object_get(json_array_get(content, 0), "id"))
        TRY(take_ids(a, content, "id"));
    return a->text.rc;
}

static bool is_error(const json_t *j)
{
    const json_t *e = json_object_get(j, "error");

    return (json_is_object(e) && json_object_size(e) > 0) ||
           (json_is_string(e) && json_string_length(e) > 0);
}

static int take_object(struct conform_answer *a, const json_t *j, const char *text,
                       size_t n)
{
    const json_t *usage = json_object_get(j, "usage");
    const json_t *choices = json_object_get(j, "choices");

    if (is_error(j)) {
        sut_openai_error(a->error, sizeof(a->error), text, n);
        return OK;
    }
    take_count(&a->usage_prompt, usage, "prompt_tokens");
    take_count(&a->usage_completion, usage, "completion_tokens");
    take_count(&a->usage_total, usage, "total_tokens");
    if (!json_is_array(choices) && !json_is_object(usage) && json_object_size(j) > 0)
        snprintf(a->malformed, sizeof(a->malformed), "an object without \"choices\"");
    return json_array_size(choices) ? take_choice(a, json_array_get(choices, 0)) : OK;
}

static int take_json(struct conform_answer *a, const char *text, size_t n,
                     const char *what)
{
    json_t *j = NULL;
    int rc = json_read_text_nul(&j, text, n, what);

    if (rc == ERR_NOMEM)
        return rc;
    if (rc != OK)
        utf8_show(a->malformed, sizeof(a->malformed), err_msg());
    rc = rc == OK ? take_object(a, j, text, n) : OK;
    json_decref(j);
    return rc;
}

int conform_answer_event(struct conform_answer *a, const char *data, size_t n)
{
    if (a->done) {
        a->after_done = true;
        return OK;
    }
    if (strcmp(data, "[DONE]") == 0) {
        a->done = true;
        return OK;
    }
    a->n_events++;
    return take_json(a, data, n, "event");
}

int conform_answer_body(struct conform_answer *a, const char *body, size_t n)
{
    return take_json(a, body, n, "answer");
}
