/* Named overlays: a list of changes to the job's settings, which is an axis. `cases` are
 * what is served (a model with its load and objectives), `variants` what serves it. */
#include "experiments/job/impl.h"

#include <string.h>

#include "base/mem.h"
#include "base/name.h"

const struct job_overlay_kind job_cases = {
    "cases", "case",
    "What is served. Each case is laid over the sections of this job, and has a value "
    "for "
    "what differs by case: a model, its load, its objectives."};
const struct job_overlay_kind job_variants = {
    "variants", "variant",
    "What serves it. Each variant is laid over the job and its case: another plan, "
    "another adapter. Of the sections' options an adapter of its own takes those that it "
    "has. Cells that differ in the variant only run one after the other."};

/* The option `aa` names the variant that runs a second time. */
static const struct job_overlay_kind job_aa = {"variants", "aa", ""};

/* --- reading */

static const char *name_of(const json_t *overlay)
{
    return json_string_value(json_object_get(overlay, "name"));
}

static int unknown_key(const struct job *j, const char *key, const char *where)
{
    const char *words[16];
    int n = 0;

    for (const struct job_section *s = j->sections; s->name; s++)
        words[n++] = s->name;
    words[n++] = "name";
    words[n] = NULL;
    return name_unknown(ERR_ARG, key, words, "%s: unknown key \"%s\"", where, key);
}

static bool is_section(const struct job *j, const char *key)
{
    for (const struct job_section *s = j->sections; s->name; s++)
        if (strcmp(s->name, key) == 0)
            return true;
    return false;
}

/* A list would be an axis within one value of another. */
static int check_section(const json_t *section, const char *name, const char *where)
{
    const char *key;
    json_t *v;

    if (!json_is_object(section))
        return err_set(ERR_ARG, "%s: %s: expected an object", where, name);
    json_object_foreach((json_t *)section, key, v)
    {
        if (json_is_array(v) || json_is_object(v))
            return err_set(ERR_ARG,
                           "%s: %s.%s: expected a single value; a list makes an axis in "
                           "the job's own sections only",
                           where, name, key);
    }
    return OK;
}

static int check_overlay(const struct job *j, const json_t *overlay, const char *where)
{
    const char *key, *name = name_of(overlay);
    json_t *v;

    if (!json_is_object(overlay))
        return err_set(ERR_ARG, "%s: expected an object", where);
    if (!name || !*name || strpbrk(name, " /="))
        return err_set(
            ERR_ARG, "%s: name: expected a text without blanks, '/' and '=', found %s%s",
            where,
            name                               ? name
            : json_object_get(overlay, "name") ? "another type"
                                               : "none",
            name && !*name ? "\"\"" : "");
    json_object_foreach((json_t *)overlay, key, v)
    {
        if (strcmp(key, "name") == 0)
            continue;
        if (!is_section(j, key))
            return unknown_key(j, key, where);
        TRY(check_section(v, key, where));
    }
    return OK;
}

static const json_t *find(const json_t *list, const char *name)
{
    size_t i;
    json_t *v;

    json_array_foreach((json_t *)list, i, v)
    {
        if (strcmp(name_of(v), name) == 0)
            return v;
    }
    return NULL;
}

static int check_list(const struct job *j, const struct job_overlay_kind *k,
                      const json_t *list, const char *where)
{
    char line[320];

    if (j->study)
        return err_set(ERR_ARG, "%s: %s are for jobs that serve, not for a study", where,
                       k->list);
    if (json_array_size(list) == 0)
        return err_set(ERR_ARG, "%s: %s: the list is empty", where, k->list);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);

        snprintf(line, sizeof(line), "%s: %s %zu", where, k->list, i);
        TRY(check_overlay(j, v, line));
        if (find(list, name_of(v)) != v)
            return err_set(ERR_ARG, "%s: a second one has the name \"%s\"", line,
                           name_of(v));
    }
    return OK;
}

