#include "baselines/words.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/name.h"
#include "base/text.h"

#define VALUES_MAX 31

struct words {
    const struct sut_value *values;
    const char *where;
    struct text text; /* the words, a NUL after each */
    int n;
};

/* The value of the placeholder {name}: NULL if it was not given. ERR_FORMAT: no placeholder
 * has this name. */
static int value_of(const char **out, const struct words *w, const char *name, size_t n)
{
    const char *names[VALUES_MAX + 1] = {0};
    char key[32];
    int i;

    for (i = 0; w->values[i].name && i < VALUES_MAX; i++)
        names[i] = w->values[i].name;
    snprintf(key, sizeof(key), "%.*s", (int)n, name);
    i = name_index(names, key);
    if (i < 0)
        return name_unknown(ERR_FORMAT, key, names, "%s: no value {%s}", w->where, key);
    *out = w->values[i].value;
    return OK;
}

/* One word with its values. `optional`: ERR_NOTFOUND without a message where a value is
 * missing. */
static int put_word(struct words *w, const char *word, bool optional)
{
    const char *end, *value = NULL;

    while (*word) {
        size_t n = strcspn(word, "{");

        text_put(&w->text, word, n);
        word += n;
        if (word[0] && word[1] == '{') {
            text_put(&w->text, "{", 1);
            word += 2;
            continue;
        }
        end = *word ? strchr(word, '}') : NULL;
        if (*word && !end)
            return err_set(ERR_FORMAT, "%s: a '{' without its '}'", w->where);
        if (!*word)
            break;
        TRY(value_of(&value, w, word + 1, (size_t)(end - word) - 1));
        if (!value && optional)
            return ERR_NOTFOUND;
        if (!value)
            return err_set(ERR_ARG, "system.%.*s: this system needs it (%s)",
                           (int)(end - word) - 1, word + 1, w->where);
        text_puts(&w->text, value);
        word = end + 1;
    }
    text_put(&w->text, "", 1);
    w->n++;
    return w->text.rc;
}

static int put_list(struct words *w, const json_t *list, bool optional)
{
    const size_t n_before = w->text.n;
    const int before = w->n;
    int rc = OK;

    for (size_t i = 0; i < json_array_size(list) && rc == OK; i++) {
        const json_t *item = json_array_get(list, i);

        if (json_is_array(item) && !optional)
            rc = put_list(w, item, true);
        else if (json_is_string(item))
            rc = put_word(w, json_string_value(item), optional);
        else
            rc = err_set(ERR_FORMAT, "%s: word %zu: expected a string", w->where, i);
    }
    if (rc == ERR_NOTFOUND) {
        w->text.n = n_before;
        w->n = before;
        rc = OK;
    }
    return rc;
}

/* One block: the pointers, then the words. */
static int finish_words(char ***out, int *n, struct words *w)
{
    const size_t n_pointers = (size_t)w->n + 1;
    char **v = mem_new(MEM_HARNESS, n_pointers * sizeof(*v) + w->text.n, 1);
    char *at;

    at = (char *)(v + n_pointers);
    if (w->text.n)
        memcpy(at, w->text.p, w->text.n);
    for (int i = 0; i < w->n; at += strlen(at) + 1)
        v[i++] = at;
    *out = v;
    *n = w->n;
    return OK;
}

int sut_words(char ***argv, int *n, const json_t *list, const struct sut_value *values,
              const char *where)
{
    struct words w = {.values = values, .where = where};
    int rc = put_list(&w, list, false);

    *argv = NULL;
    if (rc == OK && w.n == 0)
        rc = err_set(ERR_FORMAT, "%s: expected a list of words", where);
    if (rc == OK)
        rc = finish_words(argv, n, &w);
    text_fini(&w.text);
    return rc;
}

int sut_words_env(char ***env, int *n, const json_t *object,
                  const struct sut_value *values, const char *where)
{
    struct words w = {.values = values, .where = where};
    const char *name;
    json_t *value;
    int rc = OK;

    *env = NULL;
    json_object_foreach((json_t *)object, name, value)
    {
        const size_t before = w.text.n;

        if (rc != OK)
            break;
        if (!json_is_string(value)) {
            rc = err_set(ERR_FORMAT, "%s: %s: expected a string", where, name);
            break;
        }
        text_puts(&w.text, name);
        text_put(&w.text, "=", 1);
        rc = put_word(&w, json_string_value(value), true);
        if (rc == ERR_NOTFOUND) {
            w.text.n = before;
            rc = OK;
        }
    }
    if (rc == OK)
        rc = finish_words(env, n, &w);
    text_fini(&w.text);
    return rc;
}
