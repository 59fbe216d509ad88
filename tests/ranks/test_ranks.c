/* Ranks: the same answers for any number of them, whichever phase computes a step, over
 * the same bytes. */
#include <string.h>

#include "cpu/cpu.h"
#include "placement/open.h"
#include "ranks/phase.h"
#include "step/context.h"
#include "tests/support/step_model.h"
#include "tests/support/test.h"
#include "tests/support/kv.h"

static const int degrees[] = {1, 2, 3, 4, 6, 8};
#define N_DEGREES ((int)(sizeof(degrees) / sizeof(degrees[0])))
#define TEAM      16

/* ---- which units a rank has ---- */

/* A model of these heads, without weights. */
static void bare(struct model *m, int n_kv, int group, int head_dim, int hidden)
{
    memset(m, 0, sizeof(*m));
    m->c.n_kv_heads = n_kv;
    m->c.n_heads = n_kv * group;
    m->c.head_dim = head_dim;
    m->c.hidden = hidden;
    m->group = group;
    m->qkv_unit = model_pad16((int64_t)(group + 2) * head_dim);
}

/* Rows of the output's and of down's matrix are dealt out without gap or overlap; every
 * query head meets all of its keys; every KV group has one rank that stores. */
static void check_parts(const struct model *m, int n_ranks)
{
    int64_t attn = 0, ffn = 0;
    int stored = 0, met = 0; /* whole query heads */

    for (int r = 0; r < n_ranks; r++) {
        struct model_tp_shard p;

        model_tp_shard_of(m, r, n_ranks, &p);
        assert_int_equal(p.attn_lo, attn);
        assert_int_equal(p.mlp[MODEL_MLP_ALL].lo, ffn);
        assert_true(p.attn_hi >= p.attn_lo && p.attn_lo % 2 == 0);
        assert_true(p.mlp[MODEL_MLP_ALL].hi >= p.mlp[MODEL_MLP_ALL].lo &&
                    p.mlp[MODEL_MLP_ALL].lo % MODEL_FFN_UNIT == 0);
        attn = p.attn_hi, ffn = p.mlp[MODEL_MLP_ALL].hi;
        assert_true(p.q_hi > p.q_lo);
        assert_true(p.seq_n == 1 || p.q_hi == p.q_lo + 1);
        assert_int_equal(p.q_lo, met);
        met += p.seq_i == p.seq_n - 1 ? p.q_hi - p.q_lo : 0;
        assert_true(p.col_lo % KERN_PANEL == 0 && p.col_hi % KERN_PANEL == 0);
        assert_true(p.col_lo <= model_q_column(m, p.q_lo));
        assert_true(p.col_hi >= model_q_column(m, p.q_hi - 1) + m->c.head_dim);
        if (!p.kv)
            continue;
        assert_int_equal(p.q_hi % m->group, 0);
        assert_int_equal(p.col_hi, p.q_hi / m->group * m->qkv_unit);
        stored += n_ranks <= m->c.n_kv_heads ? (p.q_hi - p.q_lo) / m->group : 1;
    }
    assert_int_equal(attn, m->c.n_heads * m->c.head_dim);
    assert_int_equal(ffn, m->c.hidden);
    assert_int_equal(met, m->c.n_heads);
    assert_int_equal(stored, m->c.n_kv_heads);
}

TEST(test_parts)
{
    struct rng rng;

    rng_init(&rng, test_seed(), "parts");
    for (int i = 0; i < 2000; i++) {
        struct model m;

        bare(&m, 1 + (int)rng_below(&rng, 24), 1 + (int)rng_below(&rng, 9),
             2 + 2 * (int)rng_below(&rng, 40), 1 + (int)rng_below(&rng, 3000));
        check_parts(&m, 1 + (int)rng_below(&rng, PAR_RANKS_MAX));
    }
}

/* Where R divides R', a rank of R is whole ranks of R': the same bytes by the same cores. */
TEST(test_parts_nest)
{
    for (int n_kv = 1; n_kv <= 16; n_kv++) {
        struct model m;

        bare(&m, n_kv, 3, 8, 64 * n_kv + 5);
        for (int few = 1; few <= n_kv; few++) {
            for (int times = 2; few * times <= n_kv; times++) {
                for (int r = 0; r < few; r++) {
                    struct model_tp_shard a, b;

                    model_tp_shard_of(&m, r, few, &a);
                    model_tp_shard_of(&m, r * times, few * times, &b);
                    assert_int_equal(a.attn_lo, b.attn_lo);
                    assert_int_equal(a.mlp[MODEL_MLP_ALL].lo, b.mlp[MODEL_MLP_ALL].lo);
                    assert_int_equal(a.col_lo, b.col_lo);
                }
            }
        }
    }
}

