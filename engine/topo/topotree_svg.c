#include "topo/topotree_draw.h"

#include <string.h>

#include "base/mem.h"
#include "topo/topotree.h"

/* Pixels. A PU is wide enough for three digits. */
#define PU_W      18
#define PU_H      14
#define NODE_W    26
#define NODE_H    12
#define GAP       4  /* between subtrees, more the higher they part */
#define LEVEL_H   52 /* from one level to the next */
#define DOTS_W    16
#define TOP       44
#define LEFT      150 /* the levels' names */
#define MARGIN    12
#define COLLAPSE  32 /* PUs side by side up to which nothing is left out */
#define SHOWN_MAX 48 /* ... and, beyond, up to which what repeats is drawn thrice */
#define WIDE      5  /* children from which only the first two and the last are drawn */

struct svg {
    const struct topo_tree *t, *full; /* what is left, what was there */
    const char *title;
    int shown[TOPO_LEVELS_MAX]; /* children drawn of a node, the last one always */
    int pen_x;                  /* where the next PU goes */
};

/* ---- what is drawn ---- */

static int n_drawn(const struct svg *s)
{
    int n = 1;

    for (int l = 0; l < s->full->n_levels - 1 && n <= SHOWN_MAX * SHOWN_MAX; l++)
        n *= s->shown[l];
    return n;
}

/* Wide levels first, the widest of them first; then, of what is drawn more than twice, the
 * levels nearest to the machine, where whole subtrees repeat. */
static void choose_shown(struct svg *s)
{
    int last = s->full->n_levels - 1;

    for (int l = 0; l < last; l++)
        s->shown[l] = s->full->levels[l].arity;
    while (n_drawn(s) > COLLAPSE) {
        int widest = 0;

        for (int l = 1; l < last; l++)
            if (s->shown[l] > s->shown[widest])
                widest = l;
        if (s->shown[widest] < WIDE)
            break;
        s->shown[widest] = 3;
    }
    for (int l = 0; l < last && n_drawn(s) > SHOWN_MAX; l++)
        if (s->shown[l] > 2)
            s->shown[l] = 2;
}

/* `t` is what remove() leaves of `full`. */
static bool comes_from(const struct topo_tree *t, const struct topo_tree *full)
{
    int next = 0;

    if (t->n_levels != full->n_levels || t->n_pus > full->n_pus)
        return false;
    for (int l = 0; l < t->n_levels; l++)
        if (t->levels[l].kinds != full->levels[l].kinds ||
            t->levels[l].arity > full->levels[l].arity)
            return false;
    for (int i = 0; i < full->n_pus; i++) {
        bool kept = true;

        for (int l = t->n_levels - 2, rest = i; l >= 0 && kept; l--) {
            kept = rest % full->levels[l].arity < t->levels[l].arity;
            rest /= full->levels[l].arity;
        }
        if (kept && t->pus[next++] != full->pus[i])
            return false;
    }
    return next == t->n_pus;
}

/* ---- elements ---- */

static void write_escaped(FILE *f, const char *s)
{
    for (; *s; s++)
        if (*s == '&')
            fputs("&amp;", f);
        else if (*s == '<')
            fputs("&lt;", f);
        else if (*s == '>')
            fputs("&gt;", f);
        else
            fputc(*s, f);
}

static void write_pu(FILE *f, const struct svg *s, int x, int y, int index, bool kept)
{
    const char *class = kept ? "k" : "r";

    fprintf(f, "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>", class,
            x - PU_W / 2, y, PU_W, PU_H);
    fprintf(f, "<text class=\"%sn\" x=\"%d\" y=\"%d\">%d</text>\n", class, x,
            y + PU_H - 4, s->full->machine->pus[s->full->pus[index]].os_index);
}

static void write_node(FILE *f, const struct svg *s, int x, int y, int level, bool kept)
{
    bool made = s->full->levels[level].kinds & TOPO_GROUP;

    fprintf(f,
            "<rect class=\"%s%s\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" "
            "rx=\"3\"/>\n",
            made ? "g" : "n", kept ? "" : " o", x - NODE_W / 2, y, NODE_W, NODE_H);
}

