#include "base/home.h"

#include <limits.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* build/tests/MODULE/TEST is the deepest program. */
#define LEVELS_MAX 4

static bool there(char *out, size_t n, const char *dir, const char *name)
{
    int len = snprintf(out, n, "%s/%s", dir, name);

    return len > 0 && (size_t)len < n && access(out, F_OK) == 0;
}

static bool program_there(char *out, size_t n, const char *dir, const char *name)
{
    struct stat st;

    return there(out, n, dir, name) && access(out, X_OK) == 0 && stat(out, &st) == 0 &&
           S_ISREG(st.st_mode);
}

static bool installed(char *out, size_t n, const char *dir, const char *name)
{
    char share[PATH_MAX];

    return there(share, sizeof(share), dir, "share/sandwich") &&
           there(out, n, share, name);
}

/* Try the folder of the running program and those above it, from the nearest. */
static bool above_program(char *out, size_t n, const char *name,
                          bool (*is_in)(char *, size_t, const char *, const char *))
{
    char dir[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", dir, sizeof(dir) - 1);

    dir[len > 0 ? len : 0] = '\0';
    for (int level = 0; level < LEVELS_MAX && strrchr(dir, '/'); level++) {
        *strrchr(dir, '/') = '\0';
        if (is_in(out, n, dir, name))
            return true;
    }
    return false;
}

static bool in_checkout_or_prefix(char *out, size_t n, const char *dir, const char *name)
{
    return there(out, n, dir, name) || installed(out, n, dir, name);
}

const char *home_find(char *out, size_t n, const char *name)
{
    const char *home = getenv(HOME_ENV);

    if (name[0] != '/' && ((home && home[0] && there(out, n, home, name)) ||
                           above_program(out, n, name, in_checkout_or_prefix)))
        return out;
    snprintf(out, n, "%s", name);
    return out;
}

const char *home_data(char *out, size_t n, const char *name)
{
    const char *data = getenv(HOME_DATA_ENV);

    if (name[0] == '/' || access(name, F_OK) == 0 ||
        !there(out, n, data && data[0] ? data : "../shared/data", name))
        snprintf(out, n, "%s", name);
    return out;
}

const char *home_program(char *out, size_t n, const char *name)
{
    if (name[0] == '/' || !above_program(out, n, name, program_there))
        snprintf(out, n, "%s", name);
    return out;
}

const char *home_cache(char *out, size_t n, const char *name)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    const struct passwd *user = home && home[0] == '/' ? NULL : getpwuid(geteuid());

    if (cache && cache[0] == '/') /* the specification: a relative one is ignored */
        snprintf(out, n, "%s/sandwich/%s", cache, name);
    else
        snprintf(out, n, "%s/.cache/sandwich/%s",
                 user   ? user->pw_dir
                 : home ? home
                        : "",
                 name);
    return out;
}
