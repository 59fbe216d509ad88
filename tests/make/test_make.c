/* `model make`: the same bytes for any number of threads, the same model in both formats,
 * the promised distribution, a tokenizer that works, and nothing left behind by a
 * failure. */
#include "tests/format/same_config.h"
#include "tests/support/leftovers.h"
#include "tests/support/test.h"

#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "format/format.h"
#include "format/gguf.h"
#include "format/fill.h"
#include "make/make.h"
#include "tokenizer/tokenizer.h"

static struct make_opts tiny(enum kern_type type, const char *format, const char *out)
{
    return (struct make_opts){.arch = "tiny",
                              .type = type,
                              .seed = 7,
                              .format = format,
                              .out = out,
                              .n_threads = 2};
}

TEST(threads_do_not_matter)
{
    static const int n_threads[] = {1, 2, 5};
    struct make_opts o = tiny(KERN_BF16, "gguf", test_path("t.gguf"));
    char *first = NULL, *now;
    size_t n_first = 0, n;
    int i;

    for (i = 0; i < 3; i++) {
        o.n_threads = n_threads[i];
        assert_ok(make_model(&o));
        now = test_read(o.out, &n);
        if (first) {
            assert_int_equal(n, n_first);
            assert_memory_equal(now, first, n);
            mem_free(now);
        } else {
            first = now;
            n_first = n;
        }
    }
    o.seed++;
    assert_ok(make_model(&o));
    now = test_read(o.out, &n);
    assert_int_equal(n, n_first);
    assert_memory_not_equal(now, first, n);
    mem_free(now);
    mem_free(first);
}

/* The bytes of a release of this code: made models are compared across machines and
 * years. */
TEST(bytes_are_frozen)
{
    struct make_opts o = tiny(KERN_F32, "gguf", test_path("t.gguf"));
    struct format_file *f;
    uint64_t hash = 1469598103934665603ull;
    const uint8_t *p;
    int64_t i, n;

    assert_ok(make_model(&o));
    assert_ok(format_open(&f, o.out));
    p = f->global[FORMAT_EMBED].data;
    n = f->global[FORMAT_EMBED].rows * f->global[FORMAT_EMBED].cols * 4;
    for (i = 0; i < n; i++)
        hash = (hash ^ p[i]) * 1099511628211ull;
    if (hash != 0x7e1ac8db8c93c6a8ull)
        fail_msg("FNV-1a of the embedding is 0x%016llx", (unsigned long long)hash);
    format_close(&f);
}

static void same_tensor(const struct format_tensor *g, const struct format_tensor *s,
                        int head)
{
    size_t row = (size_t)s->cols * kern_type_bytes(s->type);
    int64_t i, from;

    assert_int_equal(g->rows, s->rows);
    assert_int_equal(g->cols, s->cols);
    assert_int_equal(g->type, s->type);
    for (i = 0; i < g->rows; i++) {
        from = head ? i / head * head + i % head / 2 + i % 2 * (head / 2) : i;
        assert_memory_equal((const char *)g->data + (size_t)i * row,
                            (const char *)s->data + (size_t)from * row, row);
    }
}

/* In GGUF files a router is f32, whatever the other matrices are. */
static void same_router(const struct format_tensor *g, const struct format_tensor *s)
{
    float *row = mem_new(MEM_TEST, (size_t)s->cols, sizeof(*row));

    assert_int_equal(g->type, KERN_F32);
    assert_int_equal(g->rows, s->rows);
    for (int64_t i = 0; i < s->rows; i++) {
        kern_row_to_f32(s->type, row,
                        (const char *)s->data +
                            (size_t)i * kern_type_size(s->type, s->cols),
                        s->cols);
        assert_memory_equal((const char *)g->data + (size_t)(i * s->cols) * sizeof(*row),
                            row, (size_t)s->cols * sizeof(*row));
    }
    mem_free(row);
}

/* Folders of Gemma have norms without the 1 that is added to them. */
static void same_norm(const struct format_tensor *g, const struct format_tensor *s)
{
    for (int64_t i = 0; i < s->cols; i++) {
        float a, b;

        memcpy(&a, (const char *)g->data + 4 * i, 4);
        memcpy(&b, (const char *)s->data + 4 * i, 4);
        assert_true(a == b + 1);
    }
}

