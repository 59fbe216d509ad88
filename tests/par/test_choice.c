/* The choice of an all-reduce by size: a table that all ranks share, whatever was
 * measured; and the calls that use it give right sums. */
#include <pthread.h>

#include "par/coll.h"
#include "par/shm.h"
#include "tests/support/test.h"

#define MAX_RANKS  4
#define MAX_FLOATS 20000
#define SPIN_NS    2000

struct member {
    void *mem;
    int rank, n_ranks, n_measured;
    struct par_rank r;
    long bad;
};

static void *measure_and_sum(void *arg)
{
    struct member *m = arg;
    float *x = malloc(MAX_FLOATS * sizeof(*x));

    m->bad = !x || par_comm_join(&m->r, m->mem, m->rank, SPIN_NS) != OK;
    for (int i = 0; i < m->n_measured && !m->bad; i++)
        m->bad = par_comm_measure(&m->r, NULL) != OK;
    for (size_t n = 1; n <= MAX_FLOATS && !m->bad; n = n * 3 + 1) {
        for (size_t i = 0; i < n; i++)
            x[i] = (float)(m->rank + 1) * (float)(i % 100);
        m->bad += par_allreduce(&m->r, NULL, x, n) != OK;
        for (size_t i = 0; i < n; i++)
            m->bad +=
                x[i] != (float)(m->n_ranks * (m->n_ranks + 1) / 2) * (float)(i % 100);
    }
    free(x);
    return NULL;
}

static void run(struct member *m, int n_ranks, int n_measured)
{
    pthread_t threads[MAX_RANKS];
    struct par_shm shm;

    assert_ok(par_shm_open(&shm, par_comm_bytes(n_ranks, MAX_FLOATS)));
    assert_ok(par_comm_init(shm.base, n_ranks, MAX_FLOATS));
    for (int i = 0; i < n_ranks; i++) {
        m[i] = (struct member){
            .mem = shm.base, .rank = i, .n_ranks = n_ranks, .n_measured = n_measured};
        assert_int_equal(pthread_create(&threads[i], NULL, measure_and_sum, &m[i]), 0);
    }
    for (int i = 0; i < n_ranks; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < n_ranks; i++)
        assert_int_equal(m[i].bad, 0);
    par_shm_close(&shm);
}

static void check_table(const struct par_choice *c)
{
    int n_colls = 0;

    while (par_colls[n_colls])
        n_colls++;
    assert_in_range(c->n, 1, PAR_CHOICE_MAX);
    for (int i = 0; i < c->n; i++) {
        assert_in_range(c->row[i].coll, 0, n_colls - 1);
        if (i) {
            assert_true(c->row[i].bytes > c->row[i - 1].bytes);
            assert_int_not_equal(c->row[i].coll, c->row[i - 1].coll);
        }
    }
}

TEST(all_ranks_have_rank_0s_table)
{
    struct member m[MAX_RANKS];

    for (int n_ranks = 2; n_ranks <= MAX_RANKS; n_ranks++)
        for (int n_measured = 1; n_measured <= 2; n_measured++) {
            run(m, n_ranks, n_measured);
            check_table(&m[0].r.choice);
            assert_int_equal(m[0].r.choice.row[m[0].r.choice.n - 1].bytes,
                             MAX_FLOATS * sizeof(float));
            for (int i = 1; i < n_ranks; i++)
                assert_memory_equal(&m[i].r.choice, &m[0].r.choice,
                                    sizeof(m[0].r.choice));
        }
}

TEST(there_is_a_table_before_anything_is_measured)
{
    struct member m[MAX_RANKS];

    run(m, 3, 0);
    check_table(&m[0].r.choice);
    assert_string_equal(par_choice_of(&m[0].r, 1)->name, "symmetric");
    assert_string_equal(par_choice_of(&m[0].r, (size_t)1 << 20)->name, "rank_shifted");
    run(m, 1, 1); /* a rank alone has nothing to choose */
    check_table(&m[0].r.choice);
}

TEST(rows_hold_up_to_their_bytes)
{
    struct par_rank r = {.choice = {.n = 3, .row = {{8, 2}, {100, 0}, {400, 1}}}};

    assert_ptr_equal(par_choice_of(&r, 1), par_colls[2]);
    assert_ptr_equal(par_choice_of(&r, 2), par_colls[2]);
    assert_ptr_equal(par_choice_of(&r, 3), par_colls[0]);
    assert_ptr_equal(par_choice_of(&r, 25), par_colls[0]);
    assert_ptr_equal(par_choice_of(&r, 26), par_colls[1]);
    assert_ptr_equal(par_choice_of(&r, 1000), par_colls[1]);
}

static void *measure_alone(void *arg)
{
    struct member *m = arg;

    m->bad = par_comm_join(&m->r, m->mem, m->rank, SPIN_NS) == OK &&
                     par_comm_measure(&m->r, NULL) == ERR_STATE
                 ? 0
                 : 1;
    return NULL;
}

/* A rank without memory for it must not leave the others waiting. */
TEST(no_memory_ends_the_measurement_of_all)
{
    struct member m = {.rank = 1};
    struct par_rank r;
    struct par_shm shm;
    pthread_t other;

    assert_ok(par_shm_open(&shm, par_comm_bytes(2, 100)));
    assert_ok(par_comm_init(shm.base, 2, 100));
    m.mem = shm.base;
    assert_ok(par_comm_join(&r, shm.base, 0, SPIN_NS));
    mem_fail_after(0, 1);
    assert_int_equal(par_comm_measure(&r, NULL), ERR_NOMEM);
    mem_fail_after(-1, 0);
    assert_int_equal(pthread_create(&other, NULL, measure_alone, &m), 0);
    pthread_join(other, NULL);
    assert_int_equal(m.bad, 0);
    par_shm_close(&shm);
}
