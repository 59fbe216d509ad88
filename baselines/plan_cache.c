#include "baselines/plan_cache.h"

#include <dirent.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/build.h"
#include "base/child.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/home.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "cpu/cpu.h"

#define MADE_BYTES 65536
#define MAX_WORDS  24

/* The words of `sandwich plan` for each way. */
static const struct way {
    const char *name, *method;
    bool tune;
} ways[] = {
    [SUT_PLAN_NONE] = {"none", NULL, false},
    [SUT_PLAN_ONE] = {"one_plan", "one_plan", false},
    [SUT_PLAN_EVEN_SPLIT] = {"even_split", "even_split", false},
    [SUT_PLAN_VLLMPP] = {"vllmpp", "vllmpp", false},
    [SUT_PLAN_SEARCH] = {"search", "search", false},
    [SUT_PLAN_TUNED] = {"tuned", "search", true},
};

/* --- what it depends on */

struct identity {
    int64_t bytes, mtime_ns;
};

static void add_file(struct identity *id, const struct stat *st)
{
    int64_t t = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;

    id->bytes += st->st_size;
    id->mtime_ns = t > id->mtime_ns ? t : id->mtime_ns;
}

/* The bytes and the newest change of a file, or of the files in a folder. */
static int identify(struct identity *id, const char *path)
{
    const struct dirent *e;
    struct stat st;
    DIR *d;

    *id = (struct identity){0};
    if (stat(path, &st) != 0)
        return err_set(ERR_NOTFOUND, "%s: cannot find the model: %m", path);
    add_file(id, &st);
    d = S_ISDIR(st.st_mode) ? opendir(path) : NULL;
    while (d && (e = readdir(d)) != NULL)
        if (fstatat(dirfd(d), e->d_name, &st, 0) == 0 && S_ISREG(st.st_mode))
            add_file(id, &st);
    if (d)
        closedir(d);
    return OK;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash && slash[1] ? slash + 1 : path;
}

/* *out: a new reference. */
static int depends_on(json_t **out, const struct sut_plan_request *r)
{
    struct cpu_budget budget;
    struct cpu_info cpu;
    struct identity model;
    char words[256], cpus[CPU_MAX * 5 + 1];
    uint64_t mask;

    TRY(identify(&model, r->model));
    TRY(cpu_isa_parse(r->isa, &mask));
    TRY(cpu_budget_get(&budget));
    cpu_info_get(&cpu);
    cpu_isa_words(mask, words, sizeof(words));
    cpu_list_print(budget.cpus, budget.n, cpus, sizeof(cpus));
    *out = json_pack(
        "{s:s, s:I, s:s?, s:o, s:I, s:I, s:s, s:s, s:s, s:s, s:s, s:o, s:o, s:i, s:s}",
        "by", ways[r->by].name, "ranks", (json_int_t)r->ranks, "budget", r->budget,
        "model", json_string_lossy(base_name(r->model)), "model_bytes",
        (json_int_t)model.bytes, "model_mtime_ns", (json_int_t)model.mtime_ns,
        "weight_type", r->weight_type, "precision", r->precision, "kv_type", r->kv_type,
        "isa", words, "cpus", cpus, "cpu_model", json_string_lossy(cpu.model_name),
        "microcode", json_string_lossy(cpu.microcode), "n_online", budget.n_online,
        "kernels", build_info.kernels);
    return OK;
}

/* <dir>/<model>-<way>-<hash>.json */
static int name_plan(char path[PATH_MAX], const struct sut_plan_request *r,
                     const json_t *key)
{
    const char *model = base_name(r->model);
    char hash[17];
    int n;

    TRY(json_checksum(key, hash));
    n = snprintf(path, PATH_MAX - 16, "%s/%.*s-%s-%s.json",
                 r->dir ? r->dir : SUT_PLAN_DIR, (int)strcspn(model, "/"), model,
                 ways[r->by].name, hash);
    return n < PATH_MAX - 16 ? OK : err_set(ERR_LIMIT, "%s: the path is too long", path);
}

/* --- making it */

struct made_words {
    char program[PATH_MAX], env[64], ranks[24];
    const char *argv[MAX_WORDS];
    int n;
};

