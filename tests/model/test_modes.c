/* Whole models, of published shapes and one that was trained: the same bits of every logit
 * for 1 to 8 ranks, as teams and as processes, each step by another degree than the one
 * before, and no byte copied for it. */
#include <inttypes.h>

#include "format/make.h"
#include "model/procs.h"
#include "tests/support/test.h"
#include "tests/support/kv.h"

static const int degrees[] = {1, 2, 3, 4, 6, 8};
#define N_DEGREES ((int)(sizeof(degrees) / sizeof(degrees[0])))
#define N_TOK     32
#define N_RUNS    3

struct engine {
    struct format_file *file;
    struct par_team *team;
    struct model *model;
    struct model_phase *phases[N_DEGREES];
    int n_phases;
    struct kv_pool *pool;
};

static void engine_open(struct engine *e, const char *path, bool multiprocess)
{
    static const int cpus[8];
    const struct model_opts o = {.weight_type = KERN_N_TYPES,
                                 .kv_type = KERN_KV_F32,
                                 .precision = KERN_EXACT,
                                 .deterministic = true,
                                 .shared = multiprocess,
                                 .max_step_tok = N_TOK,
                                 .max_tok = N_TOK};
    struct kv_shape shape;

    memset(e, 0, sizeof(*e));
    assert_ok(format_open(&e->file, path));
    assert_ok(par_team_open(&e->team, cpus, 8, 0));
    assert_ok(model_open(&e->model, e->file, e->team, &o));
    for (int i = 0; i < N_DEGREES; i++) {
        const struct model_phase_opts po = {.n_ranks = degrees[i], .n_threads = 1};

        if (degrees[i] <= model_config_of(e->model)->n_heads)
            assert_ok(model_phase_open(&e->phases[e->n_phases++], e->model, &po));
    }
    model_kv_shape(e->model, &shape);
    test_kv_open(&e->pool, &shape,
                 (struct kv_pool_opts){.max_tok = N_TOK, .shared = true}, 1);
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
    kv_pool_close(&e->pool);
    for (int i = 0; i < e->n_phases; i++)
        model_phase_close(&e->phases[i]);
    model_close(&e->model);
    format_close(&e->file);
    par_team_close(&e->team);
}

/* With `switches` NULL: keep the logits of every position, a token at a time, by the
 * first phase. Else: steps of 1 to 12 tokens by phases drawn at random, which must end in
 * the logits kept. */
static void run(struct engine *e, struct rng *switches, float *kept, const char *what)
{
    int64_t vocab = model_config_of(e->model)->vocab;
    float *row = mem_new(MEM_TEST, (size_t)vocab, sizeof(*row));
    int32_t ids[N_TOK];
    struct kv_slot kv;

    assert_non_null(row);
    for (int i = 0; i < N_TOK; i++)
        ids[i] = (int32_t)(i * 7919 % vocab);
    test_kv_reserve(e->pool, N_TOK, &kv);
    for (int64_t at = 0, n; at < N_TOK; at += n) {
        int phase = switches ? (int)rng_below(switches, (uint64_t)e->n_phases) : 0;
        int64_t left = N_TOK - at;

        n = switches ? 1 + (int64_t)rng_below(switches, 12) : 1;
        n = n < left ? n : left;
        const struct model_chunk c = {
            .kv = &kv, .ids = ids + at, .n_tok = n, .pos0 = at, .want_logits = true};
        assert_ok(model_forward(e->phases[phase], &c, 1, row));
        if (!switches)
            memcpy(kept + at * vocab, row, (size_t)vocab * sizeof(*row));
        else if (memcmp(kept + (at + n - 1) * vocab, row, (size_t)vocab * sizeof(*row)))
            fail_msg("%s, seed %" PRIu64 ", position %lld: other bits than one rank's",
                     what, test_seed(), (long long)(at + n - 1));
    }
    mem_free(row);
    kv_release(e->pool, &kv);
}

static void check_file(const char *name, const char *path)
{
    float *kept = NULL;

    for (int multiprocess = 0; multiprocess < 2; multiprocess++) {
        struct engine e;
        char what[64];

        snprintf(what, sizeof(what), "%s, ranks as %s", name,
                 multiprocess ? "processes" : "teams");
        engine_open(&e, path, multiprocess);
        assert_true(e.n_phases >= 4);
        if (!kept) {
            kept = mem_new(MEM_TEST, (size_t)(N_TOK * model_config_of(e.model)->vocab),
                           sizeof(*kept));
            assert_non_null(kept);
            run(&e, NULL, kept, what);
        }
        for (int i = 0; i < N_RUNS; i++) {
            struct rng rng;

            rng_init(&rng, test_seed() + (uint64_t)i, "switches");
            run(&e, &rng, kept, what);
        }
        for (int i = 0; i < e.n_phases; i++)
            assert_int_equal(model_phase_moved_bytes(e.phases[0], e.phases[i]), 0);
        engine_close(&e);
    }
    mem_free(kept);
}

static void check_made(const char *arch, enum kern_type type)
{
    char path[600];
    struct format_make_opts make = {.arch = arch,
                                    .type = type,
                                    .seed = test_seed(),
                                    .format = "gguf",
                                    .out = path,
                                    .n_threads = 2};

    snprintf(path, sizeof(path), "%s/%s.gguf", test_dir(), arch);
    assert_ok(format_make(&make));
    check_file(arch, path);
    remove(path);
}

static void tiny(void **state)
{
    (void)state;
    check_made("tiny", KERN_F32);
}

static void llama_160m(void **state)
{
    (void)state;
    check_made("llama-160m", KERN_BF16);
}

static void stories(void **state)
{
    (void)state;
    check_file("stories260K", test_need_data("models/stories260K.bin"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiny),
        cmocka_unit_test(llama_160m),
        cmocka_unit_test(stories),
    };

    return cmocka_run_group_tests_name("modes", tests, NULL, NULL);
}