/* ---- answers ---- */

static void open_all(struct step_model *x, const struct step_trait *t,
                     const struct model_opts *o)
{
    step_model_open(x, t, o, TEAM);
    for (int i = 0; i < N_DEGREES; i++)
        for (int n = 1; n <= 2; n++)
            step_model_phase(x, degrees[i], n);
}

/* Every degree alone, from the first token to the last. */
TEST(test_any_degree)
{
    const struct model_opts o = step_model_opts();

    for (int t = 0; t < step_n_traits; t++) {
        struct step_model x;

        step_model_open(&x, &step_traits[t], &o, TEAM);
        for (int i = 0; i < 2 * N_DEGREES; i++) {
            step_model_phase(&x, degrees[i / 2], 1 + i % 2);
            step_model_run(&x, 3, o.max_step_tok, 1e-4, test_seed(), step_traits[t].name);
            step_model_close_phases(&x);
        }
        step_model_close(&x);
    }
}

/* Each step by another phase than the one before, in one sequence. */
static void switch_with(struct model_opts o, double tolerance)
{
    for (int t = 0; t < step_n_traits; t++) {
        struct step_model x;

        open_all(&x, &step_traits[t], &o);
        for (int i = 0; i < 4; i++)
            step_model_run(&x, 1 + i, o.max_step_tok, tolerance,
                           test_seed() + (uint64_t)i, step_traits[t].name);
        step_model_close(&x);
    }
}

TEST(test_switching)
{
    switch_with(step_model_opts(), 1e-4);
}

TEST(test_switching_relaxed)
{
    struct model_opts o = step_model_opts();

    o.precision = KERN_RELAXED;
    switch_with(o, STEP_MODEL_BF16);
    o.precision = KERN_EXACT;
    o.kv_type = KERN_KV_BF16;
    switch_with(o, STEP_MODEL_BF16);
    o.kv_type = KERN_KV_Q8;
    switch_with(o, STEP_MODEL_Q8_KV);
}

TEST(test_switching_ref)
{
    assert_ok(cpu_isa_limit("ref"));
    switch_with(step_model_opts(), 1e-4);
    assert_ok(cpu_isa_limit("auto"));
}

/* Heads, keys and units run out: most ranks have a share of a head, some no unit. */
TEST(test_more_ranks_than_anything)
{
    const struct model_opts o = step_model_opts();
    const struct step_trait *t = step_traits;
    struct step_model x;

    while (t->n_heads != 1)
        assert_true(++t < step_traits + step_n_traits);
    step_model_open(&x, t, &o, 60);
    step_model_phase(&x, 5, 1);
    step_model_phase(&x, 60, 1);
    step_model_phase(&x, 7, 3);
    step_model_run(&x, 2, o.max_step_tok, 1e-4, test_seed(), t->name);
    step_model_close(&x);
}

/* Threads of the team in any order. */
TEST(test_thread_slots)
{
    static const int threads[] = {3, 0, 5, 1, 4, 2};
    const struct model_opts o = step_model_opts();
    const struct model_phase_opts po = {.n_ranks = 2, .n_threads = 3, .threads = threads};
    struct step_model x;

    step_model_open(&x, &step_traits[0], &o, 6);
    assert_ok(model_phase_open(&x.phases[x.n_phases++], x.model, &po));
    step_model_run(&x, 3, o.max_step_tok, 1e-4, test_seed(), "thread slots");
    for (int i = 0; i < 6; i++) {
        assert_int_equal(x.phases[0]->thread_slots[threads[i]].rank, i / 3);
        assert_int_equal(x.phases[0]->thread_slots[threads[i]].id, i % 3);
    }
    step_model_close(&x);
}

/* ---- what a switch costs: nothing is copied, nothing allocated ---- */

