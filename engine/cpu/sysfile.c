#include "cpu/sysfile.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"

/* /proc/self/mountinfo of a container host can be long; a cut line is only not found */
#define TEXT_MAX 65536

static ssize_t read_all(int fd, char *out, size_t n)
{
    size_t at = 0;

    while (at < n) {
        ssize_t got = read(fd, out + at, n - at);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (got == 0)
            break;
        at += (size_t)got;
    }
    return (ssize_t)at;
}

int cpu_file_read(char *out, size_t n, const char *root, const char *path, ...)
{
    char full[1024];
    va_list ap;
    size_t at;
    ssize_t got;
    int fd;

    out[0] = '\0';
    at = (size_t)snprintf(full, sizeof(full), "%s", root);
    if (at >= sizeof(full))
        return ERR_IO;
    va_start(ap, path);
    at += (size_t)vsnprintf(full + at, sizeof(full) - at, path, ap);
    va_end(ap);
    if (at >= sizeof(full))
        return ERR_IO;
    if (file_open(&fd, full) != OK)
        return ERR_IO;
    got = read_all(fd, out, n - 1);
    close(fd);
    if (got < 0)
        return ERR_IO;
    while (got > 0 && out[got - 1] == '\n')
        got--;
    out[got] = '\0';
    return OK;
}

int cpu_file_field(const char *text, const char *key, char *out, size_t n)
{
    size_t len = strlen(key);

    for (const char *line = text; line; line = strchr(line, '\n')) {
        const char *v;

        line += *line == '\n';
        if (strncmp(line, key, len) != 0)
            continue;
        v = line + len + strspn(line + len, " \t");
        if (*v == ':')
            v += 1 + strspn(v + 1, " \t");
        else if (v == line + len || memchr(v, ':', strcspn(v, "\n")))
            continue; /* a longer key: "model name" is not "model" */
        snprintf(out, n, "%.*s", (int)strcspn(v, "\n"), v);
        return 1;
    }
    return 0;
}

/* Does the comma-separated list name the word? */
static int list_has(const char *list, const char *word)
{
    size_t len = strlen(word);

    for (const char *s = list; s; s = strchr(s, ',')) {
        s += *s == ',';
        if (strncmp(s, word, len) == 0 && (s[len] == ',' || s[len] == '\0'))
            return 1;
    }
    return 0;
}

/* From a line of mountinfo: where the hierarchy is mounted and which part of it. */
static int mount_line(char *line, const char *controller, int version, char *point,
                      char *part, size_t n)
{
    char *dash = strstr(line, " - "), type[32], options[512];
    char root[512], at[512];

    if (!dash || sscanf(dash + 3, "%31s %*s %511s", type, options) != 2)
        return 0;
    if (version == 2 ? strcmp(type, "cgroup2") != 0
                     : strcmp(type, "cgroup") != 0 || !list_has(options, controller))
        return 0;
    if (sscanf(line, "%*s %*s %*s %511s %511s", root, at) != 2)
        return 0;
    snprintf(point, n, "%s", at);
    snprintf(part, n, "%s", root);
    return 1;
}

static int find_mount(const char *root, const char *controller, int version, char *point,
                      char *part, size_t n)
{
    char *text = mem_new(MEM_OTHER, 1, TEXT_MAX), *save = NULL;
    int rc = ERR_NOTFOUND;

    if (!text)
        return ERR_NOMEM;
    if (cpu_file_read(text, TEXT_MAX, root, "/proc/self/mountinfo") == OK) {
        char *l = strtok_r(text, "\n", &save);

        for (; l && rc != OK; l = strtok_r(NULL, "\n", &save)) {
            if (mount_line(l, controller, version, point, part, n))
                rc = OK;
        }
    }
    mem_free(text);
    return rc;
}

/* The path of /proc/self/cgroup: "4:cpu,cpuacct:/a/b" or "0::/a/b". */
static int find_member(const char *root, const char *controller, int version, char *path,
                       size_t n)
{
    char text[4096], *save = NULL;

    if (cpu_file_read(text, sizeof(text), root, "/proc/self/cgroup") != OK)
        return 0;
    for (char *l = strtok_r(text, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
        char *controllers = strchr(l, ':'), *p;

        if (!controllers || !(p = strchr(controllers + 1, ':')))
            continue;
        *p++ = '\0';
        controllers++;
        if (version == 2 ? strncmp(l, "0:", 2) == 0 && !*controllers
                         : list_has(controllers, controller)) {
            snprintf(path, n, "%s", p);
            return 1;
        }
    }
    return 0;
}

/* The directory of the calling process's cgroup. *mount_len: of the part that is the mount
 * point. ERR_NOTFOUND (no message): not mounted or not a member. */
static int cgroup_dir(char *out, size_t n, size_t *mount_len, const char *root,
                      const char *controller, int version)
{
    char point[512], part[512], path[512];
    const char *rest = path;
    size_t len;
    int rc;

    if (!find_member(root, controller, version, path, sizeof(path)))
        return ERR_NOTFOUND;
    rc = find_mount(root, controller, version, point, part, sizeof(point));
    if (rc != OK)
        return rc;
    /* A container may see only its own part of the tree mounted: the member's path then begins with
     * that part. A path that leaves the mounted part ("/..") reveals nothing, and the mount point
     * itself is the nearest known ancestor. */
    len = strcmp(part, "/") == 0 ? 0 : strlen(part);
    if (strncmp(path, part, len) != 0 || (path[len] != '/' && path[len] != '\0'))
        rest = "";
    else
        rest = path + len;
    if (strstr(rest, "/..") || strcmp(rest, "/") == 0)
        rest = "";
    *mount_len = strlen(point);
    if ((size_t)snprintf(out, n, "%s%s", point, rest) >= n)
        return ERR_NOTFOUND;
    return OK;
}

int cpu_cgroup_each(const char *root, const char *controller, int version,
                    void (*fn)(void *ctx, const char *dir), void *ctx)
{
    char dir[1024];
    size_t mount_len, len;
    int rc = cgroup_dir(dir, sizeof(dir), &mount_len, root, controller, version);

    if (rc != OK)
        return rc == ERR_NOTFOUND ? OK : rc;
    for (;;) {
        fn(ctx, dir);
        len = strlen(dir);
        if (len <= mount_len)
            return OK;
        while (len > mount_len && dir[len - 1] != '/')
            len--;
        dir[len > mount_len ? len - 1 : mount_len] = '\0';
    }
}
