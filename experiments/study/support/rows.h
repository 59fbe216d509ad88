/* experiments/study/support/rows.h - rows of a study's option table, written once.
 *
 * A study's options are a `struct opts` whose members are called as their rows; the
 * macros find them there. */
#ifndef STUDY_ROWS_H
#define STUDY_ROWS_H

#include <stddef.h>

#include "base/opt.h"

#define ROW_(word, kind, default_, text)                                                 \
    .name = #word, .type = (kind), .offset = offsetof(struct opts, word),                \
    .def = (default_), .help = (text)

#define ROW_STR(word, default_, text)                                                    \
    {                                                                                    \
        ROW_(word, OPT_STR, default_, text)                                              \
    }
/* low and high 0: any. */
#define ROW_INT(word, low, high, default_, text)                                         \
    {                                                                                    \
        ROW_(word, OPT_INT, default_, text), .min = (low), .max = (high)                 \
    }
#define ROW_F64(word, unit_, low, high, default_, text)                                  \
    {                                                                                    \
        ROW_(word, OPT_F64, default_, text), .unit = (unit_), .min = (low),              \
                                             .max = (high)                               \
    }
#define ROW_BOOL(word, default_, text)                                                   \
    {                                                                                    \
        ROW_(word, OPT_BOOL, default_, text)                                             \
    }
#define ROW_ENUM(word, words, default_, text)                                            \
    {                                                                                    \
        ROW_(word, OPT_ENUM, default_, text), .values = (words)                          \
    }

/* What studies of GEMMs have in common (gemm.h, tuning.h). */
#define ROW_MATRIX ROW_STR(matrix, NULL, "Matrix as \"NAME NxK\".")
#define ROW_MATRIX_SPLIT                                                                 \
    ROW_STR(matrix, NULL,                                                                \
            "Matrix as \"NAME NxK\", or \"NAME NxK/UNIT\" where it is split along K.")
#define ROW_MODE                                                                         \
    ROW_ENUM(mode, "f32|bf16|bf16_relaxed", "f32",                                       \
             "Type of the weights. relaxed: with an error as of bf16 activations.")
#define ROW_THREADS(default_, text) ROW_INT(threads, 0, CPU_MAX, default_, text)
#define ROW_CACHE_MB                                                                     \
    {                                                                                    \
        ROW_(cache_mb, OPT_INT, "0",                                                     \
             "Cache size beyond which cold weights rotate. 0: the last-level cache."),   \
            .unit = "MiB", .min = 0, .max = 1 << 20                                      \
    }
#define ROWS_SHAPES(n_default)                                                           \
    ROW_MATRIX_SPLIT, ROW_MODE,                                                          \
        ROW_STR(ms, NULL,                                                                \
                "Values of M, ascending, in place of n_shapes random ones. "             \
                "Example: \"1 2 4\""),                                                   \
        ROW_INT(n_shapes, 1, STUDY_SHAPES_MAX, n_default,                                \
                "Number of random M, each octave equally likely."),                      \
        ROW_INT(m_max, 1, 65536, "512", "Largest M.")
#define ROWS_TUNING(rounds_default)                                                      \
    ROW_THREADS("0", "Number of threads. 0: one per available CPU core."),               \
        ROW_INT(trials, 0, 100000, "0",                                                  \
                "Measurements per shape of policies that sample. 0: their default."),    \
        ROW_F64(budget_s, "s", 0, 1e6, "0",                                              \
                "Measuring time of a policy. Shapes that it does not reach get the "     \
                "schedule of the cost model. 0: no limit."),                             \
        ROW_INT(rounds, 1, 99, rounds_default,                                           \
                "Rounds in which the chosen schedules are measured again."),             \
        ROW_CACHE_MB,                                                                    \
        ROW_INT(seed, 0, 0, "1",                                                         \
                "Seed of shapes, weights and the policies' random choices.")

#endif
