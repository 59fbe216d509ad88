/* sandwich graph: a graph of operators, with the passes run over it. */
#include <stdio.h>

#include "base/file_map.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "graph/graph.h"
#include "graph/onnx.h"

#define FILE_MAX ((size_t)64 << 20)

struct flags {
    bool keep, help;
};

#define OPT_OF struct flags
static const struct opt_row table[] = {
    OPT_ROW(BOOL, keep, NULL,
            "Run no pass: read the graph, check its sizes and print it."),
    OPT_HELP_ROW,
    {0},
};

static int read_onnx(struct graph *out, const void *bytes, size_t n)
{
    struct graph_onnx *f;
    int rc;

    TRY(graph_onnx_open(&f, bytes, n));
    rc = graph_copy(out, graph_onnx_graph(f));
    graph_onnx_close(&f);
    return rc;
}

static int read_graph(struct graph *out, const char *path)
{
    struct file_map m;
    int rc;

    TRY(file_map_open(&m, path));
    rc = graph_onnx_probe(m.base, (size_t)m.bytes)
             ? read_onnx(out, m.base, (size_t)m.bytes)
         : m.bytes > FILE_MAX
             ? err_set(ERR_LIMIT, "a text of more than %zu bytes", FILE_MAX)
             : graph_parse(out, (const char *)m.base, (size_t)m.bytes);
    if (rc == OK)
        rc = file_map_check();
    file_map_close(&m);
    return rc == OK ? OK : err_prefix(rc, "%s", path);
}

/* On standard error, so that the output is a graph. */
static int rewrite(struct graph *g)
{
    int n_passes = 0, before = g->n, rc;
    int *n_changes;

    while (graph_passes[n_passes])
        n_passes++;
    n_changes = mem_new(MEM_OTHER, (size_t)n_passes, sizeof(*n_changes));
    if (!n_changes)
        return ERR_NOMEM;
    rc = graph_rewrite(g, n_changes);
    for (int p = 0; p < n_passes && rc == OK; p++)
        fprintf(stderr, "%-16s %4d   %s\n", graph_passes[p]->name, n_changes[p],
                graph_passes[p]->help);
    if (rc == OK)
        fprintf(stderr, "nodes: %d before, %d after\n", before, g->n);
    mem_free(n_changes);
    return rc;
}

int cli_graph(int argc, char **argv)
{
    static const struct opt_usage usage = {
        .line = "sandwich graph FILE [options]",
        .about =
            "Read a graph of operators, an ONNX file or a text (engine/graph/graph.h "
            "describes it; weights stay in the ONNX file), rewrite it "
            "until no pass changes anything, and print it. How often each pass changed "
            "something goes to standard error.",
        .examples = "  sandwich graph tests/graph/golden/block.graph\n"
                    "  sandwich graph block.graph --keep\n"
                    "  sandwich graph model.onnx\n",
        .exit_status = CLI_EXIT_STATUS};
    struct flags f;
    struct graph g = {0};
    char *text = NULL;
    int rc = opt_init(table, &f), status;

    if (rc != OK)
        return cli_fail("graph", rc);
    status = cli_flags(&usage, table, &f, &f.help, argc, argv, 1);
    if (status >= 0)
        return status;
    rc = read_graph(&g, argv[0]);
    if (rc == OK && !f.keep)
        rc = rewrite(&g);
    if (rc == OK)
        rc = graph_print(&text, &g);
    if (rc == OK)
        fputs(text, stdout);
    mem_free(text);
    graph_fini(&g);
    return cli_fail("graph", rc);
}
