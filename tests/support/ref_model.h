/* tests/support/ref_model.h - small random models in memory, and the forward pass as a
 * page of float64 loops that shares no code with the engine: what the engine is tested
 * against. */
#ifndef TESTS_SUPPORT_REF_MODEL_H
#define TESTS_SUPPORT_REF_MODEL_H

#include "format/format.h"

struct ref_model {
    struct format_file f; /* for model_open() */
    void *map;            /* the tensors' bytes; packing may drop them */
    size_t map_bytes;
    double *global[FORMAT_ATTN_NORM]; /* the same values, ours */
    double *(*layer)[FORMAT_N_ROLES - FORMAT_ATTN_NORM];
    double *(*expert)[FORMAT_N_EXPERT_ROLES]; /* [n_layers * n_experts] */
    /* How near a router was to another choice in ref_model_forward(): the least difference between
     * the products of the last expert taken and of the first one not, equal ones left out. */
    double margin;
};

/* Do the types of tensors differ? */
enum ref_mixed {
    REF_SAME,
    REF_MIXED,     /* plain ones from tensor to tensor, quantised ones as in most files */
    REF_MIXED_KEYS /* quantised: K and V have 8 bits, as in files of 8 experts */
};

/* Random weights of this configuration (c->weight_type; `flat_router`: all experts have the same
 * products). Fails the test on error. */
void ref_model_init(struct ref_model *r, const struct model_config *c, bool interleaved,
                    enum ref_mixed mixed, bool flat_router, uint64_t seed);
/* The weights of an open file, which may be closed afterwards; r->f is not a file. */
void ref_model_of_file(struct ref_model *r, const struct format_file *f);
void ref_model_fini(struct ref_model *r);

/* logits [n, vocab] after each of the n ids. */
void ref_model_forward(struct ref_model *r, const int32_t *ids, int n, double *logits);

#endif
