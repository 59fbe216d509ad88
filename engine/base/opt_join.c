#include "base/opt_join.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define EXIT_SOFTWARE 70 /* of sysexits.h: the program itself is wrong */

static int check_row(const struct opt_row *rows, int n)
{
    for (int i = 0; i < n; i++) {
        if (strcmp(rows[i].name, rows[n].name) == 0)
            return err_set(ERR_ARG, "joined option tables: \"%s\" occurs twice",
                           rows[n].name);
        if (rows[n].letter && rows[i].letter == rows[n].letter)
            return err_set(ERR_ARG,
                           "joined option tables: \"%s\" and \"%s\" are both -%c",
                           rows[i].name, rows[n].name, rows[n].letter);
    }
    return OK;
}

static int change_row(struct opt_row *rows, int n, const struct opt_change *c)
{
    for (int i = 0; i < n; i++)
        if (strcmp(rows[i].name, c->name) == 0) {
            rows[i].name = c->as ? c->as : c->name;
            rows[i].def = c->def ? c->def : rows[i].def;
            return OK;
        }
    return err_set(ERR_ARG, "joined option tables: no row \"%s\" to change", c->name);
}

int opt_join(struct opt_row *rows, int max, const struct opt_part *parts)
{
    int n = 0;

    for (const struct opt_part *p = parts; p->rows; p++) {
        int first = n;

        for (const struct opt_row *r = p->rows; r->name; r++, n++) {
            if (n + 1 >= max)
                return err_set(ERR_LIMIT,
                               "joined option tables: \"%s\" is one row too many for %d",
                               r->name, max - 1);
            rows[n] = *r;
            rows[n].offset += p->offset;
        }
        for (const struct opt_change *c = p->changes; c && c->name; c++)
            TRY(change_row(rows + first, n - first, c));
        for (int i = first; i < n; i++)
            TRY(check_row(rows, i));
    }
    rows[n] = (struct opt_row){0};
    return OK;
}

void opt_join_at_start(struct opt_row *rows, int max, const struct opt_part *parts)
{
    if (opt_join(rows, max, parts) == OK)
        return;
    fprintf(stderr, "%s\n", err_msg());
    _exit(EXIT_SOFTWARE);
}
