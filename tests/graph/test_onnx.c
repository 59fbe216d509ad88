/* ONNX files: decoders that the test writes from models it makes give the logits and the greedy ids
 * of the float64 reference, before and after the passes; what cannot be read is named. */
#include "graph/onnx.h"
#include "make/make.h"
#include "tests/graph/graphs.h"
#include "tests/graph/onnx_decoder.h"
#include "tests/support/mutate.h"
#include "tests/support/ref_model.h"

/* ---- what it computes ---- */

struct run {
    struct graph_onnx *f;
    const int32_t *ids;
};

static void fill_run(void *ctx, const char *name, const struct graph_shape *shape,
                     double *data)
{
    const struct run *r = ctx;

    if (strcmp(name, "input_ids") != 0) {
        graph_onnx_fill(r->f, name, shape, data);
        return;
    }
    for (int64_t k = 0; k < graph_n_elements(shape); k++)
        data[k] = r->ids[k];
}

static int largest(const double *x, int n)
{
    int best = 0;

    for (int i = 1; i < n; i++)
        if (x[i] > x[best])
            best = i;
    return best;
}

/* The reference goes on greedily from a prompt; the graph gives its logits at every length. */
static void same_as_reference(struct graph_onnx *f, struct ref_model *ref, int vocab)
{
    int32_t ids[N_ALL] = {PROMPT};
    double *want = calloc((size_t)(N_ALL * vocab), sizeof(*want));

    assert_non_null(want);
    for (int n = N_PROMPT; n < N_ALL; n++) {
        struct run run = {f, ids};
        double *got, most = 0, off = 0;
        int64_t n_got;

        ref_model_forward(ref, ids, n, want);
        assert_ok(graph_compute(&got, &n_got, graph_onnx_graph(f), n, fill_run, &run));
        assert_int_equal(n_got, n * vocab);
        for (int k = 0; k < n * vocab; k++) {
            most = fmax(most, fabs(want[k]));
            off = fmax(off, fabs(want[k] - got[k]));
        }
        if (!(off <= 1e-5 * most))
            fail_msg("%d tokens: logits differ by %g of %g", n, off, most);
        assert_int_equal(largest(got + (n - 1) * vocab, vocab),
                         largest(want + (n - 1) * vocab, vocab));
        ids[n] = largest(want + (n - 1) * vocab, vocab);
        mem_free(got);
    }
    free(want);
}

static int count(const struct graph *g, const char *op)
{
    int n = 0;

    for (int i = 0; i < g->n; i++)
        n += graph_is(g, i, op);
    return n;
}

/* Made, and what of it the passes leave. */
static void one_decoder(const char *arch)
{
    char path[300];
    const struct make_opts o = {.arch = arch,
                                .type = KERN_F32,
                                .seed = 3,
                                .format = "gguf",
                                .out = path,
                                .n_threads = 1};
    struct format_file *file;
    struct ref_model ref;
    struct graph_onnx *f;
    struct graph *g;
    struct text onnx;
    int n_layers, before;

    snprintf(path, sizeof(path), "%s/%s.gguf", test_dir(), arch);
    assert_ok(make_model(&o));
    assert_ok(format_open(&file, path));
    n_layers = file->config.n_layers;
    onnx = decoder(file, 0);
    ref_model_of_file(&ref, file);
    assert_true(graph_onnx_probe(onnx.p, onnx.n));
    assert_ok(graph_onnx_open(&f, onnx.p, onnx.n));
    g = graph_onnx_graph(f);
    before = g->n;
    same_as_reference(f, &ref, file->config.vocab);
    assert_ok(graph_rewrite(g, NULL));
    same_as_reference(f, &ref, file->config.vocab);
    assert_int_equal(count(g, "attention"), n_layers);
    assert_int_equal(count(g, "rope"), 2 * n_layers);
    assert_int_equal(count(g, "swiglu"), n_layers);
    assert_int_equal(count(g, "rms_norm"), 2 * n_layers + 1);
    assert_int_equal(count(g, "expand"), 0);
    assert_int_equal(count(g, "slice"), 0);
    printf("# %s: %d nodes before, %d after\n", arch, before, g->n);
    graph_onnx_close(&f);
    text_fini(&onnx);
    ref_model_fini(&ref);
    format_close(&file);
}

TEST(llama)
{
    one_decoder("tiny");
}

TEST(qwen2_with_biases)
{
    one_decoder("tiny-qwen2");
}

/* ---- what cannot be read ---- */

static void refuses(int rc, struct text *g, int64_t opset, const char *part)
{
    struct text m = onnx_model(g, opset);
    struct graph_onnx *f;

    assert_err(graph_onnx_open(&f, m.p, m.n), rc, part);
    assert_null(f);
    text_fini(&m);
}

static struct text with_input(void)
{
    struct text g = {0};

    onnx_value(&g, 11, "x", 1, (int64_t[]){2, 4}, 2);
    return g;
}

