#include "base/table.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define CELL_BYTES 1024

/* Columns of a terminal: a character of several bytes takes one. */
static int columns_of(const char *s)
{
    int n = 0;

    for (; *s; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

static void put_blanks(FILE *f, int n)
{
    if (n > 0)
        fprintf(f, "%*s", n, "");
}

static void put_text(const struct table *t, const char *s)
{
    for (; *s; s++) {
        if (t->markdown && *s == '|')
            fputc('\\', t->f); /* it would end the cell */
        fputc(*s, t->f);
    }
}

/* Cell `i` of a row with what stands before and behind it. */
static void put_cell(const struct table *t, int i, const char *s)
{
    const int width = t->columns[i].width, blanks = abs(width) - columns_of(s);
    const bool last = !t->columns[i + 1].name, open = width == TABLE_OPEN;

    fputs(t->markdown ? "| " : i ? " " : "", t->f);
    if (width > 0 && !open)
        put_blanks(t->f, blanks);
    put_text(t, s);
    if (width < 0)
        put_blanks(t->f, blanks);
    if (t->markdown && !open)
        fputs(last ? " |" : " ", t->f);
    else if (t->markdown && !last)
        fputc(' ', t->f);
    if (last)
        fputc('\n', t->f);
}

void table_head(const struct table *t)
{
    for (int i = 0; t->columns[i].name; i++)
        put_cell(t, i, t->columns[i].name);
    for (int i = 0; t->markdown && t->columns[i].name; i++) {
        const int width = t->columns[i].width;
        const int n = width == TABLE_OPEN ? columns_of(t->columns[i].name)
                      : width             ? abs(width) - (width > 0)
                                          : 3;

        fputs(width ? "| " : "|", t->f);
        for (int k = 0; k < n; k++)
            fputc('-', t->f);
        if (width > 0 && width != TABLE_OPEN)
            fputc(':', t->f);
        fputs(width && width != TABLE_OPEN ? " " : "", t->f);
        if (!t->columns[i + 1].name)
            fputs(width == TABLE_OPEN ? "\n" : "|\n", t->f);
    }
}

void table_cell(struct table *t, const char *fmt, ...)
{
    char text[CELL_BYTES];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    put_cell(t, t->at, text);
    t->at = t->columns[t->at + 1].name ? t->at + 1 : 0;
}

void table_csv(FILE *f, const json_t *row, bool head)
{
    const char *key, *separator = "";
    json_t *v;

    json_object_foreach((json_t *)row, key, v)
    {
        if (json_is_array(v))
            continue;
        fputs(separator, f);
        separator = ",";
        if (head)
            fputs(key, f);
        else if (json_is_real(v))
            fprintf(f, "%.9g", json_real_value(v));
        else if (json_is_integer(v))
            fprintf(f, "%lld", (long long)json_integer_value(v));
        else if (json_is_boolean(v))
            fprintf(f, "%d", json_is_true(v));
        for (const char *s = head ? NULL : json_string_value(v); s && *s; s++)
            fputc(*s == ',' || *s == '"' || *s == '\n' ? ' ' : *s, f);
    }
    fputc('\n', f);
}
