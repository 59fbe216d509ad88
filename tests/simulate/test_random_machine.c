/* Random machines of every kind: what they hide is of that kind, and follows from the seed. */
#include "tests/simulate/contention.h"

#include "simulate/random_machine.h"

enum { SEEDS = 60 };

static void draw(int kind, double strength, uint64_t seed, struct topo_machine **m,
                 struct simulate_machine_params *params)
{
    struct simulate_random_opts o = {
        .kind = (enum simulate_hidden)kind, .strength = strength, .seed = seed};

    assert_ok(simulate_random_machine(m, params, &o));
}

/* The bandwidth domain of a level of every core of the first memory node; PUs of a core come
 * one after the other. Returns the number of cores. */
static int domains_of(const struct simulate_machine *s, const struct topo_machine *m,
                      int level, int *domain)
{
    int n = 0, last = -1;

    for (int i = 0; i < m->n_pus; i++) {
        if (m->pus[i].node != 0 || m->pus[i].core == last)
            continue;
        last = m->pus[i].core;
        domain[n++] = simulate_domain_of(s, level, i);
    }
    return n;
}

static int size_of(const int *domain, int n, int of)
{
    int size = 0;

    for (int i = 0; i < n; i++)
        size += domain[i] == of;
    return size;
}

static void count_sizes(const int *domain, int n, int *least, int *most)
{
    *least = n;
    *most = 0;
    for (int i = 0; i < n; i++) {
        int size = size_of(domain, n, domain[i]);

        *least = size < *least ? size : *least;
        *most = size > *most ? size : *most;
    }
}

/* Are all cores of a domain of `fine` in one domain of `coarse`? */
static bool nests(const int *fine, const int *coarse, int n)
{
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++)
            if (fine[i] == fine[k] && coarse[i] != coarse[k])
                return false;
    return true;
}

static void check_clusters(int kind, const struct simulate_machine *s,
                           const struct topo_machine *m)
{
    int fine[32], coarse[32], n = domains_of(s, m, 0, fine), least, most;
    bool two = kind == SIMULATE_NESTED || kind == SIMULATE_CROSSED;

    count_sizes(fine, n, &least, &most);
    assert_true(most >= 2 && most < n);
    assert_int_equal(simulate_params(s)->n_domains, two ? 2 : 1);
    assert_int_equal(simulate_domain_of(s, two ? 2 : 1, 0), -1);
    if (kind == SIMULATE_UNTILED)
        assert_true(n % most != 0 && least < most);
    else if (kind == SIMULATE_UNEQUAL)
        assert_true(least < most);
    else
        assert_int_equal(least, most);
    if (!two)
        return;
    domains_of(s, m, 1, coarse);
    assert_true(nests(fine, coarse, n) == (kind == SIMULATE_NESTED));
    assert_false(nests(coarse, fine, n));
}

static void check_hidden(int kind, const struct simulate_machine *s,
                         const struct topo_machine *m)
{
    const struct simulate_machine_params *t = simulate_params(s);
    int n_slow = 0;

    for (int i = 0; i < m->n_nodes; i++)
        n_slow += t->node_factor[i] != 1;
    assert_int_equal(n_slow, kind == SIMULATE_SLOW_NODE);
    assert_true(kind != SIMULATE_SLOW_NODE || m->n_nodes > 1);
    if (kind == SIMULATE_LINKS) {
        assert_true(m->n_packages > 1 &&
                    t->n_links == m->n_packages * (m->n_packages - 1));
        assert_true(t->links[0].factor != t->links[1].factor);
        assert_true(t->links[0].to == t->links[1].from);
    } else {
        assert_int_equal(t->n_links, 0);
    }
    if (kind == SIMULATE_NOISY)
        assert_true(t->noise_frac >= 0.005 && t->noise_frac <= 0.06);
    else
        assert_true(t->noise_frac == 0.015);
    if (kind == SIMULATE_SLOW_NODE || kind == SIMULATE_LINKS)
        assert_int_equal(t->n_domains, 0);
    else
        check_clusters(kind, s, m);
}

TEST(every_kind_hides_what_it_says)
{
    for (int kind = 0; kind < SIMULATE_N_HIDDEN; kind++)
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            struct simulate_machine_params params;
            struct simulate_machine *s;
            struct topo_machine *m;

            draw(kind, 0.4, seed, &m, &params);
            assert_ok(simulate_machine_new(&s, m, &params));
            check_hidden(kind, s, m);
            simulate_machine_close(&s);
            topo_machine_close(&m);
        }
}

