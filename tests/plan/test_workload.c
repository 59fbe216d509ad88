#include "tests/support/test.h"

#include <math.h>

#include "make/make.h"
#include "model/limits.h"
#include "plan/workload.h"

/* Numbers worked by hand. llama-160m: dim 768, 12 layers, 12 heads of 64, hidden 3072,
 * vocabulary 32000: a layer has 4 * 768^2 = 2359296 elements of attention and 3 * 768 *
 * 3072 = 7077888 of feed-forward; 12 layers 113246208; the head 24576000.
 * sheared-llama-1.3b: dim 2048, 24 layers, 16 heads of 128, hidden 5504: 24 layers of
 * 16777216 + 33816576 elements, 1214251008; the head 65536000. */

static void near(double got, double want)
{
    if (fabs(got - want) > 1e-12 * fabs(want))
        fail_msg("got %.17g, wanted %.17g", got, want);
}

static struct model_cost_types in_memory(enum kern_type weight)
{
    return (struct model_cost_types){weight, KERN_KV_F32};
}

static void work_of(struct simulate_workload *w, const struct model_config *c,
                    enum kern_type type, enum topo_phase phase,
                    const struct plan_lengths *l, int batch)
{
    struct plan_trace t;

    assert_ok(plan_trace_of(&t, l, 0));
    assert_ok(plan_workload(w, c, in_memory(type), phase, &t, batch));
}

static void config(struct model_config *c, const char *name)
{
    assert_ok(make_config(name, c));
}

TEST(test_decode)
{
    const int64_t prompt[] = {101}, output[] = {1}; /* a context of 102 */
    const struct plan_lengths l = {prompt, output, 1};
    struct model_config c;
    struct simulate_workload w, half;
    struct plan_trace t;

    config(&c, "llama-160m");
    work_of(&w, &c, KERN_BF16, TOPO_DECODE, &l, 4);
    assert_int_equal(w.phase, TOPO_DECODE);
    assert_int_equal(w.n, 1);
    /* 2 (113246208 + 24576000) + 4 * 12 * 768 * 102, of four sequences */
    near(w.v[0].flop, 4 * 279404544.0);
    /* 2 (24576000 + 4 * 768 + 113246208) + 4 (24 * 768 + 768) */
    near(w.v[0].weight_bytes, 275727360);
    near(w.v[0].kv_bytes, 4.0 * 102 * 73728);
    assert_ok(plan_trace_of(&t, &l, 0));
    assert_ok(plan_workload(&half, &c, (struct model_cost_types){KERN_BF16, KERN_KV_BF16},
                            TOPO_DECODE, &t, 4));
    near(half.v[0].kv_bytes, w.v[0].kv_bytes / 2);
    near(half.v[0].weight_bytes, w.v[0].weight_bytes);
    near(w.v[0].gather_bytes, 0);
    near(w.v[0].attention_frac, 2.0 * 12 * 2359296 / 275727360);
    near(w.v[0].n_barriers, 74);
    near(w.v[0].n_allreduces, 24);
    near(w.v[0].allreduce_bytes, 4.0 * 768 * 4);

    config(&c, "sheared-llama-1.3b");
    work_of(&w, &c, KERN_F32, TOPO_DECODE, &l, 1);
    near(w.v[0].flop, 2 * (1214251008.0 + 65536000) + 4.0 * 24 * 2048 * 102);
    near(w.v[0].weight_bytes, 5119557632);
    near(w.v[0].kv_bytes, 102.0 * 393216);
    near(w.v[0].n_barriers, 146);
    near(w.v[0].n_allreduces, 48);
}

/* Every output token counts once: 11, and 21, 22, 23. */
TEST(test_contexts)
{
    const int64_t prompt[] = {10, 20}, output[] = {1, 3};
    const struct plan_lengths l = {prompt, output, 2};
    const double want[] = {11, 21, 22, 23};
    struct model_config c;
    struct simulate_workload w;

    config(&c, "llama-160m");
    work_of(&w, &c, KERN_BF16, TOPO_DECODE, &l, 1);
    assert_int_equal(w.n, 4);
    for (int i = 0; i < w.n; i++) {
        near(w.v[i].kv_bytes, want[i] * 73728);
        near(w.v[i].weight, 1);
    }
}

TEST(test_prefill)
{
    const int64_t prompt[] = {100}, output[] = {3};
    const struct plan_lengths l = {prompt, output, 1};
    struct model_config c;
    struct simulate_workload w;

    config(&c, "llama-160m");
    work_of(&w, &c, KERN_BF16, TOPO_PREFILL, &l, 4); /* whatever the batch */
    assert_int_equal(w.phase, TOPO_PREFILL);
    assert_int_equal(w.n, 1);
    /* QKV 12 * 1769472 * 200, the other matrices 7667712 * (11 * 200 + 2), attention
     * 3072 * (11 * 5050 + 100), the head 2 * 24576000: the last layer ends with a row */
    near(w.v[0].flop, 21351143424);
    /* 2 (24576000 + 100 * 768 + 113246208) + 4 (24 * 768 + 768) */
    near(w.v[0].weight_bytes, 275874816);
    near(w.v[0].kv_bytes, 100.0 * 73728);
    near(w.v[0].attention_frac, 5716482048.0 / 21351143424.0);
    near(w.v[0].n_barriers, 119);
    near(w.v[0].allreduce_bytes, (11 * 100.0 + 1) / 12 * 768 * 4);
}

