/* From a JSON schema to rules in GBNF. Each part of the schema becomes a rule r0, r1 ... of texts
 * that are valid by it. Not all valid texts are of the rules: properties come in the order of the
 * schema, numbers have at most 16 digits, an object with named properties has no others. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/text.h"
#include "grammar/rules.h"

#define DEPTH_MAX  128 /* of parts inside each other, and of references to references */
#define COUNT_MAX  GRAMMAR_REPEAT_MAX
#define NUMBER_MAX INT64_C(9999999999999999)

/* What schemas have in common. */
static const char common[] =
    "ws ::= (\" \" | \"\\n\" [ \\t]{0,16})?\n"
    "hex ::= [0-9a-fA-F]\n"
    "char ::= [^\"\\\\\\x00-\\x1F] | \"\\\\\" ([\"\\\\/bfnrt] | \"u\" "
    "([0-9a-cA-CefEF] hex | [dD] [0-7] ) hex hex)\n"
    "string ::= \"\\\"\" char* \"\\\"\"\n"
    "integer ::= \"0\" | \"-\"? [1-9] [0-9]{0,15}\n"
    "number ::= \"-\"? (\"0\" | [1-9] [0-9]{0,15}) (\".\" [0-9]{1,16})? "
    "([eE] [-+]? [0-9]{1,2})?\n"
    "boolean ::= \"true\" | \"false\"\n"
    "null ::= \"null\"\n"
    "value ::= object | array | string | number | boolean | null\n"
    "member ::= string \":\" ws value ws\n"
    "object ::= \"{\" ws (member (\",\" ws member)*)? \"}\"\n"
    "array ::= \"[\" ws (value ws (\",\" ws value ws)*)? \"]\"\n";

enum type { OBJECT, ARRAY, STRING, INTEGER, NUMBER, BOOLEAN, NULL_TYPE, N_TYPES };
enum { ANY = N_TYPES, ANNOTATION };
static const char *const type_names[] = {"object", "array",   "string", "integer",
                                         "number", "boolean", "null"};

/* Keywords that are known, by the type that they are about. */
static const struct {
    int of;
    const char *names[13];
} keywords[] = {
    {ANY, {"type", "enum", "const", "anyOf", "allOf", "$ref"}},
    {OBJECT, {"properties", "required", "additionalProperties"}},
    {ARRAY, {"items", "minItems", "maxItems"}},
    {STRING, {"minLength", "maxLength", "pattern", "format"}},
    {NUMBER, {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}},
    {ANNOTATION,
     {"title", "description", "default", "examples", "deprecated", "readOnly",
      "writeOnly", "$schema", "$id", "$comment", "$defs", "definitions"}},
};

/* What a keyword is about; -1: it is not known. */
static int about(const char *key)
{
    for (size_t i = 0; i < sizeof(keywords) / sizeof(keywords[0]); i++)
        for (int k = 0; keywords[i].names[k]; k++)
            if (strcmp(key, keywords[i].names[k]) == 0)
                return keywords[i].of;
    return -1;
}

static const struct format {
    const char *name, *pattern;
} formats[] = {
#define DATE                                                                             \
    "[1-9][0-9]{3}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|"      \
    "[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))"
#define TIME                                                                             \
    "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):" \
    "[0-5][0-9])"
#define HEX4  "[0-9a-fA-F]{4}"
#define OCTET "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
    {"date", "^" DATE "$"},
    {"time", "^" TIME "$"},
    {"date-time", "^" DATE "T" TIME "$"},
    {"uuid", "^" HEX4 HEX4 "-" HEX4 "-" HEX4 "-" HEX4 "-" HEX4 HEX4 HEX4 "$"},
    {"ipv4", "^(" OCTET "\\.){3}" OCTET "$"},
};

struct schema {
    const json_t *root;
    struct text out; /* rules */
    json_t *rule_of; /* object: the rule of each $ref */
    int n_rules;
    int depth;
    char path[300]; /* of the part at hand, for errors */
};

static int refuse(const struct schema *s, const char *key, const char *why)
{
    return err_set(ERR_UNSUPPORTED, "schema: %s: %.60s: %s", s->path, key, why);
}

static int no_memory(void)
{
    return err_set(ERR_NOMEM, "no memory for a schema");
}

