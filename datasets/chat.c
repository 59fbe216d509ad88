#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/text.h"
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

/* A conversation while it is read. */
struct chat {
    struct dataset *d;
    const struct dataset_opts *o;
    const struct dataset_chat_form *form;
    const char *where;
    struct text history; /* every message so far */
    uint64_t conversation;
    size_t n_prompt_bytes;      /* of all turns */
    struct dataset_item *turns; /* with turns = conversation; texts owned */
    size_t n_turns, max_turns;
    size_t n_found;
    bool stop, *full;
};

/* Keep a turn until the whole conversation can be offered. */
static int keep_turn(struct chat *c, const struct dataset_item *item)
{
    struct dataset_item *to;

    if (c->n_turns == c->max_turns) {
        size_t max = c->max_turns ? 2 * c->max_turns : 8;

        to = mem_resize(MEM_DATASET, c->turns, max, sizeof(*to));
        if (!to)
            return ERR_NOMEM;
        c->turns = to;
        c->max_turns = max;
    }
    to = &c->turns[c->n_turns];
    *to =
        *item; /* the reply stays in the record; the prompt grows with the next message */
    to->text = mem_strndup(MEM_DATASET, item->text, item->text_bytes);
    if (!to->text)
        return ERR_NOMEM;
    c->n_turns++;
    return OK;
}

/* A question of n bytes at the end of the history, and its answer. */
static int take_turn(struct chat *c, size_t n_question, const json_t *answer)
{
    size_t n = c->o->turns == DATASET_TURNS_FIRST ? n_question : c->history.n;
    const struct dataset_item item = {.text = c->history.p + c->history.n - n,
                                      .text_bytes = n,
                                      .n_prompt = -1,
                                      .n_output = -1,
                                      .question_bytes = n_question,
                                      .conversation = c->conversation,
                                      .reply = json_string_value(answer),
                                      .reply_bytes = json_string_length(answer),
                                      .arrival_s = NAN};

    c->n_found++;
    c->n_prompt_bytes += n;
    if (c->n_prompt_bytes > DATASET_TURNS_MAX_BYTES) {
        dataset_skip(c->d, "turns of prompts that hold more than 64 MiB together");
        c->stop = true;
        return OK;
    }
    c->stop = c->o->turns == DATASET_TURNS_FIRST;
    if (c->o->turns == DATASET_TURNS_CONVERSATION || c->o->turns == DATASET_TURNS_CHAT)
        return keep_turn(c, &item);
    return dataset_offer(c->d, &item, c->full);
}

static int add_message(struct chat *c, const json_t *text)
{
    if (json_string_length(text) == 0)
        return OK;
    text_puts(&c->history, c->history.n ? "\n" : "");
    text_put(&c->history, json_string_value(text), json_string_length(text));
    return c->history.rc;
}

static int read_messages(struct chat *c, const json_t *turns)
{
    size_t n_question = 0; /* bytes of the message before, if it asks something */

    for (size_t i = 0; i < json_array_size(turns) && !c->stop && !*c->full; i++) {
        const json_t *text = NULL;
        const char *role = NULL;
        int rc = message(json_array_get(turns, i), c->form, &role, &text, c->where);

        if (rc == OK && n_question && dataset_is_one_of(c->form->answers, role, false) &&
            json_string_length(text) > 0)
            rc = take_turn(c, n_question, text);
        if (rc == OK)
            rc = add_message(c, text);
        if (rc != OK)
            return rc;
        n_question =
            dataset_is_one_of(c->form->asks, role, false) ? json_string_length(text) : 0;
    }
    return OK;
}

/* A conversation is known by its name without the number of a part, else by its first message. */
static uint64_t conversation_of(const json_t *record, const json_t *turns,
                                const struct dataset_chat_form *form)
{
    const char *id = json_string_value(json_object_get(record, form->id));
    const char *part = id && form->part ? strrchr(id, form->part[0]) : NULL;
    char name[128];

    if (!id || !id[0])
        id = json_string_value(json_object_get(json_array_get(turns, 0), form->text));
    snprintf(name, sizeof(name), "%.*s", part ? (int)(part - id) : 127, id ? id : "");
    return hash_fnv1a(HASH_FNV1A, name);
}

static int offer_conversation(struct chat *c)
{
    for (size_t i = 1; i < c->n_turns; i++)
        c->turns[i - 1].later = &c->turns[i];
    return c->n_turns ? dataset_offer(c->d, &c->turns[0], c->full) : OK;
}

int dataset_offer_chat(struct dataset *d, const struct dataset_opts *o,
                       const struct dataset_chat_form *form, const char *text, size_t n,
                       const char *where, bool *full)
{
    struct chat c = {.d = d, .o = o, .form = form, .where = where, .full = full};
    const json_t *turns;
    json_t *record = NULL;
    int rc;

    *full = false;
    rc = json_read_text(&record, text, n, where);
    if (rc == OK && !json_is_object(record))
        rc = err_set(ERR_FORMAT, "%s: expected an object, found another value", where);
    if (rc == OK)
        rc = json_get_arr(record, form->turns, &turns, where);
    if (rc == OK) {
        c.conversation = conversation_of(record, turns, form);
        rc = read_messages(&c, turns);
    }
    if (rc == OK && !c.n_found)
        dataset_skip(d, "no question with an answer");
    if (rc == OK)
        rc = offer_conversation(&c);
    for (size_t i = 0; i < c.n_turns; i++)
        mem_free((void *)c.turns[i].text);
    mem_free(c.turns);
    text_fini(&c.history);
    json_decref(record);
    return rc;
}
