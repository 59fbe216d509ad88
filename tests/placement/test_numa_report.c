/* What is said of the pages of the weights, and who packs them: on this machine, and on
 * invented nodes. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cpu/cpu.h"
#include "placement/placement.h"
#include "tests/support/invented_nodes.h"
#include "tests/support/step_model.h"
#include "tests/support/test.h"

#define TEAM 16

static void open_on(struct step_model *x, const struct model_numa_owners *owners)
{
    struct model_opts o = step_model_opts();

    o.owners = *owners;
    step_model_open(x, &step_traits[0], &o, TEAM);
}

TEST(test_one_node)
{
    static const int nodes[TEAM] = {0};
    const struct model_numa_owners o = {.n_ranks = 2, .n_threads = 3, .nodes = nodes};
    struct model_numa_row all;
    struct model_numa_report places;
    struct step_model x;
    int64_t bytes;
    int rc;

    open_on(&x, &o);
    rc = model_numa_report_get(x.model, &places); /* the kernel's own word */
    invented_nodes_sum(&places, &all);
    bytes = all.local_bytes + all.shared_bytes;
    assert_string_equal(places.how, "first touch: all threads are on one node");
    assert_string_equal(places.rows[0].name, "qkv");
    assert_string_equal(places.rows[MODEL_WEIGHT_EMBED].name, "embedding");
    assert_string_equal(places.rows[MODEL_WEIGHT_NORMS].name, "norms");
    step_model_close(&x);
    if (rc == ERR_UNSUPPORTED)
        test_skip("%s", err_msg());
    assert_ok(rc);
    assert_int_equal(all.elsewhere_bytes + all.absent_bytes + all.mixed_bytes, 0);
    assert_int_equal(all.shared_bytes, 0);
    assert_true(bytes > 4 * 2 * 48 * 48);
}

TEST(test_unknown_nodes)
{
    const struct model_numa_owners o = {0};
    struct model_numa_report places;
    struct model_numa_row all;
    struct step_model x;

    invented_nodes_begin(0, 0);
    open_on(&x, &o);
    assert_ok(model_numa_report_get(x.model, &places));
    invented_nodes_sum(&places, &all);
    assert_int_equal(all.local_bytes + all.elsewhere_bytes + all.absent_bytes, 0);
    assert_true(all.shared_bytes > 0);
    invented_nodes_end();
    step_model_close(&x);
}

/* Owners on two nodes, the rest of the team on a third. */
static void two_and_one(int *nodes)
{
    for (int t = 0; t < TEAM; t++)
        nodes[t] = t < 4 ? 0 : t < 8 ? 5 : 7;
}

TEST(test_strays_are_found)
{
    struct model_numa_owners o = {.n_ranks = 2, .n_threads = 4};
    struct model_numa_row all;
    struct model_numa_report places;
    int nodes[TEAM];
    struct step_model x;
    int64_t owned;

    two_and_one(nodes);
    o.nodes = nodes;
    invented_nodes_begin(0, SIZE_MAX);
    open_on(&x, &o);
    assert_ok(model_numa_report_get(x.model, &places));
    invented_nodes_sum(&places, &all);
    assert_int_equal(places.n_nodes, 2);
    assert_true(all.local_bytes > 0);
    assert_non_null(strstr(places.how, "bound to the owners' 2 nodes"));
    invented_nodes.stray = 3;
    assert_ok(model_numa_report_get(x.model, &places));
    invented_nodes_sum(&places, &all);
    assert_int_equal(all.local_bytes, 0);
    assert_true(all.elsewhere_bytes > 0);
    invented_nodes.stray = 5;
    assert_ok(model_numa_report_get(x.model, &places));
    invented_nodes_sum(&places, &all);
    assert_true(all.elsewhere_bytes > 0);
    owned = all.local_bytes;
    invented_nodes.stray = 0; /* what was local is elsewhere */
    assert_ok(model_numa_report_get(x.model, &places));
    invented_nodes_sum(&places, &all);
    assert_int_equal(all.elsewhere_bytes, owned);
    invented_nodes_end();
    step_model_close(&x);
}

/* Who packs: the owners' nodes alone where first touch decides, else everybody. */
TEST(test_helpers)
{
    struct model_numa_owners o = {.n_ranks = 2, .n_threads = 4};
    int nodes[TEAM];

    two_and_one(nodes);
    o.nodes = nodes;
    for (int refuse = 0; refuse < 2; refuse++) {
        const struct model_helper *h;
        struct step_model x;

        invented_nodes_begin(refuse ? ENOSYS : 0, refuse ? 0 : SIZE_MAX);
        open_on(&x, &o);
        h = x.model->placement->helpers;
        for (int t = 0; t < TEAM; t++) {
            int domain = t < 8 ? t / 4 : refuse ? -1 : t & 1;

            assert_int_equal(h[t].domain, domain);
            assert_int_equal(h[t].n, domain < 0 ? 0 : refuse ? 4 : 8);
            assert_int_equal(h[t].i, t < 8 ? t % 4 : domain < 0 ? 0 : 4 + (t - 8) / 2);
        }
        assert_int_equal(invented_nodes_warnings("weights_not_bound"), refuse);
        assert_int_equal(strstr(x.model->placement->note, "Function not impl") != NULL,
                         refuse);
        invented_nodes_end();
        step_model_close(&x);
    }
}

TEST(test_a_kernel_that_does_not_tell)
{
    const struct model_numa_owners o = {0};
    struct model_numa_report places;
    struct model_numa_row all;
    struct step_model x;

    open_on(&x, &o);
    invented_nodes_begin(EPERM, 0);
    invented_nodes.mute = true;
    assert_err(model_numa_report_get(x.model, &places), ERR_UNSUPPORTED, "not permitted");
    invented_nodes_sum(&places, &all);
    assert_true(all.shared_bytes > 0);
    assert_int_equal(all.local_bytes + all.elsewhere_bytes + all.absent_bytes, 0);
    invented_nodes_end();
    step_model_close(&x);
}

/* Threads of the team in any order own what their thread slots read. */
TEST(test_slots_own)
{
    static const int threads[] = {2, 0, 3, 1};
    static const int nodes[TEAM] = {10, 11, 12, 13};
    const struct model_numa_owners o = {2, 2, threads, nodes};
    const struct model_placement *p;
    struct step_model x;

    invented_nodes_begin(0, SIZE_MAX);
    open_on(&x, &o);
    invented_nodes_end();
    p = x.model->placement;
    assert_int_equal(p->n_domains, 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(p->node[p->domain[i]], nodes[threads[i]]);
    step_model_close(&x);
}
