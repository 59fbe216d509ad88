/* kv/learn_model.h - what is learned, for learn.c, which learns it, and learn_file.c, which
 * keeps it.   Threads: none of its own. */
#ifndef KV_LEARN_MODEL_H
#define KV_LEARN_MODEL_H

#include "kv/learn.h"

/* Enough hashed features that frequent words rarely share one, few enough to be solved in a
 * fraction of a second. */
#define KV_LEARN_N_HASHED   480
#define KV_LEARN_N_SHAPE    8
#define KV_LEARN_N_TYPES    24
#define KV_LEARN_N_FEATURES (KV_LEARN_N_HASHED + KV_LEARN_N_SHAPE + KV_LEARN_N_TYPES)

struct kv_learned {
    /* of the logarithm of the length, then of the classes */
    float weights[1 + KV_LEARN_CLASSES][KV_LEARN_N_FEATURES];
    float longest; /* log of the longest training output */
};

#endif
