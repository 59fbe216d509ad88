#include "baselines/gemm_process.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/child.h"
#include "base/clock.h"
#include "base/mem.h"
#include "baselines/environment.h"

#define MAX_SET   8   /* variables that we set */
#define LAST_LINE 160 /* of its log, in an error */

/* How long an idle OpenMP thread polls before it sleeps: about 2 ms on today's CPUs, so that
 * no thread sleeps between two steps of a product and all sleep after it. */
#define SPIN_COUNT "GOMP_SPINCOUNT=50000"
#define SPIN_MS    "KMP_BLOCKTIME=2"

struct gemm_process {
    char name[64];
    pid_t pid; /* 0: none, or already waited for */
    int socket, log;
    char buffer[GEMM_LINE_MAX];
    size_t n_read; /* bytes in buffer[] not yet taken */
};

/* --- start */

/* "OMP_PLACES={4},{6}". *out: mem_free(). */
static int make_places(char **out, const int *cpus, int n)
{
    size_t capacity = (size_t)n * 16 + 16, at;

    *out = mem_new(MEM_HARNESS, capacity, 1);
    if (!*out)
        return ERR_NOMEM;
    at = (size_t)snprintf(*out, capacity, "OMP_PLACES=");
    for (int i = 0; i < n; i++)
        at += (size_t)snprintf(*out + at, capacity - at, "%s{%d}", i ? "," : "", cpus[i]);
    return OK;
}

static int start(struct gemm_process *p, const struct gemm_process_opts *o, int theirs)
{
    char threads[32], **env = NULL, *places = NULL, *set[MAX_SET];
    int n = 0, rc = make_places(&places, o->cpus, o->n_threads);

    if (rc != OK)
        goto out;
    snprintf(threads, sizeof threads, "OMP_NUM_THREADS=%d", o->n_threads);
    set[n++] = threads;
    set[n++] = places;
    set[n++] = "OMP_PROC_BIND=true";
    set[n++] = "OMP_DYNAMIC=false";
    set[n++] = SPIN_COUNT;
    set[n++] = SPIN_MS;
    if (o->env)
        set[n++] = (char *)o->env;
    rc = sut_environment(&env, set, n);
    /* An interrupt from the keyboard is ours to answer; OpenMP reads its CPUs before main(). */
    if (rc == OK)
        rc = child_start(
            &p->pid,
            &(struct child_program){.argv = (const char *const[]){o->path, o->arg, NULL},
                                    .env = env,
                                    .fd = {theirs, theirs, p->log},
                                    .cpus = o->cpus,
                                    .n_cpus = o->n_threads,
                                    .own_group = true});
out:
    mem_free(env);
    mem_free(places);
    return rc;
}