static int unknown_name(const struct job_overlay_kind *k, const json_t *list,
                        const char *name, const char *where)
{
    size_t n = json_array_size(list);
    const char **words = mem_new(MEM_HARNESS, n + 1, sizeof(*words));
    int rc;

    if (!words)
        return ERR_NOMEM;
    for (size_t i = 0; i < n; i++)
        words[i] = name_of(json_array_get(list, i));
    rc = name_not_in(name, words, "%s: %s: no \"%s\"", where, k->axis, name);
    mem_free(words);
    return rc;
}

/* Choose those of `list` that `wanted` names: one name, a list of names, or NULL for all. New
 * references in *names and *overlays. */
static int choose(const struct job_overlay_kind *k, const json_t *list,
                  const json_t *wanted, json_t *names, json_t *overlays,
                  const char *where)
{
    size_t n = json_is_array(wanted) ? json_array_size(wanted)
               : wanted              ? 1
                                     : json_array_size(list);

    for (size_t i = 0; i < n; i++) {
        const json_t *name = json_is_array(wanted) ? json_array_get(wanted, i)
                             : wanted              ? wanted
                                                   : NULL;
        const json_t *v;

        if (name && !json_is_string(name))
            return err_set(ERR_ARG, "%s: %s: expected a name or a list of names", where,
                           k->axis);
        v = name ? find(list, json_string_value(name)) : json_array_get(list, i);
        if (!v)
            return unknown_name(k, list, json_string_value(name), where);
        if (json_array_append(names, json_object_get(v, "name")) != 0 ||
            json_array_append(overlays, (json_t *)v) != 0)
            return err_set(ERR_NOMEM, "%s: out of memory", where);
    }
    return OK;
}

/* The variant of the A/A once more, as the last. Where it is not chosen, or none but it, this run
 * has no ratio that could need one. */
static int add_again(struct job *j, const json_t *list, json_t *names, json_t *overlays,
                     const char *where)
{
    const json_t *v = find(overlays, j->head.aa);
    json_t *copy, *name;

    if (!find(list, j->head.aa))
        return unknown_name(&job_aa, list, j->head.aa, where);
    if (!v || json_array_size(overlays) == 1)
        return OK;
    name = json_sprintf("%s'", j->head.aa);
    copy = json_copy((json_t *)v);
    j->again = mem_strdup(MEM_HARNESS, json_string_value(name));
    if (json_object_set(copy, "name", name) != 0 || json_array_append(names, name) != 0 ||
        json_array_append(overlays, copy) != 0 || !j->again) {
        json_decref(name);
        json_decref(copy);
        return err_set(ERR_NOMEM, "%s: out of memory", where);
    }
    json_decref(name);
    json_decref(copy);
    return OK;
}

int job_read_overlays(struct job_axis *out, struct job *j, const json_t *root,
                      const struct job_overlay_kind *k, const char *where)
{
    const json_t *list = json_object_get(root, k->list);
    const json_t *wanted = json_object_get(root, k->axis);
    json_t *names = json_array(), *overlays = json_array();
    int rc = names && overlays ? OK : err_set(ERR_NOMEM, "%s: out of memory", where);

    if (rc == OK && wanted && !list)
        rc = err_set(ERR_ARG, "%s: %s: the job has no \"%s\"", where, k->axis, k->list);
    if (rc == OK && list)
        rc = check_list(j, k, list, where);
    if (rc == OK && list)
        rc = choose(k, list, wanted, names, overlays, where);
    if (rc == OK && k == &job_variants && j->head.aa)
        rc = list ? add_again(j, list, names, overlays, where)
                  : err_set(ERR_ARG, "%s: aa: the job has no \"%s\"", where, k->list);
    *out =
        (struct job_axis){.kind = list ? k : NULL, .values = names, .overlays = overlays};
    return rc;
}

/* --- use */