static void put_words(struct made_words *w, const struct sut_plan_request *r,
                      const char *out)
{
    const char **argv = w->argv;
    int n = 0;

    snprintf(w->env, sizeof(w->env), CPU_ISA_ENV "=%s", r->isa);
    snprintf(w->ranks, sizeof(w->ranks), "%lld", (long long)r->ranks);

    if (strcmp(r->isa, "auto") != 0)
        argv[n++] = "env", argv[n++] = w->env;
    argv[n++] = r->program ? r->program
                           : home_program(w->program, sizeof(w->program), "sandwich");
    argv[n++] = "plan";
    argv[n++] = "--model", argv[n++] = r->model;
    argv[n++] = "--method", argv[n++] = ways[r->by].method;
    argv[n++] = "--precision", argv[n++] = r->precision;
    argv[n++] = "--kv-type", argv[n++] = r->kv_type;
    if (strcmp(r->weight_type, "file") != 0)
        argv[n++] = "--type", argv[n++] = r->weight_type;
    if (ways[r->by].tune)
        argv[n++] = "--tune";
    if (ways[r->by].tune && r->budget)
        argv[n++] = "--budget", argv[n++] = r->budget;
    if (r->ranks > 0)
        argv[n++] = "--ranks", argv[n++] = w->ranks;
    argv[n++] = "--out", argv[n++] = out;
    argv[n] = NULL;
    w->n = n;
}

static json_t *words_json(const struct made_words *w)
{
    json_t *a = json_array();

    for (int i = 0; i < w->n; i++)
        json_array_append_new(a, json_string_lossy(w->argv[i]));
    return a;
}

static int make_plan(const struct sut_plan_request *r, const json_t *key,
                     const char *path, const char *made_path, double *seconds)
{
    struct made_words w;
    const struct child_program p = {.argv = w.argv, .fd = {-1, -1, STDERR_FILENO}};
    uint64_t start = clock_ns();
    char utc[32];
    json_t *made;
    pid_t pid;
    int rc;

    put_words(&w, r, path);
    log_info("%s: making the plan (%s)", path, ways[r->by].name);
    TRY(child_start(&pid, &p));
    rc = child_wait(&pid, 0);
    if (rc != OK)
        return err_prefix(rc, "`sandwich plan --method %s%s` for %s", ways[r->by].method,
                          ways[r->by].tune ? " --tune" : "", r->model);
    *seconds = (double)(clock_ns() - start) * 1e-9;
    clock_utc(utc, sizeof(utc));
    made = json_pack("{s:O, s:o, s:f, s:s}", "depends_on", key, "command", words_json(&w),
                     "made_s", *seconds, "utc", utc);
    rc = json_write_file(made, made_path);
    json_decref(made);
    return rc;
}

/* Is the plan there, whole, and of this key? */
static bool find_plan(const json_t *key, const char *path, const char *made_path,
                      double *seconds)
{
    json_t *made = NULL;
    bool found = access(path, R_OK) == 0 && access(made_path, R_OK) == 0 &&
                 json_read_file(&made, made_path, MADE_BYTES) == OK &&
                 json_equal(json_object_get(made, "depends_on"), key);

    if (found)
        *seconds = json_number_value(json_object_get(made, "made_s"));
    json_decref(made);
    return found;
}

int sut_plan_get(struct sut_plan *out, const struct sut_plan_request *r)
{
    char made_path[PATH_MAX];
    json_t *key = NULL;
    int lock = -1, rc = depends_on(&key, r);

    if (rc == OK)
        rc = name_plan(out->path, r, key);
    if (rc == OK) {
        snprintf(made_path, sizeof(made_path), "%.*s.made.json",
                 (int)(strlen(out->path) - strlen(".json")), out->path);
        rc = file_lock_parent(&lock, out->path);
    }
    if (rc == OK) {
        out->reused = find_plan(key, out->path, made_path, &out->made_s);
        if (!out->reused)
            rc = make_plan(r, key, out->path, made_path, &out->made_s);
    }
    if (lock >= 0)
        close(lock);
    json_decref(key);
    return rc;
}
