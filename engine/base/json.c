#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/name.h"
#include "base/utf8.h"

/* jansson calls a failed allocation a syntax error on some of its paths, and on one,
 * growing the text of the token it reads, it goes on without and then asserts. So while
 * it parses, a failure asked for by the test hook is only remembered; one of malloc's own
 * it must face. */
static _Thread_local bool alloc_failed, parsing;

/* jansson's memory obeys the test hook of mem.h too; plain malloc, because a head of 64
 * bytes before each small value would triple a document. */
static void *json_alloc(size_t n)
{
    bool refused = mem_alloc_refused();
    void *p = refused && !parsing ? NULL : malloc(n);

    if (refused || !p) {
        mem_refused(MEM_OTHER, n, 1);
        alloc_failed = true;
    }
    return p;
}

__attribute__((constructor)) static void use_allocator(void)
{
    json_set_alloc_funcs(json_alloc, free);
}

/* --- reading */

/* Nesting is measured before the parser recurses. Brackets inside strings do not count.
 */
static int check_depth(const char *text, size_t n, const char *where)
{
    int depth = 0;
    bool in_string = false;

    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '[' || c == '{') {
            if (++depth > JSON_DEPTH_MAX)
                return err_set(ERR_LIMIT,
                               "%s: offset %zu: nested deeper than the limit of %d",
                               where, i, JSON_DEPTH_MAX);
        } else if (c == ']' || c == '}') {
            depth--;
        }
    }
    return OK;
}

static int read_with(json_t **out, const char *text, size_t n, size_t flags,
                     const char *where)
{
    json_error_t e = {0};

    alloc_failed = false;
    parsing = true;
    *out = json_loadb(text, n, JSON_REJECT_DUPLICATES | flags, &e);
    parsing = false;
    if (alloc_failed) { /* even with a result: the lexer drops a character and goes on */
        json_decref(*out);
        *out = NULL;
        return err_set(ERR_NOMEM, "%s: out of memory reading JSON of %zu bytes", where,
                       n);
    }
    if (*out)
        return OK;
    return err_set(ERR_FORMAT, "%s: line %d, offset %d: %s", where, e.line, e.position,
                   e.text);
}

int json_read_own(json_t **out, const char *text, size_t n, const char *where)
{
    return read_with(out, text, n, 0, where);
}

int json_read_text(json_t **out, const char *text, size_t n, const char *where)
{
    int rc = check_depth(text, n, where);

    *out = NULL;
    return rc == OK ? read_with(out, text, n, 0, where) : rc;
}

int json_read_text_nul(json_t **out, const char *text, size_t n, const char *where)
{
    int rc = check_depth(text, n, where);

    *out = NULL;
    return rc == OK ? read_with(out, text, n, JSON_ALLOW_NUL, where) : rc;
}

bool json_has_nul(const json_t *j, const json_t *but)
{
    const char *key;
    json_t *v;
    size_t i;

    if (j == but)
        return false;
    if (json_is_string(j))
        return strlen(json_string_value(j)) != json_string_length(j);
    json_array_foreach(j, i, v) if (json_has_nul(v, but)) return true;
    json_object_foreach((json_t *)j, key, v)
    {
        if (json_has_nul(v, but))
            return true;
    }
    return false;
}

int json_read_file(json_t **out, const char *path, size_t max_bytes)
{
    char *text = NULL;
    size_t n = 0;
    int rc = file_read(&text, &n, path, max_bytes);

    *out = NULL;
    if (rc == OK)
        rc = json_read_text(out, text, n, path);
    mem_free(text);
    return rc;
}

/* --- writing */

char *json_text(const json_t *j, size_t flags)
{
    char *text, *own = NULL;

    alloc_failed = false;
    text = json_dumps(j, flags);
    if (!alloc_failed && text)
        own = mem_strdup(MEM_OTHER, text);
    free(text);
    if (!own)
        err_set(ERR_NOMEM, "out of memory rendering JSON");
    return own;
}

