#include "base/thread.h"

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

static atomic_long n_until_failure = LONG_MAX;

/* The result of a pthread call that is about to be made: 0, or what the hook makes of it. */
static int refused(void)
{
    return atomic_fetch_sub(&n_until_failure, 1) == 0 ? EAGAIN : 0;
}

void thread_fail_after(long n)
{
    atomic_store(&n_until_failure, n < 0 ? LONG_MAX : n);
}

int thread_start(pthread_t *out, size_t stack_bytes, void *(*run)(void *), void *arg,
                 const char *who)
{
    pthread_attr_t attr;
    int e = refused();

    if (e == 0)
        e = pthread_attr_init(&attr);
    if (e == 0) {
        if (stack_bytes > 0)
            e = pthread_attr_setstacksize(&attr, stack_bytes);
        if (e == 0)
            e = refused();
        if (e == 0)
            e = pthread_create(out, &attr, run, arg);
        pthread_attr_destroy(&attr);
    }
    return e == 0 ? OK
                  : err_set(ERR_NOMEM, "%s: cannot start a thread: %s", who, strerror(e));
}

struct forked {
    void (*run)(void *ctx, int i);
    void *ctx;
    int i;
    pthread_t thread;
};

static void *run_forked(void *arg)
{
    struct forked *f = arg;

    f->run(f->ctx, f->i);
    return NULL;
}

void thread_fork_join(int n, void (*run)(void *ctx, int i), void *ctx)
{
    struct forked all[THREAD_FORK_MAX];
    int started = 1;

    for (; started < n && started < THREAD_FORK_MAX; started++) {
        struct forked *f = &all[started];

        *f = (struct forked){.run = run, .ctx = ctx, .i = started};
        if (thread_start(&f->thread, 0, run_forked, f, "parallel work") != OK) {
            err_clear();
            break;
        }
    }
    run(ctx, 0);
    for (int i = 1; i < started; i++)
        pthread_join(all[i].thread, NULL);
}

int thread_mutex_init(pthread_mutex_t *m)
{
    int e = refused();

    if (e == 0)
        e = pthread_mutex_init(m, NULL);
    return e == 0 ? OK : err_set(ERR_NOMEM, "cannot make a lock: %s", strerror(e));
}

int thread_cond_init(pthread_cond_t *c)
{
    pthread_condattr_t attr;
    int e = refused();

    if (e == 0)
        e = pthread_condattr_init(&attr);
    if (e == 0) {
        e = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        if (e == 0)
            e = refused();
        if (e == 0)
            e = pthread_cond_init(c, &attr);
        pthread_condattr_destroy(&attr);
    }
    return e == 0 ? OK : err_set(ERR_NOMEM, "cannot make a condition: %s", strerror(e));
}
