#include "base/name.h"
#include "base/opt.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"

#define WORD_MAX_BYTES 64
#define ROWS_MAX       256
#define SECONDS_MAX    1e7 /* four months: longer is a slip */

/* --- rows */

static const struct opt_row *find(const struct opt_row *table, const char *name)
{
    for (; table->name; table++)
        if (strcmp(table->name, name) == 0)
            return table;
    return NULL;
}

static int unknown(const struct opt_row *table, const char *name, const char *where)
{
    const char *words[ROWS_MAX + 1];
    int n = 0;

    for (const struct opt_row *r = table; r->name && n < ROWS_MAX; r++)
        words[n++] = r->name;
    words[n] = NULL;
    return name_unknown(ERR_ARG, name, words, "%s: unknown key \"%s\"", where, name);
}

static void *member(const struct opt_row *r, void *s)
{
    return (char *)s + r->offset;
}

static const void *member_const(const struct opt_row *r, const void *s)
{
    return (const char *)s + r->offset;
}

/* Copy word `i` of "a|b|c" to out; false when there is none. */
static bool enum_word(const char *values, int i, char out[WORD_MAX_BYTES])
{
    size_t n;

    for (; i > 0; i--) {
        values = strchr(values, '|');
        if (!values)
            return false;
        values++;
    }
    n = strcspn(values, "|");
    if (i < 0 || n >= WORD_MAX_BYTES)
        return false;
    memcpy(out, values, n);
    out[n] = 0;
    return true;
}

static int enum_index(const char *values, const char *word)
{
    char w[WORD_MAX_BYTES];

    for (int i = 0; enum_word(values, i, w); i++)
        if (strcmp(w, word) == 0)
            return i;
    return -1;
}

/* --- values from text */

static bool out_of_range(const struct opt_row *r, double v)
{
    return (r->min != 0 || r->max != 0) && !(v >= r->min && v <= r->max);
}

static int range_error(const struct opt_row *r, const char *what, const char *value,
                       const char *where)
{
    if (r->min != 0 || r->max != 0)
        return err_set(ERR_ARG, "%s: expected %s in [%.15g, %.15g], found \"%s\"", where,
                       what, r->min, r->max, value);
    return err_set(ERR_ARG, "%s: expected %s, found \"%s\"", where, what, value);
}

/* strtoll and strtod skip leading space and take "" as 0: neither is meant here. */
static bool begins_number(const char *s)
{
    return (*s >= '0' && *s <= '9') || ((*s == '-' || *s == '+' || *s == '.') && s[1]);
}

static bool parse_int(const char *s, int64_t *out)
{
    char *end;
    long long v;

    if (!begins_number(s))
        return false;
    errno = 0;
    v = strtoll(s, &end, 10);
    *out = v;
    return errno == 0 && end != s && *end == 0;
}

static bool parse_f64(const char *s, double *out, char **end)
{
    if (!begins_number(s))
        return false;
    *out = strtod(s, end);
    return *end != s && isfinite(*out);
}

static bool parse_bytes(const char *s, int64_t *out)
{
    static const struct {
        const char *word;
        double factor;
    } units[] = {
        {"", 1},         {"B", 1},        {"kB", 1e3},     {"KB", 1e3},
        {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12},    {"KiB", 0x1p10},
        {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40},
    };
    double v;
    char *end;

    if (parse_int(s, out))
        return *out >= 0; /* exact beyond 2^53 */
    if (!parse_f64(s, &v, &end) || v < 0)
        return false;
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
        if (strcmp(end, units[i].word) == 0) {
            v *= units[i].factor;
            if (v >= 0x1p63)
                return false;
            *out = (int64_t)v;
            return true;
        }
    return false;
}

static int set_bool(const char *value, bool *out, const char *where)
{
    if (strcmp(value, "true") == 0 || strcmp(value, "1") == 0)
        *out = true;
    else if (strcmp(value, "false") == 0 || strcmp(value, "0") == 0)
        *out = false;
    else
        return err_set(ERR_ARG, "%s: expected true or false, found \"%s\"", where, value);
    return OK;
}

