#include "experiments/record/env_read.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"

const char *env_read(const char *path, char *buf, size_t n)
{
    FILE *f = fopen(path, "re");
    size_t got;
    int failed;

    if (!f)
        return NULL;
    got = fread(buf, 1, n - 1, f);
    failed = ferror(f) ? errno : 0; /* some knobs open and then refuse */
    fclose(f);
    if (failed) {
        errno = failed;
        return NULL;
    }
    while (got > 0 && isspace((unsigned char)buf[got - 1]))
        got--;
    buf[got] = 0;
    return buf;
}

json_t *env_unavailable(const char *path, const char *why)
{
    return json_pack("{s:s++}", "unavailable", path, ": ", why);
}

json_t *env_read_json(const char *path)
{
    char buf[512];

    if (!env_read(path, buf, sizeof(buf)))
        return env_unavailable(path, strerror(errno));
    for (char *p = buf; *p; p++)
        if (*p == '\n' || *p == '\t')
            *p = ' ';
    return json_string_lossy(buf);
}

json_t *env_field_json(const char *path, const char *key)
{
    char line[8192]; /* the flags of a processor are one long line */
    size_t n = strlen(key);
    json_t *found = NULL;
    FILE *f = fopen(path, "re");

    if (!f)
        return env_unavailable(path, strerror(errno));
    while (!found && fgets(line, sizeof(line), f)) {
        char *p = line + n, *end;
        if (strncmp(line, key, n) != 0)
            continue;
        p += strspn(p, " \t");
        if (*p != ':')
            continue; /* a longer key */
        p += 1 + strspn(p + 1, " \t");
        end = p + strlen(p);
        while (end > p && isspace((unsigned char)end[-1]))
            end--;
        found = json_stringn_lossy(p, (size_t)(end - p));
    }
    fclose(f);
    return found ? found : env_unavailable(path, "no such field");
}
