/* Faults of transports, drawn at random: none is silent, and no prompt is lost. 10^4 of them, or as
 * many as KV_FAULTS says; a seed makes them the same again. */
#include <stdlib.h>

#include "experiments/study/support/kv_fault_table.h"
#include "tests/support/test.h"

static int how_many(void)
{
    const char *text = getenv("KV_FAULTS");

    return text ? atoi(text) : 10000;
}

static void run(struct study_fault_table *t, const char *transport, bool checksums, int n)
{
    struct study_fault_opts o = {
        .checksums = checksums, .n = n, .n_threads = 64, .seed = test_seed()};

    assert_ok(cluster_transport_find(transport, &o.transport));
    assert_ok(study_fault_many(t, &o));
    assert_int_equal(t->all.n, n);
}

static void none_silent(const char *transport)
{
    int n = how_many() / 2;
    struct study_fault_table t;

    run(&t, transport, true, n);
    if (t.all.n_silent || t.all.n_lost)
        fail_msg("%s", t.why);
    for (int f = 0; f < STUDY_N_FAULTS; f++)
        for (int p = 0; p < STUDY_N_PHASES; p++) {
            struct study_fault_case c = {.fault = (enum study_fault)f,
                                         .phase = (enum study_phase)p};

            if (study_fault_excluded(&c))
                continue;
            print_message("# %s, %s, %s: %d, %d named\n", study_fault_names[f],
                          study_phase_names[p], transport, t.by[f][p].n,
                          t.by[f][p].n_named);
            assert_true(t.by[f][p].n > 0 || n < 2500);
        }
    study_fault_table_free(&t);
}

TEST(none_is_silent_by_shm)
{
    none_silent("shm");
}

TEST(none_is_silent_by_socket)
{
    none_silent("socket");
}

/* Without checksums a wrong byte is not found, and all other faults are; and both are counted. One
 * may be named for another reason: a busy host is silent for too long. */
TEST(without_checksums_wrong_bytes_are_silent)
{
    struct study_fault_table t;
    int n_silent = 0;

    run(&t, "shm", false, 600);
    for (int p = 0; p < STUDY_N_PHASES; p++) {
        const struct study_fault_count *c = &t.by[STUDY_CORRUPTED][p];

        n_silent += c->n_silent;
        assert_int_equal(c->n_silent + c->n_named, c->n);
    }
    assert_true(n_silent > 0);
    assert_int_equal(t.all.n_silent, n_silent);
    assert_int_equal(t.all.n_lost, 0);
    assert_non_null(strstr(t.why, "corrupted in transfer by shm: silent"));
    study_fault_table_free(&t);
}