static int set_str(const char *value, char **out)
{
    char *copy = NULL;

    if (value && !(copy = mem_strdup(MEM_OTHER, value)))
        return ERR_NOMEM;
    mem_free(*out);
    *out = copy;
    return OK;
}

static int set_enum(const struct opt_row *r, const char *value, int *out,
                    const char *where)
{
    char text[16][WORD_MAX_BYTES];
    const char *words[17] = {0};
    int i = enum_index(r->values, value);

    if (i >= 0) {
        *out = i;
        return OK;
    }
    for (i = 0; i < 16 && enum_word(r->values, i, text[i]); i++)
        words[i] = text[i];
    return name_unknown(ERR_ARG, value, words, "%s: expected one of %s, found \"%s\"",
                        where, r->values, value);
}

static int set_number(const struct opt_row *r, void *m, const char *value,
                      const char *where)
{
    int64_t i = 0;
    double d = 0;
    char *end = NULL;

    if (r->type == OPT_F64) {
        if (!parse_f64(value, &d, &end) || *end || out_of_range(r, d))
            return range_error(r, "a number", value, where);
        *(double *)m = d;
        return OK;
    }
    if (r->type == OPT_INT ? !parse_int(value, &i) : !parse_bytes(value, &i))
        return range_error(
            r, r->type == OPT_INT ? "an integer" : "a size such as 512 or 2GiB", value,
            where);
    if (out_of_range(r, (double)i))
        return range_error(r, r->type == OPT_INT ? "an integer" : "bytes", value, where);
    *(int64_t *)m = i;
    return OK;
}

static int set_row(const struct opt_row *r, void *s, const char *value, const char *where)
{
    void *m = member(r, s);

    switch (r->type) {
    case OPT_BOOL:
        return set_bool(value, m, where);
    case OPT_STR:
        return set_str(value, m);
    case OPT_ENUM:
        return set_enum(r, value, m, where);
    default:
        return set_number(r, m, value, where);
    }
}

int opt_set(const struct opt_row *table, void *s, const char *name, const char *value,
            const char *where)
{
    const struct opt_row *r = find(table, name);

    return r ? set_row(r, s, value, where) : unknown(table, name, where);
}

static void zero(const struct opt_row *r, void *s)
{
    void *m = member(r, s);

    switch (r->type) {
    case OPT_BOOL:
        *(bool *)m = false;
        break;
    case OPT_F64:
        *(double *)m = 0;
        break;
    case OPT_STR:
        *(char **)m = NULL;
        break;
    case OPT_ENUM:
        *(int *)m = 0;
        break;
    default:
        *(int64_t *)m = 0;
    }
}

int opt_init(const struct opt_row *table, void *s)
{
    const struct opt_row *r;
    int rc;

    for (r = table; r->name; r++)
        zero(r, s); /* first, so that opt_free() is safe at any point below */
    for (r = table; r->name; r++) {
        if (strlen(r->name) >= WORD_MAX_BYTES || (r->type == OPT_ENUM && !r->values)) {
            rc = err_set(ERR_ARG, "option table: bad row \"%s\"", r->name);
            goto out;
        }
        if (!r->def)
            continue;
        rc = set_row(r, s, r->def, r->name);
        if (rc != OK)
            goto out;
    }
    return OK;
out:
    opt_free(table, s);
    return rc;
}

void opt_free(const struct opt_row *table, void *s)
{
    for (; table->name; table++)
        if (table->type == OPT_STR) {
            mem_free(*(char **)member(table, s));
            *(char **)member(table, s) = NULL;
        }
}

int opt_copy(const struct opt_row *table, void *to, const void *from, size_t size)
{
    int rc = OK;

    memcpy(to, from, size);
    for (const struct opt_row *r = table; r->name; r++) {
        const char *text =
            r->type == OPT_STR ? *(char *const *)member_const(r, from) : NULL;
        char **copy = member(r, to);

        if (!text)
            continue;
        *copy = mem_strdup(MEM_OTHER, text);
        rc = *copy ? rc : ERR_NOMEM;
    }
    return rc;
}

/* --- JSON */

