#include "base/opt.h"
#include "base/table.h"
#include "base/text.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#define HELP_COLUMNS 80
#define HELP_INDENT  8

static const char *type_word(const struct opt_row *r)
{
    switch (r->type) {
    case OPT_BOOL:
        return "switch";
    case OPT_INT:
        return "integer";
    case OPT_F64:
        return "number";
    case OPT_STR:
        return "text";
    case OPT_ENUM:
        return r->values;
    case OPT_BYTES:
        return "bytes";
    }
    return "?";
}

static void put_flag(const char *name, FILE *f)
{
    fputs("--", f);
    for (; *name; name++)
        fputc(*name == '_' ? '-' : *name, f);
}

/* The word for the value of a flag; NULL for a switch. */
static const char *value_name(const struct opt_row *r)
{
    switch (r->type) {
    case OPT_BOOL:
        return NULL;
    case OPT_INT:
        return "N";
    case OPT_F64:
        return "X";
    case OPT_STR:
        return r->unit ? r->unit : "TEXT";
    case OPT_ENUM:
        return r->unit ? r->unit : r->values;
    case OPT_BYTES:
        return "SIZE";
    }
    return "?";
}

static bool is_on(const struct opt_row *r)
{
    return r->type == OPT_BOOL && r->def && strcmp(r->def, "true") == 0;
}

/* "  -n, --n-new N"; a switch that is on by default as "--[no-]pin". */
static void put_head(const struct opt_row *r, FILE *f)
{
    const char *value = value_name(r);

    fputs("  ", f);
    if (r->letter)
        fprintf(f, "-%c, ", r->letter);
    if (is_on(r)) {
        fputs("--[no-]", f);
        for (const char *p = r->name; *p; p++)
            fputc(*p == '_' ? '-' : *p, f);
    } else {
        put_flag(r->name, f);
    }
    fprintf(f, "%s%s\n", value ? " " : "", value ? value : "");
}

/* Words of `text` in lines of at most 80 columns, indented by `indent`. */
static void put_wrapped(const char *text, int indent, FILE *f)
{
    int column = 0;

    for (text += strspn(text, " "); *text; text += strspn(text, " ")) {
        int n = (int)strcspn(text, " ");

        if (column > 0 && column + 1 + n > HELP_COLUMNS) {
            fputc('\n', f);
            column = 0;
        }
        fprintf(f, "%*s%.*s", column > 0 ? 1 : indent, "", n, text);
        column += n + (column > 0 ? 1 : indent);
        text += n;
    }
    if (column > 0)
        fputc('\n', f);
}

/* A maximum for the sake of exactness (of doubles) is not one that people meet. */
#define UNLIMITED 9e15

/* "Also: -np, --parallel." */
static void put_aliases(const char *words, FILE *f)
{
    struct text t = {0};

    for (const char *p = words; p && *p;) {
        int n = (int)strcspn(p, "|");

        text_printf(&t, "%s%s%.*s", p == words ? "Also: " : ", ", n > 3 ? "--" : "-", n,
                    p);
        p += n + (p[n] == '|');
    }
    if (t.n > 0) {
        for (size_t i = 0; i < t.n; i++)
            t.p[i] = t.p[i] == '_' ? '-' : t.p[i];
        text_put(&t, ".", sizeof("."));
        if (t.rc == OK)
            put_wrapped(t.p, HELP_INDENT, f);
    }
    text_fini(&t);
}

/* "Unit: tok. Range: 1 to 4096. Default: 32." */
static void put_facts(const struct opt_row *r, FILE *f)
{
    bool number = r->type == OPT_INT || r->type == OPT_F64 || r->type == OPT_BYTES;
    const char *def = r->def ? r->def : number ? "0" : "";
    char text[512];
    int n = 0;

    if (r->type == OPT_BOOL)
        def = is_on(r) ? "on" : "";
    if (number && r->unit)
        n += snprintf(text + n, sizeof(text) - (size_t)n, "Unit: %s. ", r->unit);
    if (r->max >= UNLIMITED)
        n += snprintf(text + n, sizeof(text) - (size_t)n, "At least %.15g. ", r->min);
    else if (r->min != 0 || r->max != 0)
        n += snprintf(text + n, sizeof(text) - (size_t)n, "Range: %.15g to %.15g. ",
                      r->min, r->max);
    if (*def)
        n += snprintf(text + n, sizeof(text) - (size_t)n, "Default: %.200s.", def);
    if (n > 0)
        put_wrapped(text, HELP_INDENT, f);
    put_aliases(r->alias, f);
}

const char *opt_names(const struct opt_row *r)
{
    static char text[4096];
    const char *name, *word = r->type == OPT_ENUM && r->unit ? r->values : "";
    size_t n = 0;

    text[0] = 0;
    for (int i = 0; r->names && (name = r->names(i)) && n < sizeof(text); i++)
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s",
                              i ? ", " : "One of: ", name);
    for (size_t end; *word && n < sizeof(text); word += end + (word[end] == '|')) {
        end = strcspn(word, "|");
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%.*s",
                              n ? ", " : "One of: ", (int)end, word);
    }
    assert(n < sizeof(text) - 1);
    if (n > 0)
        strcpy(text + n, ".");
    return text;
}

void opt_help_row(const struct opt_row *row, FILE *f)
{
    if (row->help)
        put_wrapped(row->help, HELP_INDENT, f);
    put_wrapped(opt_names(row), HELP_INDENT, f);
    put_facts(row, f);
}

void opt_help(const struct opt_row *table, FILE *f)
{
    for (; table->name; table++) {
        put_head(table, f);
        opt_help_row(table, f);
    }
}

void opt_help_usage(const struct opt_usage *u, const struct opt_row *table, FILE *f)
{
    fprintf(f, "Usage: %s\n\n", u->line);
    put_wrapped(u->about, 0, f);
    fputs("\nOptions:\n", f);
    opt_help(table, f);
    fprintf(f, "\nExamples:\n%s\nExit status:\n%s", u->examples, u->exit_status);
}

void opt_help_markdown(const struct opt_row *rows, FILE *f)
{
    static const struct table_column columns[] = {
        {"key", 0},     {"type", 0},    {"unit", 0}, {"range", 0},
        {"default", 0}, {"meaning", 0}, {0}};
    struct table t = {.f = f, .markdown = true, .columns = columns};

    table_head(&t);
    for (const struct opt_row *r = rows; r->name; r++) {
        table_cell(&t, "`%s`", r->name);
        table_cell(&t, "%s", type_word(r));
        table_cell(&t, "%s", r->unit ? r->unit : "");
        if (r->max >= UNLIMITED)
            table_cell(&t, "at least %.15g", r->min);
        else if (r->min != 0 || r->max != 0)
            table_cell(&t, "%.15g..%.15g", r->min, r->max);
        else
            table_cell(&t, "%s", "");
        table_cell(&t, "%s", r->def ? r->def : "");
        table_cell(&t, "%s%s%s", r->help ? r->help : "", r->names ? " " : "",
                   opt_names(r));
    }
}
