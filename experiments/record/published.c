#include "experiments/record/published.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <lzma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/home.h"
#include "base/json.h"
#include "base/mem.h"
#include "experiments/record/head.h"
#include "experiments/record/unpack.h"

#define FOLDER "results/published"
/* The limit on a compressed record, which is part of every clone. */
#define BYTES_MAX      ((size_t)2560 << 10)
#define HEAD_BYTES_MAX ((size_t)1 << 20)
#define MACHINE_BYTES  96

/* ---- reading ---- */

/* The name of a machine has no dot (export_machine_name()), that of a file has one. */
static int is_machine(const struct dirent *d)
{
    return strchr(d->d_name, '.') == NULL;
}

/* The working directory's, or those that were installed with the program. */
static const char *folder(char *out, size_t n)
{
    return access(FOLDER, F_OK) == 0 ? FOLDER
                                     : home_find(out, n, "share/sandwich/" FOLDER);
}

/* Calls fn with the folder of the experiment of each machine. */
static int each_machine(const char *experiment,
                        int (*fn)(void *ctx, const char *machine, const char *dir),
                        void *ctx)
{
    struct dirent **names = NULL;
    char home[PATH_MAX], dir[PATH_MAX];
    const char *in = folder(home, sizeof(home));
    int n = scandir(in, &names, is_machine, alphasort), rc = OK;

    for (int i = 0; i < n; i++) {
        if (rc == OK && snprintf(dir, sizeof(dir), "%s/%s/%s", in, names[i]->d_name,
                                 experiment) < (int)sizeof(dir))
            rc = fn(ctx, names[i]->d_name, dir);
        free(names[i]);
    }
    free(names);
    return rc;
}

static const char *utc_of(const json_t *head)
{
    return json_str_at(json_object_get(head, "run"), "utc", "");
}

void export_machine_name(char *out, size_t n, const json_t *head)
{
    struct text machine = {0};
    size_t at = 0;

    export_put_machine(&machine, head);
    for (size_t i = 0; i < machine.n && at + 1 < n; i++) {
        unsigned char c = (unsigned char)machine.p[i];

        if (isalnum(c))
            out[at++] = (char)tolower(c);
        else if (at > 0 && out[at - 1] != '-')
            out[at++] = '-';
    }
    while (at > 0 && out[at - 1] == '-')
        at--;
    out[at] = 0;
    text_fini(&machine);
}

struct newest {
    json_t *head;
    char machine[MACHINE_BYTES]; /* whose records come before those of others; "": none */
};

static bool is_better(const struct newest *of, const char *machine, const json_t *head)
{
    const char *best = json_str_at(of->head, "published", "");
    const bool is_wanted = strcmp(machine, of->machine) == 0,
               had_wanted = strcmp(best, of->machine) == 0;

    if (!of->head || is_wanted != had_wanted)
        return !of->head || is_wanted;
    return strcmp(utc_of(head), utc_of(of->head)) > 0;
}

static int keep_newest(void *ctx, const char *machine, const char *dir)
{
    struct newest *of = ctx;
    char path[PATH_MAX];
    json_t *head;
    int rc;

    if (snprintf(path, sizeof(path), "%s/latest.json", dir) >= (int)sizeof(path))
        return OK;
    rc = export_head(&head, path);
    if (rc == ERR_NOTFOUND) {
        err_clear();
        return OK;
    }
    if (rc != OK)
        return rc;
    json_object_set_new(head, "published", json_string(machine));
    if (is_better(of, machine, head)) {
        json_decref(of->head);
        of->head = json_incref(head);
    }
    json_decref(head);
    return OK;
}

int export_published_head(json_t **out, const char *experiment, const json_t *own)
{
    struct newest of = {0};
    int rc;

    *out = NULL;
    if (own)
        export_machine_name(of.machine, sizeof(of.machine), own);
    rc = each_machine(experiment, keep_newest, &of);
    if (rc == OK && !of.head)
        rc = err_set(ERR_NOTFOUND, "results/%s/latest.json: there is no record",
                     experiment);
    if (rc == OK)
        *out = of.head;
    else
        json_decref(of.head);
    return rc;
}

