/* ONNX files as models: the engine runs one as it runs the file that it was written from, by the
 * operators that the graph was lowered to; graphs of other models are refused. */
#include "graph/decoder.h"
#include "graph/onnx.h"
#include "make/make.h"
#include "tests/graph/graphs.h"
#include "tests/graph/onnx_decoder.h"
#include "tests/support/kv.h"
#include "tests/support/step_model.h"

/* The greedy ids of a step at a time, by all operators of the phase. */
static void engine_ids(const char *path, int32_t ids[N_ALL], char **ops)
{
    static const int cpus[2];
    struct format_file *f;
    struct par_team *team;
    struct model *m;
    struct model_phase *p;
    struct kv_shape shape;
    struct kv_pool *pool;
    struct kv_slot kv;
    const struct model_opts o = step_model_opts();
    float *logits;
    int vocab;

    assert_ok(format_open(&f, path));
    vocab = f->config.vocab;
    assert_ok(par_team_open(&team, cpus, 2, 0));
    assert_ok(model_open(&m, f, team, &o));
    assert_ok(model_phase_open(&p, m,
                               &(struct model_phase_opts){.n_ranks = 1, .n_threads = 2}));
    model_kv_shape(m, &shape);
    test_kv_open(&pool, &shape, (struct kv_pool_opts){.max_tok = N_ALL}, 1);
    test_kv_reserve(pool, N_ALL, &kv);
    logits = mem_new(MEM_TEST, (size_t)vocab, sizeof(*logits));
    assert_non_null(logits);
    for (int n = 0; n + 1 < N_ALL; n++) {
        const struct model_chunk c = {
            .kv = &kv, .ids = ids + n, .pos0 = n, .n_tok = 1, .want_logits = true};
        int best = 0;

        assert_ok(model_forward(p, &c, 1, logits));
        for (int i = 1; i < vocab; i++)
            best = logits[i] > logits[best] ? i : best;
        if (n + 1 >= N_PROMPT)
            ids[n + 1] = best;
    }
    assert_ok(model_ops_print(ops, model_phase_ops(p)));
    mem_free(logits);
    kv_pool_close(&pool);
    model_phase_close(&p);
    model_close(&m);
    par_team_close(&team);
    format_close(&f);
}

/* An ONNX file runs as the file that it was written from: the same ids, by the operators that its
 * graph was lowered to. */
static void one_model(const char *arch)
{
    char path[300], onnx_path[320], *of_engine, *of_file, *lowered;
    const struct make_opts o = {.arch = arch,
                                .type = KERN_F32,
                                .seed = 3,
                                .format = "gguf",
                                .out = path,
                                .n_threads = 1};
    int32_t want[N_ALL] = {PROMPT}, got[N_ALL] = {PROMPT};
    struct format_file *file;
    struct graph_decoder d;
    struct graph_onnx *f;
    struct text onnx;

    snprintf(path, sizeof(path), "%s/%s.gguf", test_dir(), arch);
    snprintf(onnx_path, sizeof(onnx_path), "%s/%s.onnx", test_dir(), arch);
    assert_ok(make_model(&o));
    assert_ok(format_open(&file, path));
    onnx = decoder(file, 0);
    test_write(onnx_path, onnx.p, onnx.n);
    engine_ids(path, want, &of_file);
    engine_ids(onnx_path, got, &of_engine);
    assert_memory_equal(want, got, sizeof(want));
    assert_ok(graph_onnx_open(&f, onnx.p, onnx.n));
    assert_ok(graph_rewrite(graph_onnx_graph(f), NULL));
    assert_ok(graph_decoder_of(&d, graph_onnx_graph(f), graph_onnx_fill, f));
    assert_ok(graph_decoder_ops(&lowered, &d));
    assert_string_equal(lowered, of_engine);
    assert_string_equal(lowered, of_file);
    graph_decoder_fini(&d);
    graph_onnx_close(&f);
    mem_free(lowered);
    mem_free(of_engine);
    mem_free(of_file);
    text_fini(&onnx);
    format_close(&file);
}

TEST(the_engine_runs_llama)
{
    one_model("tiny");
}

TEST(the_engine_runs_qwen2)
{
    one_model("tiny-qwen2");
}

/* A graph that differs in one place is not recognised, and the node is named. */
static void no_decoder(const char *from, const char *to, const char *part)
{
    char path[300];
    const struct make_opts o = {.arch = "tiny-qwen2",
                                .type = KERN_F32,
                                .seed = 3,
                                .format = "gguf",
                                .out = path,
                                .n_threads = 1};
    struct format_file *file;
    struct graph_onnx *f;
    struct graph_decoder d;
    struct graph changed;
    struct text onnx;
    char *text, *at, *other;
    size_t n;

    snprintf(path, sizeof(path), "%s/other.gguf", test_dir());
    assert_ok(make_model(&o));
    assert_ok(format_open(&file, path));
    onnx = decoder(file, 0);
    assert_ok(graph_onnx_open(&f, onnx.p, onnx.n));
    assert_ok(graph_rewrite(graph_onnx_graph(f), NULL));
    assert_ok(graph_print(&text, graph_onnx_graph(f)));
    at = strstr(text, from);
    assert_non_null(at);
    n = strlen(text) + strlen(to) + 1;
    other = mem_new(MEM_TEST, n, 1);
    assert_non_null(other);
    snprintf(other, n, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    parse(&changed, other);
    assert_err(graph_decoder_of(&d, &changed, graph_onnx_fill, f), ERR_UNSUPPORTED, part);
    assert_null(d.layers);
    graph_fini(&changed);
    mem_free(other);
    mem_free(text);
    graph_onnx_close(&f);
    text_fini(&onnx);
    format_close(&file);
}

TEST(other_models_are_named)
{
    no_decoder("= swiglu(", "= add(", "expected the residual stream and an MLP");
    no_decoder("-inf", "-1", "the mask is not causal");
    no_decoder("= cos(", "= tanh(", "angles are not in proportion");
}

/* What differs only far from the first tokens differs. */
TEST(a_window_is_found)
{
    char path[300];
    const struct make_opts o = {.arch = "tiny",
                                .type = KERN_F32,
                                .seed = 3,
                                .format = "gguf",
                                .out = path,
                                .n_threads = 1};
    struct format_file *file, *none;
    struct text onnx;

    snprintf(path, sizeof(path), "%s/window.gguf", test_dir());
    assert_ok(make_model(&o));
    assert_ok(format_open(&file, path));
    onnx = decoder(file, 1000);
    format_close(&file);
    snprintf(path, sizeof(path), "%s/window.onnx", test_dir());
    test_write(path, onnx.p, onnx.n);
    assert_err(format_open(&none, path), ERR_UNSUPPORTED,
               "window.onnx: the mask is not causal: token 1000 to 0");
    text_fini(&onnx);
}
