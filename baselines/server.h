/* baselines/server.h - a serving system that we start, as its file in baselines/systems/
 * describes it: the command, when it is ready, what it reports of itself, how it stops.
 *
 * The file's keys:
 *   about, install  for people: what it is, and the commands that install it
 *   program         looked for near our programs, then in PATH
 *   version         command whose first line of output is the version
 *   command         a list of words; a list inside it is left out as a whole where one of
 *                   its values is not given
 *   plan_command    in place of it where a plan is given
 *   env             variables of its environment
 *   api             path of the OpenAI interface, "/v1" by default
 *   ready           {"path": polled until it answers 200, "limit_s": for how long}
 *   read_back       {NAME: {"after": text in its output that a value follows}, or
 *                   {"path": of a JSON answer, "key": "a.b" in it}}
 *   stop_s          how long it may take to end after SIGTERM
 * Values: {program} {model} {port} {threads} {prefill_threads} {cpus} {prefill_cpus}
 * {rank_cpus} {ranks} {ctx} {ctx_total} {slots} {plan} {precision}; "{{" is a brace.
 * Threads: one caller, which must live as long as the server: the server is killed when the
 * thread that started it ends. */
#ifndef BASELINES_SERVER_H
#define BASELINES_SERVER_H

#include <stdint.h>
#include <time.h>
#include <jansson.h>

#include "base/err.h"

struct sut_server;

struct sut_server_opts {
    const char *system;  /* a name in baselines/systems/, or a path of such a file */
    const char *program; /* in place of the file's; NULL: the file's */
    const char *model;   /* NULL: none */
    const char *plan;    /* NULL: none; its CPUs are then the server's */
    const char *cpus;    /* "0-3,8"; NULL: those of this process's budget */
    int64_t threads;     /* 0: one per CPU */
    int64_t ctx_tok;     /* longest sequence of one request */
    int64_t slots;       /* requests served at once */
    int64_t port;        /* 0: one that is free */
    double ready_s;      /* 0: as the file states */
    /* The precision of its products, where its command has such an option; NULL: its own choice. */
    const char *precision;
    const char
        *args; /* appended to its command: words with blanks between them; NULL: none */
};

/* Start it and wait until it is ready. *out: sut_server_stop(). ERR_UNSUPPORTED: it is not
 * installed, or does not report its version. ERR_IO: it ended, with its last line; more lines are
 * logged. ERR_LIMIT: it is not ready in time. ERR_FORMAT: the file is wrong. */
MUST int sut_server_start(struct sut_server **out, const struct sut_server_opts *o);
void sut_server_stop(struct sut_server **s);

/* The URL of its OpenAI interface, "http://127.0.0.1:PORT/v1"; lent. */
const char *sut_server_url(const struct sut_server *s);
/* When its program was started, by clock_ns(). It is known to be ready 10 ms late at most. */
uint64_t sut_server_started_ns(const struct sut_server *s);
/* OK while it runs; ERR_IO with how it ended, and its last lines logged. */
MUST int sut_server_check(struct sut_server *s);
/* The CPU-time clock of its process; NULL: it has ended. Lent. */
const clockid_t *sut_server_cpu_clock(struct sut_server *s);
/* Version, command, what was read back, and what the system shows of its process: threads
 * and the CPUs that it may use. New reference. */
MUST int sut_server_describe(struct sut_server *s, json_t **out);

#endif