/* The ranks' views of (gate, up) and down are their own bytes, dealt out without gap. */
static void check_mlp_views(const struct model_phase *p, int layer, int gate_up)
{
    const struct kern_mat *w = &p->m->layers[layer].mats[gate_up];
    int64_t panels = 0, rows = 0;

    for (int r = 0; r < p->n_ranks && w->n_panels > 0; r++) {
        const struct kern_mat *v = &p->ranks[r].layers[layer].mats[gate_up];

        assert_ptr_equal(v[0].data, kern_mat_at(&w[0], 0, panels));
        assert_ptr_equal(v[1].data, kern_mat_at(&w[1], rows / w[1].k_unit, 0));
        panels += v[0].n_panels;
        rows += v[1].k;
    }
    assert_int_equal(panels, w[0].n_panels);
    assert_int_equal(rows, w[1].k);
}

static void check_views(const struct model_phase *p)
{
    const struct model *m = p->m;

    for (int l = 0; l < m->c.n_layers; l++) {
        const struct kern_mat *w = m->layers[l].mats;

        for (int r = 0; r < p->n_ranks; r++) {
            const struct kern_mat *v = p->ranks[r].layers[l].mats;
            int64_t first = p->ranks[r].shard.col_lo / KERN_PANEL;

            assert_ptr_equal(v[MODEL_MAT_QKV].data,
                             kern_mat_at(&w[MODEL_MAT_QKV], 0, first));
            assert_true((const char *)v[MODEL_MAT_O].data >=
                        (const char *)w[MODEL_MAT_O].data);
            assert_ptr_equal(v[MODEL_MAT_ROUTER].data, w[MODEL_MAT_ROUTER].data);
        }
        check_mlp_views(p, l, MODEL_MAT_GATE_UP);
        check_mlp_views(p, l, MODEL_MAT_DENSE_GATE_UP);
        for (int e = 0; e < m->c.n_experts; e++)
            check_mlp_views(p, l, model_expert_mat(e));
    }
}

/* What model_rank_shapes() says of a rank without a model is what the model multiplies. */
static void check_shapes(const struct model_phase *p)
{
    for (int r = 0; r < p->n_ranks; r++) {
        const struct model_view *v = &p->ranks[r].layers[0];
        struct model_shape shapes[MODEL_N_MATS];

        model_rank_shapes(&p->m->c, r, p->n_ranks, shapes);
        for (int i = 0; i < MODEL_N_MATS; i++) {
            const struct kern_mat *w = i == MODEL_MAT_HEAD ? &p->m->head : &v->mats[i];

            if (model_view_empty(w)) {
                assert_true(shapes[i].n == 0 || shapes[i].k == 0);
                continue;
            }
            assert_int_equal(shapes[i].n, w->n);
            assert_int_equal(shapes[i].k, w->k);
            assert_int_equal(shapes[i].k_unit, w->n_units > 1 ? w->k_unit : 0);
        }
    }
}

TEST(test_nothing_is_copied)
{
    const struct model_opts o = step_model_opts();

    for (int t = 0; t < step_n_traits; t++) {
        struct step_model x;
        struct kv_stat before, after;
        size_t weights;
        long n_allocs;

        step_model_open(&x, &step_traits[t], &o, TEAM);
        weights = mem_used_bytes(MEM_WEIGHTS);
        for (int i = 0; i < N_DEGREES; i++)
            step_model_phase(&x, degrees[i], 2);
        assert_int_equal(mem_used_bytes(MEM_WEIGHTS), weights);
        for (int i = 0; i < x.n_phases; i++) {
            check_views(x.phases[i]);
            check_shapes(x.phases[i]);
            assert_int_equal(model_phase_moved_bytes(x.phases[0], x.phases[i]), 0);
            assert_int_equal(model_phase_moved_bytes(x.phases[i], x.phases[0]), 0);
        }
        kv_pool_stat(x.pool, &before);
        n_allocs = mem_n_allocs();
        step_model_run(&x, 1, o.max_step_tok, 1e-4, test_seed(), step_traits[t].name);
        assert_int_equal(mem_n_allocs(), n_allocs + 1); /* the test's own logits */
        kv_pool_stat(x.pool, &after);
        assert_int_equal(after.n_reserved_total, before.n_reserved_total + 1);
        step_model_close(&x);
    }
}

/* A matrix that is read elsewhere is found, also where that is in the model's own weights; what
 * only a part of the ranks has left is no copy. */
