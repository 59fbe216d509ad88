#include "http/access.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/mem.h"

#define KEY_BYTES_MAX 4096

/* ---- the key ---- */

/* The key is the first line of the file, so that an editor or echo may write it. The file may be
 * a pipe, as a shell makes of --api-key-file <(COMMAND), which is waited for. */
static int read_key_file(struct http_access *a, const char *path)
{
    char line[KEY_BYTES_MAX + 2];
    FILE *f = fopen(path, "re");
    bool is_read;

    if (!f)
        return err_set(ERR_IO, "%s: cannot open: %m", path);
    line[0] = '\0';
    is_read = fgets(line, sizeof(line), f) != NULL || !ferror(f);
    fclose(f);
    if (!is_read)
        return err_set(ERR_IO, "%s: cannot read", path);
    if (strlen(line) > KEY_BYTES_MAX)
        return err_set(ERR_LIMIT, "%s: expected a key of at most %d bytes", path,
                       KEY_BYTES_MAX);
    a->key = mem_strndup(MEM_OTHER, line, strcspn(line, "\r\n"));
    return a->key ? OK : ERR_NOMEM;
}

static int check_key(const struct http_access *a, const char *from)
{
    if (!a->key)
        return OK;
    if (!*a->key)
        return err_set(ERR_ARG, "%s: expected a key, found an empty one", from);
    for (const char *p = a->key; *p; p++)
        if ((unsigned char)*p <= ' ' || *p == 127)
            return err_set(ERR_ARG,
                           "%s: expected a key without spaces and control characters",
                           from);
    return OK;
}

static int take_key(struct http_access *a, const struct http_opts *o)
{
    const char *from = o->api_key       ? "--api-key"
                       : o->api_key_env ? "--api-key-env"
                                        : "--api-key-file";
    const char *key = o->api_key;

    if (!!o->api_key + !!o->api_key_env + !!o->api_key_file > 1)
        return err_set(ERR_ARG, "expected one of --api-key, --api-key-env and "
                                "--api-key-file, found several");
    if (o->api_key_file) {
        TRY(read_key_file(a, o->api_key_file));
        return check_key(a, from);
    }
    if (o->api_key_env && !(key = getenv(o->api_key_env)))
        return err_set(ERR_ARG, "--api-key-env: $%s is not set", o->api_key_env);
    if (!key)
        return OK;
    a->key = mem_strdup(MEM_OTHER, key);
    return a->key ? check_key(a, from) : ERR_NOMEM;
}

int http_access_open(struct http_access *a, const struct http_opts *o)
{
    *a = (struct http_access){
        .host = o->host, .allow_host = o->allow_host, .cors = o->cors};
    if (gethostname(a->machine, sizeof(a->machine) - 1) != 0)
        a->machine[0] = '\0';
    return take_key(a, o);
}

void http_access_close(struct http_access *a)
{
    mem_free(a->key);
    a->key = NULL;
}

/* Every byte of the longer text is compared, so that the time reveals nothing about the key. */
static bool same_key(const char *want, const char *got)
{
    size_t n_want = strlen(want), n_got = strlen(got);
    size_t n = n_want > n_got ? n_want : n_got;
    volatile unsigned char differ = n_want != n_got;

    for (size_t i = 0; i < n; i++)
        differ |=
            (unsigned char)(want[i < n_want ? i : n_want] ^ got[i < n_got ? i : n_got]);
    return differ == 0;
}

bool http_access_has_key(const struct http_access *a, struct MHD_Connection *c)
{
    static const char scheme[] = "Bearer ";
    const char *v = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Authorization");

    return v && strncasecmp(v, scheme, strlen(scheme)) == 0 &&
           same_key(a->key, v + strlen(scheme));
}

/* ---- names ---- */

/* Is name[n] one of the words of `list`, which commas separate? "*" is every name. */
static bool is_listed(const char *list, const char *name, size_t n)
{
    while (list && *list) {
        size_t len = strcspn(list, ",");

        if ((len == 1 && *list == '*') ||
            (len == n && n > 0 && strncasecmp(list, name, n) == 0))
            return true;
        list += len + (list[len] == ',');
    }
    return false;
}

/* "127.0.0.1", "[::1]": what no name server answers. */
static bool is_address(const char *name, size_t n)
{
    unsigned char raw[sizeof(struct in6_addr)];
    char text[64];
    bool v6 = n > 2 && name[0] == '[' && name[n - 1] == ']';

    if (n >= sizeof(text))
        return false;
    snprintf(text, sizeof(text), "%.*s", (int)(v6 ? n - 2 : n), v6 ? name + 1 : name);
    return inet_pton(v6 ? AF_INET6 : AF_INET, text, raw) == 1;
}

/* Length of the name in "name:port"; colons in brackets belong to an address. 0: the rest is no
 * port. */
static size_t name_bytes(const char *host)
{
    size_t n = host[0] == '[' ? strcspn(host, "]") : strcspn(host, ":");
    const char *p;

    n += host[0] == '[' && host[n] == ']';
    p = host + n;
    if (*p == ':')
        for (p++; isdigit((unsigned char)*p);)
            p++;
    return *p ? 0 : n;
}

int http_access_check(const struct http_access *a, const char *host, const char *origin)
{
    const char *page = origin ? strstr(origin, "://") : NULL;
    size_t n = host ? name_bytes(host) : 0;

    if (host &&
        !(n > 0 && (is_address(host, n) || is_listed("localhost", host, n) ||
                    is_listed(a->host, host, n) || is_listed(a->machine, host, n) ||
                    is_listed(a->allow_host, host, n))))
        return MHD_HTTP_MISDIRECTED_REQUEST;
    if (origin && !http_access_cors(a, origin) &&
        !(page && host && strcasecmp(page + 3, host) == 0))
        return MHD_HTTP_FORBIDDEN;
    return 0;
}

const char *http_access_cors(const struct http_access *a, const char *origin)
{
    return origin && is_listed(a->cors, origin, strlen(origin)) ? origin : NULL;
}
