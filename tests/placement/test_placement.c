/* Whose bytes of the weights are whose, on which nodes their pages go, and who packs them.
 * This machine may have one memory node: the others are invented. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cpu/cpu.h"
#include "placement/placement.h"
#include "tests/support/invented_nodes.h"
#include "tests/support/step_model.h"
#include "tests/support/test.h"

#define TEAM 16

/* ---- a published shape on machines of several nodes, in address space alone ---- */

/* Llama-3-8B in BF16: 15 GB, none of which is ever touched. */
static void bare_8b(struct model *m, struct model_layer *layers, struct par_team *team)
{
    static struct kern_mat mats[32][MODEL_MAT_HEAD];
    struct model_shape x[MODEL_N_MATS];
    size_t used = 0;

    memset(m, 0, sizeof(*m));
    m->c = (struct model_config){.dim = 4096,
                                 .n_layers = 32,
                                 .n_heads = 32,
                                 .n_kv_heads = 8,
                                 .head_dim = 128,
                                 .hidden = 14336,
                                 .vocab = 128256};
    m->group = 4;
    m->qkv_unit = 6 * 128;
    m->team = team;
    m->n_threads = TEAM;
    m->n_threads = par_team_size(team);
    m->layers = layers;
    m->embed_type = KERN_BF16;
    kern_table_choose(&m->kern, cpu_isa_usable(), KERN_EXACT);
    model_shapes(&m->c, x);
    m->weights_bytes = (size_t)17 << 30;
    m->weights = mem_map(MEM_TEST, m->weights_bytes, MEM_NODE_ANY);
    assert_non_null(m->weights);
#define TAKE(bytes) ((void *)((char *)m->weights + (used += (bytes)) - (bytes)))
    m->embed = TAKE((size_t)m->c.vocab * 4096 * 2);
    for (int i = 0; i < 32; i++) {
        struct model_layer *l = &layers[i];

        l->attn_norm = TAKE(4096 * 4);
        l->ffn_norm = TAKE(4096 * 4);
        l->mats = mats[i];
        memset(l->mats, 0, sizeof(mats[i]));
        for (int w = 0; w < MODEL_MAT_HEAD; w++) {
            if (x[w].n == 0) /* V is in QKV */
                continue;
            kern_mat_layout(&l->mats[w], KERN_BF16, x[w].n, x[w].k, x[w].k_unit);
            l->mats[w].data = TAKE(l->mats[w].bytes);
        }
    }
    m->out_norm = TAKE(4096 * 4);
    kern_mat_layout(&m->head, KERN_BF16, x[MODEL_MAT_HEAD].n, x[MODEL_MAT_HEAD].k, 0);
    m->head.data = TAKE(m->head.bytes);
#undef TAKE
    assert_true(used <= m->weights_bytes);
}

/* Threads on nodes as machines number them: an equal run of threads on each. */
static void open_owners(struct model *m, int n_ranks, int n_nodes, int *nodes)
{
    const struct model_numa_owners o = {
        .n_ranks = n_ranks, .n_threads = TEAM / n_ranks, .nodes = nodes};

    for (int t = 0; t < TEAM; t++)
        nodes[t] = t * n_nodes / TEAM;
    assert_ok(model_placement_open(m, &o));
}

static void on_nodes(struct par_team *team, struct model_layer *layers, int n_ranks,
                     int n_nodes, struct model_numa_report *places)
{
    int nodes[TEAM];
    struct model m;

    bare_8b(&m, layers, team);
    invented_nodes_begin(0, SIZE_MAX);
    open_owners(&m, n_ranks, n_nodes, nodes);
    assert_ok(model_placement_bind(&m));
    assert_int_equal(invented_nodes.n_binds > 0, n_nodes > 1);
    assert_ok(model_numa_report_get(&m, places));
    assert_int_equal(places->n_nodes, n_nodes);
    assert_int_equal(places->bound_bytes > 0, n_nodes > 1);
    places->how = NULL; /* it ends here */
    assert_int_equal(invented_nodes_warnings("weights_not_bound"), 0);
    model_placement_close(&m.placement);
    invented_nodes_end();
    mem_unmap(MEM_TEST, m.weights, m.weights_bytes);
}

/* A node's ranks have pages of their own, but for one where each of a matrix's parts ends;
 * of that one they have most. */
