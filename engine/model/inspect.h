/* model/inspect.h - what a model file holds, and what its steps cost: for people
 * (`sandwich model inspect`) and as JSON.   Threads: any. */
#ifndef MODEL_INSPECT_H
#define MODEL_INSPECT_H

#include <jansson.h>

#include "format/format.h"

/* The shape, the tensors with their types and bytes, and what decoding a token and
 * processing a prompt cost (model/cost.h) with the weights as stored and an f32 KV cache.
 * *text is given back with mem_free(), *out with json_decref(). ERR_NOMEM. */
MUST int model_inspect_text(const struct format_file *f, char **text);
MUST int model_inspect_json(const struct format_file *f, json_t **out);

#endif
