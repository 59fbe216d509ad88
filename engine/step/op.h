/* step/op.h - a step is a list of operators, which all threads of the phase run in turn. The list
 * can be printed, read, checked and changed, as a phase's own or as what a graph was lowered to.
 *
 * An operator is one file in step/op/ that ends in one `const struct model_op_kind
 * model_op_<stem>`. As text a list has an operator on each line, after the number of its layer
 * where it belongs to one; what follows # is not read:
 *
 *     embed
 *     0 attn_qkv
 *     0 attention
 *
 * Paper: MNN-LLM III (a graph is rewritten, then run by the engine's operators).
 * Threads: lists belong to one owner; see step.h for run(). */
#ifndef STEP_OP_H
#define STEP_OP_H

#include "model/model.h"

struct model_op;
struct model_phase;
struct model_thread_ctx;

/* The values that one operator leaves to a later one. */
enum model_value {
    MODEL_V_X = 1,      /* the residual stream */
    MODEL_V_ALL = 2,    /* of all rows of the step */
    MODEL_V_WANTED = 4, /* of the rows whose logits are wanted */
    MODEL_V_QKV = 8,    /* the layer's queries, keys and values */
    MODEL_V_HEADS = 16, /* what a thread's own heads attended to */
    MODEL_V_ATTN = 32,  /* what all heads attended to */
    MODEL_V_LOGITS = 64,
    MODEL_V_BRANCH = 128 /* what is summed apart from the stream */
};

struct model_op_kind {
    const char *name, *help;
    bool in_layer; /* belongs to one layer */
    /* Values (enum model_value, or-ed) that must be there, that are gone afterwards, and that are
     * there afterwards. */
    unsigned reads, ends, gives;
    /* Why a phase cannot run it: ERR_UNSUPPORTED. NULL: each phase can. */
    int (*fits)(const struct model_phase *p);
    /* All threads of the phase call it. w->done: the step ends here. */
    void (*run)(struct model_thread_ctx *w, const struct model_op *op);
};
extern const struct model_op_kind *const model_op_kinds[];
const struct model_op_kind *model_op_find(const char *name); /* NULL: there is none */

struct model_op {
    const struct model_op_kind *kind;
    int layer; /* -1: of none */
    void *ctx; /* what the kind asks for; lent */
};

struct model_ops {
    struct model_op *op; /* [n]; owned */
    int n;
};

/* The operators of a step of a model with this configuration. ERR_NOMEM. */
MUST int model_ops_of(struct model_ops *out, const struct model_config *c);
void model_ops_fini(struct model_ops *o);
/* Every operator finds what it reads, each layer's keys and values are stored once and in order,
 * and logits come last. ERR_ARG names the first operator that is wrong, by its place from 1. */
MUST int model_ops_check(const struct model_ops *o, int n_layers);
/* Make every operator `from` an operator `to` with ctx. How often: *n, may be NULL. ERR_ARG: a
 * name that is none. */
MUST int model_ops_replace(struct model_ops *o, const char *from, const char *to,
                           void *ctx, int *n);
/* Read a text of n bytes. ERR_FORMAT: line, what was expected, what was found. */
MUST int model_ops_parse(struct model_ops *out, const char *text, size_t n);
/* The text, NUL-terminated; mem_free(). ERR_NOMEM. */
MUST int model_ops_print(char **out, const struct model_ops *o);

#endif