TEST(test_published_shape)
{
    static const int on[][2] = {{2, 2}, {4, 4}, {8, 8}, {8, 2}, {8, 4}, {4, 2}, {1, 1}};
    struct model_layer *layers = mem_new(MEM_TEST, 32, sizeof(*layers));
    static const int cpus[TEAM];
    struct par_team *team;

    assert_ok(par_team_open(&team, cpus, TEAM, 0));
    for (size_t i = 0; i < sizeof(on) / sizeof(on[0]); i++) {
        int64_t ends = (4 * 32 + 2) * on[i][1];
        struct model_numa_report places;
        struct model_numa_row all;

        on_nodes(team, layers, on[i][0], on[i][1], &places);
        invented_nodes_sum(&places, &all);
        assert_int_equal(all.absent_bytes, 0);
        assert_int_equal(all.shared_bytes, on[i][1] > 1 ? (2 * 32 + 1) * 4096 * 4 : 0);
        assert_int_equal(all.local_bytes + all.elsewhere_bytes + all.shared_bytes,
                         8030261248 * 2 + (2 * 32 + 1) * 4096 * 2);
        assert_true(all.mixed_bytes <=
                    (on[i][1] > 1 ? ends * (int64_t)MODEL_LARGE_PAGE : 0));
        assert_true(all.mixed_elsewhere_bytes == all.elsewhere_bytes);
        if (on[i][1] == 2) /* of two the one with more */
            assert_true(all.elsewhere_bytes <= all.mixed_bytes / 2);
        printf("# %d ranks on %d nodes: %.2f %% elsewhere, %.2f %% in mixed pages\n",
               on[i][0], on[i][1],
               100.0 * (double)all.elsewhere_bytes / (double)all.local_bytes,
               100.0 * (double)all.mixed_bytes / (double)all.local_bytes);
    }
    par_team_close(&team);
    mem_free(layers);
}

/* One rank over two nodes: what is split along N has its pages, of what is split along K
 * every page holds something of both. */
TEST(test_one_rank_over_nodes)
{
    struct model_layer *layers = mem_new(MEM_TEST, 32, sizeof(*layers));
    static const int cpus[TEAM];
    struct model_numa_report places;
    struct par_team *team;

    assert_ok(par_team_open(&team, cpus, TEAM, 0));
    on_nodes(team, layers, 1, 2, &places);
    for (int w = 0; w < MODEL_WEIGHT_NORMS; w++) {
        const struct model_numa_row *r = &places.rows[w];
        double bytes = (double)(r->local_bytes + r->elsewhere_bytes);
        bool along_k = w == MODEL_MAT_O || w == MODEL_MAT_DOWN;

        if (w == MODEL_MAT_V) /* part of QKV here */
            continue;
        if (((double)r->mixed_bytes > 0.9 * bytes) != along_k ||
            ((double)r->elsewhere_bytes > 0.2 * bytes) != along_k)
            fail_msg("%s: %.0f bytes, elsewhere %lld, mixed %lld", r->name, bytes,
                     (long long)r->elsewhere_bytes, (long long)r->mixed_bytes);
    }
    par_team_close(&team);
    mem_free(layers);
}

/* ---- small models: the bytes themselves ---- */

static const char *const isas[] = {"ref", "auto"}; /* plain C, and all the machine has */
#define N_ISAS ((int)(sizeof(isas) / sizeof(isas[0])))

/* Owners, and nodes of the team, drawn at random. */
struct drawn {
    struct model_numa_owners o;
    int threads[TEAM], nodes[TEAM];
    char what[120];
};

static void draw(struct drawn *d, struct rng *rng, int n_ranks, const char *isa)
{
    int n_threads = 1 + (int)rng_below(rng, (uint64_t)(TEAM / n_ranks));
    int n = n_ranks * n_threads, n_nodes = 2 + (int)rng_below(rng, 7);

    for (int i = 0; i < n; i++)
        d->threads[i] = i;
    for (int i = n - 1; i > 0; i--) {
        int k = (int)rng_below(rng, (uint64_t)i + 1), t = d->threads[i];

        d->threads[i] = d->threads[k];
        d->threads[k] = t;
    }
    for (int t = 0; t < TEAM; t++) /* -1: not known */
        d->nodes[t] = (int)rng_below(rng, (uint64_t)n_nodes) - (rng_below(rng, 8) == 0);
    d->o = (struct model_numa_owners){n_ranks, n_threads, d->threads, d->nodes};
    snprintf(d->what, sizeof(d->what), "seed %llu, %s: %d x %d owners on %d nodes",
             (unsigned long long)test_seed(), isa, n_ranks, n_threads, n_nodes);
}

/* How often each byte is in a run. */
struct covered {
    const char *base;
    unsigned char *times;
};

static void cover(void *ctx, const void *p, size_t bytes, int domain)
{
    const struct covered *c = ctx;

    (void)domain;
    for (size_t i = 0; i < bytes; i++)
        c->times[(const char *)p - c->base + i]++;
}

static unsigned char *cover_all(const struct model *m)
{
    struct covered c = {.base = m->weights};

    c.times = mem_new(MEM_TEST, m->weights_bytes, 1);
    assert_non_null(c.times);
    for (int w = 0; w < MODEL_N_WEIGHT_KINDS; w++)
        for (int i = 0; i < model_weight_kind_layers(m, (enum model_weight_kind)w); i++)
            model_each_run(m, (enum model_weight_kind)w, i, cover, &c);
    return c.times;
}

