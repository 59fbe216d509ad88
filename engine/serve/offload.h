/* serve/offload.h - how a program lets an accelerator compute a part of the engine's steps. It is
 * not part of the engine, which knows the time at which to open and close it only. */
#ifndef SERVE_OFFLOAD_H
#define SERVE_OFFLOAD_H

#include "serve/serve.h"

struct model;
struct model_phase;

struct serve_offload {
    void *ctx;
    /* Model and phases (one or two) are open, nothing was computed. */
    MUST int (*open)(void *ctx, struct model *m, struct model_phase **phases,
                     int n_phases);
    void (*close)(void *ctx); /* before they are closed; also after an error of open */
};

/* As serve_open_shown(). *offload is lent until serve_close(); NULL: none.
 * need_tok: no sequence will have more tokens, so that with max_tok 0 none gets memory for more,
 * which takes time to reserve; 0: not known. */
MUST int serve_open_offloaded(struct serve **out, const struct serve_opts *o,
                              const struct serve_offload *offload, int64_t need_tok,
                              serve_progress_fn progress, void *ctx);

#endif
