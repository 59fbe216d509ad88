/* model/inspect.h - what a model file holds, and what one decoded token costs: for people
 * (`sandwich model inspect`) and as JSON.   Threads: any. */
#ifndef MODEL_INSPECT_H
#define MODEL_INSPECT_H

#include <jansson.h>

#include "format/format.h"

/* Shapes, types, bytes, bytes read per decoded token. *text is given back with mem_free(),
 * *out with json_decref(). ERR_NOMEM. */
MUST int model_inspect_text(const struct format_file *f, char **text);
MUST int model_inspect_json(const struct format_file *f, json_t **out);

#endif