/* Draw node `j` of a level and what is below it; returns its middle. */
static int write_subtree(FILE *f, struct svg *s, int level, int j, bool kept)
{
    int y = TOP + level * LEVEL_H, x[SHOWN_MAX] = {0}, middle, n = s->shown[level];
    int arity = s->full->levels[level].arity;

    if (level == s->full->n_levels - 1) {
        middle = s->pen_x + PU_W / 2;
        s->pen_x += PU_W + GAP;
        write_pu(f, s, middle, y, j, kept);
        return middle;
    }
    for (int i = 0; i < n; i++) {
        int child = i == n - 1 ? arity - 1 : i;
        bool child_kept = kept && child < s->t->levels[level].arity;

        if (i == n - 1 && n < arity) {
            fprintf(f, "<text class=\"d\" x=\"%d\" y=\"%d\">...</text>\n",
                    s->pen_x + DOTS_W / 2 - GAP / 2, y + LEVEL_H + NODE_H);
            s->pen_x += DOTS_W;
        }
        x[i] = write_subtree(f, s, level + 1, j * arity + child, child_kept);
    }
    s->pen_x += GAP;
    middle = (x[0] + x[n - 1]) / 2;
    for (int i = 0; i < n; i++) {
        bool gone = !kept || (i == n - 1 ? arity - 1 : i) >= s->t->levels[level].arity;

        fprintf(f, "<line%s x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\"/>\n",
                gone ? " class=\"o\"" : "", middle, y + NODE_H, x[i], y + LEVEL_H);
    }
    write_node(f, s, middle, y, level, kept);
    return middle;
}

/* The level's name, and how many of its nodes are left. */
static void write_name(FILE *f, const struct svg *s, int level)
{
    int n = topo_tree_n_nodes(s->full, level), left = topo_tree_n_nodes(s->t, level);
    char what[64];

    topo_kinds_print(s->full->levels[level].kinds, what, sizeof(what));
    fprintf(f, "<text x=\"%d\" y=\"%d\">", MARGIN, TOP + level * LEVEL_H + NODE_H - 2);
    if (left < n)
        fprintf(f, "%d of ", left);
    fprintf(f, "%d %s</text>\n", n, what);
}

static void write_body(FILE *f, void *what)
{
    struct svg *s = what;

    s->pen_x = LEFT;
    write_subtree(f, s, 0, 0, true);
    for (int l = 0; l < s->full->n_levels; l++)
        write_name(f, s, l);
}

/* ---- the document ---- */

struct document {
    const struct svg *s;
    const char *body;
};

static const char style[] =
    "text{font:10px sans-serif;fill:#333}.t{font-size:13px}"
    ".kn,.rn,.d{font-size:8px;text-anchor:middle}.kn{fill:#fff}.rn{fill:#888}"
    ".k{fill:#2f6aa3}.r{fill:none;stroke:#999}.n{fill:#d5d9de;stroke:#555}"
    ".g{fill:#f3d9a4;stroke:#9a6a00}line{stroke:#777}"
    "line.o{stroke:#bbb;stroke-dasharray:2 2}rect.o{fill:none;stroke:#999}";

static void write_document(FILE *f, void *what)
{
    struct document *d = what;
    const struct topo_tree *t = d->s->t;
    int w = d->s->pen_x + MARGIN;
    int h = TOP + (t->n_levels - 1) * LEVEL_H + PU_H + MARGIN;

    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
            "width=\"%d\" height=\"%d\">\n<style>%s</style>\n"
            "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n",
            w, h, w, h, style, w, h);
    fprintf(f, "<text class=\"t\" x=\"%d\" y=\"22\">", MARGIN);
    write_escaped(f, d->s->title ? d->s->title : t->machine->name);
    fprintf(f, "</text>\n%s</svg>\n", d->body);
}

int topo_tree_svg(const struct topo_tree *t, const struct topo_tree *full,
                  const char *title, char **svg)
{
    struct svg s = {.t = t, .full = full ? full : t, .title = title};
    struct document d = {.s = &s};
    char *body = NULL;
    int rc;

    *svg = NULL;
    if (!comes_from(t, s.full))
        return err_set(ERR_ARG,
                       "drawing of %d CPUs: not what remove() leaves of the tree of %d",
                       t->n_pus, s.full->n_pus);
    choose_shown(&s);
    rc = topo_draw(&body, write_body, &s);
    if (rc == OK) {
        d.body = body;
        rc = topo_draw(svg, write_document, &d);
    }
    mem_free(body);
    return rc;
}