/* Field by field where a struct has padding. */
static bool same(const struct simulate_machine_params *a,
                 const struct simulate_machine_params *b)
{
    bool equal = a->n_domains == b->n_domains && a->n_links == b->n_links &&
                 memcmp(a->links, b->links, sizeof(a->links)) == 0 &&
                 memcmp(a->node_factor, b->node_factor, sizeof(a->node_factor)) == 0 &&
                 a->core_gbps == b->core_gbps && a->node_gbps == b->node_gbps &&
                 a->kappa == b->kappa && a->noise_frac == b->noise_frac &&
                 a->spike_chance == b->spike_chance && a->sync_ns[3] == b->sync_ns[3];

    for (int i = 0; equal && i < a->n_domains; i++) {
        const struct simulate_bandwidth_domain *x = &a->domains[i], *y = &b->domains[i];

        equal = x->of == y->of && x->stride == y->stride && x->gbps == y->gbps &&
                memcmp(x->sizes, y->sizes, sizeof(x->sizes)) == 0 &&
                x->of_cores == y->of_cores;
    }
    return equal;
}

TEST(the_same_seed_gives_the_same_machine)
{
    for (int kind = 0; kind < SIMULATE_N_HIDDEN; kind++)
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            struct simulate_machine_params one, again, none;
            struct topo_machine *m;
            int n_pus, n_nodes;

            draw(kind, 0.4, seed, &m, &one);
            n_pus = m->n_pus;
            n_nodes = m->n_nodes;
            topo_machine_close(&m);
            draw(kind, 0.4, seed, &m, &again);
            assert_true(same(&one, &again));
            topo_machine_close(&m);
            draw(kind, 0, seed, &m,
                 &none); /* the visible machine does not depend on it */
            assert_int_equal(none.n_domains, 0);
            assert_true(m->n_pus == n_pus && m->n_nodes == n_nodes);
            topo_machine_close(&m);
            draw(kind, 0.4, seed + SEEDS, &m, &again);
            assert_false(same(&one, &again));
            topo_machine_close(&m);
        }
}

/* More of what is hidden never makes a plan faster. */
TEST(what_is_hidden_costs)
{
    for (int kind = 0; kind < SIMULATE_N_HIDDEN; kind++)
        for (uint64_t seed = 1; seed <= 10; seed++) {
            double last = 0, seconds;
            struct simulate_workload w;

            simulate_random_workload(&w, seed);
            for (int i = 0; i <= 8; i++) {
                struct simulate_machine_params params;
                struct simulate_machine *s;
                struct topo_machine *m;
                struct topo_tree *t;
                struct topo_config c;

                draw(kind, 0.1 * i, seed, &m, &params);
                params.kappa = 0;
                /* the first clusters also shorten barriers */
                memset(params.sync_ns, 0, sizeof(params.sync_ns));
                assert_ok(simulate_machine_new(&s, m, &params));
                assert_ok(topo_tree_open(&t, m, NULL, NULL, 0));
                assert_ok(topo_config_cut(&c, t, 0, NULL));
                assert_ok(simulate_seconds(s, &c, NULL, &w, &seconds));
                if (!isfinite(seconds) || seconds < last * (1 - 1e-12))
                    fail_msg("%s, seed %d, strength %g: %g s after %g s",
                             simulate_hidden_names[kind], (int)seed, 0.1 * i, seconds,
                             last);
                last = seconds;
                mem_free(t);
                simulate_machine_close(&s);
                topo_machine_close(&m);
            }
        }
}

TEST(refusals)
{
    struct simulate_machine_params params;
    struct topo_machine *m;
    struct simulate_machine *s;

    assert_err(
        simulate_random_machine(
            &m, &params, &(struct simulate_random_opts){.kind = SIMULATE_N_HIDDEN}),
        ERR_ARG, "");
    assert_null(m);
    draw(SIMULATE_LINKS, 0.4, 1, &m, &params);
    params.links[0].from = m->n_packages;
    assert_err(simulate_machine_new(&s, m, &params), ERR_ARG, "a link to package");
    params.links[0].from = params.links[0].to;
    assert_err(simulate_machine_new(&s, m, &params), ERR_ARG, "a link to package");
    params.n_links = SIMULATE_LINKS_MAX + 1;
    assert_err(simulate_machine_new(&s, m, &params), ERR_ARG, "links, at most");
    topo_machine_close(&m);
    draw(SIMULATE_UNEQUAL, 0.4, 1, &m, &params);
    params.domains[0].sizes[1] = -1;
    assert_err(simulate_machine_new(&s, m, &params), ERR_ARG, "sizes");
    topo_machine_close(&m);
}
