/* The deterministic mode: the same bits for a sequence in any company, by any number of
 * ranks and threads, cut into steps in any way, through any changes of phase, and wherever
 * its keys and values are. */
#include <string.h>

#include "cpu/cpu.h"
#include "ranks/phase.h"
#include "step/context.h"
#include "tests/support/step_model.h"
#include "tests/support/test.h"
#include "tests/support/kv.h"

static const int degrees[] = {1, 2, 3, 4, 6, 8};
#define N_DEGREES ((int)(sizeof(degrees) / sizeof(degrees[0])))
#define TEAM      16

static struct model_opts opts(void)
{
    struct model_opts o = step_model_opts();

    o.deterministic = true;
    return o;
}

/* A phase of every degree that the heads allow, with 1 and with 2 threads. */
static void open_all(struct step_model *x, const struct step_trait *t,
                     const struct model_opts *o)
{
    step_model_open(x, t, o, TEAM);
    for (int i = 0; i < N_DEGREES && degrees[i] <= t->n_heads; i++)
        for (int n = 1; n <= 2; n++)
            step_model_phase(x, degrees[i], n);
}

static void check(const struct step_trait *t, const struct model_opts *o, const char *isa,
                  double tolerance)
{
    struct step_model x;
    char what[100];

    snprintf(what, sizeof(what), "%s, isa %s", t->name, isa);
    open_all(&x, t, o);
    step_model_keep_bits(&x);
    for (int i = 0; i < 5; i++)
        step_model_run(&x, 1 + 2 * i % STEP_MODEL_SEQS, o->max_step_tok, tolerance,
                       test_seed() + (uint64_t)i, what);
    for (int i = 0; kv_allocs[i]; i++) {
        snprintf(what, sizeof(what), "%s, isa %s, %s", t->name, isa, kv_allocs[i]->name);
        step_model_kv(&x, kv_allocs[i]->name, false);
        step_model_run(&x, STEP_MODEL_SEQS, o->max_step_tok, tolerance, test_seed(),
                       what);
    }
    step_model_close(&x);
}

TEST(test_bits)
{
    const struct model_opts o = opts();
    uint64_t have = cpu_isa_detected();

    for (int b = -1; b < CPU_N_ISA; b++) {
        const char *isa = b < 0 ? "ref" : cpu_isa_word(b);

        if (b >= 0 && !(have >> b & 1))
            continue;
        assert_ok(cpu_isa_limit(isa));
        for (int t = 0; t < step_n_traits; t++)
            check(&step_traits[t], &o, isa, 1e-4);
    }
    assert_ok(cpu_isa_limit("auto"));
}

TEST(test_bits_of_kv_types)
{
    struct model_opts o = opts();

    for (int t = 0; t < step_n_traits; t++) {
        o.kv_type = t % 2 ? KERN_KV_BF16 : KERN_KV_Q8;
        check(&step_traits[t], &o, "auto", t % 2 ? STEP_MODEL_BF16 : STEP_MODEL_Q8_KV);
    }
}

/* Wide enough for several units of down and many panels, so that every degree cuts
 * elsewhere and slabs of columns are several. */
static const struct step_trait wide = {"wide", 272,  2,  16,        8,
                                       16,     1000, 90, KERN_BF16, .scale_factor = 1};
static const struct step_trait few_groups = {
    "few groups", 96, 2, 12, 2, 16, 700, 50, KERN_F32, .scale_factor = 1};

TEST(test_bits_of_wide)
{
    struct model_opts o = opts();

    check(&wide, &o, "auto", 1e-4);
    check(&few_groups, &o, "auto", 1e-4);
    o.max_step_tok = 7; /* other memory, other slabs, other cuts of prompts */
    check(&few_groups, &o, "auto", 1e-4);
}

/* The test can fail: without the mode, bits do differ. */
TEST(test_bits_differ_without)
{
    const struct model_opts o = step_model_opts();
    struct step_model x;
    static float logits[2][90];
    bool differ = false;

    step_model_open(&x, &wide, &o, 8);
    step_model_phase(&x, 1, 1);
    step_model_phase(&x, 8, 1);
    for (int s = 0; s < STEP_MODEL_SEQS; s++) {
        const struct model_chunk c = {.ids = x.ids[s], .n_tok = 9, .want_logits = true};
        struct model_chunk run = c;
        struct kv_slot kv;

        test_kv_reserve(x.pool, STEP_MODEL_TOK, &kv);
        run.kv = &kv;
        for (int i = 0; i < 2; i++)
            assert_ok(model_forward(x.phases[i], &run, 1, logits[i]));
        differ |= memcmp(logits[0], logits[1], sizeof(logits[0])) != 0;
        kv_release(x.pool, &kv);
    }
    assert_true(differ);
    step_model_close(&x);
}

TEST(test_refusals)
{
    struct model_opts o = opts();
    struct model_phase_opts po = {.n_ranks = 5, .n_threads = 1};
    struct model_phase *p;
    struct step_model x;
    struct model *m;

    step_model_open(&x, &step_traits[0], &o, 8); /* four query heads */
    assert_err(model_phase_open(&p, x.model, &po), ERR_UNSUPPORTED, "found 5 ranks");
    po.n_ranks = 6;
    assert_err(model_phase_open(&p, x.model, &po), ERR_UNSUPPORTED,
               "6 ranks for 2 KV groups of 2");
    assert_null(p);
    o.precision = KERN_RELAXED;
    assert_err(model_open(&m, &x.ref.f, x.team, &o), ERR_ARG, "precision exact");
    step_model_close(&x);
}