/* ---- parts become rules ---- */

static int put_part(struct schema *s, struct text *out, const json_t *j);

/* Write the rule of a part of the schema, which is at `path`. */
static int put_rule(struct schema *s, int rule, const char *path, const json_t *j)
{
    struct text body = {0};
    char before[sizeof(s->path)];
    int rc;

    memcpy(before, s->path, sizeof(before));
    snprintf(s->path, sizeof(s->path), "%s", path);
    rc = ++s->depth > DEPTH_MAX
             ? err_set(ERR_LIMIT,
                       "schema: %.80s...: expected at most %d parts inside each other",
                       s->path, DEPTH_MAX)
             : put_part(s, &body, j);
    s->depth--;
    memcpy(s->path, before, sizeof(before));
    if (rc == OK) {
        text_printf(&s->out, "r%d ::= ", rule);
        text_put(&s->out, body.p ? body.p : "", body.n);
        text_puts(&s->out, "\n");
        rc = body.rc != OK ? body.rc : s->out.rc;
    }
    text_fini(&body);
    return rc;
}

/* The same of a part at `key` of the part at hand; *rule: its number. */
static int rule_of(struct schema *s, const char *key, const json_t *j, int *rule)
{
    char path[sizeof(s->path) + 62];

    *rule = s->n_rules++;
    snprintf(path, sizeof(path), "%s/%.60s", s->path, key);
    return put_rule(s, *rule, path, j);
}

/* One part of a JSON pointer, its escapes undone. Returns where the next begins. */
static const char *pointer_part(const char *at, char *part, size_t capacity)
{
    size_t n = 0;

    for (; *at && *at != '/' && n + 1 < capacity; at++) {
        part[n] = *at;
        if (at[0] == '~' && (at[1] == '0' || at[1] == '1'))
            part[n] = *++at == '0' ? '~' : '/';
        n++;
    }
    part[n] = 0;
    return at;
}

/* What a $ref leads to; NULL: nothing. */
static const json_t *resolve(const struct schema *s, const char *ref)
{
    const json_t *to = *ref == '#' ? s->root : NULL;
    const char *at = ref + 1;
    char part[128];

    while (to && *at) {
        if (*at++ != '/')
            return NULL;
        at = pointer_part(at, part, sizeof(part));
        to = json_is_array(to) ? json_array_get(to, (size_t)strtoul(part, NULL, 10))
                               : json_object_get(to, part);
    }
    return to;
}

static int put_ref(struct schema *s, struct text *out, const char *ref)
{
    const json_t *known = json_object_get(s->rule_of, ref), *to = resolve(s, ref);
    int rule = known ? (int)json_integer_value(known) : s->n_rules++;

    if (!to)
        return err_set(ERR_ARG, "schema: %s: $ref: \"%.80s\" is not a part of the schema",
                       s->path, ref);
    text_printf(out, "r%d", rule);
    if (known)
        return OK;
    if (json_object_set_new(s->rule_of, ref, json_integer(rule)) != 0)
        return no_memory();
    return put_rule(s, rule, ref, to);
}

/* ---- texts ---- */

/* A value as the only text. */
static int put_value(struct text *out, const json_t *v)
{
    char *text = json_text(v, JSON_COMPACT | JSON_ENCODE_ANY);

    if (!text)
        return ERR_NOMEM;
    text_puts(out, "\"");
    for (const char *c = text; *c; c++) {
        text_puts(out, *c == '"' || *c == '\\' ? "\\" : "");
        text_put(out, c, 1);
    }
    text_puts(out, "\"");
    mem_free(text);
    return out->rc;
}

static int read_count(struct schema *s, const json_t *j, const char *key, int *out)
{
    const json_t *v = json_object_get(j, key);
    const double x = json_number_value(v);

    if (v && (!json_is_number(v) || x < 0 || x > COUNT_MAX || x != floor(x)))
        return refuse(s, key, "expected a whole number from 0 to 4096");
    *out = v ? (int)x : *out;
    return OK;
}

/* {least,most} of GBNF; most -1: any. */
static void put_count(struct text *out, int least, int most)
{
    text_printf(out, "{%d,", least);
    if (most >= 0)
        text_printf(out, "%d", most);
    text_puts(out, "}");
}

