/* Real answers: five random golden models (made by a float64 reference and agreed to by
 * another engine), the trained stories260K, and models of other families that `model make`
 * makes, with answers of float64 arithmetic in tests/golden/models; at every ISA level and
 * with 1 or 2 threads, and by 1 to 8 ranks, as teams and as processes. */
#include <math.h>

#include "base/json.h"
#include "cpu/cpu.h"
#include "make/make.h"
#include "kv/kv.h"
#include "placement/open.h"
#include "ranks/procs.h"
#include "tests/support/ref_model.h"
#include "tests/support/test.h"
#include "kv/buckets.h"
#include "tests/support/kv.h"

static const char *const golden[] = {"llama-mha-f32", "llama-gqa-ragged-f32",
                                     "llama-head64-bf16", "llama3-scaled-bf16",
                                     "qwen2-bias-f16"};
#define N_GOLDEN ((int)(sizeof(golden) / sizeof(golden[0])))
#define MAX_IDS  512

struct answer {
    int32_t prompt[MAX_IDS], greedy[MAX_IDS];
    int n_prompt, n_greedy;
    double logits[1024], max_abs; /* after the prompt */
    int n_logits;
    bool exact_only; /* a small error may change which experts a token has */
};

static int read_ids(const json_t *root, const char *key, int32_t *out)
{
    const json_t *a = json_object_get(root, key);
    int n = (int)json_array_size(a);

    assert_in_range(n, 1, MAX_IDS);
    for (int i = 0; i < n; i++)
        out[i] = (int32_t)json_integer_value(json_array_get(a, (size_t)i));
    return n;
}

static void read_logits(const json_t *root, const char *key, struct answer *a)
{
    const json_t *j = json_object_get(root, key);

    a->n_logits = (int)json_array_size(j);
    assert_in_range(a->n_logits, 1, 1024);
    for (int i = 0; i < a->n_logits; i++) {
        a->logits[i] = json_number_value(json_array_get(j, (size_t)i));
        a->max_abs = fmax(a->max_abs, fabs(a->logits[i]));
    }
}

static void read_golden(const char *path, struct answer *a)
{
    json_t *root;

    memset(a, 0, sizeof(*a));
    assert_ok(json_read_file(&root, path, 1 << 20));
    a->n_prompt = read_ids(root, "prompt_ids", a->prompt);
    a->n_greedy = read_ids(root, "greedy_ids", a->greedy);
    read_logits(root, "logits_after_prompt", a);
    json_decref(root);
}

/* Its greedy_tokens begin with BOS, which is the whole prompt. */
static void read_stories(const char *path, struct answer *a)
{
    json_t *root;

    memset(a, 0, sizeof(*a));
    assert_ok(json_read_file(&root, path, 1 << 20));
    a->n_greedy = read_ids(root, "greedy_tokens", a->greedy) - 1;
    a->prompt[0] = a->greedy[0];
    a->n_prompt = 1;
    memmove(a->greedy, a->greedy + 1, (size_t)a->n_greedy * sizeof(a->greedy[0]));
    read_logits(root, "logits_after_bos", a);
    json_decref(root);
}

struct run {
    const char *path, *isa, *alloc; /* alloc: of keys and values */
    int n_ranks, n_threads;
    bool multiprocess; /* ranks are processes */
    enum kern_precision precision;
    double tolerance;
};