bool export_is_same_machine(const json_t *published, const json_t *own)
{
    char machine[MACHINE_BYTES];

    export_machine_name(machine, sizeof(machine), own);
    return strcmp(machine, json_str_at(published, "published", "")) == 0;
}

static int is_record(const struct dirent *d)
{
    const char *dot = strstr(d->d_name, ".h5" RECORD_PACKED);

    return dot && dot[6] == 0;
}

/* Calls fn with each compressed record in a folder. */
static int each_record(const char *dir, int (*fn)(void *ctx, const char *path), void *ctx)
{
    struct dirent **names = NULL;
    char path[PATH_MAX];
    int n = scandir(dir, &names, is_record, alphasort), rc = OK;

    for (int i = 0; i < n; i++) {
        if (rc == OK && snprintf(path, sizeof(path), "%s/%s", dir, names[i]->d_name) <
                            (int)sizeof(path))
            rc = fn(ctx, path);
        free(names[i]);
    }
    free(names);
    return rc;
}

static int add_path(void *ctx, const char *path)
{
    return json_array_append_new(ctx, json_string(path)) == 0
               ? OK
               : err_set(ERR_FORMAT, "%s: expected a name in UTF-8", path);
}

static int add_paths(void *ctx, const char *machine, const char *dir)
{
    (void)machine;
    return each_record(dir, add_path, ctx);
}

int export_published_list(json_t **out, const char *experiment)
{
    int rc;

    *out = json_array();
    rc = each_machine(experiment, add_paths, *out);
    if (rc != OK) {
        json_decref(*out);
        *out = NULL;
    }
    return rc;
}

int export_published_heads(json_t **out, const char *experiment)
{
    char pattern[PATH_MAX];
    size_t n;
    glob_t g = {0};
    int rc = OK;

    home_find(pattern, sizeof(pattern), "results");
    n = strlen(pattern);
    snprintf(pattern + n, sizeof(pattern) - n, "/published/*/%s/latest.json", experiment);
    *out = json_array();
    if (glob(pattern, 0, NULL, &g) != 0)
        g.gl_pathc = 0; /* there are none */
    for (size_t i = 0; i < g.gl_pathc && rc == OK; i++)
        rc = add_path(*out, g.gl_pathv[i]);
    globfree(&g);
    if (rc != OK)
        json_decref(*out), *out = NULL;
    return rc;
}

/* ---- publishing ---- */

static bool is_true(const json_t *v)
{
    return json_is_true(v) || json_integer_value(v) != 0;
}

static int check(const json_t *head)
{
    const json_t *run = json_object_get(head, "run"),
                 *cells = json_object_get(head, "cells");
    const json_int_t n_failed = json_integer_value(json_object_get(cells, "failed"));
    const char *fault = json_str_at(head, "fault", NULL),
               *name = json_str_at(run, "experiment", "");

    if (fault)
        return err_set(ERR_STATE, "the record has a fault: %s", fault);
    if (!*name || *name == '.' || strchr(name, '/'))
        return err_set(ERR_STATE, "experiment: expected a name, found \"%.100s\"", name);
    if (is_true(json_object_get(run, "smoke")))
        return err_set(ERR_STATE, "a smoke run");
    if (is_true(json_object_get(run, "dirty")))
        return err_set(ERR_STATE, "made with local changes");
    if (json_str_at(run, "swept", "")[0])
        return err_set(ERR_STATE, "other settings than the experiment's: %.100s",
                       json_str_at(run, "swept", ""));
    if (n_failed > 0)
        return err_set(ERR_STATE, "%lld cells failed", (long long)n_failed);
    if (json_integer_value(json_object_get(cells, "done")) == 0)
        return err_set(ERR_STATE, "no cell is done");
    if (export_is_noisy(head)) {
        struct text why = {0};
        int rc;

        export_put_warnings(&why, head);
        rc = err_set(ERR_STATE, "something else used the machine: %.*s", (int)why.n,
                     why.p);
        text_fini(&why);
        return rc;
    }
    return OK;
}