TEST(test_a_copy_is_counted)
{
    const struct model_opts o = step_model_opts();
    struct step_model x;
    struct kern_mat *o1;
    void *own;

    step_model_open(&x, &step_traits[0], &o, 2);
    step_model_phase(&x, 2, 1);
    step_model_phase(&x, 1, 2);
    o1 = &x.phases[0]->ranks[1].layers[0].mats[MODEL_MAT_O];
    own = o1->data;
    o1->data = x.phases[0]->ranks[1].layers[1].mats[MODEL_MAT_O].data;
    assert_int_equal(model_phase_moved_bytes(x.phases[1], x.phases[0]), o1->bytes);
    assert_int_equal(model_phase_moved_bytes(x.phases[0], x.phases[1]), o1->bytes);
    o1->data = own;
    assert_int_equal(model_phase_moved_bytes(x.phases[0], x.phases[1]), 0);
    o1->n_panels--;
    assert_int_equal(model_phase_moved_bytes(x.phases[1], x.phases[0]), 0);
    assert_int_equal(model_phase_moved_bytes(x.phases[0], x.phases[1]),
                     o1->n_units * (int64_t)o1->panel_bytes);
    step_model_close(&x);
}

/* ---- the public API ---- */

TEST(test_refusals)
{
    static const int twice[] = {0, 1, 1, 3}, far[] = {0, 1, 2, 4};
    struct model_opts o = step_model_opts();
    struct model_phase_opts po = {.n_ranks = 2, .n_threads = 2};
    struct model_phase *p;
    struct step_model x;
    struct kv_slot kv;
    const struct model_chunk c = {.kv = &kv, .ids = x.ids[0], .n_tok = 3};
    float logits[64];

    step_model_open(&x, &step_traits[0], &o, 4);
    po.n_threads = 3;
    assert_err(model_phase_open(&p, x.model, &po), ERR_ARG, "team of 4");
    assert_null(p);
    po.n_threads = 0;
    assert_err(model_phase_open(&p, x.model, &po), ERR_ARG, "2 ranks of 0");
    po.n_ranks = 0, po.n_threads = 1;
    assert_err(model_phase_open(&p, x.model, &po), ERR_ARG, "0 ranks");
    po.n_ranks = PAR_RANKS_MAX + 1;
    assert_err(model_phase_open(&p, x.model, &po), ERR_LIMIT, "at most 64");
    po.n_ranks = po.n_threads = 2, po.threads = twice;
    assert_err(model_phase_open(&p, x.model, &po), ERR_ARG, "found 1 at 2");
    po.threads = far;
    assert_err(model_phase_open(&p, x.model, &po), ERR_ARG, "found 4 at 3");
    po.threads = NULL, po.max_step_tok = 97;
    assert_err(model_phase_open(&p, x.model, &po), ERR_ARG, "97 tokens");
    po.max_step_tok = 2;
    assert_ok(model_phase_open(&p, x.model, &po));
    test_kv_reserve(x.pool, STEP_MODEL_TOK, &kv);
    assert_err(model_forward(p, &c, 1, logits), ERR_ARG, "more than 2 tokens");
    kv_release(x.pool, &kv);
    model_phase_close(&p);
    assert_null(p);
    step_model_close(&x);
}

/* Every allocation of model_phase_open() fails in turn. */
TEST(test_alloc_fail)
{
    const struct model_phase_opts po = {.n_ranks = 3, .n_threads = 2};
    const struct model_opts o = step_model_opts();
    struct step_model x;
    long n = 0;

    step_model_open(&x, &step_traits[0], &o, 6);
    for (;; n++) {
        size_t act = mem_used_bytes(MEM_ACTIVATIONS), other = mem_used_bytes(MEM_OTHER);
        struct model_phase *p;
        int rc;

        mem_fail_after(n, 1);
        rc = model_phase_open(&p, x.model, &po);
        mem_fail_after(-1, 0);
        if (rc == OK) {
            model_phase_close(&p);
            break;
        }
        assert_int_equal(rc, ERR_NOMEM);
        assert_null(p);
        assert_int_equal(mem_used_bytes(MEM_ACTIVATIONS), act);
        assert_int_equal(mem_used_bytes(MEM_OTHER), other);
    }
    assert_true(n >= 7);
    step_model_close(&x);
}