static void same_layer(const struct format_file *g, const struct format_file *s,
                       int layer)
{
    for (int role = FORMAT_ATTN_NORM; role < FORMAT_N_ROLES; role++) {
        const struct format_tensor *a = format_layer_tensor(g, layer, role);
        const struct format_tensor *b = format_layer_tensor(s, layer, role);

        assert_int_equal(a->data != NULL, format_role_needed(&g->config, role, layer));
        if (a->data && s->norm_offset != 0 && a->rows == 1)
            same_norm(a, b);
        else if (a->data && role == FORMAT_ROUTER)
            same_router(a, b);
        else if (a->data)
            same_tensor(a, b,
                        g->rope_interleaved && !s->rope_interleaved &&
                                (role == FORMAT_Q || role == FORMAT_K)
                            ? g->config.head_dim
                            : 0);
    }
    for (int e = 0; e < g->config.n_experts && layer >= g->config.n_dense; e++)
        for (int role = FORMAT_EXPERT_GATE; role < FORMAT_ALL_ROLES; role++)
            same_tensor(format_expert_tensor(g, layer, e, role),
                        format_expert_tensor(s, layer, e, role), 0);
}

static void same_in_both(const char *arch, enum kern_type type)
{
    struct make_opts a = tiny(type, "gguf", test_path("f.gguf"));
    struct make_opts b = tiny(type, "safetensors", test_path(arch));
    struct format_file *g, *s;
    struct model_config want;
    char dir[300];

    snprintf(dir, sizeof(dir), "%s/%s-%s", test_dir(), arch, kern_type_name(type));
    a.arch = b.arch = arch;
    b.out = dir;
    assert_ok(make_config(arch, &want));
    assert_ok(make_model(&a));
    assert_ok(make_model(&b));
    assert_ok(format_open(&g, a.out));
    assert_ok(format_open(&s, b.out));
    assert_true(g->rope_interleaved == format_family_of(&want)->rope_interleaved);
    assert_true(s->rope_interleaved == format_family_of(&want)->hf_rope_interleaved);
    assert_int_equal(g->fused, format_family_of(&want)->fused);
    assert_int_equal(s->fused, g->fused & ~MODEL_NAMES_POST_NORM);
    assert_int_equal(g->config.weight_type, type);
    assert_int_equal(s->config.weight_type, type);
    same_config(&g->config, &want, 0);
    same_config(&s->config, &want, 0);
    for (int role = 0; role < FORMAT_ATTN_NORM; role++)
        if (role == FORMAT_OUT_NORM && s->norm_offset != 0)
            same_norm(&g->global[role], &s->global[role]);
        else if (g->global[role].data)
            same_tensor(&g->global[role], &s->global[role], 0);
    for (int layer = 0; layer < want.n_layers; layer++)
        same_layer(g, s, layer);
    format_close(&g);
    format_close(&s);
}

TEST(formats_hold_the_same_model)
{
    static const char *const archs[] = {
        "tiny",           "tiny-moe",        "tiny-qwen2-moe",
        "tiny-qwen3-moe", "tiny-granite",    "tiny-smollm3",
        "tiny-olmo2",     "tiny-phi3",       "tiny-stablelm",
        "tiny-glm4",      "tiny-command-r",  "tiny-gemma2",
        "tiny-gemma3",    "tiny-tekken",     "tiny-olmo3",
        "tiny-phi4-mini", "tiny-starcoder2", "tiny-olmoe",
        "tiny-ernie",     "tiny-seed-oss",   "tiny-xverse",
        "tiny-deepseek",  "tiny-dots1",      "tiny-glm4-moe",
        "tiny-ernie-moe", "tiny-deepseek2",  "tiny-deepseek3",
        "tiny-glm4-lite"};
    static const enum kern_type types[] = {KERN_F32, KERN_F16, KERN_BF16};

    for (size_t i = 0; i < sizeof(archs) / sizeof(archs[0]); i++)
        for (int t = 0; t < 3; t++)
            same_in_both(archs[i], types[t]);
}

