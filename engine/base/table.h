/* base/table.h - the one writer of tables: rows of cells under columns, as text or Markdown, and
 * JSON objects as lines of CSV.   Threads: one owner. */
#ifndef BASE_TABLE_H
#define BASE_TABLE_H

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <jansson.h>

/* The width of a last column that is as long as its cells, without a bar behind them. */
#define TABLE_OPEN INT_MAX

struct table_column {
    const char *name; /* NULL ends a list */
    int width; /* of cells, as printf has it: negative: to the left. 0: each as long as it is */
};

struct table {
    FILE *f;
    bool markdown;
    const struct table_column *columns;
    int at; /* the column of the next cell */
};

/* The names of the columns; of Markdown, the line below them too. */
void table_head(const struct table *t);
/* The next cell, which in its last column ends the row. A bar inside of it is escaped in Markdown.
 * A cell of more than 1023 bytes is cut. */
void table_cell(struct table *t, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* A line of CSV: the members of `row` that are no lists, or (head) their keys. What would divide a
 * cell is a blank. */
void table_csv(FILE *f, const json_t *row, bool head);

#endif
