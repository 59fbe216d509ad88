/* The engine with schedules of its own: the same tokens, whatever the schedules, and the
 * same bits where the order of sums allows it. */
#include <math.h>

#include "tests/tune/bench_model.h"

#include "kv/kv.h"
#include "placement/open.h"
#include "ranks/phase.h"
#include "tests/support/ref_model.h"
#include "tune/schedule_cache.h"
#include "tune/space.h"
#include "tests/support/kv.h"

#define N_TOK    48
#define N_NEW    8
#define VOCAB    83
#define THREADS  3
#define STEP_MAX 32

static void config(struct model_config *c, enum kern_type type)
{
    memset(c, 0, sizeof(*c));
    snprintf(c->arch, sizeof(c->arch), "llama");
    c->dim = 64, c->n_layers = 3, c->n_heads = 6, c->n_kv_heads = 3, c->head_dim = 16;
    c->hidden = 200, c->vocab = VOCAB, c->max_tok = N_TOK + N_NEW;
    c->norm_eps = 1e-5f, c->rope_theta = 10000;
    c->weight_type = type;
    c->bos_id = c->eos_id = -1;
    for (int i = 0; i < c->head_dim / 2; i++)
        c->rope_factor[i] = 1;
}

struct engine {
    struct ref_model ref;
    struct par_team *team;
    struct model *model;
    struct model_phase *phase[THREADS + 1]; /* by number of threads */
    struct kv_pool *pool;
};

static void engine_open(struct engine *e, enum kern_type type, bool mixed)
{
    static const int cpus[THREADS];
    const struct model_opts o = {
        .weight_type = KERN_N_TYPES, .kv_type = KERN_KV_F32, .max_step_tok = STEP_MAX};
    struct model_config c;
    struct kv_shape shape;

    config(&c, type);
    ref_model_init(&e->ref, &c, false, mixed, false, test_seed());
    assert_ok(par_team_open(&e->team, cpus, THREADS, 0));
    assert_ok(model_open(&e->model, &e->ref.f, e->team, &o));
    for (int n = 1; n <= THREADS; n++) {
        const struct model_phase_opts po = {.n_ranks = 1, .n_threads = n};

        assert_ok(model_phase_open(&e->phase[n], e->model, &po));
    }
    model_kv_shape(e->model, &shape);
    test_kv_open(&e->pool, &shape, (struct kv_pool_opts){.max_tok = N_TOK + N_NEW}, 1);
}

static void engine_close(struct engine *e)
{
    kv_pool_close(&e->pool);
    for (int n = 1; n <= THREADS; n++)
        model_phase_close(&e->phase[n]);
    model_close(&e->model);
    par_team_close(&e->team);
    ref_model_fini(&e->ref);
}

/* Logits after a prompt in steps of at most STEP_MAX, then of N_NEW greedy tokens. */
static void generate(struct engine *e, int n_threads, float logits[N_NEW][VOCAB],
                     int32_t ids[N_NEW])
{
    int32_t prompt[N_TOK];
    struct kv_slot kv;

    for (int i = 0; i < N_TOK; i++)
        prompt[i] = (i * 31 + 7) % VOCAB;
    test_kv_reserve(e->pool, N_TOK + N_NEW, &kv);
    for (int64_t at = 0; at < N_TOK; at += STEP_MAX) {
        int64_t n = N_TOK - at < STEP_MAX ? N_TOK - at : STEP_MAX;
        const struct model_chunk c = {.kv = &kv,
                                      .ids = prompt + at,
                                      .n_tok = n,
                                      .pos0 = at,
                                      .want_logits = at + n == N_TOK};

        assert_ok(model_forward(e->phase[n_threads], &c, 1, logits[0]));
    }
    for (int i = 0; i < N_NEW; i++) {
        const struct model_chunk c = {.kv = &kv,
                                      .ids = &ids[i],
                                      .n_tok = 1,
                                      .pos0 = N_TOK + i,
                                      .want_logits = true};

        ids[i] = 0;
        for (int k = 1; k < VOCAB; k++)
            if (logits[i][k] > logits[i][ids[i]])
                ids[i] = k;
        if (i + 1 < N_NEW)
            assert_ok(model_forward(e->phase[n_threads], &c, 1, logits[i + 1]));
    }
    kv_release(e->pool, &kv);
}

