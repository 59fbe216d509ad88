#include "base/name.h"
#include "base/opt.h"
#include "base/text.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define WORD_MAX_BYTES 64
#define ROWS_MAX       256

static bool has_alias(const struct opt_row *r, const char *name)
{
    size_t n = strlen(name);

    for (const char *p = r->alias; p; p = strchr(p, '|')) {
        p += *p == '|';
        if (strncmp(p, name, n) == 0 && (p[n] == '|' || !p[n]))
            return true;
    }
    return false;
}

static const struct opt_row *find(const struct opt_row *table, const char *name)
{
    for (; table->name; table++)
        if (strcmp(table->name, name) == 0 || has_alias(table, name))
            return table;
    return NULL;
}

static int unknown_flag(const struct opt_row *table, const char *flag, const char *name)
{
    char text[WORD_MAX_BYTES];
    const char *words[2 * ROWS_MAX + 1], *near;
    int n = 0;

    for (const struct opt_row *r = table; r->name && n < ROWS_MAX; r++)
        words[n++] = r->name;
    words[n] = NULL;
    near = name_nearest(name, words);
    if (!near)
        return err_set(ERR_ARG, "unknown option %s", flag);
    snprintf(text, sizeof(text), "%s", near);
    for (char *p = text; *p; p++)
        *p = *p == '_' ? '-' : *p;
    return err_set(ERR_ARG, "unknown option %s; did you mean --%s?", flag, text);
}

static const struct opt_row *find_letter(const struct opt_row *table, char letter)
{
    for (; table->name; table++)
        if (table->letter && table->letter == letter)
            return table;
    return NULL;
}

/* A flag taken apart. */
struct flag {
    const struct opt_row *row;
    char text[WORD_MAX_BYTES + 4]; /* as typed, without the value: begins error lines */
    const char *value;             /* from "=value" or "-nvalue", or NULL */
    bool negated;                  /* --no-x */
};

static int split_long(const struct opt_row *table, const char *arg, struct flag *f)
{
    char name[WORD_MAX_BYTES];
    size_t n = strcspn(arg, "=");

    if (n >= sizeof(name))
        return err_set(ERR_ARG, "unknown option %.40s...", arg);
    snprintf(f->text, sizeof(f->text), "%.*s", (int)n, arg);
    f->value = arg[n] == '=' ? arg + n + 1 : NULL;
    snprintf(name, sizeof(name), "%s", f->text + 2);
    for (char *p = name; *p; p++)
        *p = *p == '-' ? '_' : *p;
    f->row = find(table, name);
    if (!f->row && strncmp(name, "no_", 3) == 0) {
        f->row = find(table, name + 3);
        f->negated = true;
        if (f->row && f->row->type != OPT_BOOL)
            return err_set(ERR_ARG, "%s: only switches can be negated", f->text);
        if (f->row && f->value)
            return err_set(ERR_ARG, "%s: takes no value", f->text);
    }
    return f->row ? OK : unknown_flag(table, f->text, name);
}

/* Words of several letters behind one dash, which a letter and its value look like, too. */
static bool split_alias(const struct opt_row *table, const char *arg, struct flag *f)
{
    size_t n = strcspn(arg, "=");

    if (n < 3 || n >= sizeof(f->text))
        return false;
    snprintf(f->text, sizeof(f->text), "%.*s", (int)n, arg);
    f->value = arg[n] == '=' ? arg + n + 1 : NULL;
    for (f->row = table; f->row->name; f->row++)
        if (has_alias(f->row, f->text + 1))
            return true;
    return false;
}

static int split_flag(const struct opt_row *table, const char *arg, struct flag *f)
{
    *f = (struct flag){0};
    if (arg[1] == '-')
        return split_long(table, arg, f);
    if (split_alias(table, arg, f))
        return OK;
    snprintf(f->text, sizeof(f->text), "-%c", arg[1]);
    f->row = find_letter(table, arg[1]);
    if (!f->row)
        return err_set(ERR_ARG, "unknown option %s", arg);
    f->value = arg[2] ? arg + 2 : NULL;
    if (f->value && *f->value == '=')
        f->value++;
    return OK;
}

/* A flag that was given before: both values, with the row's character between them. */
static int set_again(const struct opt_row *table, void *s, const struct flag *f)
{
    const char *old = *(char *const *)((char *)s + f->row->offset);
    struct text t = {0};
    int rc;

    text_puts(&t, old);
    text_put(&t, &f->row->joins, 1);
    text_puts(&t, f->value);
    text_put(&t, "", 1);
    rc = t.rc == OK ? opt_set(table, s, f->row->name, t.p, f->text) : t.rc;
    text_fini(&t);
    return rc;
}

int opt_from_argv(const struct opt_row *table, void *s, int argc, char **argv,
                  int *n_rest)
{
    bool given[ROWS_MAX] = {false};
    struct flag f;
    int rc, n = 0, i;

    *n_rest = 0;
    for (i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--") == 0) {
            i++;
            break;
        }
        if (argv[i][0] != '-' || argv[i][1] == 0) { /* "-" alone is a word */
            argv[n++] = argv[i];
            continue;
        }
        rc = split_flag(table, argv[i], &f);
        if (rc != OK)
            return rc;
        if (f.row->type == OPT_BOOL && !f.value)
            f.value = f.negated ? "false" : "true";
        if (!f.value) {
            if (i + 1 >= argc || strncmp(argv[i + 1], "--", 2) == 0)
                return err_set(ERR_ARG, "%s: expected a value, found %s", f.text,
                               i + 1 < argc ? argv[i + 1] : "nothing");
            f.value = argv[++i];
        }
        if (f.row->joins && f.row - table < ROWS_MAX && given[f.row - table])
            rc = set_again(table, s, &f);
        else
            rc = opt_set(table, s, f.row->name, f.value, f.text);
        if (rc != OK)
            return rc;
        if (f.row - table < ROWS_MAX)
            given[f.row - table] = true;
    }
    while (i < argc)
        argv[n++] = argv[i++];
    *n_rest = n;
    return OK;
}
