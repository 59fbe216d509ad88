/* baselines/server_file.h - the file of a serving system, and its words with the values of
 * this run. Threads: none of its own. */
#ifndef BASELINES_SERVER_FILE_H
#define BASELINES_SERVER_FILE_H

#include <limits.h>
#include <jansson.h>

#include "baselines/server.h"
#include "cpu/cpu.h"

struct sut_server_values {
    char program[PATH_MAX], port[16], threads[16], prefill_threads[16], ranks[16];
    char cpus[4 * CPU_MAX], prefill_cpus[4 * CPU_MAX], rank_cpus[5 * CPU_MAX];
    char ctx[24], ctx_total[24], slots[16];
    const char *model, *plan; /* NULL: not given */
    int cpu[CPU_MAX], n_cpus; /* where the server may run */
    const char *precision;
};

/* *path: the file, for messages: below the program's folder where it has a name there. *out: a new
 * reference. ERR_NOTFOUND: no such system, with
 * the names of those that there are. */
MUST int sut_server_file(json_t **out, char path[PATH_MAX], const char *system);
/* All values but program and port. */
MUST int sut_server_values(struct sut_server_values *v, const struct sut_server_opts *o);
/* A list of words with its values; *argv: mem_free() of it frees all, NULL ends it. */
MUST int sut_server_words(char ***argv, int *n, const json_t *list,
                          const struct sut_server_values *v, const char *where);
/* The same of an object: "NAME=VALUE" of each member that has all its values. */
MUST int sut_server_env(char ***env, int *n, const json_t *object,
                        const struct sut_server_values *v, const char *where);

#endif