/* A folder of these is not read, and not made. */
TEST(gguf_only)
{
    struct make_opts o = tiny(KERN_F16, "gguf", test_path("only.gguf"));
    struct model_config want;
    struct format_file *f;

    o.arch = "tiny-gpt-oss";
    assert_ok(make_model(&o));
    assert_ok(make_config(o.arch, &want));
    assert_ok(format_open(&f, o.out));
    same_config(&f->config, &want, 1e-6f);
    assert_true(want.sinks && want.expert_bias && want.window > 0);
    format_close(&f);
    o.format = "safetensors";
    o.out = test_path("only");
    assert_err(make_model(&o), ERR_UNSUPPORTED, "expected gguf for tiny-gpt-oss");
}

static float value(const struct format_tensor *t, int64_t i)
{
    uint16_t h;
    uint32_t u;
    float v;

    if (t->type == KERN_F32) {
        memcpy(&v, (const char *)t->data + 4 * i, 4);
        return v;
    }
    memcpy(&h, (const char *)t->data + 2 * i, 2);
    if (t->type == KERN_BF16) {
        u = (uint32_t)h << 16;
        memcpy(&v, &u, sizeof(v));
        return v;
    }
    v = ldexpf((float)(h & 0x3ff) + (h >> 10 & 31 ? 1024.0f : 0),
               (h >> 10 & 31 ? h >> 10 & 31 : 1) - 25);
    return h >> 15 ? -v : v;
}

/* Half a unit in the last place of v, of a type with `bits` of precision. */
static float half_ulp(float v, int bits, int min_exp)
{
    int e;

    frexpf(v, &e);
    return ldexpf(1, (e - bits > min_exp ? e - bits : min_exp) - 1);
}

TEST(narrow_types_are_rounded_f32)
{
    struct make_opts o[3] = {tiny(KERN_F32, "gguf", test_path("a.gguf")),
                             tiny(KERN_F16, "gguf", test_path("b.gguf")),
                             tiny(KERN_BF16, "gguf", test_path("c.gguf"))};
    struct format_file *f[3];
    const struct format_tensor *t;
    float x;
    int64_t i;
    int k;

    for (k = 0; k < 3; k++) {
        assert_ok(make_model(&o[k]));
        assert_ok(format_open(&f[k], o[k].out));
    }
    t = format_layer_tensor(f[0], 1, FORMAT_UP);
    for (i = 0; i < t->rows * t->cols; i++) {
        x = value(t, i);
        assert_true(fabsf(value(format_layer_tensor(f[1], 1, FORMAT_UP), i) - x) <=
                    half_ulp(x, 11, -24));
        assert_true(fabsf(value(format_layer_tensor(f[2], 1, FORMAT_UP), i) - x) <=
                    half_ulp(x, 8, -133));
    }
    for (k = 0; k < 3; k++)
        format_close(&f[k]);
}

struct moments {
    double mean, var, kurt, within1, within2, neighbours;
    float max;
};

/* Of the values times `scale`, around `centre`. */
static struct moments measure(const struct format_tensor *t, double centre, double scale)
{
    struct moments m = {0};
    double z, last = 0, n = (double)(t->rows * t->cols);
    int64_t i;

    for (i = 0; i < t->rows * t->cols; i++) {
        z = ((double)value(t, i) - centre) * scale;
        m.mean += z / n;
        m.var += z * z / n;
        m.kurt += z * z * z * z / n;
        m.within1 += (fabs(z) < 1) / n;
        m.within2 += (fabs(z) < 2) / n;
        m.neighbours += z * last / n;
        m.max = fmaxf(m.max, (float)fabs(z));
        last = z;
    }
    return m;
}

static void near(const char *what, double got, double want, double slack)
{
    if (fabs(got - want) > slack)
        fail_msg("%s: %g, wanted %g +- %g", what, got, want, slack);
}

TEST(weights_are_normal)
{
    struct make_opts o = tiny(KERN_F32, "gguf", test_path("n.gguf"));
    struct format_file *f;
    struct moments m;
    int i;

    assert_ok(make_model(&o));
    assert_ok(format_open(&f, o.out));
    for (i = 0; i < 2; i++) { /* 84252 and 16968 values; slack is over four deviations */
        m = i ? measure(format_layer_tensor(f, 2, FORMAT_DOWN), 0, sqrt(202))
              : measure(&f->global[FORMAT_EMBED], 0, sqrt(84));
        near("mean", m.mean, 0, 0.035);
        near("variance", m.var, 1, 0.05);
        near("fourth moment", m.kurt, 3, 0.35);
        near("within one deviation", m.within1, 0.6827, 0.016);
        near("within two deviations", m.within2, 0.9545, 0.008);
        near("correlation of neighbours", m.neighbours, 0, 0.035);
        assert_true(m.max > 3.5f && m.max < 4.5f);
    }
    m = measure(format_layer_tensor(f, 0, FORMAT_FFN_NORM), 1, 10);
    near("mean of norm weights", m.mean, 0, 0.5);
    near("variance of norm weights", m.var, 1, 0.7);
    format_close(&f);
}

