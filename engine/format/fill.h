/* format/fill.h - assigns the named tensors of a container to roles in a model, for all
 * readers. A reader supplies the look-up by name; names, presence, shapes and the
 * refusal of tensors without a role are handled here, once.   Threads: none of its
 * own. */
#ifndef FORMAT_FILL_H
#define FORMAT_FILL_H

#include <stdbool.h>
#include <stddef.h>

#include "format/family.h"
#include "format/format.h"

/* The name of a role's tensor; `layer` is ignored for the global roles, `expert` where the role
 * or the naming has none. */
void format_role_name(enum model_naming naming, enum format_role role, int layer,
                      int expert, char out[MODEL_NAME_BYTES]);
/* [rows, cols] of a role by the configuration; of one expert. */
void format_role_shape(const struct model_config *c, enum format_role role, int64_t *rows,
                       int64_t *cols);
/* Where a tensor has the rows of several roles (MODEL_NAMES_FUSED_...): the first row of this role,
 * and how many rows there are in all; of biases, numbers. false: it has a tensor of its own. */
bool format_role_slice(const struct model_config *c, enum model_naming naming,
                       enum format_role role, int64_t *first, int64_t *all);
/* Does this configuration have the role (head when untied, biases)? `layer` is ignored for the
 * global roles. */
bool format_role_needed(const struct model_config *c, enum format_role role, int layer);

/* Is it a norm or a bias of a layer? *centre: what its values are about. */
bool format_role_vector(enum format_role role, double *centre);

struct model_tensor_source {
    enum model_naming naming;
    void *ctx;
    /* ERR_NOTFOUND without a message: no such tensor. */
    int (*find)(void *ctx, const char *name, struct format_tensor *out);
    /* Names one by one, NULL after the last. */
    const char *(*name_at)(void *ctx, uint64_t i);
    /* Names that may stand in a file although no role uses them. */
    bool (*ignored)(void *ctx, const char *name);
};

/* f->layer for f->config.n_layers; the configuration must have been checked. */
MUST int format_fill_layers(struct format_file *f);
/* Allocate the layers, find every needed tensor and refuse the others (an unknown tensor
 * means arithmetic that the engine would leave out). Sets weight_type, mean_bytes,
 * k_block, v_split and k_split. ERR_FORMAT: one is missing; ERR_UNSUPPORTED: one is
 * unknown. */
MUST int format_fill(struct format_file *f, const struct model_tensor_source *s);

/* Set what follows from the tensors: matrices of Q4_1 are KERN_W4C where all of them can be, and
 * the configuration's weight_type, mean_bytes, k_block, v_split and k_split. */
void format_fill_types(struct format_file *f);

/* config.name from the path's last part without .gguf or .bin. */
void format_name_from_path(struct model_config *c, const char *path);

#endif
