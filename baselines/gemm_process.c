#include "baselines/gemm_process.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/child.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/text.h"
#include "baselines/environment.h"

#define MAX_SET      8   /* variables that we set */
#define LAST_LINE    160 /* of its log, in an error */
#define ANSWER_BYTES (256 << 10)

/* How long an idle OpenMP thread polls before it sleeps: about 2 ms on today's CPUs, so that
 * no thread sleeps between two steps of a product and all sleep after it. */
#define SPIN_COUNT "GOMP_SPINCOUNT=50000"
#define SPIN_MS    "KMP_BLOCKTIME=2"

struct gemm_process {
    char name[64];
    pid_t pid; /* 0: none, or already waited for */
    int socket, log;
};

/* --- start */

static int start(struct gemm_process *p, const struct gemm_process_opts *o, int theirs)
{
    char threads[32], **env = NULL, *set[MAX_SET];
    struct text places = {0};
    int n = 0, rc;

    snprintf(threads, sizeof threads, "OMP_NUM_THREADS=%d", o->n_threads);
    for (int i = 0; i < o->n_threads; i++)
        text_printf(&places, "%s{%d}", i ? "," : "OMP_PLACES=", o->cpus[i]);
    text_put(&places, "", 1);
    set[n++] = threads;
    set[n++] = places.p;
    set[n++] = "OMP_PROC_BIND=true";
    set[n++] = "OMP_DYNAMIC=false";
    set[n++] = SPIN_COUNT;
    set[n++] = SPIN_MS;
    if (o->env)
        set[n++] = (char *)o->env;
    rc = sut_environment(&env, set, n);
    /* An interrupt from the keyboard is ours to answer; OpenMP reads its CPUs before main(). */
    if (rc == OK)
        rc = child_start(&p->pid, &(struct child_program){.argv = o->argv,
                                                          .env = env,
                                                          .fd = {theirs, theirs, p->log},
                                                          .cpus = o->cpus,
                                                          .n_cpus = o->n_threads,
                                                          .own_group = true});
    mem_free(env);
    text_fini(&places);
    return rc;
}

int gemm_process_start(struct gemm_process **out, const struct gemm_process_opts *o)
{
    const char *path = o->argv[0], *slash = strrchr(path, '/');
    struct gemm_process *p = mem_new(MEM_HARNESS, 1, sizeof *p);
    int pair[2] = {-1, -1}, rc;

    *out = NULL;
    snprintf(p->name, sizeof p->name, "%s", slash ? slash + 1 : path);
    p->socket = -1;
    p->log = memfd_create("baseline-log", MFD_CLOEXEC);
    if (p->log < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
        rc = err_set(ERR_IO, "%s: cannot start: %m", p->name);
        goto out;
    }
    p->socket = pair[0];
    rc = start(p, o, pair[1]);
    if (rc != OK)
        goto out;
    *out = p, p = NULL;
out:
    if (pair[1] >= 0)
        close(pair[1]);
    gemm_process_stop(&p);
    return rc;
}

void gemm_process_stop(struct gemm_process **pp)
{
    struct gemm_process *p = *pp;

    if (!p)
        return;
    child_kill(&p->pid);
    if (p->socket >= 0)
        close(p->socket);
    if (p->log >= 0)
        close(p->log);
    mem_free(p);
    *pp = NULL;
}

/* --- how it ended */

/* It closed its end of the socket: wait a second at most for it to exit, and report how. */
static int ended(struct gemm_process *p)
{
    char how[128], line[LAST_LINE];
    int rc = child_wait(&p->pid, 1);

    snprintf(how, sizeof how, "%s",
             rc == ERR_LIMIT ? "closed its output and still runs"
             : rc == OK      ? "exited with status 0"
                             : err_msg());
    child_last_line(p->log, line, sizeof line);
    return err_set(ERR_IO, "%s: %s%s%s", p->name, how, *line ? ": " : "", line);
}

static int timed_out(const struct gemm_process *p, double limit_s)
{
    siginfo_t state = {0}; /* asked without taking it: ended() may still want it */
    char stopped[64] = "", line[LAST_LINE];

    if (waitid(P_PID, (id_t)p->pid, &state, WSTOPPED | WNOHANG | WNOWAIT) == 0 &&
        state.si_pid == p->pid)
        snprintf(stopped, sizeof stopped, ": stopped by signal %d (%s)", state.si_status,
                 strsignal(state.si_status));
    child_last_line(p->log, line, sizeof line);
    return err_set(ERR_LIMIT, "%s: no answer in %.3g s%s%s%s", p->name, limit_s, stopped,
                   *line ? ": " : "", line);
}

/* --- answers */

static int ask_for_it(struct gemm_process *p)
{
    static const char line[] = "next\n";
    char early[64];
    ssize_t got = recv(p->socket, early, sizeof early, MSG_DONTWAIT);

    /* An answer to nothing would be taken for the answer to this question. */
    if (got > 0)
        return err_set(ERR_FORMAT, "%s: wrote before it was asked", p->name);
    if (send(p->socket, line, strlen(line), MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
        return OK;
    return errno == EPIPE || errno == ECONNRESET
               ? ended(p)
               : err_set(ERR_IO, "%s: cannot be asked: %m", p->name);
}

static int read_line(struct gemm_process *p, double limit_s, struct text *line)
{
    const uint64_t end_ns = clock_ns() + (uint64_t)(fmin(limit_s, 1e6) * 1e9);
    struct pollfd ready = {.fd = p->socket, .events = POLLIN};
    char piece[4096];

    while (!line->n || line->p[line->n - 1] != '\n') {
        uint64_t now = clock_ns();
        ssize_t got;

        if (now >= end_ns)
            return timed_out(p, limit_s);
        if (poll(&ready, 1, (int)((end_ns - now) / 1000000 + 1)) < 0 && errno != EINTR)
            return err_set(ERR_IO, "%s: cannot be waited for: %m", p->name);
        got = recv(p->socket, piece, sizeof piece, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno == ECONNRESET))
            return ended(p);
        if (got < 0 && errno != EAGAIN && errno != EINTR)
            return err_set(ERR_IO, "%s: cannot be read: %m", p->name);
        text_put(line, piece, got > 0 ? (size_t)got : 0);
        if (line->n > ANSWER_BYTES)
            return err_set(ERR_FORMAT, "%s: an answer longer than %d bytes", p->name,
                           ANSWER_BYTES);
    }
    return OK;
}

int gemm_process_answer(struct gemm_process *p, bool ask, double limit_s, json_t **out)
{
    struct text line = {0};
    const char *why;
    int rc = ask ? ask_for_it(p) : OK;

    *out = NULL;
    if (rc == OK)
        rc = read_line(p, limit_s, &line);
    if (rc == OK)
        rc = json_read_text(out, line.p, line.n, p->name);
    why = json_string_value(json_object_get(*out, "error"));
    if (rc == OK && why)
        rc = err_set(ERR_UNSUPPORTED, "%s", why);
    if (rc != OK)
        json_decref(*out), *out = NULL;
    text_fini(&line);
    return rc;
}
