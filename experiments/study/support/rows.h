/* experiments/study/support/rows.h - the entry and the option rows of studies that are not in the
 * frame (experiments/frame). Their options are a `struct opts` whose members have the names of
 * their rows. */
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

#define ROW_MODEL             OPTION_MODEL(OPT_ROW)
#define ROW_PRECISION         OPTION_PRECISION(OPT_ROW)
#define ROW_KV_TYPE(default_) OPTION_KV_TYPE(OPT_ROW, default_)

#endif