int job_merge(json_t *into, const json_t *patch)
{
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)patch, key, v)
    {
        json_t *old = json_object_get(into, key);

        if (json_is_null(v)) {
            json_object_del(into, key);
        } else if (json_is_object(v) && json_is_object(old)) {
            int rc = job_merge(old, v);

            if (rc != OK)
                return rc;
        } else if (json_object_set_new(into, key, json_deep_copy(v)) != 0) {
            return err_set(ERR_NOMEM, "job: out of memory");
        }
    }
    return OK;
}

const struct job_axis *job_variant_axis(const struct job *j)
{
    const struct job_axis *last = j->n_axes ? &j->axes[j->n_axes - 1] : NULL;

    return last && last->kind == &job_variants ? last : NULL;
}

/* An option that an axis or --set gives its values has no other by name. */
int job_check_overlays(const struct job *j, const char *where)
{
    for (int a = 0; a < j->n_axes; a++)
        for (size_t i = 0; j->axes[a].kind && i < json_array_size(j->axes[a].overlays);
             i++) {
            const json_t *v = json_array_get(j->axes[a].overlays, i);

            for (int b = 0; b < j->n_axes; b++)
                if (!j->axes[b].kind &&
                    json_object_get(json_object_get(v, j->axes[b].section),
                                    j->axes[b].key))
                    return err_set(ERR_ARG,
                                   "%s: %s %s sets %s, which is an axis of this job",
                                   where, j->axes[a].name, name_of(v), j->axes[b].name);
        }
    return OK;
}

void job_drop_from_overlays(json_t *root, const char *section, size_t n_section,
                            const char *key)
{
    const struct job_overlay_kind *const kinds[] = {&job_cases, &job_variants};

    for (int k = 0; k < 2; k++) {
        json_t *list = json_object_get(root, kinds[k]->list), *v;
        size_t i;

        json_array_foreach(list, i, v)
        {
            json_object_del(json_object_getn(v, section, n_section), key);
        }
    }
}

static bool is_row(const struct opt_row *t, const char *key)
{
    for (; t->name; t++)
        if (strcmp(t->name, key) == 0)
            return true;
    return false;
}

/* Leave out what only the base's plug-in has an option for, not the plug-in `name`. An axis
 * of such an option would give cells of one setting several names. */
static int keep_known(const struct job *j, const struct job_section *s, json_t *base,
                      const char *name, const char *where)
{
    const json_t *own = json_object_get(base, s->choice);
    const struct opt_row *old, *new;
    const char *key;
    json_t *v;
    void *next;

    if (!json_is_string(own) || s->find(json_string_value(own), &old) != OK ||
        s->find(name, &new) != OK)
        return OK; /* what is unknown is reported where the section is read */
    for (int a = 0; a < j->n_axes; a++)
        if (!j->axes[a].kind && strcmp(j->axes[a].section, s->name) == 0 &&
            is_row(old, j->axes[a].key) && !is_row(new, j->axes[a].key))
            return err_set(ERR_ARG, "%s: %s, an axis of this job, is not an option of %s",
                           where, j->axes[a].name, name);
    json_object_foreach_safe(base, next, key, v)
    {
        if (is_row(old, key) && !is_row(new, key))
            json_object_del(base, key);
    }
    return OK;
}

int job_lay_overlay(const struct job *j, json_t *sections, const json_t *overlay,
                    const char *where)
{
    for (const struct job_section *s = j->sections; s->name; s++) {
        const json_t *over = json_object_get(overlay, s->name);
        json_t *base = json_object_get(sections, s->name);
        const json_t *choice = s->choice ? json_object_get(over, s->choice) : NULL;

        if (json_is_string(choice) &&
            !json_equal(choice, json_object_get(base, s->choice)))
            TRY(keep_known(j, s, base, json_string_value(choice), where));
        if (over)
            TRY(job_merge(base, over));
    }
    return OK;
}
