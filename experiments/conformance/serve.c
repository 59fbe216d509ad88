/* This project's own server as a process, with roles or without. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/child.h"
#include "base/clock.h"
#include "base/home.h"
#include "base/mem.h"
#include "experiments/conformance/run.h"

#define READY_S   120 /* large models are read from disk */
#define STOP_S    20
#define WORDS_MAX 64

struct conform_serve {
    pid_t pid;
    int log;   /* its messages: a file in memory */
    int ports; /* its standard output, which says the port first */
    char *words[2];
};

/* Append the words of `text`, which are separated by spaces and copied to *copy. */
static int add_words(const char **argv, int *n, char **copy, const char *text)
{
    char *rest, *word;

    if (!text)
        return OK;
    *copy = rest = mem_strdup(MEM_HARNESS, text);
    while ((word = strsep(&rest, " ")) != NULL) {
        if (!*word)
            continue;
        if (*n >= WORDS_MAX - 1)
            return err_set(ERR_ARG, "more than %d words for the server", WORDS_MAX);
        argv[(*n)++] = word;
    }
    argv[*n] = NULL;
    return OK;
}

/* The line that the server prints when it is ready. */
static int read_port(struct conform_serve *s, int *port)
{
    const uint64_t end_ns = clock_ns() + (uint64_t)READY_S * 1000000000u;
    struct pollfd p = {.fd = s->ports, .events = POLLIN};
    char line[32] = "", last[160];
    size_t n = 0;

    while (!strchr(line, '\n') && n < sizeof(line) - 1 && clock_ns() < end_ns) {
        ssize_t got;

        if (poll(&p, 1, 200) <= 0)
            continue;
        got = read(s->ports, line + n, sizeof(line) - 1 - n);
        if (got <= 0)
            break;
        n += (size_t)got;
        line[n] = '\0';
    }
    *port = atoi(line);
    if (*port > 0)
        return OK;
    child_last_line(s->log, last, sizeof(last));
    return err_set(ERR_IO, "sandwich serve: not ready%s%s",
                   last[0] ? "; the last line it wrote: " : "", last);
}

int conform_serve_start(struct conform_serve **out, char *url, const char *model,
                        const char *roles, const char *words, const char *more)
{
    struct conform_serve *s = mem_new(MEM_HARNESS, 1, sizeof(*s));
    char program[4096];
    const char *argv[WORDS_MAX] = {home_program(program, sizeof(program), "sandwich"),
                                   "serve",
                                   "--model",
                                   model,
                                   "--port",
                                   "0",
                                   "--deterministic",
                                   "--no-pin"};
    struct child_program p = {.argv = argv, .own_group = true};
    int n = 8, pipes[2] = {-1, -1}, port = 0, rc;

    *out = NULL;
    s->ports = -1;
    s->log = memfd_create("server-output", MFD_CLOEXEC);
    if (roles) {
        argv[n++] = "--roles";
        argv[n++] = roles;
    }
    rc = s->log < 0 || pipe2(pipes, O_CLOEXEC) != 0
             ? err_set(ERR_IO, "sandwich serve: no file for its output: %m")
             : add_words(argv, &n, &s->words[0], words);
    if (rc == OK)
        rc = add_words(argv, &n, &s->words[1], more);
    s->ports = pipes[0];
    p.fd[0] = -1, p.fd[1] = pipes[1], p.fd[2] = s->log;
    if (rc == OK)
        rc = child_start(&s->pid, &p);
    if (pipes[1] >= 0)
        close(pipes[1]);
    if (rc == OK)
        rc = read_port(s, &port);
    snprintf(url, 64, "http://127.0.0.1:%d", port);
    if (rc == OK)
        *out = s, s = NULL; /* the caller's now */
    conform_serve_stop(&s);
    return rc;
}

void conform_serve_stop(struct conform_serve **sp)
{
    struct conform_serve *s = *sp;

    if (!s)
        return;
    if (s->pid) {
        char message[512];

        snprintf(message, sizeof(message), "%s", err_msg());
        kill(s->pid, SIGTERM);
        if (child_wait(&s->pid, STOP_S) == ERR_LIMIT)
            child_kill(&s->pid);
        err_set(ERR_IO, "%s", message); /* the one of why it was stopped */
    }
    if (s->ports >= 0)
        close(s->ports);
    if (s->log >= 0)
        close(s->log);
    mem_free(s->words[0]);
    mem_free(s->words[1]);
    mem_free(s);
    *sp = NULL;
}
