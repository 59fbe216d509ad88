/* chat/chat.h - from a conversation to the prompt that its model was trained to see.
 *
 * The template is the model's own: tokenizer.chat_template of a GGUF file; of a folder
 * chat_template.jinja or the key chat_template of tokenizer_config.json, which may list several
 * by name. One named tool_use is for requests with tools. Its variables are those that the
 * library transformers sets: messages, tools, documents (none), add_generation_prompt, and the
 * special tokens by name (bos_token ...).
 *   Threads: any, once open. */
#ifndef CHAT_CHAT_H
#define CHAT_CHAT_H

#include "chat/calls.h"
#include "chat/template.h"

struct chat;

/* Templates for models that carry none, or to use in place of their own. */
#define CHAT_KNOWN_NAMES                                                                 \
    "chatml, llama-2, llama-3, mistral-v1, mistral-v3 or mistral-tekken"

struct chat_opts {
    const char *model;     /* path of the model */
    const char *tokenizer; /* path of its tokenizer where it is elsewhere; NULL */
    const char
        *template; /* a name above, one of the model's own by name, or a file; NULL: the
                              model's own */
    const struct tok *tok; /* lent until chat_close() */
};

/* ERR_NOTFOUND: there is no such template; where none was asked for, the model has none.
 * ERR_FORMAT, ERR_UNSUPPORTED, ERR_LIMIT: see chat_template_open(). ERR_UNSUPPORTED also: a
 * known template needs a token that the tokenizer does not have. ERR_IO, ERR_NOMEM. */
MUST int chat_open(struct chat **out, const struct chat_opts *o);
void chat_close(struct chat **c);
/* Where the template is from, for people. Lent. */
const char *chat_origin(const struct chat *c);
/* How its model calls tools, by the template for requests with tools; NULL: not known. */
const struct chat_call_format *chat_calls_of(const struct chat *c);

struct chat_conversation {
    const json_t *messages; /* array of objects as in OpenAI's API */
    const json_t *tools;    /* array of objects, or NULL */
    const json_t *more;     /* object of further variables of the template, or NULL */
    int64_t time_s;         /* for templates that write the date */
    size_t max_bytes;       /* of the prompt */
    /* The last message is the beginning of the answer: the prompt ends with its text. */
    bool continue_final;
    /* out, after an error: what is at fault, "messages" or "tools"; NULL: a further variable, or
     * nothing of these. too_long: the prompt is longer than max_bytes. */
    const char *param;
    bool too_long;
};

/* Write the conversation and the beginning of the answer, or (continue_final) up to the end of
 * the last message, which is an assistant's, as it stands in what the template writes. *out
 * begins empty and is given back with chat_prompt_fini(), also after an error. ERR_ARG,
 * ERR_UNSUPPORTED: a message is wrong, the template refuses the conversation, or it does not
 * read a member of a message, the tools or a further variable, which is then named. ERR_LIMIT:
 * the prompt is too long, or the template takes too many steps. ERR_NOMEM. */
MUST int chat_write(const struct chat *c, struct chat_conversation *in,
                    struct chat_prompt *out);

#endif
