/* sandwich graph: a graph of operators, with the passes run over it. */
#include <stdio.h>

#include "base/file_map.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "graph/decoder.h"
#include "graph/onnx.h"

#define FILE_MAX ((size_t)64 << 20)

struct flags {
    bool keep, ops;
};

#define OPT_OF struct flags
static const struct opt_row table[] = {
    OPT_ROW(BOOL, keep, NULL,
            "Run no pass: read the graph, check its sizes and print it."),
    OPT_ROW(
        BOOL, ops, NULL,
        "Print the operators of the engine that compute it, in place of the graph. An "
        "ONNX file that has them can be run: sandwich run --model FILE."),
    {0},
};

/* A graph and the file that holds its weights. */
struct source {
    struct file_map map;
    struct graph_onnx *onnx; /* NULL: the graph is a text */
    struct graph text;
};

static struct graph *graph_of(struct source *s)
{
    return s->onnx ? graph_onnx_graph(s->onnx) : &s->text;
}

static int source_open(struct source *s, const char *path)
{
    size_t n;
    int rc;

    TRY(file_map_open(&s->map, path));
    n = (size_t)s->map.bytes;
    rc = graph_onnx_probe(s->map.base, n) ? graph_onnx_open(&s->onnx, s->map.base, n)
         : n > FILE_MAX ? err_set(ERR_LIMIT, "a text of more than %zu bytes", FILE_MAX)
                        : graph_parse(&s->text, (const char *)s->map.base, n);
    if (rc == OK)
        rc = file_map_check();
    return rc == OK ? OK : err_prefix(rc, "%s", path);
}

static void source_close(struct source *s)
{
    graph_onnx_close(&s->onnx);
    graph_fini(&s->text);
    if (s->map.base)
        file_map_close(&s->map);
}

/* A text has no weights: what follows from them is computed from zeros. */
static void fill(void *source, const char *name, const struct graph_shape *shape,
                 double *data)
{
    const struct source *s = source;

    if (s->onnx)
        graph_onnx_fill(s->onnx, name, shape, data);
}

static int print_ops(char **text, struct source *s)
{
    struct graph_decoder d;
    int rc;

    TRY(graph_decoder_of(&d, graph_of(s), fill, s));
    rc = graph_decoder_ops(text, &d);
    graph_decoder_fini(&d);
    return rc;
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

static int run(const struct verb_words *w)
{
    const struct flags *f = w->opts;
    struct source s = {0};
    char *text = NULL;
    int rc = source_open(&s, w->rest[0]);

    if (rc == OK && !f->keep)
        rc = f->ops ? graph_rewrite(graph_of(&s), NULL) : rewrite(graph_of(&s));
    if (rc == OK)
        rc = f->ops ? print_ops(&text, &s) : graph_print(&text, graph_of(&s));
    if (rc == OK)
        fputs(text, stdout);
    mem_free(text);
    source_close(&s);
    return rc;
}

const struct verb cli_verb_graph = {
    .name = "graph",
    .help = "Rewrite a graph of operators into a smaller one.",
    .place = 10,
    .usage =
        {.line = "sandwich graph FILE [options]",
         .about =
             "Read a graph of operators, an ONNX file or a text (engine/graph/graph.h "
             "describes it; weights stay in the ONNX file), rewrite it "
             "until no pass changes anything, and print it. How often each pass changed "
             "something goes to standard error.",
         .examples = "  sandwich graph tests/graph/golden/block.graph\n"
                     "  sandwich graph block.graph --keep\n"
                     "  sandwich graph model.onnx --ops\n"},
    .n_args = 1,
    .opts = {{table}},
    .opts_bytes = sizeof(struct flags),
    .run = run,
};
