#include "baselines/server_file.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/home.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/name.h"
#include "base/text.h"
#include "plan/plan.h"

#define FOLDER     "baselines/systems"
#define FILE_BYTES 65536

static const char *const keys[] = {"about",   "install",      "program", "version",
                                   "command", "plan_command", "env",     "api",
                                   "ready",   "read_back",    "stop_s",  NULL};

static int names_of(struct text *t, const char *folder)
{
    DIR *d = opendir(folder);
    const struct dirent *e;

    while (d && (e = readdir(d)) != NULL) {
        const char *dot = strrchr(e->d_name, '.');

        if (dot && strcmp(dot, ".json") == 0) {
            text_puts(t, t->n ? ", " : "");
            text_put(t, e->d_name, (size_t)(dot - e->d_name));
        }
    }
    if (d)
        closedir(d);
    text_put(t, "", 1);
    return t->rc;
}

static int unknown(const char *system)
{
    char folder[PATH_MAX];
    struct text names = {0};
    int rc = names_of(&names, home_find(folder, sizeof(folder), FOLDER));

    if (rc == OK)
        rc = err_set(ERR_NOTFOUND, "system.system: no system \"%s\"; there are %s",
                     system, names.p);
    text_fini(&names);
    return rc;
}

int sut_server_file(json_t **out, char path[PATH_MAX], const char *system)
{
    char name[300];
    int rc;

    *out = NULL;
    snprintf(name, sizeof(name), FOLDER "/%s.json", system);
    if (strchr(system, '/'))
        snprintf(path, PATH_MAX, "%s", system);
    else
        home_find(path, PATH_MAX, name);
    if (access(path, F_OK) != 0)
        return unknown(system);
    rc = json_read_file(out, path, FILE_BYTES);
    if (rc == OK)
        rc = json_check_keys(*out, keys, path);
    if (rc != OK)
        json_decref(*out), *out = NULL;
    return rc;
}

/* --- values */

static void list_phase(const struct plan_phase *p, char *cpus, size_t n, char *ranks,
                       size_t n_ranks)
{
    size_t at = 0;

    cpu_list_print(p->cpus, p->n_ranks * p->n_threads, cpus, (int)n);
    for (int r = 0; r < p->n_ranks && ranks && at < n_ranks; r++) {
        char one[4 * CPU_MAX];

        cpu_list_print(p->cpus + r * p->n_threads, p->n_threads, one, sizeof(one));
        at += (size_t)snprintf(ranks + at, n_ranks - at, "%s%s", r ? "|" : "", one);
    }
}

static int values_of_plan(struct sut_server_values *v, const char *path)
{
    struct plan *p = mem_new(MEM_HARNESS, 1, sizeof(*p));
    int rc = p ? plan_read(p, path) : ERR_NOMEM;

    if (rc == OK) {
        list_phase(&p->decode, v->cpus, sizeof(v->cpus), v->rank_cpus,
                   sizeof(v->rank_cpus));
        list_phase(&p->prefill, v->prefill_cpus, sizeof(v->prefill_cpus), NULL, 0);
        snprintf(v->threads, sizeof(v->threads), "%d",
                 p->decode.n_ranks * p->decode.n_threads);
        snprintf(v->prefill_threads, sizeof(v->prefill_threads), "%d",
                 p->prefill.n_ranks * p->prefill.n_threads);
        snprintf(v->ranks, sizeof(v->ranks), "%d", p->decode.n_ranks);
        v->n_cpus = p->n_cpus;
        memcpy(v->cpu, p->cpus, sizeof(v->cpu));
    }
    if (p)
        plan_fini(p);
    mem_free(p);
    return rc;
}

