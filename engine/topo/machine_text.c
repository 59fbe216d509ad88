#include "topo/machine_text.h"

#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* Three lines: counts, sizes of caches, the note. Then a line per node and per CPU. */

void topo_note(struct topo_machine *m, const char *fmt, ...)
{
    size_t at = strlen(m->note);
    va_list ap;

    if (at && at + 2 < sizeof(m->note)) {
        strcpy(m->note + at, "; ");
        at += 2;
    }
    va_start(ap, fmt);
    vsnprintf(m->note + at, sizeof(m->note) - at, fmt, ap);
    va_end(ap);
}

static void print_line(FILE *f, const char *text)
{
    for (; *text; text++)
        fputc((unsigned char)*text < ' ' ? '?' : *text, f);
    fputc('\n', f);
}

void topo_machine_print(const struct topo_machine *m, FILE *f)
{
    fprintf(f, "%d %d %d %d %d %d %d\n", m->n_pus, m->n_nodes, m->n_cores, m->n_l2,
            m->n_l3, m->n_clusters, m->n_packages);
    fprintf(f, "%" PRId64 " %" PRId64 " %" PRId64 "\n", m->l1d_bytes, m->l2_bytes,
            m->l3_bytes);
    print_line(f, m->note);
    for (int i = 0; i < m->n_nodes; i++) {
        const struct topo_node *n = &m->nodes[i];

        fprintf(f, "%d %" PRId64 " %d ", n->os_index, n->bytes, n->n_pus);
        print_line(f, n->subtype);
    }
    for (int i = 0; i < m->n_pus; i++) {
        const struct topo_pu *p = &m->pus[i];

        fprintf(f, "%d %d %d %d %d %d %d %d\n", p->os_index, p->core, p->l2, p->l3,
                p->cluster, p->node, p->package, p->kind);
    }
}

struct reader {
    const char *at; /* NULL: something was wrong */
};

static int64_t take(struct reader *r, int64_t min, int64_t max)
{
    char *end = NULL;
    int64_t v = r->at ? strtoll(r->at, &end, 10) : 0;

    r->at = end != r->at && v >= min && v <= max ? end : NULL;
    return r->at ? v : min;
}

static int take_int(struct reader *r, int min, int max)
{
    return (int)take(r, min, max);
}

/* The rest of the line without the one character before it. */
static void take_text(struct reader *r, char *out, size_t n)
{
    size_t len;

    if (!r->at || !*r->at)
        return;
    len = strcspn(r->at + 1, "\n");
    snprintf(out, n, "%.*s", (int)len, r->at + 1);
    r->at += 1 + len;
}

MUST static int take_arrays(struct topo_machine *m, struct reader *r)
{
    int cpu = -1;

    m->nodes = mem_new(MEM_OTHER, (size_t)m->n_nodes, sizeof(*m->nodes));
    m->pus = mem_new(MEM_OTHER, (size_t)m->n_pus, sizeof(*m->pus));
    if (!m->nodes || !m->pus)
        return ERR_NOMEM;
    for (int i = 0; i < m->n_nodes; i++) {
        struct topo_node *n = &m->nodes[i];

        n->os_index = take_int(r, 0, INT_MAX);
        n->bytes = take(r, 0, INT64_MAX);
        n->n_pus = take_int(r, 0, m->n_pus);
        take_text(r, n->subtype, sizeof(n->subtype));
    }
    for (int i = 0; i < m->n_pus && r->at; i++) {
        struct topo_pu *p = &m->pus[i];

        cpu = p->os_index = take_int(r, cpu + 1, INT_MAX - 1); /* ascending */
        p->core = take_int(r, -1, m->n_cores - 1);
        p->l2 = take_int(r, -1, m->n_l2 - 1);
        p->l3 = take_int(r, -1, m->n_l3 - 1);
        p->cluster = take_int(r, -1, m->n_clusters - 1);
        p->node = take_int(r, -1, m->n_nodes - 1);
        p->package = take_int(r, -1, m->n_packages - 1);
        p->kind = take_int(r, -1, INT_MAX);
    }
    return OK;
}

int topo_machine_parse(struct topo_machine *m, const char *text, const char **rest,
                       const char *where)
{
    struct reader r = {text};
    int rc;

    m->n_pus = take_int(&r, 1, TOPO_PUS_MAX);
    m->n_nodes = take_int(&r, 1, TOPO_PUS_MAX);
    m->n_cores = take_int(&r, 0, TOPO_PUS_MAX);
    m->n_l2 = take_int(&r, 0, TOPO_PUS_MAX);
    m->n_l3 = take_int(&r, 0, TOPO_PUS_MAX);
    m->n_clusters = take_int(&r, 0, TOPO_PUS_MAX);
    m->n_packages = take_int(&r, 0, TOPO_PUS_MAX);
    m->l1d_bytes = take(&r, 0, INT64_MAX);
    m->l2_bytes = take(&r, 0, INT64_MAX);
    m->l3_bytes = take(&r, 0, INT64_MAX);
    take_text(&r, m->note, sizeof(m->note));
    rc = take_arrays(m, &r);
    if (rc == OK && !r.at)
        rc = err_set(ERR_FORMAT,
                     "%s: expected 1 to %d CPUs, each with a number of its own, and no "
                     "more cores, caches, packages and memory nodes than that",
                     where, TOPO_PUS_MAX);
    *rest = rc == OK && *r.at ? r.at + 1 : ""; /* behind the last newline */
    return rc;
}