TEST(test_quantiles)
{
    int64_t prompt[16], output[16];
    const struct plan_lengths l = {prompt, output, 16}, three = {prompt, output, 3};
    struct model_config c;
    struct simulate_workload w;

    config(&c, "llama-160m");
    for (int i = 0; i < 16; i++) {
        prompt[i] = 1 + (i * 5 + 7) % 16; /* each of 1 .. 16 once */
        output[i] = 1;
    }
    work_of(&w, &c, KERN_F32, TOPO_PREFILL, &l, 1);
    assert_int_equal(w.n, SIMULATE_STEPS_MAX);
    for (int i = 0; i < w.n; i++) {
        near(w.v[i].kv_bytes, (2 * i + 2) * 73728.0); /* the mean of two, rounded */
        near(w.v[i].weight, 2);
    }
    prompt[0] = prompt[2] = 5;
    prompt[1] = 9;
    work_of(&w, &c, KERN_F32, TOPO_PREFILL, &three, 1);
    assert_int_equal(w.n, 2);
    near(w.v[0].kv_bytes, 5 * 73728.0);
    near(w.v[0].weight, 2);
    near(w.v[1].kv_bytes, 9 * 73728.0);
    near(w.v[1].weight, 1);
}

TEST(test_refusals)
{
    const int64_t prompt[] = {10}, output[] = {1};
    const struct plan_lengths l = {prompt, output, 1};
    struct model_config c;
    struct simulate_workload w;
    struct plan_trace t;

    config(&c, "llama-160m");
    assert_ok(plan_trace_of(&t, &l, 0));
    assert_err(plan_workload(&w, &c, in_memory(KERN_F32), TOPO_DECODE, &t, 0), ERR_ARG,
               "batch");
}

TEST(test_limits)
{
    struct model_config c;
    struct topo_limits l;

    config(&c, "sheared-llama-1.3b");
    plan_limits(&l, &c, false);
    assert_int_equal(l.max_ranks, 0);
    assert_int_equal(l.n_heads, 16);
    assert_int_equal(l.n_kv_heads, 16);
    assert_int_equal(l.n_ffn_units, 86);
    assert_false(l.strict);
    config(&c, "llama-160m");
    plan_limits(&l, &c, true);
    assert_int_equal(l.n_heads, 12);
    assert_int_equal(l.n_ffn_units, 48);
    assert_true(l.strict);
    c.hidden = 65; /* a last unit that is not full is a unit */
    plan_limits(&l, &c, true);
    assert_int_equal(l.n_ffn_units, 2);
}

/* Blocks of 256 weights are two heads of 128: ranks that would divide one are refused by the
 * limits as by the model. Units of the feed-forward layer have 256 rows. */
TEST(test_limits_of_blocks)
{
    struct model_config c;
    struct topo_limits l;

    config(&c, "sheared-llama-1.3b");
    c.weight_type = KERN_Q4_K;
    plan_limits(&l, &c, false);
    assert_int_equal(l.n_ffn_units, 22);
    for (int ranks = 1; ranks <= 20; ranks++) {
        if (8 % ranks == 0)
            assert_ok(l.check(l.model, ranks));
        else
            assert_err(l.check(l.model, ranks), ERR_UNSUPPORTED, "whole blocks of 256");
    }
    c.weight_type = KERN_Q8_0;
    plan_limits(&l, &c, false);
    assert_int_equal(l.n_ffn_units, 22);
    for (int ranks = 1; ranks <= 64; ranks++) /* a quarter of a head is a block */
        if (64 % ranks == 0 || ranks <= 16)
            assert_ok(l.check(l.model, ranks));
}

/* A piece after others: its rows through the matrices, each against all before it; in the
 * last layer only one is. One token is a decode step of one sequence. */
TEST(test_piece)
{
    const int64_t prompt[] = {99}, output[] = {1};
    const struct plan_lengths l = {prompt, output, 1};
    struct model_config c;
    struct simulate_workload w, d;

    config(&c, "llama-160m");
    plan_piece_workload(&w, &c, in_memory(KERN_BF16), 10, 100);
    assert_int_equal(w.n, 1);
    /* attention: 10 rows against 100, and 1 + 2 + ... + 10; the last against 110 */
    near(w.v[0].flop, 2 * (12 * 1769472.0 * 10 + 7667712.0 * 111 + 24576000) +
                          4 * 768 * (11 * (1000.0 + 55) + 110));
    near(w.v[0].weight_bytes, 275736576);
    near(w.v[0].kv_bytes, 110.0 * 73728);
    near(w.v[0].n_barriers, 74); /* few rows pack for themselves */
    near(w.v[0].allreduce_bytes, (11 * 10.0 + 1) / 12 * 768 * 4);
    plan_piece_workload(&w, &c, in_memory(KERN_BF16), 64, 0);
    near(w.v[0].n_barriers, 74 + 4 * 11 + 1);
    plan_piece_workload(&w, &c, in_memory(KERN_BF16), 1, 99);
    work_of(&d, &c, KERN_BF16, TOPO_DECODE, &l, 1);
    near(w.v[0].flop, d.v[0].flop);
    near(w.v[0].kv_bytes, d.v[0].kv_bytes);
    near(w.v[0].n_barriers, d.v[0].n_barriers);
}
