#include "topo/topotree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "cpu/cpu.h"

static const struct {
    int kind;
    const char *name;
} kind_names[] = {
    {TOPO_MACHINE, "machine"}, {TOPO_PACKAGE, "package"}, {TOPO_NODE, "node"},
    {TOPO_L3, "L3"},           {TOPO_CLUSTER, "cluster"}, {TOPO_L2, "L2"},
    {TOPO_GROUP, "group"},     {TOPO_CORE, "core"},       {TOPO_PU, "PU"},
};
#define N_KINDS (sizeof(kind_names) / sizeof(kind_names[0]))

void topo_kinds_print(int kinds, char *out, size_t n)
{
    size_t at = 0;

    out[0] = '\0';
    for (size_t k = 0; k < N_KINDS; k++)
        if ((kinds & kind_names[k].kind) && at < n) {
            snprintf(out + at, n - at, "%s%s", at ? "+" : "", kind_names[k].name);
            at = strlen(out);
        }
}

/* ---- one line a level ---- */

#define LINE_COLUMNS 100
#define CPU_CHARS    6 /* "65535," */
static const char more[] = " | ...";

struct drawing {
    const struct topo_tree *t;
    int *cpus;  /* [n_pus] of one node */
    char *list; /* their list */
    int list_bytes;
    int what_columns;  /* of the longest name of a level */
    int lists_columns; /* left for the lists */
};

static int ascending(const void *a, const void *b)
{
    const int x = *(const int *)a, y = *(const int *)b;

    return (x > y) - (x < y);
}

/* The CPUs of node `j` of a level with `span` PUs each, as a list; cut where it is longer
 * than a line. Returns its length. */
static int node_list(struct drawing *d, int j, int span)
{
    const struct topo_tree *t = d->t;

    for (int i = 0; i < span; i++)
        d->cpus[i] = t->machine->pus[t->pus[j * span + i]].os_index;
    qsort(d->cpus, (size_t)span, sizeof(*d->cpus), ascending);
    cpu_list_print(d->cpus, span, d->list, d->list_bytes);
    if ((int)strlen(d->list) > d->lists_columns) {
        int at = d->lists_columns - 3;

        while (at > 0 && d->list[at - 1] != ',')
            at--;
        strcpy(d->list + at, "...");
    }
    return (int)strlen(d->list);
}

static void write_level(struct text *out, struct drawing *d, int level)
{
    const struct topo_level *l = &d->t->levels[level];
    int n = topo_tree_n_nodes(d->t, level), span = topo_tree_span(d->t, level);
    char what[64], children[32] = "";
    int used = 0;

    topo_kinds_print(l->kinds, what, sizeof(what));
    if (l->arity && l->arity != l->original)
        snprintf(children, sizeof(children), "%d of %d", l->arity, l->original);
    else if (l->arity)
        snprintf(children, sizeof(children), "%d", l->arity);
    text_printf(out, "%5d  %-*s  %-9s ", n, d->what_columns, what, children);
    for (int j = 0; j < n; j++) {
        int length = node_list(d, j, span);

        if (j && used + 3 + length > d->lists_columns) {
            text_puts(out, more);
            break;
        }
        text_printf(out, "%s%s", j ? " | " : " ", d->list);
        used += length + 3 * (j > 0);
    }
    text_puts(out, "\n");
}

int topo_tree_text(const struct topo_tree *t, char **text)
{
    struct drawing d = {.t = t, .list_bytes = t->n_pus * CPU_CHARS + 1};
    struct text out = {0};
    char what[64];

    for (int l = 0; l < t->n_levels; l++) {
        topo_kinds_print(t->levels[l].kinds, what, sizeof(what));
        if ((int)strlen(what) > d.what_columns)
            d.what_columns = (int)strlen(what);
    }
    d.lists_columns = LINE_COLUMNS - (int)strlen("nodes    children   ") -
                      d.what_columns - (int)strlen(more);
    d.cpus = mem_new(MEM_OTHER, (size_t)t->n_pus, sizeof(*d.cpus));
    d.list = mem_new(MEM_OTHER, (size_t)d.list_bytes, 1);
    out.rc = d.cpus && d.list ? OK : ERR_NOMEM;
    text_printf(&out, "%s: %d of %d CPUs%s%s\n", t->machine->name, t->n_pus,
                t->machine->n_pus, *t->steps ? " after " : "", t->steps);
    text_printf(&out, "nodes  %-*s  children   CPUs of the first nodes\n", d.what_columns,
                "of what");
    for (int l = 0; out.rc == OK && l < t->n_levels; l++)
        write_level(&out, &d, l);
    mem_free(d.cpus);
    mem_free(d.list);
    return text_take(&out, text);
}