static void check_alloc(const struct run *r, const struct answer *a)
{
    static const int cpus[16];
    struct model_opts o = {.weight_type = KERN_N_TYPES,
                           .kv_type = KERN_KV_F32,
                           .precision = r->precision,
                           .shared = r->multiprocess,
                           .max_step_tok = 64};
    const struct kern_variant *argmax;
    struct format_file *f;
    struct par_team *team;
    struct model_phase_opts po = {.n_ranks = r->n_ranks, .n_threads = r->n_threads};
    struct model_phase *phase;
    struct model *m;
    struct kv_pool *pool;
    struct kv_shape shape;
    struct kv_slot kv;
    struct model_chunk c = {.want_logits = true};
    struct kv_bounds bounds = {
        .n = 2, .of_total = true, .align_tok = 16, .tok = {16, 48}};
    const struct kv_pool_opts kvo = {.alloc = r->alloc,
                                     .max_tok = 512,
                                     .block_tok = 16,
                                     .max_seqs = 1,
                                     .shared = true,
                                     .bounds = &bounds};
    struct model_procs_opts procs = {.phases = &phase, .n_phases = 1, .max_chunks = 1};
    float logits[1024];

    assert_ok(format_open(&f, r->path));
    assert_int_equal(f->config.vocab, a->n_logits);
    assert_ok(par_team_open(&team, cpus, r->n_ranks * r->n_threads, 0));
    assert_ok(model_open(&m, f, team, &o));
    assert_ok(model_phase_open(&phase, m, &po));
    model_kv_shape(m, &shape);
    test_kv_open(&pool, &shape, kvo, 3);
    if (r->multiprocess) {
        par_team_close(&team);
        assert_ok(model_procs_open(m, &procs));
    }
    test_kv_reserve(pool, a->n_prompt, &kv);
    argmax = model_kern(m)->v[KERN_ARGMAX];
    c.kv = &kv, c.ids = a->prompt, c.n_tok = a->n_prompt;
    for (int i = 0; i < a->n_greedy; i++) {
        int32_t id;

        assert_ok(kv_grow(pool, &kv, c.pos0, c.pos0 + c.n_tok));
        assert_ok(model_forward(phase, &c, 1, logits));
        for (int k = 0; i == 0 && k < a->n_logits; k++) {
            if (!(fabs((double)logits[k] - a->logits[k]) <= r->tolerance * a->max_abs))
                fail_msg("%s, isa %s, %s, %d ranks of %d threads%s: logit %d: %.9g, "
                         "reference %.9g",
                         r->path, r->isa, r->alloc, r->n_ranks, r->n_threads,
                         r->multiprocess ? " multiprocess" : "", k, (double)logits[k],
                         a->logits[k]);
        }
        id = (int32_t)argmax->fn.argmax(logits, a->n_logits);
        if (id != a->greedy[i] && r->precision == KERN_EXACT)
            fail_msg("%s, isa %s, %s, %d ranks of %d threads%s: greedy id %d is %d, "
                     "reference %d",
                     r->path, r->isa, r->alloc, r->n_ranks, r->n_threads,
                     r->multiprocess ? " multiprocess" : "", i, id, a->greedy[i]);
        c.pos0 += c.n_tok;
        c.ids = &a->greedy[i], c.n_tok = 1;
    }
    model_procs_close(m);
    kv_pool_close(&pool);
    model_phase_close(&phase);
    model_close(&m);
    format_close(&f);
    par_team_close(&team);
}

/* With another allocator each time. */
static void check_run(const struct run *r, const struct answer *a)
{
    static int n;
    struct run one = *r;

    if (!kv_allocs[n])
        n = 0;
    one.alloc = kv_allocs[n++]->name;
    check_alloc(&one, a);
}

/* Tensor-parallel degrees within and beyond the heads. */
static void check_ranks(const char *path, const struct answer *a)
{
    struct run r = {.path = path, .isa = "auto", .n_threads = 1, .tolerance = 1e-4};

    for (int mode = 0; mode < 2; mode++) {
        r.multiprocess = mode;
        r.n_threads = 1;
        for (r.n_ranks = 2; r.n_ranks <= 8; r.n_ranks += r.n_ranks < 4 ? 1 : 2)
            check_run(&r, a);
        r.n_ranks = r.n_threads = 2;
        check_run(&r, a);
    }
}

/* Every ISA level this machine executes, exact with 1 and 2 threads and relaxed with 2.
 */
static void check_everywhere(const char *path, const struct answer *a)
{
    uint64_t have = cpu_isa_detected();

    for (int b = -1; b < CPU_N_ISA; b++) {
        struct run r = {
            .path = path, .isa = b < 0 ? "ref" : cpu_isa_word(b), .n_ranks = 1};

        if (b >= 0 && !(have >> b & 1))
            continue;
        assert_ok(cpu_isa_limit(r.isa));
        r.tolerance = 1e-4;
        for (r.n_threads = 1; r.n_threads <= 2; r.n_threads++)
            check_run(&r, a);
        if (a->exact_only)
            continue;
        r.n_threads = 2, r.precision = KERN_RELAXED, r.tolerance = 2e-2;
        check_run(&r, a);
    }
    assert_ok(cpu_isa_limit("auto"));
    check_ranks(path, a);
}