TEST(refused_by_name)
{
    struct text g = with_input();

    onnx_node(&g, "Conv", "y", "x", "");
    onnx_value(&g, 12, "y", 1, (int64_t[]){2}, 1);
    refuses(ERR_UNSUPPORTED, &g, 17, "node \"y\", Conv: an operator that is not known");
    g = with_input();
    onnx_node(&g, "Add", "y", "x z", "");
    refuses(ERR_FORMAT, &g, 17, "no node before it computes \"z\"");
    g = with_input();
    onnx_node(&g, "Softmax", "y", "x", "axis=2");
    refuses(ERR_FORMAT, &g, 17, "axis 2 of 2 axes");
    g = with_input();
    onnx_value(&g, 12, "nobody", 1, (int64_t[]){2}, 1);
    refuses(ERR_FORMAT, &g, 17, "no node computes the output \"nobody\"");
    g = with_input();
    refuses(ERR_FORMAT, &g, 17, "no output");
    g = with_input();
    refuses(ERR_UNSUPPORTED, &g, 7, "opset_import: expected 11 to 23, found 7");
    g = with_input();
    onnx_node(&g, "Sqrt", "y", "x", "");
    onnx_node(&g, "Sqrt", "y", "x", "");
    refuses(ERR_FORMAT, &g, 17, "\"y\" is computed twice");
    g = with_input();
    onnx_initializer(&g, "w", 1, (int64_t[]){3}, 1, (float[]){1, 2, 3});
    onnx_node(&g, "Add", "y", "x w", "");
    refuses(ERR_FORMAT, &g, 17, "sizes 4 and 3");
}

/* An f64 cannot hold 2^63 - 1, which exporters write for "to the end". */
TEST(integers_stay_exact)
{
    struct text g = with_input(), m;
    struct graph_onnx *f;

    onnx_node(&g, "Constant", "end", "", "value_int=9223372036854775807");
    onnx_initializer(&g, "low", 7, (int64_t[]){1}, 1, (int64_t[]){INT64_MIN});
    onnx_initializer(&g, "front", 7, (int64_t[]){1}, 1, (int64_t[]){0});
    onnx_node(&g, "Unsqueeze", "ends", "end front", "");
    onnx_initializer(&g, "from", 7, (int64_t[]){1}, 1, (int64_t[]){1});
    onnx_node(&g, "Slice", "y", "x from ends", "");
    onnx_value(&g, 12, "y", 1, (int64_t[]){1, 4}, 2);
    onnx_value(&g, 12, "low", 7, (int64_t[]){1}, 1);
    m = onnx_model(&g, 17);
    assert_ok(graph_onnx_open(&f, m.p, m.n));
    assert_int_equal(graph_onnx_graph(f)->nodes[graph_onnx_graph(f)->out[0]].shape.dim[0],
                     1);
    assert_true(graph_onnx_graph(f)->nodes[graph_onnx_graph(f)->out[1]].data[0] ==
                -0x1p53);
    graph_onnx_close(&f);
    text_fini(&m);
}

TEST(not_onnx)
{
    struct graph_onnx *f;

    assert_false(graph_onnx_probe("%0 = input x: f32[2]\n", 21));
    assert_err(graph_onnx_open(&f, "\x08", 1), ERR_FORMAT, "expected a number");
    assert_err(graph_onnx_open(&f, "\x0a\x7f", 2), ERR_FORMAT,
               "offset 2: expected as many bytes as the field says");
    assert_err(graph_onnx_open(&f, "\x0b", 1), ERR_FORMAT,
               "a type of field that is in use");
}

/* Damaged copies of a file are read or refused without harm. */
TEST(damaged_files)
{
    struct text g = with_input(), m;
    uint8_t *out;
    struct rng r;
    int n_read = 0;

    onnx_initializer(&g, "w", 1, (int64_t[]){4, 4}, 2,
                     (float[]){1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16});
    onnx_initializer(&g, "sizes", 7, (int64_t[]){2}, 1, (int64_t[]){0, -1});
    onnx_node(&g, "MatMul", "a", "x w", "");
    onnx_node(&g, "Transpose", "b", "a", "perm=1,0");
    onnx_node(&g, "Reshape", "c", "b sizes", "");
    onnx_node(&g, "Split", "d", "c", "axis=1");
    onnx_node(&g, "Softmax", "y", "d", "axis=-1");
    onnx_value(&g, 12, "y", 1, (int64_t[]){4, 2}, 2);
    m = onnx_model(&g, 17);
    out = mem_new(MEM_TEST, m.n + MUTATE_EXTRA, 1);
    assert_non_null(out);
    rng_init(&r, test_seed(), "onnx");
    for (int k = 0; k < 20000; k++) {
        size_t n = mutate(&r, (const uint8_t *)m.p, m.n, out);
        struct graph_onnx *f;

        if (graph_onnx_open(&f, out, n) == OK) {
            n_read++;
            if (graph_rewrite(graph_onnx_graph(f), NULL) == OK)
                mem_free(print(graph_onnx_graph(f)));
        }
        graph_onnx_close(&f);
        err_clear();
    }
    assert_true(n_read > 100);
    mem_free(out);
    text_fini(&m);
}