int gemm_process_start(struct gemm_process **out, const struct gemm_process_opts *o)
{
    const char *slash = strrchr(o->path, '/');
    struct gemm_process *p;
    int pair[2] = {-1, -1}, rc;

    *out = NULL;
    p = mem_new(MEM_HARNESS, 1, sizeof *p);
    if (!p)
        return ERR_NOMEM;
    snprintf(p->name, sizeof p->name, "%s", slash ? slash + 1 : o->path);
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

int gemm_process_pid(const struct gemm_process *p)
{
    return (int)p->pid;
}

/* --- end */

/* The last line of its standard error, ": " before it; "" when there is none. */
static void last_line(const struct gemm_process *p, char *out, size_t n)
{
    char text[LAST_LINE + 1];
    struct stat log;
    ssize_t got = 0;
    char *line;

    out[0] = '\0';
    if (fstat(p->log, &log) == 0)
        got = pread(p->log, text, LAST_LINE,
                    log.st_size > LAST_LINE ? log.st_size - LAST_LINE : 0);
    while (got > 0 && (unsigned char)text[got - 1] <= ' ')
        got--;
    if (got <= 0)
        return;
    text[got] = '\0';
    line = strrchr(text, '\n');
    line = line ? line + 1 : text;
    for (char *c = line; *c; c++)
        if ((unsigned char)*c < ' ')
            *c = ' ';
    snprintf(out, n, ": %s", line);
}

/* It closed its end of the socket: wait a second at most for it to exit, and report how. */
static int ended(struct gemm_process *p)
{
    char words[LAST_LINE + 4];
    int rc = child_wait(&p->pid, 1);

    last_line(p, words, sizeof words);
    if (rc == ERR_LIMIT)
        return err_set(ERR_IO, "%s: closed its output and still runs%s", p->name, words);
    return err_set(ERR_IO, "%s: %s%s", p->name,
                   rc == OK ? "exited with status 0" : err_msg(), words);
}

static int timed_out(const struct gemm_process *p, double limit_s)
{
    siginfo_t state = {0}; /* asked without taking it: ended() may still want it */
    char words[LAST_LINE + 4];

    last_line(p, words, sizeof words);
    if (waitid(P_PID, (id_t)p->pid, &state, WSTOPPED | WNOHANG | WNOWAIT) == 0 &&
        state.si_pid == p->pid)
        return err_set(ERR_LIMIT, "%s: no answer in %.3g s: stopped by signal %d (%s)%s",
                       p->name, limit_s, state.si_status, strsignal(state.si_status),
                       words);
    return err_set(ERR_LIMIT, "%s: no answer in %.3g s%s", p->name, limit_s, words);
}

/* --- commands and answers */

static int send_line(struct gemm_process *p, const char *line)
{
    char text[GEMM_LINE_MAX];
    int n = snprintf(text, sizeof text, "%s\n", line);

    if (n >= (int)sizeof text)
        return err_set(ERR_ARG, "%s: a command of %d bytes, at most %d", p->name, n,
                       GEMM_LINE_MAX - 1);
    for (int at = 0; at < n;) {
        ssize_t sent =
            send(p->socket, text + at, (size_t)(n - at), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && (errno == EPIPE || errno == ECONNRESET))
            return ended(p);
        if (sent < 0)
            return err_set(ERR_IO, "%s: cannot be asked: %m", p->name);
        at += (int)sent;
    }
    return OK;
}

/* Take one line out of buffer[] if there is one: 1, 0, or an error. */
static int take_line(struct gemm_process *p, char *answer, size_t n)
{
    char *end = memchr(p->buffer, '\n', p->n_read);
    size_t length = end ? (size_t)(end - p->buffer) : p->n_read;

    for (size_t i = 0; i < length; i++)
        if ((unsigned char)p->buffer[i] < ' ' || (unsigned char)p->buffer[i] == 0x7f)
            return err_set(ERR_FORMAT, "%s: byte 0x%02x in an answer, expected text",
                           p->name, (unsigned char)p->buffer[i]);
    if (!end && length < sizeof p->buffer)
        return 0;
    if (!end || length >= n)
        return err_set(ERR_FORMAT, "%s: an answer longer than %d bytes", p->name,
                       GEMM_LINE_MAX - 1);
    memcpy(answer, p->buffer, length);
    answer[length] = '\0';
    p->n_read -= length + 1;
    memmove(p->buffer, end + 1, p->n_read);
    return 1;
}

/* Read what there is, waiting until `end`: OK, or an error. */
static int read_some(struct gemm_process *p, uint64_t end, double limit_s)
{
    struct pollfd ready = {.fd = p->socket, .events = POLLIN};
    uint64_t now = clock_ns();
    ssize_t got;
    int n;

    if (now >= end)
        return timed_out(p, limit_s);
    n = poll(&ready, 1, (int)((end - now) / 1000000 + 1));
    if (n == 0 || (n < 0 && errno == EINTR))
        return OK;
    if (n < 0)
        return err_set(ERR_IO, "%s: cannot be waited for: %m", p->name);
    got = recv(p->socket, p->buffer + p->n_read, sizeof p->buffer - p->n_read,
               MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno == ECONNRESET))
        return ended(p);
    if (got < 0 && errno != EAGAIN && errno != EINTR)
        return err_set(ERR_IO, "%s: cannot be read: %m", p->name);
    p->n_read += got > 0 ? (size_t)got : 0;
    return OK;
}

/* An answer to nothing would be taken for the answer to what is asked next. */
static int expect_silence(struct gemm_process *p)
{
    ssize_t got;

    if (p->n_read == 0) {
        got = recv(p->socket, p->buffer, sizeof p->buffer, MSG_DONTWAIT);
        p->n_read = got > 0 ? (size_t)got : 0;
    }
    if (p->n_read > 0)
        return err_set(ERR_FORMAT, "%s: wrote %zu bytes before it was asked", p->name,
                       p->n_read);
    return OK;
}

int gemm_process_ask(struct gemm_process *p, const char *line, char *answer, size_t n,
                     double limit_s)
{
    double wait_s = limit_s < 1e6 ? limit_s : 1e6; /* fits the clock */
    uint64_t end = clock_ns() + (uint64_t)(wait_s * 1e9);
    int rc = OK;

    if (line)
        rc = expect_silence(p);
    if (line && rc == OK)
        rc = send_line(p, line);
    while (rc == OK) {
        rc = take_line(p, answer, n);
        if (rc != 0)
            return rc == 1 ? OK : rc;
        rc = read_some(p, end, limit_s);
    }
    return rc;
}
