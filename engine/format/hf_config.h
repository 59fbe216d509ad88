/* format/hf_config.h - a Hugging Face config.json as a model_config. What the file
 * asks for and this engine does not do (other architectures, rotary scalings,
 * activations, biases, sliding windows, quantisation) is refused by key: leaving it out
 * would give wrong text. */
#ifndef FORMAT_HF_CONFIG_H
#define FORMAT_HF_CONFIG_H

#include "format/config.h"

/* Fills everything but weight_type; the result has passed model_config_check(). */
MUST int format_hf_config(struct model_config *c, const char *path);

#endif