TEST(every_shape_has_a_name)
{
    const char *const *names = make_names();
    struct model_config c;
    int i;

    for (i = 0; names[i]; i++) {
        assert_ok(make_config(names[i], &c));
        assert_string_equal(c.name, names[i]);
    }
    assert_true(i > 0);
    assert_err(make_config("llama-160n", &c), ERR_NOTFOUND,
               "did you mean \"llama-160m\"?");
    assert_err(make_config("zzzzzzzzzzzz", &c), ERR_NOTFOUND, "zzzzzzzzzzzz");
}

static void a_made_tokenizer_works(const char *path, const char *kind)
{
    static const char text[] =
        "The quick brown fox, 42 times: na\xc3\xafve \xf0\x9f\xa6\x8a\n\tend";
    struct tok *t;
    int32_t *ids;
    size_t n, i, at = 0, len;
    const char *s;
    char back[256];

    assert_ok(tok_open(&t, path, NULL));
    assert_int_equal(tok_vocab(t), 1003);
    assert_int_equal(tok_bos(t), 1);
    assert_int_equal(tok_eos(t), 2);
    assert_true(tok_adds_bos(t));
    assert_non_null(strstr(tok_kind(t), kind));
    assert_ok(tok_encode(t, text, sizeof(text) - 1, TOK_BOS, &ids, &n));
    assert_int_equal(ids[0], 1);
    for (i = 1; i < n; i++) {
        assert_ok(tok_piece(t, ids[i], false, &s, &len));
        assert_true(at + len < sizeof(back));
        memcpy(back + at, s, len);
        at += len;
    }
    back[at] = 0;
    assert_string_equal(back + (back[0] == ' '),
                        text); /* SentencePiece puts a space first */
    assert_true(n <
                sizeof(text) - 6); /* some letters merge, even in so small a vocabulary */
    mem_free(ids);
    tok_close(&t);
}

TEST(made_tokenizers_work)
{
    struct make_opts o = tiny(KERN_F16, "gguf", test_path("tok.gguf"));

    assert_ok(make_model(&o));
    a_made_tokenizer_works(o.out, "spm");
    o = tiny(KERN_F16, "safetensors", test_path("tok"));
    assert_ok(make_model(&o));
    a_made_tokenizer_works(o.out, "bpe");
}

TEST(tokenizers_are_copied)
{
    struct make_opts o = tiny(KERN_F16, "gguf", test_path("from.gguf"));
    const void *ha, *hb;
    struct gguf *a, *b;
    const char *sa, *sb;
    size_t na, nb;
    enum gguf_type type;
    uint64_t i, n;

    assert_ok(make_model(&o));
    o.tokenizer = o.out;
    o.out = test_path("to.gguf");
    o.seed = 8;
    assert_ok(make_model(&o));
    assert_ok(gguf_open(&a, o.tokenizer));
    assert_ok(gguf_open(&b, o.out));
    assert_int_equal(gguf_n_keys(a), gguf_n_keys(b));
    assert_ok(gguf_get_array(a, "tokenizer.ggml.tokens", &type, &n, &ha));
    assert_ok(gguf_get_array(b, "tokenizer.ggml.tokens", &type, &n, &hb));
    assert_int_equal(n, 1003);
    for (i = 0; i < n; i++) {
        assert_ok(gguf_array_str(ha, i, &sa, &na));
        assert_ok(gguf_array_str(hb, i, &sb, &nb));
        assert_int_equal(na, nb);
        assert_memory_equal(sa, sb, na);
    }
    gguf_close(&a);
    gguf_close(&b);

    o.format = "safetensors";
    assert_err(make_model(&o), ERR_UNSUPPORTED, "expected a tokenizer.json");
    o.out = test_path("src");
    o.tokenizer = NULL;
    assert_ok(make_model(&o));
    o.tokenizer = test_path("src/tokenizer.json");
    o.out = test_path("dst");
    assert_ok(make_model(&o));
    a_made_tokenizer_works(o.out, "bpe");
    o.format = "gguf";
    o.out = test_path("dst.gguf");
    assert_err(make_model(&o), ERR_UNSUPPORTED, "expected a .gguf file");
    o.tokenizer = "/no/such/tokenizer.gguf";
    assert_err(make_model(&o), ERR_NOTFOUND, "/no/such/tokenizer.gguf");
}

