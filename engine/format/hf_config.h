/* format/hf_config.h - reads a Hugging Face config.json into a model_config. Features that
 * the engine does not have (other architectures, rotary scalings,
 * activations, biases, sliding windows) are refused by key, since ignoring them would give
 * wrong text. quantization_config is read by safet_quant.h. */
#ifndef FORMAT_HF_CONFIG_H
#define FORMAT_HF_CONFIG_H

#include "format/config.h"

/* Add the tokens that generation_config.json names as ends of a text to those of
 * config.json. There may be no such file. */
MUST int format_hf_generation_config(struct model_config *c, const char *path);

/* Fills everything but weight_type; the result has passed model_config_check(). */
MUST int format_hf_config(struct model_config *c, const char *path);

#endif
