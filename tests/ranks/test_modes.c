/* Whole models, of published shapes, the golden ones and one that was trained: the same bits of
 * every logit for 1 to 8 ranks, as teams and as processes, each step by another degree than the
 * one before, and no byte copied for it; with every allocator of keys and values, in blocks of 16
 * and 256 tokens, for a sequence that has all of its memory at once and for one that outgrows
 * what it has, again and again. */
#include <inttypes.h>

#include "make/make.h"
#include "kv/buckets.h"
#include "placement/open.h"
#include "ranks/procs.h"
#include "tests/support/test.h"
#include "tests/support/kv.h"

static const int degrees[] = {1, 2, 3, 4, 6, 8};
#define N_DEGREES ((int)(sizeof(degrees) / sizeof(degrees[0])))
#define N_TOK_MAX 300

static const struct {
    const char *alloc;
    int64_t block_tok;
} memories[] = {{"static", 0}, {"paged", 16}, {"paged", 256}, {"s3", 0}, {"odma", 0}};
#define N_MEMORIES ((int)(sizeof(memories) / sizeof(memories[0])))
static const struct kv_bounds bounds = {
    .n = 2, .of_total = true, .align_tok = 16, .tok = {16, 32}};

struct engine {
    struct format_file *file;
    struct par_team *team;
    struct model *model;
    struct model_phase *phases[N_DEGREES];
    int n_phases;
    int64_t n_tok; /* of the sequence */
    struct kv_pool *pools[N_MEMORIES];
};

static void engine_open_pools(struct engine *e)
{
    struct kv_shape shape;

    model_kv_shape(e->model, &shape);
    for (int i = 0; i < N_MEMORIES; i++)
        test_kv_open(&e->pools[i], &shape,
                     (struct kv_pool_opts){.alloc = memories[i].alloc,
                                           .max_tok = e->n_tok,
                                           .block_tok = memories[i].block_tok,
                                           .max_seqs = 2,
                                           .bounds = &bounds,
                                           .shared = true},
                     3); /* both places of a move, and the neighbour */
}

static void engine_open(struct engine *e, const char *path, int64_t n_tok,
                        bool multiprocess)
{
    static const int cpus[8];
    const struct model_opts o = {.weight_type = KERN_N_TYPES,
                                 .kv_type = KERN_KV_F32,
                                 .precision = KERN_EXACT,
                                 .deterministic = true,
                                 .shared = multiprocess,
                                 .max_step_tok = n_tok,
                                 .max_tok = n_tok};

    memset(e, 0, sizeof(*e));
    e->n_tok = n_tok;
    assert_ok(format_open(&e->file, path));
    assert_ok(par_team_open(&e->team, cpus, 8, 0));
    assert_ok(model_open(&e->model, e->file, e->team, &o));
    for (int i = 0; i < N_DEGREES; i++) {
        const struct model_phase_opts po = {.n_ranks = degrees[i], .n_threads = 1};

        if (degrees[i] <= model_config_of(e->model)->n_heads)
            assert_ok(model_phase_open(&e->phases[e->n_phases++], e->model, &po));
    }
    engine_open_pools(e);
    if (multiprocess) {
        const struct model_procs_opts procs = {
            .phases = e->phases, .n_phases = e->n_phases, .max_chunks = 1};

        par_team_close(&e->team);
        assert_ok(model_procs_open(e->model, &procs));
    }
}

static void engine_close(struct engine *e)
{
    model_procs_close(e->model);
    for (int i = 0; i < N_MEMORIES; i++)
        kv_pool_close(&e->pools[i]);
    for (int i = 0; i < e->n_phases; i++)
        model_phase_close(&e->phases[i]);
    model_close(&e->model);
    format_close(&e->file);
    par_team_close(&e->team);
}

/* With `switches` NULL: keep the logits of every position, a token at a time, by the
 * first phase. Else: steps of 1 to 12 tokens by phases drawn at random, which must end in
 * the logits kept. `grows`: memory for the next tokens only, and a neighbour to its right. */