/* A string that a regular expression matches. */
static int put_pattern(struct schema *s, struct text *out, const char *key,
                       const char *pattern)
{
    struct text regex = {0}, alone = {0};
    struct grammar_rules rules = {0};
    int rc;

    text_puts(&regex, "/");
    for (const char *c = pattern; *c; c++) {
        if (*c == '/')
            text_puts(&regex, "\\");
        text_put(&regex, c, 1);
        if (*c == '\\' && c[1])
            text_put(&regex, ++c, 1);
    }
    text_puts(&regex, "/");
    text_puts(&alone, "root ::= ");
    text_put(&alone, regex.p, regex.n);
    rc = regex.rc != OK ? regex.rc : alone.rc;
    if (rc == OK)
        rc = grammar_rules_read(&rules, alone.p, alone.n);
    grammar_rules_fini(&rules);
    if (rc != OK)
        rc = err_prefix(rc, "schema: %s: %s", s->path, key);
    text_puts(out, "\"\\\"\" ");
    text_put(out, regex.p, regex.n);
    text_puts(out, " \"\\\"\"");
    text_fini(&regex);
    text_fini(&alone);
    return rc;
}

static int put_string(struct schema *s, struct text *out, const json_t *j)
{
    const char *pattern = json_string_value(json_object_get(j, "pattern"));
    const char *format = json_string_value(json_object_get(j, "format"));
    int least = 0, most = -1;

    TRY(read_count(s, j, "minLength", &least));
    TRY(read_count(s, j, "maxLength", &most));
    if ((pattern || format) && (least > 0 || most >= 0 || (pattern && format)))
        return refuse(s, pattern ? "pattern" : "format",
                      "not together with another rule for the text");
    if (most >= 0 && most < least)
        return refuse(s, "maxLength", "expected no less than minLength");
    if (pattern)
        return put_pattern(s, out, "pattern", pattern);
    for (size_t i = 0; format && i < sizeof(formats) / sizeof(formats[0]); i++)
        if (strcmp(format, formats[i].name) == 0)
            return put_pattern(s, out, "format", formats[i].pattern);
    if (format)
        return refuse(s, "format", "expected date, time, date-time, uuid or ipv4");
    text_puts(out, "\"\\\"\" char");
    put_count(out, least, most);
    text_puts(out, " \"\\\"\"");
    return OK;
}

/* ---- numbers ---- */

/* Numbers from lo to hi, whose last n digits vary, in digits with leading zeros. */
static void put_digits(struct text *out, int64_t lo, int64_t hi, int64_t unit)
{
    int64_t a, b;

    if (unit == 0)
        return;
    a = lo / unit, b = hi / unit;
    if (lo % unit == 0 && hi % unit == unit - 1) {
        text_printf(out, "[%d-%d]", (int)a, (int)b);
        for (; unit > 1; unit /= 10)
            text_puts(out, "[0-9]");
    } else if (a == b) {
        text_printf(out, "\"%d\" ", (int)a);
        put_digits(out, lo % unit, hi % unit, unit / 10);
    } else { /* the part of a's hundred, say, the hundreds between, the part of b's */
        const int64_t mid = lo % unit ? (a + 1) * unit : b * unit;

        text_puts(out, "(");
        put_digits(out, lo, mid - 1, unit);
        text_puts(out, " | ");
        put_digits(out, mid, hi, unit);
        text_puts(out, ")");
    }
}

/* Whole numbers from lo to hi, lo >= 0, as further alternatives. */
static void put_range(struct text *out, const char *sign, int64_t lo, int64_t hi,
                      const char *behind)
{
    for (int64_t unit = 1; lo <= hi; unit *= 10) {
        const int64_t most = 10 * unit - 1;

        if (lo > most)
            continue;
        text_printf(out, " | %s ", sign);
        put_digits(out, lo, hi < most ? hi : most, unit);
        text_puts(out, behind);
        lo = most + 1;
    }
}

