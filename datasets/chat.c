#include <math.h>
#include <string.h>

#include "base/json.h"
#include "datasets/build.h"

/* Strings of one message; NULL on a message of another shape, with the error set. */
MUST static int message(const json_t *turn, const struct dataset_chat_form *form,
                        const char **role, const json_t **text, const char *where)
{
    int rc;

    if (!json_is_object(turn))
        return err_set(ERR_FORMAT, "%s: %s: expected messages that are objects", where,
                       form->turns);
    rc = json_get_str(turn, form->role, role, where);
    if (rc != OK)
        return rc;
    *text = json_object_get(turn, form->text);
    if (!json_is_string(*text))
        return err_set(ERR_FORMAT, "%s: %s: expected a text in every message", where,
                       form->text);
    return OK;
}

static int is_one_of(const char *words, const char *word)
{
    size_t n = strlen(word);

    for (const char *w = words; n > 0; w++) {
        size_t len = strcspn(w, "|");

        if (len == n && memcmp(w, word, n) == 0)
            return 1;
        w += len;
        if (!*w)
            break;
    }
    return 0;
}

/* The texts of the first question that is answered; *ask NULL if there is none. */
MUST static int first_pair(const json_t *turns, const struct dataset_chat_form *form,
                           const json_t **ask, const json_t **answer, const char *where)
{
    const json_t *before = NULL; /* the message before, if it asks something */

    *ask = *answer = NULL;
    for (size_t i = 0; i < json_array_size(turns) && !*ask; i++) {
        const json_t *text = NULL;
        const char *role = NULL;
        int rc = message(json_array_get(turns, i), form, &role, &text, where);

        if (rc != OK)
            return rc;
        if (before && is_one_of(form->answers, role) && json_string_length(text) > 0)
            *ask = before, *answer = text;
        before =
            is_one_of(form->asks, role) && json_string_length(text) > 0 ? text : NULL;
    }
    return OK;
}

int dataset_offer_chat(struct dataset *d, const struct dataset_chat_form *form,
                       const char *text, size_t n, const char *where, bool *full)
{
    const json_t *turns, *ask, *answer;
    json_t *record = NULL;
    int rc;

    *full = false;
    rc = json_read_text(&record, text, n, where);
    if (rc != OK)
        goto out;
    if (!json_is_object(record)) {
        rc = err_set(ERR_FORMAT, "%s: expected an object, found another value", where);
        goto out;
    }
    rc = json_get_arr(record, form->turns, &turns, where);
    if (rc != OK)
        goto out;
    rc = first_pair(turns, form, &ask, &answer, where);
    if (rc != OK)
        goto out;
    if (!ask) {
        dataset_skip(d, "no question with an answer");
        goto out;
    }
    rc = dataset_offer(d,
                       &(struct dataset_item){.text = json_string_value(ask),
                                              .text_bytes = json_string_length(ask),
                                              .n_prompt = -1,
                                              .n_output = -1,
                                              .reply = json_string_value(answer),
                                              .reply_bytes = json_string_length(answer),
                                              .arrival_s = NAN},
                       full);
out:
    json_decref(record);
    return rc;
}