static int values_of_cpus(struct sut_server_values *v, const struct sut_server_opts *o)
{
    struct cpu_budget b;
    int64_t threads;
    int rc;

    if (o->cpus) {
        rc = cpu_list_parse(o->cpus, v->cpu, CPU_MAX, &v->n_cpus);
    } else {
        rc = cpu_budget_get(&b);
        if (rc == OK) {
            v->n_cpus = b.n;
            memcpy(v->cpu, b.cpus, sizeof(v->cpu));
        }
    }
    if (rc != OK)
        return rc;
    threads = o->threads ? o->threads : v->n_cpus;
    if (!o->cpus && threads < v->n_cpus)
        v->n_cpus = (int)threads;
    cpu_list_print(v->cpu, v->n_cpus, v->cpus, sizeof(v->cpus));
    snprintf(v->prefill_cpus, sizeof(v->prefill_cpus), "%s", v->cpus);
    snprintf(v->rank_cpus, sizeof(v->rank_cpus), "%s", v->cpus);
    snprintf(v->threads, sizeof(v->threads), "%lld", (long long)threads);
    snprintf(v->prefill_threads, sizeof(v->prefill_threads), "%s", v->threads);
    snprintf(v->ranks, sizeof(v->ranks), "1");
    return OK;
}

int sut_server_values(struct sut_server_values *v, const struct sut_server_opts *o)
{
    if (o->plan && (o->cpus || o->threads))
        return err_set(ERR_ARG, "system.plan: a plan states CPUs and threads; leave out "
                                "system.cpus and system.threads");
    v->model = o->model;
    v->plan = o->plan;
    snprintf(v->ctx, sizeof(v->ctx), "%lld", (long long)o->ctx_tok);
    snprintf(v->ctx_total, sizeof(v->ctx_total), "%lld",
             (long long)(o->ctx_tok * o->slots));
    snprintf(v->slots, sizeof(v->slots), "%lld", (long long)o->slots);
    return o->plan ? values_of_plan(v, o->plan) : values_of_cpus(v, o);
}

/* --- words */

struct words {
    const struct sut_server_values *v;
    const char *where;
    struct text text; /* the words, a NUL after each */
    int n;
};

/* The value of the placeholder {name}: NULL if it was not given. ERR_FORMAT: no placeholder
 * has this name. */
static int value_of(const char **out, const struct words *w, const char *name, size_t n)
{
    static const char *const names[] = {
        "program",   "model",        "port",      "threads", "prefill_threads",
        "cpus",      "prefill_cpus", "rank_cpus", "ranks",   "ctx",
        "ctx_total", "slots",        "plan",      NULL};
    const struct sut_server_values *v = w->v;
    const char *const values[] = {
        v->program,   v->model,        v->port,      v->threads, v->prefill_threads,
        v->cpus,      v->prefill_cpus, v->rank_cpus, v->ranks,   v->ctx,
        v->ctx_total, v->slots,        v->plan};
    char key[32];
    int i;

    snprintf(key, sizeof(key), "%.*s", (int)n, name);
    i = name_index(names, key);
    if (i < 0)
        return name_unknown(ERR_FORMAT, key, names, "%s: no value {%s}", w->where, key);
    *out = values[i];
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

    if (!v)
        return ERR_NOMEM;
    at = (char *)(v + n_pointers);
    if (w->text.n)
        memcpy(at, w->text.p, w->text.n);
    for (int i = 0; i < w->n; at += strlen(at) + 1)
        v[i++] = at;
    *out = v;
    *n = w->n;
    return OK;
}

int sut_server_words(char ***argv, int *n, const json_t *list,
                     const struct sut_server_values *v, const char *where)
{
    struct words w = {.v = v, .where = where};
    int rc = put_list(&w, list, false);

    *argv = NULL;
    if (rc == OK && w.n == 0)
        rc = err_set(ERR_FORMAT, "%s: expected a list of words", where);
    if (rc == OK)
        rc = finish_words(argv, n, &w);
    text_fini(&w.text);
    return rc;
}

int sut_server_env(char ***env, int *n, const json_t *object,
                   const struct sut_server_values *v, const char *where)
{
    struct words w = {.v = v, .where = where};
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
