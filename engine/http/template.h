/* http/template.h - chat templates: the text that a model was trained to see for a
 * conversation.
 *
 * Model files carry their template as a program in a language of its own (Jinja). It is not
 * run: the published templates are rows of a table, and a model's row is recognised by texts
 * that only its template has. Control tokens are recognised in what the template adds, never
 * in what users write, so that a message cannot end its turn or pose as another role.
 *   Threads: any. */
#ifndef HTTP_TEMPLATE_H
#define HTTP_TEMPLATE_H

#include <stdint.h>
#include <jansson.h>

#include "base/text.h"
#include "tokenizer/tokenizer.h"

struct http_template;

/* By name. ERR_NOTFOUND lists the known ones. */
MUST int http_template_named(const struct http_template **out, const char *name);
/* By the text of a model's own template. ERR_UNSUPPORTED lists the known ones. */
MUST int http_template_recognise(const struct http_template **out, const char *text,
                                 size_t n);
/* By the metadata of the model at `path`: tokenizer.chat_template of a GGUF file; of a folder
 * chat_template.jinja or the key chat_template in tokenizer_config.json. ERR_NOTFOUND: it has
 * none. */
MUST int http_template_of_model(const struct http_template **out, const char *path);

const char *http_template_name(const struct http_template *t);
#define HTTP_TEMPLATE_NAMES                                                              \
    "chatml, llama-2, llama-3, mistral-tekken, mistral-v1, mistral-v3, mistral-v7, "     \
    "mistral-v7-tekken, qwen2, qwen2.5 or smollm2"

/* A conversation as text, whose parts tell where control tokens may be. */
struct http_prompt {
    struct text text;
    struct tok_part *parts; /* [n_parts], together text.n bytes */
    size_t n_parts, capacity;
};
/* Write the messages (objects with role and content) and the beginning of the answer. *out
 * begins empty and is given back with http_prompt_fini(), also after an error. ERR_ARG: a
 * message is wrong, or in a place where the template has none. */
MUST int http_template_render(const struct http_template *t, const json_t *messages,
                              struct http_prompt *out);
void http_prompt_fini(struct http_prompt *p);

/* Whether the tokenizer has the control tokens that the template writes. ERR_UNSUPPORTED
 * names one that is missing. */
MUST int http_template_check(const struct http_template *t, const struct tok *tok);

#endif
