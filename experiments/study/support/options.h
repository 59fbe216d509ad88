/* experiments/study/support/options.h - options that several studies have in common, for their
 * lists OPTIONS(X) (frame.h). */
#ifndef STUDY_OPTIONS_H
#define STUDY_OPTIONS_H

#include "kernels/kv_type.h"

/* Options that studies of the engine have in common. */
#define OPTION_MODEL(X) X(STR, model, NULL, "Model file.")
#define OPTION_PRECISION(X)                                                              \
    X(ENUM, precision, "exact", "Precision of the matrix products.",                     \
      .values = KERN_PRECISIONS)
#define OPTION_KV_TYPE(X, default_)                                                      \
    X(ENUM, kv_type, default_, "Type of the cached keys and values.",                    \
      .values = KERN_KV_TYPES)

/* Options that studies of GEMMs have in common (gemm.h, tuning.h). */
#define OPTION_MATRIX(X) X(STR, matrix, NULL, "Matrix as \"NAME NxK\".")
#define OPTION_MATRIX_SPLIT(X)                                                           \
    X(STR, matrix, NULL,                                                                 \
      "Matrix as \"NAME NxK\", or \"NAME NxK/UNIT\" where it is split along K, or "      \
      "of an architecture. Example: llama-3-8b/gate_up")
#define OPTION_MODE(X)                                                                   \
    X(ENUM, mode, "f32",                                                                 \
      "Type of the weights. relaxed: may err as bf16 activations would.",                \
      .values = "f32|bf16|bf16_relaxed")
#define OPTION_THREADS(X, default_, text)                                                \
    X(INT, threads, default_, text, .min = 0, .max = CPU_MAX)
#define OPTION_CACHE_MB(X)                                                               \
    X(INT, cache_mb, "0",                                                                \
      "Cache size beyond which cold weights rotate. 0: the last-level cache.",           \
      .unit = "MiB", .min = 0, .max = 1 << 20)
#define OPTIONS_SHAPES(X, n_default)                                                     \
    OPTION_MATRIX_SPLIT(X)                                                               \
    OPTION_MODE(X)                                                                       \
    X(STR, ms, NULL,                                                                     \
      "Values of M, ascending, in place of n_shapes random ones. Examples: "             \
      "\"1 2 4\", \"1..256\"")                                                           \
    X(INT, n_shapes, n_default, "Number of random M, each octave equally likely.",       \
      .min = 1, .max = STUDY_SHAPES_MAX)                                                 \
    X(INT, m_max, "512", "Largest M.", .min = 1, .max = 65536)
#define OPTIONS_TUNING(X, rounds_default)                                                \
    OPTION_THREADS(X, "0", "Number of threads. 0: one per available CPU core.")          \
    X(INT, trials, "0",                                                                  \
      "Measurements per shape of policies that sample. 0: their default.", .min = 0,     \
      .max = 100000)                                                                     \
    X(F64, budget_s, "0",                                                                \
      "Measuring time of a policy. Shapes that it does not reach get the "               \
      "schedule of the cost model. 0: no limit.",                                        \
      .unit = "s", .min = 0, .max = 1e6)                                                 \
    X(INT, rounds, rounds_default,                                                       \
      "Rounds in which the chosen schedules are measured again.", .min = 1, .max = 99)   \
    OPTION_CACHE_MB(X)                                                                   \
    X(INT, seed, "1", "Seed of shapes, weights and the policies' random choices.")

#endif