/* The same weights, whoever owns them; each byte of them in one piece. */
static void check_owners(const struct step_model *x, const struct step_trait *t,
                         const struct model_opts *o, const struct drawn *d)
{
    const unsigned char *want, *got;
    struct ref_model again; /* packing took the first one's pages */
    struct model_config c;
    struct model *m;

    step_trait_config(t, &c);
    ref_model_init(&again, &c, t->interleaved, t->mixed, false, test_seed());
    assert_ok(model_open(&m, &again.f, x->team, o));
    if (m->weights_bytes != x->model->weights_bytes ||
        memcmp(m->weights, x->model->weights, m->weights_bytes) != 0)
        fail_msg("%s: other bytes", d->what);
    want = cover_all(x->model);
    got = cover_all(m);
    for (size_t i = 0; i < m->weights_bytes; i++)
        if (got[i] != want[i] || want[i] > 1)
            fail_msg("%s: byte %zu is in %d pieces, wanted %d", d->what, i, got[i],
                     want[i]);
    mem_free((void *)want);
    mem_free((void *)got);
    model_close(&m);
    ref_model_fini(&again);
}

TEST(test_any_owners_same_bytes)
{
    struct rng rng;

    rng_init(&rng, test_seed(), "owners");
    for (int i = 0; i < N_ISAS * step_n_traits; i++) {
        const struct step_trait *t = &step_traits[i / N_ISAS];
        struct model_opts o = step_model_opts();
        struct step_model x;

        assert_ok(cpu_isa_limit(isas[i % N_ISAS]));
        step_model_open(&x, t, &o, TEAM);
        for (int r = 1; r <= 8; r++) {
            struct drawn d;

            draw(&d, &rng, r, isas[i % N_ISAS]);
            o.owners = d.o;
            invented_nodes_begin(r % 3 == 0 ? EPERM : 0,
                                 r % 3 == 0 ? rng_below(&rng, 2) : SIZE_MAX);
            check_owners(&x, t, &o, &d);
            invented_nodes_end();
        }
        step_model_close(&x);
    }
    assert_ok(cpu_isa_limit("auto"));
    invented_nodes_warnings("");
}

/* Steps by any phase over weights that others own. */
TEST(test_any_owners_same_answers)
{
    struct rng rng;

    rng_init(&rng, test_seed(), "answers");
    for (int i = 0; i < N_ISAS * step_n_traits; i++) {
        const struct step_trait *t = &step_traits[i / N_ISAS];
        struct model_opts o = step_model_opts();
        struct step_model x;
        struct drawn d;

        assert_ok(cpu_isa_limit(isas[i % N_ISAS]));
        draw(&d, &rng, 1 + (int)rng_below(&rng, 8), isas[i % N_ISAS]);
        o.owners = d.o;
        invented_nodes_begin(0, SIZE_MAX);
        step_model_open(&x, t, &o, TEAM);
        invented_nodes_end();
        step_model_phase(&x, d.o.n_ranks, d.o.n_threads);
        step_model_phase(&x, 1, 2);
        step_model_phase(&x, 4, 1);
        step_model_run(&x, 3, o.max_step_tok, 1e-4, test_seed(), d.what);
        step_model_close(&x);
    }
    assert_ok(cpu_isa_limit("auto"));
}

/* ---- the public API ---- */

TEST(test_refusals)
{
    static const int twice[] = {0, 1, 1, 3};
    struct model_opts o = step_model_opts();
    struct step_model x;
    struct model *m;

    step_model_open(&x, &step_traits[0], &o, 4);
    o.owners = (struct model_numa_owners){.n_ranks = 2, .n_threads = 3};
    assert_err(model_open(&m, &x.ref.f, x.team, &o), ERR_ARG, "owners: ");
    assert_null(m);
    o.owners = (struct model_numa_owners){.n_ranks = 2, .n_threads = 2, .threads = twice};
    assert_err(model_open(&m, &x.ref.f, x.team, &o), ERR_ARG, "found 1 at 2");
    o.owners = (struct model_numa_owners){.n_ranks = 2};
    assert_err(model_open(&m, &x.ref.f, x.team, &o), ERR_ARG, "2 ranks of 0");
    step_model_close(&x);
}

/* Every allocation of model_open() with owners on several nodes fails in turn. */
TEST(test_alloc_fail)
{
    static const int nodes[4] = {0, 1, 2, 0};
    struct model_opts o = step_model_opts();
    struct step_model x;
    long n = 0;

    step_model_open(&x, &step_traits[0], &o, 4);
    o.owners = (struct model_numa_owners){.n_ranks = 3, .n_threads = 1, .nodes = nodes};
    invented_nodes_begin(0, SIZE_MAX);
    for (;; n++) {
        size_t weights = mem_used_bytes(MEM_WEIGHTS), other = mem_used_bytes(MEM_OTHER);
        struct model *m;
        int rc;

        invented_nodes.base = NULL;
        invented_nodes.n_binds = 0;
        mem_fail_after(n, 1);
        rc = model_open(&m, &x.ref.f, x.team, &o);
        mem_fail_after(-1, 0);
        if (rc == OK) {
            model_close(&m);
            break;
        }
        assert_int_equal(rc, ERR_NOMEM);
        assert_null(m);
        assert_int_equal(mem_used_bytes(MEM_WEIGHTS), weights);
        assert_int_equal(mem_used_bytes(MEM_OTHER), other);
    }
    assert_true(n >= 12);
    invented_nodes_end();
    step_model_close(&x);
}