struct draw {
    struct rng rng;
    bool split_k;
    bool one_micro_kernel; /* one panel wide, as tall as there is */
};

static int drawn(void *ctx, const struct kern_variant *v, const struct kern_mat *w,
                 int64_t m_max, int n_threads, struct kern_schedule *out)
{
    struct draw *d = ctx;

    for (int64_t m = 1; m <= m_max; m++) {
        const struct tune_shape s = {.v = v, .m = m, .n = w->n, .k = w->k};
        int tries = 0;

        do {
            tune_random(&out[m - 1], &s, w, n_threads, d->split_k, &d->rng);
            if (d->one_micro_kernel) {
                out[m - 1].mr = kern_gemm_rows(v, 1);
                out[m - 1].np = 1;
            }
            assert_true(tries++ < 1000);
        } while (kern_schedule_check(&out[m - 1], v, w, m, n_threads) != OK);
        if (!d->split_k)
            out[m - 1].bk = KERN_ALL;
    }
    return OK;
}

static void compare(const float want[N_NEW][VOCAB], const float got[N_NEW][VOCAB],
                    double tolerance, int trial)
{
    double largest = 0;

    for (int i = 0; i < N_NEW; i++)
        for (int k = 0; k < VOCAB; k++)
            largest = fmax(largest, fabs((double)want[i][k]));
    for (int i = 0; i < N_NEW; i++)
        for (int k = 0; k < VOCAB; k++)
            if (!(fabs((double)want[i][k] - (double)got[i][k]) <= tolerance * largest))
                fail_msg("seed %llu, trial %d, token %d, logit %d: %.9g, by default %.9g",
                         (unsigned long long)test_seed(), trial, i, k, (double)got[i][k],
                         (double)want[i][k]);
}

TEST(any_schedules_give_the_same_tokens)
{
    static const enum kern_type types[] = {KERN_F32, KERN_BF16, KERN_F32};

    for (int t = 0; t < 3; t++) {
        static float want[N_NEW][VOCAB], got[N_NEW][VOCAB];
        int32_t want_ids[N_NEW], ids[N_NEW];
        struct draw d = {.split_k = false};
        struct engine e;

        rng_init(&d.rng, test_seed(), "engine");
        engine_open(&e, types[t], t == 2); /* at last, types that differ by tensor */
        for (int trial = 0; trial < 30; trial++) {
            int n_threads = 1 + trial % 2 * (THREADS - 1);

            d.split_k = trial >= 10;
            if (trial < 2)
                generate(&e, n_threads, want, want_ids);
            assert_ok(model_phase_schedules(e.phase[n_threads], drawn, &d));
            generate(&e, n_threads, got, ids);
            assert_memory_equal(ids, want_ids, sizeof(ids));
            compare(want, got, 1e-4, trial);
        }
        engine_close(&e);
    }
}

/* A micro-kernel may keep several partial sums of an element, so bits depend on it, and
 * on how K is cut; but not on slices of rows and columns, their order, or the scheme. */
TEST(unsplit_sums_are_the_same_bits)
{
    static float want[N_NEW][VOCAB], got[N_NEW][VOCAB];
    struct draw d = {.one_micro_kernel = true};
    int32_t ids[N_NEW];
    struct engine e;

    rng_init(&d.rng, test_seed(), "bits");
    engine_open(&e, KERN_F32, false);
    for (int trial = 0; trial < 8; trial++) {
        assert_ok(model_phase_schedules(e.phase[THREADS], drawn, &d));
        generate(&e, THREADS, trial ? got : want, ids);
        if (trial > 0)
            assert_memory_equal(want, got, sizeof(want));
    }
    engine_close(&e);
}

static int out_of_cache(void *ctx, const struct kern_variant *v, const struct kern_mat *w,
                        int64_t m_max, int n_threads, struct kern_schedule *out)
{
    return tune_table(ctx, v, w, m_max, n_threads, out, NULL);
}