/* One bound, if there is one: of whole numbers the nearest that is valid. *open: not itself. */
static int read_bound(struct schema *s, const json_t *j, int i, bool whole,
                      int64_t *bound, bool *is_open)
{
    static const char *const keys[] = {"minimum", "exclusiveMinimum", "maximum",
                                       "exclusiveMaximum"};
    const json_t *v = json_object_get(j, keys[i]);
    const double x = json_number_value(v), at = i < 2 ? ceil(x) : floor(x);

    if (!v)
        return OK;
    if (!json_is_number(v) || fabs(x) > (double)NUMBER_MAX)
        return refuse(s, keys[i], "expected a number of at most 16 digits");
    if (!whole && at != x)
        return refuse(s, keys[i], "a bound with a fraction is for integers only");
    if (i < 2 ? at < (double)*bound : at > (double)*bound)
        return OK;
    *is_open = (i % 2 && at == x) || (at == (double)*bound && *is_open);
    *bound = (int64_t)at;
    return OK;
}

static int put_number(struct schema *s, struct text *out, const json_t *j, bool whole)
{
    static const char fraction[] = " \".\" [0-9]{0,14} [1-9]";
    int64_t bound[2] = {-NUMBER_MAX, NUMBER_MAX}, lo, hi;
    bool open[2] = {false, false};
    struct text any = {0};
    int rc;

    for (int i = 0; i < 4; i++)
        TRY(read_bound(s, j, i, whole, &bound[i / 2], &open[i / 2]));
    if (bound[0] == -NUMBER_MAX && bound[1] == NUMBER_MAX) {
        text_puts(out, whole ? "integer" : "number");
        return OK;
    }
    lo = bound[0] + open[0], hi = bound[1] - open[1];
    put_range(&any, "", lo > 0 ? lo : 0, hi, "");
    put_range(&any, "\"-\"", hi < -1 ? -hi : 1, -lo, "");
    lo = bound[0], hi = bound[1]; /* which no number with a fraction is */
    if (!whole)
        put_range(&any, "", lo > 0 ? lo : 0, hi - 1, fraction);
    if (!whole)
        put_range(&any, "\"-\"", hi < 0 ? -hi : 0, -lo - 1, fraction);
    rc = any.n > 0 || any.rc != OK
             ? any.rc
             : refuse(s, "maximum", "no number is within the bounds");
    if (rc == OK)
        text_printf(out, "(");
    if (rc == OK)
        text_put(out, any.p + 2, any.n - 2); /* without the first bar */
    text_puts(out, ")");
    text_fini(&any);
    return rc;
}

/* ---- arrays and objects ---- */

static int put_array(struct schema *s, struct text *out, const json_t *j)
{
    const json_t *items = json_object_get(j, "items");
    int least = 0, most = -1, rule;

    TRY(read_count(s, j, "minItems", &least));
    TRY(read_count(s, j, "maxItems", &most));
    most = json_is_false(items) ? 0 : most;
    if (most >= 0 && most < least)
        return refuse(s, "maxItems", "expected no less than minItems");
    if (most == 0) {
        text_puts(out, "\"[\" ws \"]\"");
        return OK;
    }
    TRY(rule_of(s, "items", items ? items : json_true(), &rule));
    text_printf(out, "\"[\" ws (r%d ws (\",\" ws r%d ws)", rule, rule);
    put_count(out, least > 0 ? least - 1 : 0, most > 0 ? most - 1 : -1);
    text_printf(out, ")%s \"]\"", least > 0 ? "" : "?");
    return OK;
}

static bool is_in(const json_t *list, const json_t *v)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);

        if (json_equal(one, v) || (json_is_number(one) && json_is_number(v) &&
                                   json_number_value(one) == json_number_value(v)))
            return true;
    }
    return false;
}

static bool is_required(const json_t *j, const char *key)
{
    json_t *name = json_string(key);
    const bool is = is_in(json_object_get(j, "required"), name);

    json_decref(name);
    return is;
}

/* The properties, and required ones that are not among them. New reference. */
static json_t *all_properties(const json_t *j)
{
    json_t *more = json_object_get(j, "additionalProperties"), *v,
           *given = json_object_get(j, "properties"),
           *all = given ? json_copy(given) : json_object();
    size_t i;

    json_array_foreach(json_object_get(j, "required"), i, v)
    {
        if (json_is_string(v) && !json_object_get(all, json_string_value(v)))
            json_object_set(all, json_string_value(v), more ? more : json_true());
    }
    return all;
}