static void run(struct engine *e, struct kv_pool *pool, bool grows, struct rng *switches,
                float *kept, const char *what)
{
    int64_t vocab = model_config_of(e->model)->vocab;
    float *row = mem_new(MEM_TEST, (size_t)vocab, sizeof(*row));
    int32_t ids[N_TOK_MAX];
    struct kv_slot kv, neighbour = {.base = NULL};

    assert_non_null(row);
    for (int i = 0; i < e->n_tok; i++)
        ids[i] = (int32_t)(i * 7919 % vocab);
    test_kv_reserve(pool, grows ? 1 : e->n_tok, &kv);
    if (grows)
        test_kv_reserve(pool, 1, &neighbour);
    for (int64_t at = 0, n; at < e->n_tok; at += n) {
        int phase = switches ? (int)rng_below(switches, (uint64_t)e->n_phases) : 0;
        int64_t left = e->n_tok - at;

        n = switches ? 1 + (int64_t)rng_below(switches, 12) : 1;
        n = n < left ? n : left;
        const struct model_chunk c = {
            .kv = &kv, .ids = ids + at, .n_tok = n, .pos0 = at, .want_logits = true};
        assert_ok(kv_grow(pool, &kv, at, at + n));
        assert_ok(model_forward(e->phases[phase], &c, 1, row));
        if (!switches)
            memcpy(kept + at * vocab, row, (size_t)vocab * sizeof(*row));
        else if (memcmp(kept + (at + n - 1) * vocab, row, (size_t)vocab * sizeof(*row)))
            fail_msg("%s, seed %" PRIu64 ", position %lld: other bits than one rank's",
                     what, test_seed(), (long long)(at + n - 1));
    }
    mem_free(row);
    kv_release(pool, &neighbour);
    kv_release(pool, &kv);
}

static void check_memories(struct engine *e, float *kept, const char *name)
{
    for (int i = 0; i < 2 * N_MEMORIES; i++) {
        struct kv_pool *pool = e->pools[i / 2];
        bool grows = i % 2;
        struct kv_stat st;
        struct rng rng;
        char what[256];

        snprintf(what, sizeof(what), "%s, %s%s, blocks of %lld", name,
                 memories[i / 2].alloc, grows ? " as it grows" : "",
                 (long long)memories[i / 2].block_tok);
        rng_init(&rng, test_seed() + (uint64_t)i, "switches");
        run(e, pool, grows, &rng, kept, what);
        kv_pool_stat(pool, &st);
        assert_int_equal(st.reserved_bytes, 0);
        assert_int_equal(st.n_moved_total > 0,
                         grows && (strcmp(memories[i / 2].alloc, "s3") == 0 ||
                                   strcmp(memories[i / 2].alloc, "odma") == 0));
    }
}

static void check_file(const char *name, const char *path, int64_t n_tok)
{
    float *kept = NULL;

    for (int multiprocess = 0; multiprocess < 2; multiprocess++) {
        struct engine e;
        char what[128];

        snprintf(what, sizeof(what), "%s, ranks as %s", name,
                 multiprocess ? "processes" : "teams");
        engine_open(&e, path, n_tok, multiprocess);
        assert_true(e.n_phases >= 2);
        if (!kept) {
            kept = mem_new(MEM_TEST, (size_t)(n_tok * model_config_of(e.model)->vocab),
                           sizeof(*kept));
            assert_non_null(kept);
            run(&e, e.pools[0], false, NULL, kept, what);
        }
        check_memories(&e, kept, what);
        for (int i = 0; i < e.n_phases; i++)
            assert_int_equal(model_phase_moved_bytes(e.phases[0], e.phases[i]), 0);
        engine_close(&e);
    }
    mem_free(kept);
}

static void check_made(const char *arch, enum kern_type type, int64_t n_tok)
{
    char path[600];
    struct make_opts make = {.arch = arch,
                             .type = type,
                             .seed = test_seed(),
                             .format = "gguf",
                             .out = path,
                             .n_threads = 2};

    snprintf(path, sizeof(path), "%s/%s.gguf", test_dir(), arch);
    assert_ok(make_model(&make));
    check_file(arch, path, n_tok);
    remove(path);
}

TEST(tiny)
{
    check_made("tiny", KERN_F32, 100);
}

TEST(llama_160m)
{
    check_made("llama-160m", KERN_BF16, 40);
}

TEST(stories)
{
    check_file("stories260K", test_need_data("models/stories260K.bin"), N_TOK_MAX);
}

TEST(golden)
{
    static const char *const names[] = {"llama-mha-f32", "llama-gqa-ragged-f32",
                                        "llama-head64-bf16", "llama3-scaled-bf16",
                                        "qwen2-bias-f16"};

    for (int i = 0; i < 5; i++) {
        char file[64];

        snprintf(file, sizeof(file), "models/golden/%s.gguf", names[i]);
        check_file(names[i], test_need_data(file), 60);
    }
}
