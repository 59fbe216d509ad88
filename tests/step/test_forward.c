/* The forward step against the float64 reference: every shape trait, every ISA level this
 * machine executes, 1 to 3 threads, both KV types, and any way of cutting sequences into
 * steps. */
#include <math.h>

#include "cpu/cpu.h"
#include "ranks/phase.h"
#include "step/context.h"
#include "tests/support/step_model.h"
#include "tests/support/test.h"
#include "tests/support/kv.h"

/* With one phase, of one rank of n_threads threads. */
static void open_one(struct step_model *x, const struct step_trait *t,
                     const struct model_opts *o, int n_threads)
{
    step_model_open(x, t, o, n_threads);
    step_model_phase(x, 1, n_threads);
}

static void run_trait(const struct step_trait *t, const char *isa,
                      const struct model_opts *o, int n_threads, double tolerance)
{
    struct step_model x;
    char what[160];

    snprintf(what, sizeof(what), "%s, isa %s, %s, kv %s", t->name, isa,
             o->precision == KERN_EXACT ? "exact" : "relaxed",
             kern_kv_type_name(o->kv_type));
    open_one(&x, t, o, n_threads);
    step_model_run(&x, 1, o->max_step_tok, tolerance, test_seed(), what);
    step_model_run(&x, 3, o->max_step_tok, tolerance, test_seed() + 1, what);
    step_model_run(&x, STEP_MODEL_SEQS, o->max_step_tok, tolerance, test_seed() + 2,
                   what);
    step_model_close(&x);
}

static void exact_on(const char *isa)
{
    const struct model_opts o = step_model_opts();

    for (int t = 0; t < step_n_traits; t++)
        for (int n = 1; n <= 3; n++)
            run_trait(&step_traits[t], isa, &o, n, 1e-4);
}

TEST(test_exact)
{
    step_model_each_isa(exact_on);
}

/* bf16 keeps 8 bits: 2^-9 relative in each key and value. q8 is off by up to 2^-8 of the largest
 * element of each. */
static void kv_types_on(const char *isa)
{
    struct model_opts o = step_model_opts();

    for (int t = 0; t < step_n_traits; t++) {
        o.kv_type = KERN_KV_BF16;
        run_trait(&step_traits[t], isa, &o, 2, STEP_MODEL_BF16);
        o.kv_type = KERN_KV_Q8;
        run_trait(&step_traits[t], isa, &o, 2, STEP_MODEL_Q8_KV);
    }
}

TEST(test_kv_types)
{
    step_model_each_isa(kv_types_on);
}

/* Matrices are whole, and only of these can a phase have but one rank. */
static void one_rank_on(const char *isa)
{
    struct model_opts o = step_model_opts();

    o.one_rank = true;
    for (int t = 0; t < step_n_traits; t++) {
        o.precision = KERN_EXACT;
        run_trait(&step_traits[t], isa, &o, 1 + t % 3, 1e-4);
        o.precision = KERN_RELAXED;
        run_trait(&step_traits[t], isa, &o, 2, STEP_MODEL_BF16);
    }
}

TEST(test_one_rank)
{
    const struct model_phase_opts two = {.n_ranks = 2, .n_threads = 1};
    struct model_opts o = step_model_opts();
    struct model_phase *p = NULL;
    struct step_model x;

    step_model_each_isa(one_rank_on);
    for (int deterministic = 0; deterministic < 2; deterministic++) {
        o.one_rank = true, o.deterministic = deterministic;
        step_model_open(&x, &step_traits[0], &o, 2);
        assert_int_equal(x.model->layers[0].mats[MODEL_MAT_O].n_units > 1, deterministic);
        if (deterministic)
            assert_ok(model_phase_open(&p, x.model, &two));
        else
            assert_err(model_phase_open(&p, x.model, &two), ERR_ARG, "opened for one");
        model_phase_close(&p);
        step_model_close(&x);
    }
}

static void relaxed_on(const char *isa)
{
    struct model_opts o = step_model_opts();

    o.precision = KERN_RELAXED;
    for (int t = 0; t < step_n_traits; t++)
        run_trait(&step_traits[t], isa, &o, 2, STEP_MODEL_BF16);
}

TEST(test_relaxed)
{
    step_model_each_isa(relaxed_on);
}

/* f16 and bf16 files widened to f32 give the same answer. */
TEST(test_widened)
{
    struct model_opts o = step_model_opts();

    o.weight_type = KERN_F32;
    for (int t = 0; t < step_n_traits; t++)
        run_trait(&step_traits[t], "auto", &o, 2, 1e-4);
}

TEST(test_small_steps)
{
    struct model_opts o = step_model_opts();

    for (o.max_step_tok = 1; o.max_step_tok <= 5; o.max_step_tok += 2)
        run_trait(&step_traits[0], "auto", &o, 2, 1e-4);
}

TEST(test_allocates_nothing)
{
    const struct model_opts o = step_model_opts();
    struct kv_slot kv;
    struct step_model x;
    float logits[64];
    long before;

    open_one(&x, &step_traits[0], &o, 2);
    test_kv_reserve(x.pool, STEP_MODEL_TOK, &kv);
    before = mem_n_allocs();
    for (int64_t i = 0; i < STEP_MODEL_TOK; i++) {
        const struct model_chunk c = {
            .kv = &kv, .ids = x.ids[0] + i, .n_tok = 1, .pos0 = i, .want_logits = true};

        assert_ok(model_forward(x.phases[0], &c, 1, logits));
    }
    assert_int_equal(mem_n_allocs(), before);
    kv_release(x.pool, &kv);
    step_model_close(&x);
}

