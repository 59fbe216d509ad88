#include "par/rank.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/child.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "par/coll.h"
#include "par/shm.h"

#define TICK_NS 20000000
/* A rank that is stopped and continued within this time (Ctrl-Z and fg in a terminal) has
 * not failed. */
#define STOP_GRACE_NS  UINT64_C(100000000)
#define CLOSE_GRACE_NS UINT64_C(2000000000)
#define MESSAGE_BYTES  512

/* The process of one, guarded by the lock. */
struct rank {
    pid_t pid;           /* 0: has ended, or was never started */
    uint64_t stopped_ns; /* when it was stopped; 0: it runs */
    int stop_signal;
};

struct par_ranks {
    struct par_ranks_opts o;
    struct par_shm shm; /* a rank's last words: MESSAGE_BYTES each, written by it alone */
    pthread_t watcher;
    bool watched;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Guarded by the lock. */
    bool closing, failed;
    char why[MESSAGE_BYTES];
    struct rank children[];
};

static char *words_of(const struct par_ranks *p, int rank)
{
    return (char *)p->shm.base + (size_t)rank * MESSAGE_BYTES;
}

/* --- in the child */

static int prepare_child(const struct par_ranks *p, int rank, pid_t parent)
{
    cpu_set_t set;

    child_follow(parent);
    child_leave_signals();
    if (!p->o.cpus)
        return OK;
    CPU_ZERO(&set);
    for (int i = 0; i < p->o.n_cpus[rank]; i++)
        if (p->o.cpus[rank][i] >= 0 && p->o.cpus[rank][i] < CPU_SETSIZE)
            CPU_SET(p->o.cpus[rank][i], &set);
    if (sched_setaffinity(0, sizeof(set), &set) != 0)
        return err_set(ERR_IO, "cannot run on its %d CPUs: %m", p->o.n_cpus[rank]);
    return OK;
}

static int child_main(const struct par_ranks *p, int rank, pid_t parent,
                      const sigset_t *mask)
{
    int rc = prepare_child(p, rank, parent);

    sigprocmask(SIG_SETMASK, mask, NULL);
    if (rc == OK)
        rc = p->o.fn(p->o.arg, rank);
    if (rc != OK)
        snprintf(words_of(p, rank), MESSAGE_BYTES, "%s", err_msg());
    return rc != OK;
}

/* --- watching; with the lock held */

static void fail(struct par_ranks *p, int rank, const char *how)
{
    char name[64];

    snprintf(name, sizeof(name), "rank %d of %d", rank, p->o.n_ranks);
    if (!p->failed && !p->closing)
        snprintf(p->why, sizeof(p->why), "%.60s (process %d) %.400s",
                 p->o.names ? p->o.names[rank] : name, (int)p->children[rank].pid, how);
    p->failed = true;
    if (p->o.abort)
        p->o.abort(p->o.mem);
}

static void fail_signal(struct par_ranks *p, int rank, const char *what, int sig)
{
    const char *name = sigabbrev_np(sig);
    char how[64];

    snprintf(how, sizeof(how), "was %s by SIG%s", what, name ? name : "?");
    fail(p, rank, how);
}

static void ended(struct par_ranks *p, int rank, const siginfo_t *info)
{
    char how[MESSAGE_BYTES + 64];

    if (info->si_code != CLD_EXITED) {
        fail_signal(p, rank, "killed", info->si_status);
    } else if (info->si_status != 0) {
        const char *words = words_of(p, rank);

        snprintf(how, sizeof(how), "ended: %.*s", MESSAGE_BYTES - 1,
                 *words ? words : "it does not say why");
        fail(p, rank, how);
    }
    p->children[rank].pid = 0;
}

static void check_rank(struct par_ranks *p, int rank, uint64_t now)
{
    struct rank *c = &p->children[rank];
    const int kinds = WEXITED | WSTOPPED | WCONTINUED | WNOHANG;
    siginfo_t info = {.si_pid = 0};
    int rc = 0;

    while (c->pid && (rc = waitid(P_PID, (id_t)c->pid, &info, kinds)) == 0 &&
           info.si_pid) {
        if (info.si_code == CLD_STOPPED || info.si_code == CLD_TRAPPED) {
            c->stopped_ns = now;
            c->stop_signal = info.si_status;
        } else if (info.si_code == CLD_CONTINUED) {
            c->stopped_ns = 0;
        } else {
            ended(p, rank, &info);
        }
        info.si_pid = 0;
    }
    if (rc != 0 && errno == ECHILD) {
        fail(p, rank, "has ended, but another waitpid() took its status");
        c->pid = 0;
    }
    if (c->pid && c->stopped_ns && now - c->stopped_ns >= STOP_GRACE_NS) {
        c->stopped_ns = now; /* report it again later if it stays stopped */
        fail_signal(p, rank, "stopped", c->stop_signal);
    }
}

static int n_running(const struct par_ranks *p)
{
    int n = 0;

    for (int r = p->o.first; r < p->o.n_ranks; r++)
        n += p->children[r].pid != 0;
    return n;
}

static void look_at_all(struct par_ranks *p)
{
    for (int r = p->o.first; r < p->o.n_ranks; r++)
        check_rank(p, r, clock_ns());
}

static const struct timespec tick = {.tv_nsec = TICK_NS};