/* The members from each property on, behind another member: the rules base + 2i, of which the rule
 * base + 2i + 1 is the member alone. Before the first member any of those may begin that has only
 * optional ones before it. */
static int put_members(struct schema *s, struct text *out, const json_t *j,
                       const json_t *all)
{
    int at = s->n_rules, rule;
    bool begins = true; /* all properties so far may be left out */
    const char *key;
    json_t *v;

    s->n_rules += 2 * (int)json_object_size(all) + 1;
    text_puts(out, "\"{\" ws (");
    json_object_foreach((json_t *)all, key, v)
    {
        const bool required = is_required(j, key);
        json_t *name;

        TRY(rule_of(s, key, v, &rule));
        name = json_string(key);
        text_printf(&s->out, "r%d ::= (\",\" ws r%d)%s r%d\nr%d ::= ", at, at + 1,
                    required ? "" : "?", at + 2, at + 1);
        if (!name || put_value(&s->out, name) != OK)
            s->out.rc = no_memory();
        json_decref(name);
        text_printf(&s->out, " \":\" ws r%d ws\n", rule);
        if (begins)
            text_printf(out, "r%d r%d%s", at + 1, at + 2, required ? "" : " | ");
        begins = begins && !required;
        at += 2;
    }
    text_printf(&s->out, "r%d ::= \"\"\n", at);
    text_puts(out, ") \"}\"");
    return s->out.rc;
}

static int put_object(struct schema *s, struct text *out, const json_t *j)
{
    const json_t *more = json_object_get(j, "additionalProperties");
    json_t *all = all_properties(j);
    int rc = all ? OK : no_memory(), rule;

    if (rc == OK && json_object_size(all) > 0) {
        rc = put_members(s, out, j, all);
    } else if (json_is_false(more)) {
        text_puts(out, "\"{\" ws \"}\"");
    } else if (rc == OK) {
        rc = rule_of(s, "additionalProperties", more ? more : json_true(), &rule);
        text_printf(out,
                    "\"{\" ws (string \":\" ws r%d ws (\",\" ws string \":\" ws r%d "
                    "ws)*)? \"}\"",
                    rule, rule);
    }
    json_decref(all);
    return rc;
}

/* ---- any part ---- */

/* As a bit; a number without a fraction is an integer. */
static unsigned type_of_value(const json_t *v)
{
    static const enum type types[] = {
        [JSON_OBJECT] = OBJECT,   [JSON_ARRAY] = ARRAY,   [JSON_STRING] = STRING,
        [JSON_INTEGER] = INTEGER, [JSON_REAL] = NUMBER,   [JSON_TRUE] = BOOLEAN,
        [JSON_FALSE] = BOOLEAN,   [JSON_NULL] = NULL_TYPE};
    const double x = json_number_value(v);

    return 1u << (json_is_real(v) && x == floor(x) ? INTEGER : types[json_typeof(v)]);
}

/* The types that the part names or, where it does not, those that its keywords are about, as bits,
 * an integer being a number, too; 0: any. */
static int read_types(const struct schema *s, const json_t *j, unsigned *out)
{
    json_t *type = json_object_get(j, "type"), *v;
    const size_t n = json_is_array(type) ? json_array_size(type) : type != NULL;
    const char *key;

    *out = 0;
    for (size_t i = 0; i < n; i++) {
        const char *word =
            json_string_value(json_is_array(type) ? json_array_get(type, i) : type);
        int k = 0;

        while (k < N_TYPES && (!word || strcmp(word, type_names[k]) != 0))
            k++;
        if (k == N_TYPES)
            return refuse(s, "type",
                          "expected object, array, string, integer, number, boolean or "
                          "null");
        *out |= 1u << k;
    }
    if (type && n == 0)
        return refuse(s, "type", "expected at least one type");
    json_object_foreach((json_t *)j, key, v)
    {
        if (!type && about(key) < N_TYPES)
            *out |= 1u << about(key);
    }
    *out |= *out & 1u << NUMBER ? 1u << INTEGER : 0;
    return OK;
}

/* Keywords other than annotations. ERR_UNSUPPORTED: one is not known. */
static int count_keywords(const struct schema *s, const json_t *j, int *n)
{
    const char *key;
    json_t *v;

    *n = 0;
    json_object_foreach((json_t *)j, key, v)
    {
        if (about(key) < 0)
            return refuse(s, key, "this keyword is not supported");
        *n += about(key) != ANNOTATION;
    }
    return OK;
}

