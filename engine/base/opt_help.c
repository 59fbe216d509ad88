#include "base/opt.h"

#include <string.h>

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

/* "integer, tok, 1..4096, default 32" */
static void put_facts(const struct opt_row *r, const char *type, FILE *f)
{
    fputs(type, f);
    if (r->unit)
        fprintf(f, ", %s", r->unit);
    if (r->min != 0 || r->max != 0)
        fprintf(f, ", %.15g..%.15g", r->min, r->max);
    if (r->def && *r->def)
        fprintf(f, ", default %s", r->def);
}

void opt_help(const struct opt_row *table, FILE *f)
{
    for (; table->name; table++) {
        fputs("  ", f);
        if (table->letter)
            fprintf(f, "-%c ", table->letter);
        put_flag(table->name, f);
        fputs("  (", f);
        put_facts(table, type_word(table), f);
        fprintf(f, ")\n      %s\n", table->help ? table->help : "");
    }
}

/* A bar inside a cell would end it. */
static void put_escaped(const char *s, FILE *f)
{
    for (; *s; s++) {
        if (*s == '|')
            fputc('\\', f);
        fputc(*s, f);
    }
}

void opt_help_markdown(const struct opt_row *table, FILE *f)
{
    fputs("| key | flag | type | unit | range | default | meaning |\n"
          "|---|---|---|---|---|---|---|\n",
          f);
    for (; table->name; table++) {
        fprintf(f, "| `%s` | `", table->name);
        put_flag(table->name, f);
        fputs("` | ", f);
        put_escaped(type_word(table), f);
        fprintf(f, " | %s | ", table->unit ? table->unit : "");
        if (table->min != 0 || table->max != 0)
            fprintf(f, "%.15g..%.15g", table->min, table->max);
        fputs(" | ", f);
        put_escaped(table->def ? table->def : "", f);
        fputs(" | ", f);
        put_escaped(table->help ? table->help : "", f);
        fputs(" |\n", f);
    }
}
