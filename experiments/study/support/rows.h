/* experiments/study/support/rows.h - rows that the option tables of several studies have in
 * common. A study's options are a `struct opts` whose members have the names of their rows. */
#ifndef STUDY_ROWS_H
#define STUDY_ROWS_H

#include "base/opt.h"
#include "experiments/load/study.h"
#include "experiments/study/support/options.h"

#define OPT_OF struct opts

/* The entry at the end of a study whose file has a `table` of `struct opts`, `metrics`, and a
 * `struct cell`, with members `o`, its options, and `out`, that run(struct cell *) fills and
 * end(struct cell *) closes. */
#define STUDY(stem, text, ...)                                                           \
    static int run_cell(void *context, const void *opts, struct study_cell *out)         \
    {                                                                                    \
        struct cell *c = context;                                                        \
                                                                                         \
        c->o = opts;                                                                     \
        c->out = out;                                                                    \
        return run(c);                                                                   \
    }                                                                                    \
    static void end_cell(void *context)                                                  \
    {                                                                                    \
        end(context);                                                                    \
    }                                                                                    \
    const struct study study_##stem = {.name = #stem,                                    \
                                       .help = text,                                     \
                                       .opts = table,                                    \
                                       .opts_bytes = sizeof(struct opts),                \
                                       .context_bytes = sizeof(struct cell),             \
                                       .metrics = metrics,                               \
                                       .run = run_cell,                                  \
                                       .end = end_cell,                                  \
                                       __VA_ARGS__}

#define ROW_MODEL                   OPTION_MODEL(OPT_ROW)
#define ROW_PRECISION               OPTION_PRECISION(OPT_ROW)
#define ROW_KV_TYPE(default_)       OPTION_KV_TYPE(OPT_ROW, default_)
#define ROW_MATRIX                  OPTION_MATRIX(OPT_ROW)
#define ROW_MATRIX_SPLIT            OPTION_MATRIX_SPLIT(OPT_ROW)
#define ROW_MODE                    OPTION_MODE(OPT_ROW)
#define ROW_THREADS(default_, text) OPTION_THREADS(OPT_ROW, default_, text)
#define ROW_CACHE_MB                OPTION_CACHE_MB(OPT_ROW)
#define ROWS_SHAPES(n_default)                                                           \
    ROW_MATRIX_SPLIT, ROW_MODE,                                                          \
        OPT_ROW(STR, ms, NULL,                                                           \
                "Values of M, ascending, in place of n_shapes random ones. Examples: "   \
                "\"1 2 4\", \"1..256\""),                                                \
        OPT_ROW(INT, n_shapes, n_default,                                                \
                "Number of random M, each octave equally likely.", .min = 1,             \
                .max = STUDY_SHAPES_MAX),                                                \
        OPT_ROW(INT, m_max, "512", "Largest M.", .min = 1, .max = 65536)
#define ROWS_TUNING(rounds_default)                                                      \
    ROW_THREADS("0", "Number of threads. 0: one per available CPU core."),               \
        OPT_ROW(INT, trials, "0",                                                        \
                "Measurements per shape of policies that sample. 0: their default.",     \
                .min = 0, .max = 100000),                                                \
        OPT_ROW(F64, budget_s, "0",                                                      \
                "Measuring time of a policy. Shapes that it does not reach get the "     \
                "schedule of the cost model. 0: no limit.",                              \
                .unit = "s", .min = 0, .max = 1e6),                                      \
        OPT_ROW(INT, rounds, rounds_default,                                             \
                "Rounds in which the chosen schedules are measured again.", .min = 1,    \
                .max = 99),                                                              \
        ROW_CACHE_MB,                                                                    \
        OPT_ROW(INT, seed, "1",                                                          \
                "Seed of shapes, weights and the policies' random choices.")

#endif
