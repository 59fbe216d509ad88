/* baselines/gemm/support/child.h - what one library's file fills in, and what it is given.
 *
 * baselines/gemm/<name>.c ends in one `const struct gemm_library gemm_library`; linked with
 * child.c, which holds main(), and its library it is the program <build>/baseline/<name>.
 *   <name> list     prints what there is to try: {"version": V, "settings": [{"label",
 *                   "types", "m_max", "env"} ...]}, the settings that this CPU, lowered by
 *                   CPU_ISA_ENV, can execute; one that leaves the choice to the library
 *                   only where nothing is hidden from it
 *   <name> I SHAPE  is setting I. SHAPE: {"type", "m", "n", "k", "n_copies", "seed", "at":
 *                   [[row, column] ...]}. It prints {"setting": LABEL}, as the library took
 *                   it; for the first line that it reads it makes the shape and prints
 *                   {"ready": true}; for each further one it computes once and prints
 *                   {"seconds": S, "values": [X ...]}, of the result at those places
 * Each is one line. Where the library does not take what is asked, {"error": WHY} is the last.
 * A setting that crashes takes only its own process with it.
 * Threads: the child's main thread calls; OpenMP's threads are bound by the environment. */
#ifndef GEMM_LIBRARY_H
#define GEMM_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define GEMM_LABEL_MAX 96

/* C[m, n] f32 = A[m, k] f32 W[k, n]; all of it the child's and alive until it ends. */
struct gemm_shape {
    bool bf16; /* type of the weights */
    int64_t m, n, k;
    int n_threads;
    int n_copies; /* of the weights; run() is told which one to read */
    uint64_t seed;
    const float *a;
    float *c;
};

struct gemm_setting {
    const char *label; /* "core=Haswell layout=KN"; NULL ends the table */
    const char *env;   /* "NAME=VALUE" for the child, or NULL */
    const char *types; /* "f32", "bf16" or "f32 bf16" */
    int64_t m_max;     /* 0: any m */
    uint64_t isa;      /* CPU_MASK() bits that it executes; 0: the library decides */
    int how, size;     /* the file's own meaning */
};

struct gemm_library {
    const struct gemm_setting *settings;
    void (*version)(char *out, size_t n);
    /* Write the label of what the library really runs as. ERR_UNSUPPORTED: it did not
     * take the setting, with the reason as the message. */
    int (*took)(const struct gemm_setting *s, char *label, size_t n);
    /* Make weights and whatever is prepared once; not timed. */
    int (*open)(const struct gemm_shape *shape, const struct gemm_setting *s);
    /* Compute with copy `copy`; all of it is timed. */
    int (*run)(int copy);
};
extern const struct gemm_library gemm_library;

/* --- for the files: weights in plain layouts, filled by all threads. Pages lie where
 * their first writer runs. */

/* n_copies regions of `bytes`; lent for the life of the process. */
MUST int gemm_copies(void ***out, int n_copies, size_t bytes);
/* Fill dst with W as [k, n], or as [n, k] when nk, in the type of the shape. */
void gemm_fill(void *dst, const struct gemm_shape *shape, bool nk);
/* Copy copy 0 to the others. */
void gemm_spread(void **copies, int n_copies, size_t bytes);
/* A as bf16 into dst, rows of `stride` elements (stride >= k, the rest is set to 0).
 * Call outside of a parallel region. */
void gemm_round_activations(uint16_t *dst, const struct gemm_shape *shape,
                            int64_t stride);

#endif