/* A step may use fewer threads than the team has: plans give phases different ones. */
TEST(test_fewer_threads)
{
    const struct model_opts o = step_model_opts();
    struct step_model x;

    open_one(&x, &step_traits[4], &o, 3);
    for (int n = 3; n >= 1; n--) {
        step_model_close_phases(&x);
        step_model_phase(&x, 1, n);
        step_model_run(&x, 3, o.max_step_tok, 1e-4, test_seed(), "fewer threads");
    }
    step_model_close(&x);
}

TEST(test_refusals)
{
    struct model_opts o = step_model_opts();
    int32_t ids[STEP_MODEL_TOK + 1] = {0};
    struct model_chunk c = {.ids = ids, .n_tok = 1};
    struct kv_slot kv;
    struct step_model x;
    struct model *m;
    float logits[64];

    open_one(&x, &step_traits[0], &o, 1);
    test_kv_reserve(x.pool, STEP_MODEL_TOK, &kv);
    c.kv = &kv;
    assert_err(model_forward(x.phases[0], &c, 0, logits), ERR_ARG, "0 chunks");
    ids[0] = 50;
    assert_err(model_forward(x.phases[0], &c, 1, logits), ERR_ARG,
               "id 50 outside [0, 50)");
    ids[0] = -1;
    assert_err(model_forward(x.phases[0], &c, 1, logits), ERR_ARG, "id -1");
    ids[0] = 0;
    c.pos0 = STEP_MODEL_TOK;
    assert_err(model_forward(x.phases[0], &c, 1, logits), ERR_ARG, "past its slot of 48");
    c.pos0 = INT64_MAX;
    assert_err(model_forward(x.phases[0], &c, 1, logits), ERR_ARG, "past its slot of 48");
    c.pos0 = 0, c.n_tok = 0;
    assert_err(model_forward(x.phases[0], &c, 1, logits), ERR_ARG, "0 tokens");
    o.weight_type = KERN_BF16;
    assert_err(model_open(&m, &x.ref.f, x.team, &o), ERR_UNSUPPORTED,
               "stored as f32 and cannot be kept as bf16");
    assert_null(m);
    o = step_model_opts(), o.max_tok = STEP_MODEL_TOK + 1;
    assert_err(model_open(&m, &x.ref.f, x.team, &o), ERR_LIMIT, "48 tokens");
    o = step_model_opts(), o.max_step_tok = 0;
    assert_err(model_open(&m, &x.ref.f, x.team, &o), ERR_ARG, "max_step_tok");
    kv_release(x.pool, &kv);
    step_model_close(&x);
}

/* Every allocation of model_open() fails in turn: a clean error, nothing kept. */
TEST(test_alloc_fail)
{
    struct model_opts o = step_model_opts();
    struct model_config c;
    struct ref_model ref;
    struct par_team *team;
    const int cpus[1] = {0};
    long n = 0;

    o.precision = KERN_RELAXED; /* walks the choice by measurement too */
    step_trait_config(&step_traits[4], &c);
    ref_model_init(&ref, &c, false, false, false, test_seed());
    assert_ok(par_team_open(&team, cpus, 1, 0));
    for (;; n++) {
        size_t weights = mem_used_bytes(MEM_WEIGHTS),
               act = mem_used_bytes(MEM_ACTIVATIONS);
        struct model *m;
        int rc;

        mem_fail_after(n, 1);
        rc = model_open(&m, &ref.f, team, &o);
        mem_fail_after(-1, 0);
        if (rc == OK) {
            model_close(&m);
            break;
        }
        assert_int_equal(rc, ERR_NOMEM);
        assert_null(m);
        assert_int_equal(mem_used_bytes(MEM_WEIGHTS), weights);
        assert_int_equal(mem_used_bytes(MEM_ACTIVATIONS), act);
    }
    assert_true(n >= 5);
    par_team_close(&team);
    ref_model_fini(&ref);
}

TEST(test_facts)
{
    const struct model_opts o = step_model_opts();
    const struct model_load_stat *l;
    uint64_t ns[MODEL_T_N];
    struct kv_shape shape;
    struct step_model x;

    open_one(&x, &step_traits[4], &o, 2);
    l = model_load_stat_of(x.model);
    assert_true(l->packed_bytes >= l->tensor_bytes);
    assert_true(l->load_s > 0 && l->load_gbps > 0);
    assert_true(l->read_s > 0 && l->pack_s > 0 && l->disk_bytes >= 0);
    model_kv_shape(x.model, &shape);
    assert_int_equal(shape.n_kv_heads, 4);
    assert_int_equal(shape.vec_bytes, 64 * 4);
    step_model_run(&x, 1, 8, 1e-4, 1, "facts");
    model_times_take(x.model, ns);
    assert_true(ns[MODEL_T_LINEAR] > 0 && ns[MODEL_T_ATTN] > 0 && ns[MODEL_T_HEAD] > 0);
    model_times_take(x.model, ns);
    assert_int_equal(ns[MODEL_T_LINEAR], 0);
    step_model_close(&x);
}
