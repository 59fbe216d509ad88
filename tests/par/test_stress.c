/* The all-reduce under stress: sizes from one float to 4 MB, one to eight ranks, random
 * delays, and very many messages through the same two buffers; each sum equal, bit for
 * bit, to the serial one in the stated order.
 *   test_stress            what fits into a few seconds
 *   test_stress 1000000    a million messages at two ranks, however long that takes
 * Prints TAP itself and needs nothing but base and par, so that it also runs
 * cross-compiled under an emulator (test_arm.sh). TEST_SEED chooses the delays. */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/rng.h"
#include "par/coll.h"
#include "par/shm.h"

#define MAX_RANKS  8
#define MAX_FLOATS ((size_t)1 << 20)
#define SPIN_NS    3000 /* more ranks than CPUs: sleep soon */
#define LIMIT_NS   UINT64_C(300000000)

static uint64_t seed = 1;
static int n_cases, n_failed;

/* What all ranks of a case share; fixed while they run. */
struct setup {
    struct par_shm shm;
    const struct par_coll *coll;
    const size_t *sizes;
    int n_ranks, n_sizes;
    long n_messages; /* 0: until the time is over */
};

struct member {
    const struct setup *s;
    int rank;
    long bad, n_done;
    struct par_rank r;
};

/* Element i of what `rank` sends in message `epoch`: of mixed size and sign, so that the
 * order of a sum shows in its last bits. */
static float sent(int rank, long epoch, size_t i)
{
    uint32_t h = (uint32_t)i * 2654435761u + (uint32_t)epoch * 40503u +
                 (uint32_t)rank * 2246822519u;

    h ^= h >> 15;
    h *= 2246822519u;
    /* powers of two: exact, so that a fused multiply-add changes nothing */
    return (float)(int32_t)h * (rank % 2 ? 0x1p10f : 0x1p-10f);
}

/* Long messages are checked by lines: their order changes at lines only. */
static long wrong(const struct setup *s, const float *x, size_t n, long epoch)
{
    size_t step = n > 10000 ? PAR_LINE / sizeof(float) : 1;
    int order[MAX_RANKS];
    long bad = 0;

    for (size_t i = 0; i < n; i++) {
        float want = 0;

        for (int k = 0; k < s->n_ranks; k++) {
            if (i % step == 0)
                order[k] = s->coll->order(s->n_ranks, n, i, k);
            want = k ? want + sent(order[k], epoch, i) : sent(order[k], epoch, i);
        }
        bad += memcmp(&x[i], &want, sizeof(want)) != 0;
    }
    return bad;
}

static void delay(struct rng *g)
{
    uint64_t what = rng_below(g, 16);
    struct timespec t = {.tv_nsec = (long)rng_below(g, 100000)};

    if (what == 0)
        nanosleep(&t, NULL);
    else if (what < 4)
        clock_sleep_until_ns(clock_ns() + (uint64_t)t.tv_nsec / 20, UINT64_MAX);
}

static void *all_sizes(void *arg)
{
    struct member *m = arg;
    const struct setup *s = m->s;
    float *x = malloc(MAX_FLOATS * sizeof(*x));
    struct rng g;

    rng_init(&g, seed + (uint64_t)m->rank, "delay");
    m->bad = !x || par_comm_join(&m->r, s->shm.base, m->rank, SPIN_NS) != OK;
    for (int k = 0; k < s->n_sizes && !m->bad; k++) {
        size_t n = s->sizes[k];

        for (size_t i = 0; i < n; i++)
            x[i] = sent(m->rank, k, i);
        delay(&g);
        m->bad += par_allreduce(&m->r, s->coll, x, n) != OK;
        m->bad += wrong(s, x, n, k);
    }
    m->n_done = s->n_sizes;
    if (m->bad)
        par_comm_abort(s->shm.base);
    free(x);
    return NULL;
}