json_t *json_stringn_lossy(const char *s, size_t n)
{
    json_t *v;
    char *copy;

    if (utf8_valid(s, n))
        return json_stringn_nocheck(s, n);
    copy = mem_new(MEM_OTHER, n, 1);
    if (!copy)
        return NULL;
    memcpy(copy, s, n);
    for (size_t i = 0; i < n;) {
        int len = utf8_len(copy + i, n - i);

        if (len <= 0)
            copy[i] = '?';
        i += len > 0 ? (size_t)len : 1;
    }
    v = json_stringn_nocheck(copy, n);
    mem_free(copy);
    return v;
}

json_t *json_string_lossy(const char *s)
{
    return json_stringn_lossy(s, strlen(s));
}

json_t *json_number(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

json_t *json_warnings_take(void)
{
    struct log_warning w[16];
    json_t *list = json_array();
    int n, bad = !list;

    while ((n = log_warnings_take(w, 16)) > 0)
        for (int i = 0; i < n && !bad; i++)
            bad = json_array_append_new(
                list, json_pack("{s:s, s:o, s:o, s:o}", "code", w[i].code, "observed",
                                json_number(w[i].observed), "threshold",
                                json_number(w[i].threshold), "text",
                                json_string_lossy(w[i].text)));
    if (!bad)
        return list;
    json_decref(list);
    err_set(ERR_NOMEM, "out of memory noting the warnings");
    return NULL;
}

int json_checksum(const json_t *j, char out[17])
{
    char *text = json_text(j, JSON_COMPACT | JSON_SORT_KEYS);

    if (!text)
        return ERR_NOMEM;
    snprintf(out, 17, "%016llx", (unsigned long long)hash_fnv1a(HASH_FNV1A, text));
    mem_free(text);
    return OK;
}

int json_write_file(const json_t *j, const char *path)
{
    char *text = json_text(j, JSON_SORT_KEYS | JSON_INDENT(2));
    size_t n;
    int rc;

    if (!text)
        return err_prefix(ERR_NOMEM, "%s", path);
    n = strlen(text);
    text[n] = '\n'; /* in place of the NUL: its length is known */
    rc = file_write(path, text, n + 1);
    mem_free(text);
    return rc;
}

/* --- checked members */

static const char *render(const json_t *v, char *buf, size_t n)
{
    const char *s = json_string_value(v);
    int shown = 40; /* enough to recognise it; the whole error is one line */

    if (!v)
        return "nothing";
    if (json_is_object(v))
        return "an object";
    if (json_is_array(v))
        return "an array";
    if (!s) {
        size_t len = json_dumpb(v, buf, n - 1, JSON_ENCODE_ANY);
        buf[len < n ? len : 0] = 0;
        return buf;
    }
    if (json_string_length(v) <= (size_t)shown) {
        snprintf(buf, n, "\"%s\"", s);
        return buf;
    }
    while (shown > 0 && (s[shown] & 0xc0) == 0x80)
        shown--; /* not within a character */
    snprintf(buf, n, "\"%.*s...\"", shown, s);
    return buf;
}

static int expected(const char *where, const char *key, const char *what, const json_t *v)
{
    char buf[64];

    return err_set(ERR_FORMAT, "%s: %s: expected %s, found %s", where, key, what,
                   render(v, buf, sizeof(buf)));
}

static const json_t *member(const json_t *obj, const char *key)
{
    return json_object_get(obj, key); /* NULL too when obj is not an object */
}

int json_get_int(const json_t *obj, const char *key, int64_t min, int64_t max,
                 int64_t *out, const char *where)
{
    const json_t *v = member(obj, key);
    char what[80];

    if (json_is_integer(v) && json_integer_value(v) >= min &&
        json_integer_value(v) <= max) {
        *out = json_integer_value(v);
        return OK;
    }
    snprintf(what, sizeof(what), "an integer in [%lld, %lld]", (long long)min,
             (long long)max);
    return expected(where, key, what, v);
}

int json_opt_int(const json_t *obj, const char *key, int64_t min, int64_t max,
                 int64_t *out, const char *where)
{
    return member(obj, key) ? json_get_int(obj, key, min, max, out, where) : OK;
}

int json_get_f64(const json_t *obj, const char *key, double *out, const char *where)
{
    const json_t *v = member(obj, key);

    if (!json_is_number(v))
        return expected(where, key, "a number", v);
    *out = json_number_value(v);
    return OK;
}

int json_opt_f64(const json_t *obj, const char *key, double *out, const char *where)
{
    return member(obj, key) ? json_get_f64(obj, key, out, where) : OK;
}

int json_get_str(const json_t *obj, const char *key, const char **out, const char *where)
{
    const json_t *v = member(obj, key);

    if (!json_is_string(v))
        return expected(where, key, "a string", v);
    *out = json_string_value(v);
    return OK;
}

int json_opt_str(const json_t *obj, const char *key, const char **out, const char *where)
{
    return member(obj, key) ? json_get_str(obj, key, out, where) : OK;
}

int json_opt_bool(const json_t *obj, const char *key, bool *out, const char *where)
{
    const json_t *v = member(obj, key);

    if (!v)
        return OK;
    if (!json_is_boolean(v))
        return expected(where, key, "true or false", v);
    *out = json_is_true(v);
    return OK;
}

int json_get_arr(const json_t *obj, const char *key, const json_t **out,
                 const char *where)
{
    const json_t *v = member(obj, key);

    if (!json_is_array(v))
        return expected(where, key, "an array", v);
    *out = v;
    return OK;
}

int json_get_obj(const json_t *obj, const char *key, const json_t **out,
                 const char *where)
{
    const json_t *v = member(obj, key);

    if (!json_is_object(v))
        return expected(where, key, "an object", v);
    *out = v;
    return OK;
}

int json_copy_str(const json_t *obj, const char *key, char *out, size_t n,
                  const char *where)
{
    const char *s = "";

    TRY(json_get_str(obj, key, &s, where));
    if (strlen(s) >= n)
        return err_set(ERR_LIMIT, "%s: %s: expected below %zu bytes, found %zu", where,
                       key, n, strlen(s));
    snprintf(out, n, "%s", s);
    return OK;
}

int json_get_f64s(const json_t *obj, const char *key, double *out, int n,
                  const char *where)
{
    const json_t *a = NULL;

    TRY(json_get_arr(obj, key, &a, where));
    if (json_array_size(a) != (size_t)n)
        return err_set(ERR_FORMAT, "%s: %s: expected %d numbers, found %zu", where, key,
                       n, json_array_size(a));
    for (int i = 0; i < n; i++) {
        const json_t *v = json_array_get(a, (size_t)i);

        if (!json_is_number(v))
            return err_set(ERR_FORMAT, "%s: %s[%d]: expected a number", where, key, i);
        out[i] = json_number_value(v);
    }
    return OK;
}

double json_f64_at(const json_t *obj, const char *key)
{
    const json_t *v = json_object_get(obj, key);

    return json_is_number(v) ? json_number_value(v) : NAN;
}

json_int_t json_int_at(const json_t *obj, const char *key)
{
    return json_integer_value(json_object_get(obj, key));
}

const char *json_str_at(const json_t *obj, const char *key, const char *otherwise)
{
    const char *s = json_string_value(json_object_get(obj, key));

    return s && s[0] ? s : otherwise;
}

int json_check_keys(const json_t *obj, const char *const *known, const char *where)
{
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)obj, key, v)
    {
        if (name_index(known, key) < 0)
            return name_unknown(ERR_FORMAT, key, known, "%s: unknown key \"%.64s\"",
                                where, key);
    }
    return OK;
}
