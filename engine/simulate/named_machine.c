/* machines/NAME.json: what is visible of a machine that is not this one. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/name.h"
#include "simulate/contention_rates.h"

#define MACHINE_BYTES_MAX (1 << 20)
#define NAMED_MAX         256

static const char *const keys[] = {"about",   "machine", "synthetic", "sources",
                                   "assumed", "note",    NULL};

/* ---- the list ---- */

static _Thread_local char words[NAMED_MAX][sizeof(((struct topo_machine *)0)->name)];
static _Thread_local const char *list[NAMED_MAX + 1];

static int by_word(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

int simulate_named_machines(const char *dir, const char *const **names)
{
    DIR *d = opendir(dir);
    struct dirent *e;
    int n = 0;

    *names = NULL;
    if (!d)
        return err_set(errno == ENOENT ? ERR_NOTFOUND : ERR_IO,
                       "%s: cannot open the folder of machines: %m", dir);
    while ((e = readdir(d)) != NULL && n < NAMED_MAX) {
        size_t len = strlen(e->d_name);

        if (len < 6 || len - 5 >= sizeof(words[0]) ||
            strcmp(e->d_name + len - 5, ".json") != 0 || e->d_name[0] == '.')
            continue;
        memcpy(words[n], e->d_name, len - 5);
        words[n][len - 5] = '\0';
        list[n] = words[n];
        n++;
    }
    closedir(d);
    list[n] = NULL;
    qsort(list, (size_t)n, sizeof(list[0]), by_word);
    *names = list;
    return OK;
}

/* ---- one of them ---- */

static int not_found(const char *name, const char *dir)
{
    const char *const *names;
    int rc = simulate_named_machines(dir, &names);

    if (rc != OK)
        return rc;
    return name_not_in(name, names, "no machine \"%.80s\" in %s", name, dir);
}

MUST static int find_file(char *path, size_t n, const char *name, const char *dir)
{
    size_t len = strlen(name);
    bool is_path = strchr(name, '/') || (len > 5 && !strcmp(name + len - 5, ".json"));
    int wrote = is_path ? snprintf(path, n, "%s", name)
                        : snprintf(path, n, "%s/%s.json", dir, name);

    if (wrote < 0 || (size_t)wrote >= n)
        return err_set(ERR_LIMIT, "machine \"%.80s\": path of %d bytes or more", name,
                       (int)n);
    if (access(path, F_OK) == 0)
        return OK;
    return is_path ? err_set(ERR_NOTFOUND, "%s: cannot open: %m", path)
                   : not_found(name, dir);
}

/* "DIR/NAME.json" has its rates in "DIR/params/NAME.json", or none. */
MUST static int find_params(char *params, size_t n, const char *path)
{
    const char *slash = strrchr(path, '/');
    int dir = slash ? (int)(slash + 1 - path) : 0;
    int wrote = snprintf(params, n, "%.*sparams/%s", dir, path, path + dir);

    if (wrote < 0 || (size_t)wrote >= n)
        return err_set(ERR_LIMIT, "%s: the path of its parameters has %zu bytes or more",
                       path, n);
    if (access(params, F_OK) != 0)
        params[0] = '\0';
    return OK;
}

MUST static int check(const json_t *obj, const char *path)
{
    const char *text;
    int rc;

    if (!json_is_object(obj))
        return err_set(ERR_FORMAT, "%s: expected an object", path);
    rc = json_check_keys(obj, keys, path);
    if (rc == OK)
        rc = json_get_str(obj, "machine", &text, path);
    return rc == OK ? json_get_str(obj, "about", &text, path) : rc;
}

MUST static int open_synthetic(struct topo_machine **out, const json_t *obj,
                               const char *path)
{
    const char *levels = NULL, *slash = strrchr(path, '/');
    const char *file = slash ? slash + 1 : path;
    int stem = (int)strlen(file), rc;
    char *spec;
    size_t n;

    rc = json_get_str(obj, "synthetic", &levels, path);
    if (rc != OK)
        return rc;
    n = strlen(levels) + sizeof("synthetic:");
    spec = mem_new(MEM_OTHER, n, 1);
    if (!spec)
        return ERR_NOMEM;
    snprintf(spec, n, "synthetic:%s", levels);
    rc = topo_machine_open(out, spec);
    mem_free(spec);
    if (rc != OK)
        return err_prefix(rc, "%s", path);
    if (stem > 5 && strcmp(file + stem - 5, ".json") == 0)
        stem -= 5;
    snprintf((*out)->name, sizeof((*out)->name), "%.*s", stem, file);
    return OK;
}

int simulate_named_machine_open(struct topo_machine **out, const char *name,
                                const char *dir, char *params_path, size_t n)
{
    char path[PATH_MAX];
    json_t *obj = NULL;
    int rc;

    *out = NULL;
    params_path[0] = '\0';
    rc = find_file(path, sizeof(path), name, dir);
    if (rc == OK)
        rc = find_params(params_path, n, path);
    if (rc == OK)
        rc = json_read_file(&obj, path, MACHINE_BYTES_MAX);
    if (rc == OK)
        rc = check(obj, path);
    if (rc == OK)
        rc = open_synthetic(out, obj, path);
    json_decref(obj);
    return rc;
}