/* The whole way: a search on a modelled bench, the file, the table, the model. */
TEST(tuned_schedules_reach_the_model)
{
    static float want[N_NEW][VOCAB], got[N_NEW][VOCAB];
    static const int cpus[THREADS] = {0, 1, 2};
    struct bench_model model = {.cache_bytes = 1 << 14, .start_s = 1e-8};
    struct model_shape mats[MODEL_N_MATS];
    int32_t want_ids[N_NEW], ids[N_NEW];
    struct tune_cache *cache;
    const struct tune_policy *p;
    struct tune_opts o;
    struct engine e;
    int n_used = 0, n_empty = 0;

    engine_open(&e, KERN_F32, false);
    generate(&e, THREADS, want, want_ids);
    bench_model_opts(&o);
    assert_ok(tune_policy_find("sandwich", &p));
    assert_ok(tune_cache_open(&cache, "none.json", cpus, THREADS));
    model_shapes(model_config_of(e.model), mats);
    for (int i = 0; i < MODEL_N_MATS; i++) {
        n_empty += mats[i].n == 0;
        if (mats[i].n == 0) /* V is in QKV, and there are no experts */
            continue;
        struct tune_shape shapes[STEP_MAX];
        struct kern_schedule s[STEP_MAX];
        struct tune_ctx c = {
            .n_threads = THREADS, .o = &o, .shapes = shapes, .n_shapes = STEP_MAX};
        int64_t n_tuned = 0;
        struct kern_mat w;

        for (int m = 1; m <= STEP_MAX; m++)
            shapes[m - 1] =
                (struct tune_shape){.v = model_kern(e.model)->v[KERN_GEMM_F32],
                                    .m = m,
                                    .n = mats[i].n,
                                    .k = mats[i].k,
                                    .k_unit = mats[i].k_unit};
        assert_ok(tune_bench_open_model(&c.bench, bench_model_s, &model));
        assert_ok(p->run(&c, s));
        tune_bench_close(&c.bench);
        for (int m = 0; m < STEP_MAX; m++)
            assert_ok(tune_cache_put(cache, &shapes[m], &s[m], NULL));
        kern_mat_layout(&w, KERN_F32, mats[i].n, mats[i].k, mats[i].k_unit);
        assert_ok(tune_table(cache, shapes[0].v, &w, STEP_MAX, THREADS, s, &n_tuned));
        n_used += n_tuned == STEP_MAX; /* the model's shapes are the tuner's */
    }
    assert_int_equal(n_used, MODEL_N_MATS - n_empty);
    assert_int_equal(n_used, 5);
    assert_ok(model_phase_schedules(e.phase[THREADS], out_of_cache, cache));
    generate(&e, THREADS, got, ids);
    assert_memory_equal(ids, want_ids, sizeof(ids));
    compare(want, got, 1e-4, 0);
    tune_cache_close(&cache);
    opt_free(tune_opt_table, &o);
    engine_close(&e);
}

static int none(void *ctx, const struct kern_variant *v, const struct kern_mat *w,
                int64_t m_max, int n_threads, struct kern_schedule *out)
{
    (void)ctx, (void)v, (void)w, (void)m_max, (void)n_threads, (void)out;
    return OK; /* leaves zeros, which are not schedules */
}

TEST(bad_schedules_are_refused)
{
    static float want[N_NEW][VOCAB], got[N_NEW][VOCAB];
    int32_t want_ids[N_NEW], ids[N_NEW];
    struct draw d = {.split_k = true};
    struct engine e;

    rng_init(&d.rng, test_seed(), "refused");
    engine_open(&e, KERN_F32, false);
    generate(&e, 1, want, want_ids);
    assert_err(model_phase_schedules(e.phase[1], none, NULL), ERR_ARG, "micro-kernel");
    generate(&e, 1, got, ids);
    assert_memory_equal(want, got, sizeof(want)); /* nothing has changed */
    assert_ok(model_phase_schedules(e.phase[1], drawn, &d));
    assert_ok(model_phase_schedules(e.phase[2], drawn, &d));
    assert_ok(model_phase_schedules(e.phase[1], drawn, &d));
    engine_close(&e);
}