static void check_golden(const char *suffix)
{
    test_need_data("models/golden");
    for (int i = 0; i < N_GOLDEN; i++) {
        char file[128];
        const char *model;
        struct answer a;

        snprintf(file, sizeof(file), "models/golden/%s%s", golden[i], suffix);
        model = test_need_data(file);
        snprintf(file, sizeof(file), "models/golden/%s.json", golden[i]);
        read_golden(test_need_data(file), &a);
        check_everywhere(model, &a);
    }
}

TEST(test_golden_gguf)
{
    check_golden(".gguf");
}

TEST(test_golden_safetensors)
{
    check_golden("");
}

TEST(test_stories)
{
    const char *model = test_need_data("models/stories260K.bin");
    const char *json = test_need_data("models/stories260K.greedy.json");
    struct answer a;

    read_stories(json, &a);
    check_everywhere(model, &a);
}

/* Greedy ids by the float64 reference: n_prompt random ids, then n_greedy of its own. */
static void update(const char *model, const char *json)
{
    enum { N_PROMPT = 40, N_GREEDY = 24, N = N_PROMPT + N_GREEDY };
    json_t *prompt = json_array(), *greedy = json_array(), *first = json_array();
    int32_t ids[N + 1];
    struct format_file *f;
    struct ref_model r;
    struct rng rng;
    double *logits;
    int64_t vocab;
    char *text;

    assert_ok(format_open(&f, model));
    ref_model_of_file(&r, f);
    format_close(&f);
    vocab = r.f.config.vocab;
    logits = mem_new(MEM_TEST, (size_t)(N * vocab), sizeof(*logits));
    assert_non_null(logits);
    rng_init(&rng, 1, "golden");
    for (int n = 0; n < N; n++) {
        const double *row = logits + (n - 1) * vocab;
        int best = 0;

        if (n < N_PROMPT) {
            ids[n] = (int32_t)rng_below(&rng, (uint64_t)vocab);
            json_array_append_new(prompt, json_integer(ids[n]));
            continue;
        }
        ref_model_forward(&r, ids, n, logits);
        for (int k = 0; k < vocab; k++) {
            if (n == N_PROMPT)
                json_array_append_new(first, json_real(row[k]));
            best = row[k] > row[best] ? k : best;
        }
        ids[n] = best;
        json_array_append_new(greedy, json_integer(best));
    }
    prompt = json_pack("{s:o, s:o, s:o}", "prompt_ids", prompt, "greedy_ids", greedy,
                       "logits_after_prompt", first);
    text = json_text(prompt, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(9));
    assert_non_null(text);
    test_write(json, text, strlen(text));
    mem_free(text);
    mem_free(logits);
    json_decref(prompt);
    ref_model_fini(&r);
}

/* A model of each family, that every checkout can make: the same weights as GGUF and as
 * safetensors. */
TEST(test_made)
{
    static const struct {
        const char *arch;
        enum kern_type type;
    } made[] = {{"tiny", KERN_F32},           {"tiny-mistral", KERN_F32},
                {"tiny-llama3", KERN_BF16},   {"tiny-qwen2", KERN_F16},
                {"tiny-qwen3", KERN_BF16},    {"tiny-moe", KERN_F32},
                {"tiny-qwen2-moe", KERN_F16}, {"tiny-qwen3-moe", KERN_BF16}};

    for (size_t i = 0; i < sizeof(made) / sizeof(made[0]); i++) {
        struct make_opts o = {
            .arch = made[i].arch, .type = made[i].type, .seed = 1, .n_threads = 1};
        struct run r = {.isa = "auto", .n_ranks = 1, .n_threads = 1, .tolerance = 1e-4};
        char json[128], path[400];
        struct answer a;

        snprintf(json, sizeof(json), "tests/golden/models/%s.json", o.arch);
        snprintf(path, sizeof(path), "%s/%s.gguf", test_dir(), o.arch);
        o.out = path, o.format = "gguf";
        assert_ok(make_model(&o));
        if (getenv("UPDATE"))
            update(path, json);
        read_golden(json, &a);
        a.exact_only = strstr(o.arch, "-moe");
        check_everywhere(path, &a);
        snprintf(path, sizeof(path), "%s/%s", test_dir(), o.arch);
        o.format = "safetensors";
        assert_ok(make_model(&o));
        r.path = path;
        check_run(&r, &a);
    }
}