static void *watch(void *arg)
{
    struct par_ranks *p = arg;
    bool more = true;

    while (more) {
        pthread_mutex_lock(&p->lock);
        look_at_all(p);
        more = !p->closing && n_running(p) > 0;
        if (p->failed || !more)
            pthread_cond_broadcast(&p->changed);
        pthread_mutex_unlock(&p->lock);
        if (more)
            nanosleep(&tick, NULL);
    }
    return NULL;
}

/* --- the caller's side */

/* Signals are the caller's own threads' affair. */
static int start_watcher(struct par_ranks *p)
{
    sigset_t all, before;
    int rc;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = thread_start(&p->watcher, 0, watch, p, "ranks");
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    p->watched = rc == OK;
    return rc;
}

/* Signals wait until the child has reported which are not its own. */
static int start_children(struct par_ranks *p)
{
    pid_t parent = getpid();
    sigset_t all, before;
    int rc = OK;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int r = p->o.first; r < p->o.n_ranks && rc == OK; r++) {
        pid_t pid = fork();

        if (pid < 0)
            rc = err_set(ERR_IO, "rank %d of %d: cannot start a process: %m", r,
                         p->o.n_ranks);
        else if (pid == 0)
            _exit(child_main(p, r, parent, &before));
        else
            p->children[r].pid = pid;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

static int init(struct par_ranks *p, const struct par_ranks_opts *o)
{
    p->o = *o;
    TRY(thread_mutex_init(&p->lock));
    TRY(thread_cond_init(&p->changed));
    return par_shm_open(&p->shm, (size_t)o->n_ranks * MESSAGE_BYTES);
}

int par_ranks_open(struct par_ranks **out, const struct par_ranks_opts *o)
{
    struct par_ranks *p;
    int rc;

    *out = NULL;
    if (o->n_ranks < 1 || o->n_ranks > PAR_RANKS_MAX || o->first < 0 || o->first > 1)
        return err_set(ERR_ARG, "%d ranks from %d on, expected 1 to %d from 0 or 1 on",
                       o->n_ranks, o->first, PAR_RANKS_MAX);
    p = mem_new(MEM_TEAM, 1, sizeof(*p) + (size_t)o->n_ranks * sizeof(struct rank));
    if (!p)
        return ERR_NOMEM;
    rc = init(p, o);
    if (rc == OK)
        rc = start_children(p);
    if (rc == OK && !o->no_watcher)
        rc = start_watcher(p);
    if (rc == OK)
        *out = p;
    else
        par_ranks_close(&p);
    return rc;
}

int par_ranks_check(struct par_ranks *p)
{
    int rc = OK;

    pthread_mutex_lock(&p->lock);
    if (p->o.no_watcher && !p->failed)
        look_at_all(p);
    if (p->failed)
        rc = err_set(ERR_STATE, "%s", p->why);
    pthread_mutex_unlock(&p->lock);
    return rc;
}

int par_ranks_wait(struct par_ranks *p, int timeout_ms)
{
    uint64_t end = clock_ns() + (uint64_t)timeout_ms * 1000000;
    struct timespec at = {.tv_sec = (time_t)(end / 1000000000),
                          .tv_nsec = (long)(end % 1000000000)};
    bool late = false;
    int running;

    while (p->o.no_watcher && par_ranks_check(p) == OK && n_running(p) > 0 &&
           clock_ns() < end)
        nanosleep(&tick, NULL);
    pthread_mutex_lock(&p->lock);
    while (!p->failed && n_running(p) > 0 && !late)
        late = pthread_cond_timedwait(&p->changed, &p->lock, &at) == ETIMEDOUT;
    running = n_running(p);
    late = late && !p->failed && running > 0;
    pthread_mutex_unlock(&p->lock);
    if (late)
        return err_set(ERR_LIMIT, "%d ranks still run after %d ms", running, timeout_ms);
    return par_ranks_check(p);
}

pid_t par_ranks_pid(struct par_ranks *p, int rank)
{
    pid_t pid;

    pthread_mutex_lock(&p->lock);
    pid = p->children[rank].pid;
    pthread_mutex_unlock(&p->lock);
    return pid;
}

/* The number of ranks that can still end by themselves. */
static int n_able(const struct par_ranks *p)
{
    int n = 0;

    for (int r = p->o.first; r < p->o.n_ranks; r++)
        n += p->children[r].pid && !p->children[r].stopped_ns;
    return n;
}

/* The watcher has ended, so no lock is needed. */
static void end_children(struct par_ranks *p)
{
    static const struct timespec moment = {.tv_nsec = 1000000};
    uint64_t end = clock_ns() + CLOSE_GRACE_NS;

    if (n_running(p) > 0 && p->o.abort)
        p->o.abort(p->o.mem);
    while (p->o.abort && n_able(p) > 0 && clock_ns() < end) {
        nanosleep(&moment, NULL);
        look_at_all(p);
    }
    for (int r = p->o.first; r < p->o.n_ranks; r++)
        if (p->children[r].pid)
            kill(p->children[r].pid, SIGKILL);
    for (int r = p->o.first; r < p->o.n_ranks; r++)
        while (p->children[r].pid && waitpid(p->children[r].pid, NULL, 0) < 0 &&
               errno == EINTR)
            continue;
}

void par_ranks_close(struct par_ranks **ranks)
{
    struct par_ranks *p = *ranks;

    if (!p)
        return;
    *ranks = NULL;
    pthread_mutex_lock(&p->lock);
    p->closing = true;
    pthread_mutex_unlock(&p->lock);
    if (p->watched)
        pthread_join(p->watcher, NULL);
    end_children(p);
    par_shm_close(&p->shm);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    mem_free(p);
}