static void count_progress(void *ctx, int64_t done, int64_t all)
{
    int64_t *last = ctx;

    assert_true(done >= *last && done <= all && all > 0);
    *last = done;
}

TEST(progress_ascends)
{
    struct make_opts o = tiny(KERN_F32, "safetensors", test_path("p"));
    int64_t last = 0;

    o.progress = count_progress;
    o.progress_ctx = &last;
    o.n_threads = 1;
    assert_ok(make_model(&o));
    assert_int_equal(last, 378252 * 4); /* all parameters */
}

TEST(bad_requests_are_refused)
{
    struct make_opts o = tiny(KERN_F32, "onnx", test_path("x"));
    char at[400];

    assert_err(make_model(&o), ERR_ARG, "expected gguf or safetensors, found onnx");
    o.format = "gguf";
    o.out = "/dev/null/x.gguf";
    assert_err(make_model(&o), ERR_IO, "cannot create");
    o.out = test_path("full");
    o.format = "safetensors";
    assert_int_equal(mkdir(o.out, 0777), 0);
    snprintf(at, sizeof(at), "%s/keep", o.out);
    test_write(at, "x", 1);
    assert_err(make_model(&o), ERR_IO, "an empty directory");
    assert_int_equal(left_files(o.out), 1); /* and what is in it stays */
    o.type = KERN_N_TYPES;
    assert_err(make_model(&o), ERR_ARG, "type");
}

/* A full disk, as a limit on the size of files: an error, and nothing left behind. */
TEST(a_full_disk_leaves_nothing)
{
    static const char *const formats[] = {"gguf", "safetensors"};
    static const rlim_t limits[] = {100, 20000, 700000};
    struct make_opts o;
    struct rlimit old, low;
    char parent[300], out[340];
    int i, rc;

    snprintf(parent, sizeof(parent), "%s", test_path("disk"));
    snprintf(out, sizeof(out), "%s/out", parent);
    assert_int_equal(mkdir(parent, 0777), 0);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    for (i = 0; i < 6; i++) {
        o = tiny(KERN_F32, formats[i / 3], out);
        low = (struct rlimit){limits[i % 3], old.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
        rc = make_model(&o);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        if (rc != ERR_IO || !strstr(err_msg(), out))
            fail_msg("%s at %ld bytes: %s \"%s\"", o.format, (long)low.rlim_cur,
                     err_name(rc), err_msg());
        assert_int_equal(left_files(parent), 0);
    }
}

TEST(memory_may_run_out_anywhere)
{
    static const char *const formats[] = {"gguf", "safetensors"};
    struct make_opts o;
    char parent[300], out[340];
    long n, step;
    int i, rc;

    snprintf(parent, sizeof(parent), "%s", test_path("mem"));
    snprintf(out, sizeof(out), "%s/out", parent);
    assert_int_equal(mkdir(parent, 0777), 0);
    for (i = 0; i < 2; i++) {
        rc = ERR_NOMEM;
        /* all of the first ones; then, among the thousands that the JSON takes, some */
        for (n = 0, step = 1; rc != OK; n += step, step += n > 60 ? step / 4 + 1 : 0) {
            o = tiny(KERN_F16, formats[i], out);
            o.n_threads = 1;
            mem_fail_after(n, 1);
            rc = make_model(&o);
            mem_fail_after(-1, 0);
            if (rc != OK && rc != ERR_NOMEM)
                fail_msg("%s, allocation %ld: %s \"%s\"", formats[i], n, err_name(rc),
                         err_msg());
            assert_int_equal(left_files(parent), rc == OK);
        }
        assert_true(n > 10);
        if (i == 0)
            assert_int_equal(unlink(out), 0);
    }
}