/* As `xz -6` does. *out: mem_free(). */
static int compress_bytes(uint8_t **out, size_t *n_out, const char *bytes, size_t n)
{
    const size_t most = lzma_stream_buffer_bound(n);

    *out = mem_new(MEM_HARNESS, most, 1);
    *n_out = 0;
    if (most && *out &&
        lzma_easy_buffer_encode(6, LZMA_CHECK_CRC64, NULL, (const uint8_t *)bytes, n,
                                *out, n_out, most) == LZMA_OK)
        return OK;
    mem_free(*out);
    *out = NULL;
    return err_set(ERR_NOMEM, "cannot compress %zu bytes", n);
}

static int compress_file(const char *to, const char *from)
{
    uint8_t *packed;
    size_t n, n_packed;
    char *bytes;
    int rc;

    TRY(file_read(&bytes, &n, from, SIZE_MAX / 2));
    rc = compress_bytes(&packed, &n_packed, bytes, n);
    mem_free(bytes);
    if (rc == OK && n_packed > BYTES_MAX)
        rc = err_set(ERR_STATE, "%zu kB when compressed: expected at most %zu",
                     n_packed >> 10, BYTES_MAX >> 10);
    if (rc == OK)
        rc = file_write(to, packed, n_packed);
    mem_free(packed);
    return rc;
}

static int copy(const char *to, const char *from)
{
    char *bytes;
    size_t n;
    int rc;

    TRY(file_read(&bytes, &n, from, HEAD_BYTES_MAX));
    rc = file_write(to, bytes, n);
    mem_free(bytes);
    return rc;
}

/* The older one goes when the newer one is there. ctx: the path of the newer one. */
static int remove_other(void *ctx, const char *path)
{
    const int stem = (int)(strrchr(path, '.') - path) - 3; /* of ".h5.xz" */
    char head[PATH_MAX];

    if (strcmp(path, ctx) == 0)
        return OK;
    snprintf(head, sizeof(head), "%.*s.json", stem, path);
    if (unlink(path) != 0 || unlink(head) != 0)
        return err_set(ERR_IO, "%s: cannot be removed: %m", path);
    return OK;
}

static int put(char **to, const char *path, const json_t *head)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const int stem = (int)strlen(name) - 3;
    char machine[MACHINE_BYTES], dir[PATH_MAX], target[PATH_MAX], packed[PATH_MAX],
        from[PATH_MAX], latest[PATH_MAX];

    export_machine_name(machine, sizeof(machine), head);
    if (snprintf(dir, sizeof(dir), FOLDER "/%s/%.200s", machine,
                 json_str_at(json_object_get(head, "run"), "experiment", "")) <= 0)
        return err_set(ERR_FORMAT, "%s: no experiment", path);
    snprintf(target, sizeof(target), "%.3500s/%.*s.json", dir, stem, name);
    snprintf(packed, sizeof(packed), "%.3500s/%s" RECORD_PACKED, dir, name);
    snprintf(latest, sizeof(latest), "%.3500s/latest.json", dir);
    snprintf(from, sizeof(from), "%.*s.json", (int)strlen(path) - 3, path);
    TRY(file_make_dirs(dir));
    TRY(compress_file(packed, path));
    TRY(copy(target, from));
    TRY(copy(latest, from));
    TRY(each_record(dir, remove_other, packed));
    *to = mem_strdup(MEM_HARNESS, packed);
    return OK;
}

int export_publish(char **to, const char *path)
{
    size_t n = strlen(path);
    json_t *head;
    int rc;

    *to = NULL;
    if (n < 4 || strcmp(path + n - 3, ".h5") != 0)
        return err_set(ERR_STATE, "expected a record, FILE.h5");
    TRY(export_head(&head, path));
    rc = check(head);
    if (rc == OK)
        rc = put(to, path, head);
    json_decref(head);
    return rc;
}
