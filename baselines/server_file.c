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
#include "baselines/words.h"
#include "plan/plan.h"

#define FOLDER     "baselines/systems"
#define FILE_BYTES 65536

#define SUT_SERVER_VALUES 15 /* the last has no name */

static const char *const keys[] = {
    "about", "install",   "program", "version", "command", "plan_command", "env", "api",
    "ready", "read_back", "stop_s",  "bench",   NULL};

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
    if (!strchr(system, '/')) /* as messages and records say it, on every machine */
        snprintf(path, PATH_MAX, "%s", name);
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
    int rc = plan_read(p, path);

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
    v->precision = o->precision;
    snprintf(v->ctx, sizeof(v->ctx), "%lld", (long long)o->ctx_tok);
    snprintf(v->ctx_total, sizeof(v->ctx_total), "%lld",
             (long long)(o->ctx_tok * o->slots));
    snprintf(v->slots, sizeof(v->slots), "%lld", (long long)o->slots);
    return o->plan ? values_of_plan(v, o->plan) : values_of_cpus(v, o);
}

/* --- words */

/* The values as words of the file's commands name them. */
static void list_values(struct sut_value *out, const struct sut_server_values *v)
{
    const struct sut_value all[SUT_SERVER_VALUES] = {
        {"program", v->program},
        {"model", v->model},
        {"port", v->port},
        {"threads", v->threads},
        {"prefill_threads", v->prefill_threads},
        {"cpus", v->cpus},
        {"prefill_cpus", v->prefill_cpus},
        {"rank_cpus", v->rank_cpus},
        {"ranks", v->ranks},
        {"ctx", v->ctx},
        {"ctx_total", v->ctx_total},
        {"slots", v->slots},
        {"plan", v->plan},
        {"precision", v->precision},
    };

    memcpy(out, all, sizeof(all));
}

int sut_server_words(char ***argv, int *n, const json_t *list,
                     const struct sut_server_values *v, const char *where)
{
    struct sut_value values[SUT_SERVER_VALUES];

    list_values(values, v);
    return sut_words(argv, n, list, values, where);
}

int sut_server_env(char ***env, int *n, const json_t *object,
                   const struct sut_server_values *v, const char *where)
{
    struct sut_value values[SUT_SERVER_VALUES];

    list_values(values, v);
    return sut_words_env(env, n, object, values, where);
}
