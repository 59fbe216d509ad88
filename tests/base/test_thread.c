#include "base/thread.h"
#include "tests/support/faults.h"

#include <errno.h>
#include <stdatomic.h>
#include <time.h>

#include "base/clock.h"

static void *add_one(void *arg)
{
    ++*(int *)arg;
    return NULL;
}

static int run(size_t stack_bytes, int *n)
{
    pthread_t t;

    TRY(thread_start(&t, stack_bytes, add_one, n, "test"));
    pthread_join(t, NULL);
    return OK;
}

/* Both calls of pthread that a start takes are refused in turn. */
TEST(a_thread)
{
    int n = 0;

    assert_ok(run(0, &n));
    assert_ok(run((size_t)8 << 20, &n));
    assert_int_equal(n, 2);
    assert_int_equal(test_thread_faults(run(0, &n), n == 2), 2);
    assert_int_equal(n, 3);
    thread_fail_after(0);
    assert_err(run(0, &n), ERR_NOMEM,
               "test: cannot start a thread: Resource temporarily");
    assert_ok(run(0, &n)); /* one fails, not all */
}

struct shared {
    atomic_int next, sum, seen[THREAD_FORK_MAX];
};

static void take_shares(void *ctx, int i)
{
    struct shared *s = ctx;
    int mine;

    atomic_fetch_add(&s->seen[i], 1);
    while ((mine = atomic_fetch_add(&s->next, 1)) < 1000)
        atomic_fetch_add(&s->sum, mine);
}

/* All work is done by any number of threads, and by those that are left when some are refused. */
TEST(a_fork_and_join)
{
    static const int n[] = {0, 1, 2, 5, THREAD_FORK_MAX + 9};
    static const long refused_after[] = {-1, 0, 3};

    for (int i = 0; i < 5; i++)
        for (int k = 0; k < 3; k++) {
            static struct shared s;
            int threads = 0;

            memset(&s, 0, sizeof(s));
            thread_fail_after(refused_after[k]);
            thread_fork_join(n[i], take_shares, &s);
            thread_fail_after(-1);
            assert_int_equal(s.sum, 999 * 1000 / 2);
            assert_int_equal(s.seen[0], 1);
            for (int t = 0; t < THREAD_FORK_MAX; t++)
                threads += s.seen[t];
            if (refused_after[k] < 0)
                assert_int_equal(threads, n[i] < 1 ? 1 : n[i] > 256 ? 256 : n[i]);
            else /* each takes two calls */
                assert_true(threads <= 1 + refused_after[k] / 2);
        }
}

static size_t stack_bytes;

static void *measure_stack(void *arg)
{
    pthread_attr_t attr;

    (void)arg;
    if (pthread_getattr_np(pthread_self(), &attr) == 0) {
        pthread_attr_getstacksize(&attr, &stack_bytes);
        pthread_attr_destroy(&attr);
    }
    return NULL;
}

TEST(the_stack_is_as_asked_for)
{
    size_t want = (size_t)24 << 20; /* more than any that may be used again */
    pthread_t t;

    assert_ok(thread_start(&t, want, measure_stack, NULL, "test"));
    pthread_join(t, NULL);
    assert_true(stack_bytes >= want);
    assert_err(thread_start(&t, (size_t)1 << 62, measure_stack, NULL, "a deep one"),
               ERR_NOMEM, "a deep one: cannot start a thread: ");
    assert_err(thread_start(&t, 1, measure_stack, NULL, "a shallow one"), ERR_NOMEM,
               "a shallow one: cannot start a thread: Invalid argument");
}

/* They may be used and destroyed though they were refused, if their memory is zero. */
TEST(locks_and_conditions)
{
    pthread_mutex_t m = {0};
    pthread_cond_t c = {0};

    assert_int_equal(
        test_thread_faults(thread_mutex_init(&m),
                           pthread_mutex_lock(&m) == 0 && !pthread_mutex_unlock(&m)),
        1);
    pthread_mutex_destroy(&m);
    assert_int_equal(
        test_thread_faults(thread_cond_init(&c), pthread_cond_signal(&c) == 0), 2);
    pthread_cond_destroy(&c);
}

/* By another clock the time would be decades ago or ahead, and a wait endless. */
TEST(waits_end_by_the_clock)
{
    struct timespec at;
    pthread_mutex_t m;
    pthread_cond_t c;
    uint64_t end = clock_ns() + 2000000;

    assert_ok(thread_mutex_init(&m));
    assert_ok(thread_cond_init(&c));
    at = (struct timespec){.tv_sec = (time_t)(end / 1000000000),
                           .tv_nsec = (long)(end % 1000000000)};
    pthread_mutex_lock(&m);
    assert_int_equal(pthread_cond_timedwait(&c, &m, &at), ETIMEDOUT);
    pthread_mutex_unlock(&m);
    assert_true(clock_ns() >= end);
    pthread_cond_destroy(&c);
    pthread_mutex_destroy(&m);
}