static int from_json(const struct opt_row *r, void *s, const json_t *v, const char *where)
{
    char text[64];
    const char *want = r->type == OPT_BOOL    ? "true or false"
                       : r->type == OPT_INT   ? "an integer"
                       : r->type == OPT_F64   ? "a number"
                       : r->type == OPT_BYTES ? "bytes or a size"
                                              : "a string";

    if (r->type == OPT_STR && json_is_null(v))
        return set_str(NULL, member(r, s));
    if (r->type == OPT_BOOL && json_is_boolean(v))
        return set_row(r, s, json_is_true(v) ? "true" : "false", where);
    if (json_is_string(v) &&
        (r->type == OPT_STR || r->type == OPT_ENUM || r->type == OPT_BYTES))
        return set_row(r, s, json_string_value(v), where);
    if (json_is_integer(v) &&
        (r->type == OPT_INT || r->type == OPT_F64 || r->type == OPT_BYTES)) {
        snprintf(text, sizeof(text), "%" JSON_INTEGER_FORMAT, json_integer_value(v));
        return set_row(r, s, text, where);
    }
    if (json_is_real(v) && r->type == OPT_F64) {
        snprintf(text, sizeof(text), "%.17g", json_real_value(v));
        return set_row(r, s, text, where);
    }
    return err_set(ERR_ARG, "%s: expected %s, found %s", where, want,
                   json_is_string(v)    ? "a string"
                   : json_is_integer(v) ? "an integer"
                   : json_is_real(v)    ? "a fraction"
                   : json_is_boolean(v) ? "true or false"
                   : json_is_array(v)   ? "an array"
                   : json_is_object(v)  ? "an object"
                                        : "null");
}

int opt_from_json(const struct opt_row *table, void *s, const json_t *obj,
                  const char *where)
{
    const char *key;
    json_t *v;

    if (!json_is_object(obj))
        return err_set(ERR_ARG, "%s: expected an object", where);
    json_object_foreach((json_t *)obj, key, v)
    {
        const struct opt_row *r = find(table, key);
        char place[256];
        int rc;

        if (!r)
            return unknown(table, key, where);
        snprintf(place, sizeof(place), "%s: %s", where, key);
        rc = from_json(r, s, v, place);
        if (rc != OK)
            return rc;
    }
    return OK;
}

static json_t *value_to_json(const struct opt_row *r, const void *s)
{
    const void *m = member_const(r, s);
    char word[WORD_MAX_BYTES];
    const char *str;

    switch (r->type) {
    case OPT_BOOL:
        return json_boolean(*(const bool *)m);
    case OPT_F64: /* JSON has no NaN */
        return isfinite(*(const double *)m) ? json_real(*(const double *)m) : json_null();
    case OPT_STR:
        str = *(char *const *)m;
        return str ? json_string_lossy(str) : json_null();
    case OPT_ENUM:
        return enum_word(r->values, *(const int *)m, word) ? json_string(word)
                                                           : json_null();
    default:
        return json_integer(*(const int64_t *)m);
    }
}

json_t *opt_to_json(const struct opt_row *table, const void *s)
{
    json_t *obj = json_object();

    for (; obj && table->name; table++)
        if (json_object_set_new(obj, table->name, value_to_json(table, s)) != 0) {
            json_decref(obj);
            obj = NULL;
        }
    if (!obj)
        err_set(ERR_NOMEM, "out of memory rendering options");
    return obj;
}

int opt_seconds(double *out, const char *word, const char *where)
{
    static const struct {
        const char *unit;
        double seconds;
    } units[] = {{"", 1}, {"s", 1}, {"m", 60}, {"min", 60}, {"h", 3600}};
    char *end = NULL;
    double n = strtod(word, &end);

    for (size_t i = 0; end != word && i < sizeof(units) / sizeof(units[0]); i++)
        if (strcmp(end, units[i].unit) == 0 && n > 0 &&
            n * units[i].seconds < SECONDS_MAX) {
            *out = n * units[i].seconds;
            return OK;
        }
    return err_set(ERR_ARG, "%s: expected a time such as 90s, 10m or 1h, found \"%s\"",
                   where, word);
}