static int put_values(struct schema *s, struct text *out, const json_t *j, int n_keywords)
{
    json_t *one = json_object_get(j, "const"), *v,
           *values =
               one ? json_pack("[O]", one) : json_incref(json_object_get(j, "enum"));
    unsigned types;
    size_t i;
    int n = 0, rc = read_types(s, j, &types);

    if (rc == OK && n_keywords > 1 + (json_object_get(j, "type") != NULL))
        rc = refuse(s, one ? "const" : "enum",
                    "not together with keywords other than type");
    json_array_foreach(values, i, v)
    {
        if (rc != OK || (types && !(types & type_of_value(v))))
            continue;
        text_puts(out, n++ ? " | " : "");
        rc = put_value(out, v);
    }
    json_decref(values);
    if (rc == OK && n == 0)
        rc = refuse(s, "enum", "it leaves no value");
    return rc;
}

static int put_any_of(struct schema *s, struct text *out, const json_t *j,
                      const char *key)
{
    const json_t *list = json_object_get(j, key), *one;
    size_t i;
    int rule;

    if (json_array_size(list) == 0)
        return refuse(s, key, "expected an array of schemas");
    if (json_array_size(list) > 1 && strcmp(key, "allOf") == 0)
        return refuse(s, key, "one schema is supported, not several");
    json_array_foreach(list, i, one)
    {
        TRY(rule_of(s, key, one, &rule));
        text_printf(out, "%sr%d", i > 0 ? " | " : "", rule);
    }
    return OK;
}

static int put_part(struct schema *s, struct text *out, const json_t *j)
{
    static const char *const whole[] = {"$ref", "allOf", "anyOf"};
    unsigned types;
    int n_keywords = 0, n = 0;

    if (!json_is_object(j) && !json_is_true(j))
        return err_set(ERR_ARG, "schema: %s: expected an object or true, found %s",
                       s->path, json_is_false(j) ? "false" : "another value");
    TRY(count_keywords(s, j, &n_keywords));
    if (n_keywords == 0) {
        text_puts(out, "value");
        return OK;
    }
    for (int i = 0; i < 3; i++) {
        if (!json_object_get(j, whole[i]))
            continue;
        if (n_keywords > 1)
            return refuse(s, whole[i], "not together with other keywords");
        return i == 0 ? put_ref(s, out, json_str_at(j, "$ref", ""))
                      : put_any_of(s, out, j, whole[i]);
    }
    if (json_object_get(j, "enum") || json_object_get(j, "const"))
        return put_values(s, out, j, n_keywords);
    TRY(read_types(s, j, &types));
    if (types & 1u << NUMBER)
        types &= ~(1u << INTEGER);
    for (int k = 0; k < N_TYPES; k++) {
        if (!(types >> k & 1))
            continue;
        text_puts(out, n++ ? " | " : "");
        if (k == OBJECT)
            TRY(put_object(s, out, j));
        else if (k == ARRAY)
            TRY(put_array(s, out, j));
        else if (k == STRING)
            TRY(put_string(s, out, j));
        else if (k == INTEGER || k == NUMBER)
            TRY(put_number(s, out, j, k == INTEGER));
        else
            text_puts(out, type_names[k]);
    }
    return out->rc;
}

int grammar_from_schema(char **out, const char *text, size_t n, const char *root)
{
    struct schema s = {.n_rules = 1, .rule_of = json_object()};
    json_t *j = NULL;
    int rc = json_read_text(&j, text, n, "schema");

    *out = NULL;
    s.root = j;
    if (rc == OK && !s.rule_of)
        rc = no_memory();
    if (rc == OK)
        rc = put_rule(&s, 0, "#", j);
    if (rc == OK) {
        text_puts(&s.out, "root ::= ");
        text_puts(&s.out, root);
        text_puts(&s.out, "\n");
        text_put(&s.out, common, sizeof(common)); /* with its NUL */
        rc = text_take(&s.out, out);
        s.out = (struct text){0}; /* the caller's now */
    }
    text_fini(&s.out);
    json_decref(s.rule_of);
    json_decref(j);
    return rc;
}
