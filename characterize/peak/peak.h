/* characterize/peak/peak.h - loops that run one kind of instruction, or read or write
 * memory, as fast as an instruction set can. Each file of this folder is compiled whole
 * for the set its name ends in and ends in one `const struct probe_isa`; the probes
 * choose among those that this processor executes. The loops do no useful work: they are
 * the roof. Threads: any; no loop keeps state. */
#ifndef CHARACTERIZE_PEAK_PEAK_H
#define CHARACTERIZE_PEAK_PEAK_H

#include <stddef.h>
#include <stdint.h>

/* Memory handed to the loops begins on, and is a multiple of, this many bytes: a multiple
 * of every loop's step times its number of streams. */
#define PROBE_CHUNK 65536

/* Arithmetic: one round of run() does `ops` operations (a fused multiply-add is two). The
 * returned value depends on all of them. */
struct probe_arith {
    const char
        *family; /* "f32_fma", "bf16_dot", "bf16_tile", "fp16_fma", "i8_dot", "i8_tile" */
    const char *unit; /* "GFLOP/s", or "GOP/s" for integers */
    double ops;
    double (*run)(int64_t n_rounds);
};

#define PROBE_ARITH_MAX 2
#define PROBE_READ_MAX  6
#define PROBE_WRITE_MAX 2

struct probe_isa {
    const char *name;
    uint64_t isa;  /* CPU_MASK()s it needs; 0: none */
    int vec_bytes; /* width of its memory loops; 0: it has none */
    struct probe_arith arith[PROBE_ARITH_MAX]; /* unused ones: run == NULL */
    /* Reads with different numbers of streams and prefetch distances: which is fastest
     * differs between processors. Unused ones NULL. */
    uint64_t (*read[PROBE_READ_MAX])(const void *p, size_t bytes);
    /* Through the cache, and past it (streaming stores). Unused ones NULL. */
    void (*copy[PROBE_WRITE_MAX])(void *dst, const void *src, size_t bytes);
    void (*triad[PROBE_WRITE_MAX])(float *a, const float *b, const float *c, size_t n);
    /* Reads with arithmetic: n_fma multiply-adds of each f32 that is read. By n_fma and by where
     * the bytes are, its bound is arithmetic, a cache or memory. NULL: it has no memory loops. */
    double (*mixed)(const void *p, size_t bytes, int n_fma);
};
extern const struct probe_isa *const probe_isas[];
/* The widest instruction set of this processor that has memory loops. */
const struct probe_isa *probe_widest(void);

#endif
