/* hetero/profile.h - what this host's CPU and an accelerator take for products and copies:
 * measured, fitted, kept in a file that the planner reads.
 *
 * Products of the CPU are timed cold, over shapes and 1 to max_tok tokens, for each type of
 * weights and number of threads. Those of the accelerator, its launches and its copies are timed
 * through its own interface, so that one which takes given times gives them back. Where it runs
 * in real time, CPU and copies are also timed together, in rounds with each alone, for a product
 * of one token and one of many.   Paper: ScheInfer IV-A1, V-B, Table I.   Threads: one caller. */
#ifndef HETERO_PROFILE_H
#define HETERO_PROFILE_H

#include <jansson.h>

#include "cpu/cpu.h"
#include "hetero/accel.h"
#include "hetero/fit.h"

#define HETERO_PROFILE_MAX 16 /* types times numbers of threads */

enum { HETERO_ONE_TOK, HETERO_MANY_TOK, HETERO_N_TOK };

struct hetero_profile_cpu {
    enum kern_type type;
    int n_threads;
    struct hetero_fit fit;
    struct hetero_point *points; /* [n_points] NULL in a profile that was read */
    /* By HETERO_ONE_TOK, HETERO_MANY_TOK; NaN: not measured. */
    double cpu_contention[HETERO_N_TOK], link_contention[HETERO_N_TOK];
};
struct hetero_profile_accel {
    enum kern_type type;
    struct hetero_fit fit;
};
struct hetero_profile {
    char cpu_name[64], kern_precision[16];
    struct hetero_profile_cpu cpu[HETERO_PROFILE_MAX];
    int n_cpu;
    char accel_name[16]; /* "": none was measured */
    bool real_time;
    double launch_s, launch_sigma_s;
    struct hetero_line link;
    struct hetero_profile_accel accel[HETERO_PROFILE_MAX];
    int n_accel;
};

struct hetero_profile_opts {
    const enum kern_type *types;
    int n_types;
    const int *threads; /* numbers of threads */
    int n_threads;
    enum kern_precision precision;
    int64_t max_tok;
    double min_s;                  /* each point is timed for at least so long */
    int64_t copy_bytes;            /* the longest copy */
    const struct accel_kind *kind; /* NULL: none */
    /* The times of an accelerator that has none of its own, by type. */
    const struct hetero_machine *machines; /* [n_types] */
    unsigned seed;
    void (*progress)(void *ctx, const char *what); /* NULL: none */
    void *ctx;
};
/* Also after an error, hetero_profile_fini(). ERR_ARG: more threads than the CPU budget has, or too
 * many types. ERR_UNSUPPORTED: the accelerator is not here. */
MUST int hetero_profile_measure(struct hetero_profile *out,
                                const struct hetero_profile_opts *o);
void hetero_profile_fini(struct hetero_profile *p);

MUST int hetero_profile_json(const struct hetero_profile *p, json_t **out);
/* ERR_FORMAT names the key. */
MUST int hetero_profile_read(struct hetero_profile *out, const char *path);
/* ERR_STATE: hetero_profile_read() would refuse it, such as a rate below 0. */
MUST int hetero_profile_write(const struct hetero_profile *p, const char *path);
/* As a table for people; mem_free(). */
MUST int hetero_profile_text(const struct hetero_profile *p, char **out);

/* The machine that the models describe, for weights of a type, a number of threads and steps of
 * n_tok tokens; contention that was not measured is 0. *p95_log: of the CPU's two regimes, on
 * points that were not fitted.
 * ERR_NOTFOUND: it was not measured; the message says what was. */
MUST int hetero_profile_machine(struct hetero_machine *out, double *p95_log,
                                const struct hetero_profile *p, enum kern_type type,
                                int n_threads, int64_t n_tok);

#endif