/* Rank 0 says in the message itself when it is the last, so that all stop at once. */
static void *many_messages(void *arg)
{
    struct member *m = arg;
    const struct setup *s = m->s;
    uint64_t end = clock_ns() + LIMIT_NS;
    bool last = false;
    struct rng g;
    float x[4];

    rng_init(&g, seed + (uint64_t)m->rank, "delay");
    m->bad = par_comm_join(&m->r, s->shm.base, m->rank, SPIN_NS) != OK;
    for (long e = 0; !last && !m->bad; e++) {
        for (size_t i = 0; i < 3; i++)
            x[i] = sent(m->rank, e, i);
        last = s->n_messages ? e + 1 == s->n_messages : e % 64 == 0 && clock_ns() > end;
        x[3] = m->rank == 0 && last ? 1 : 0;
        if (e % 1000 == 0)
            delay(&g);
        m->bad = par_allreduce(&m->r, s->coll, x, 4) != OK || wrong(s, x, 3, e);
        last = x[3] != 0;
        m->n_done = e + 1;
    }
    if (m->bad)
        par_comm_abort(s->shm.base);
    return NULL;
}

static void run(struct setup *s, void *(*fn)(void *), const char *what)
{
    struct member m[MAX_RANKS];
    pthread_t threads[MAX_RANKS];
    size_t max = s->sizes ? s->sizes[s->n_sizes - 1] : 4;
    long bad = 0;

    if (par_shm_open(&s->shm, par_comm_bytes(s->n_ranks, max)) != OK ||
        par_comm_init(s->shm.base, s->n_ranks, max) != OK) {
        printf("# %s\n", err_msg());
        exit(1);
    }
    for (int i = 0; i < s->n_ranks; i++) {
        m[i] = (struct member){.s = s, .rank = i};
        if (pthread_create(&threads[i], NULL, fn, &m[i]) != 0)
            exit(1);
    }
    for (int i = 0; i < s->n_ranks; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < s->n_ranks; i++) {
        bad += m[i].bad;
        if (m[i].bad)
            printf("# seed %llu: rank %d: %ld faults\n", (unsigned long long)seed, i,
                   m[i].bad);
    }
    par_shm_close(&s->shm);
    n_cases++;
    n_failed += bad != 0;
    printf("# %ld messages\n", m[0].n_done);
    printf("%s %d - %s %s, %d ranks\n", bad ? "not ok" : "ok", n_cases, s->coll->name,
           what, s->n_ranks);
}

static void sizes_up_to_4_mb(const struct par_coll *coll)
{
    static const size_t sizes[] = {1,    2,    3,    16,    31,    32,        33,
                                   63,   64,   65,   255,   256,   1000,      4095,
                                   4096, 4097, 9999, 33333, 70000, MAX_FLOATS};
    int n = (int)(sizeof(sizes) / sizeof(sizes[0]));

    for (int n_ranks = 1; n_ranks <= MAX_RANKS; n_ranks++) {
        bool longest = n_ranks % 6 == 2; /* 2, 8 */
        struct setup s = {.coll = coll,
                          .n_ranks = n_ranks,
                          .sizes = sizes,
                          .n_sizes = longest ? n : n - 1};

        run(&s, all_sizes, longest ? "to 4 MB" : "to 280 kB");
    }
}

int main(int argc, char **argv)
{
    const char *text = getenv("TEST_SEED");
    long n = argc == 2 ? atol(argv[1]) : 0;

    if (text)
        seed = strtoull(text, NULL, 0);
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 0; par_colls[i]; i++)
        if (!n)
            sizes_up_to_4_mb(par_colls[i]);
    for (int n_ranks = 2; n_ranks <= (n ? 2 : 3); n_ranks++)
        for (int i = 0; par_colls[i]; i++) {
            struct setup s = {.coll = par_colls[i], .n_ranks = n_ranks, .n_messages = n};

            run(&s, many_messages, "again and again");
        }
    printf("1..%d\n", n_cases);
    return n_failed != 0;
}
