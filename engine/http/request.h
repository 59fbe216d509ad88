/* http/request.h - the body of a completion request, read and checked.
 *
 * Keys are those of OpenAI's API, with top_k, min_p, typical_p, repetition_penalty, min_tokens,
 * stop_token_ids, ignore_eos, return_token_ids, grammar and json_schema as other servers of open
 * models have them, and `special` of our own. A key with null counts as absent.
 * A key that would change the answer and is not offered is refused, unless its value asks for
 * nothing; an unknown one is refused by name.   Threads: any, distinct requests. */
#ifndef HTTP_REQUEST_H
#define HTTP_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <jansson.h>

#include "chat/calls.h"
#include "http/stop.h"
#include "serve/serve.h"

enum http_api { HTTP_COMPLETION, HTTP_CHAT, HTTP_TOKENIZE, HTTP_DETOKENIZE };

enum http_tool_choice { HTTP_TOOL_AUTO, HTTP_TOOL_NONE, HTTP_TOOL_REQUIRED };

#define HTTP_TOP_MAX  20  /* alternatives of each token, as OpenAI's limit for chat */
#define HTTP_BIAS_MAX 300 /* ids of logit_bias, as OpenAI's limit */
#define HTTP_SEQS_MAX 128 /* prompts times choices, as OpenAI's limit of choices */

struct http_request {
    enum http_api api;
    json_t *body;         /* owns the texts and arrays that the members point to */
    const char *model;    /* NULL: not given */
    const json_t *prompt; /* the prompts, or (not `several`) the one; NULL: chat */
    bool several;
    int n_prompts;      /* 1 with a chat */
    int64_t n;          /* choices of each prompt */
    const json_t *chat; /* chat: the messages, see chat/chat.h; else NULL */
    const json_t *tools, *template_variables; /* chat: see there; NULL: none */
    enum http_tool_choice tool_choice;
    const char *tool; /* the one that is to be called; NULL: any */
    const struct chat_call_format
        *calls;          /* chat: those in the answer; NULL: not looked for */
    bool continue_final; /* chat: the last message is the beginning of the answer */
    struct serve_sampling sampling;
    struct sampler_bias bias[HTTP_BIAS_MAX];
    int n_bias;
    int32_t stop_ids[SERVE_STOP_IDS_MAX];
    int n_stop_ids;
    int64_t min_new;
    struct serve_grammar grammar;
    char *schema; /* owns the grammar's text, where that is not in the body */
    bool has_seed;
    int64_t max_new;    /* 0: not given, or (no_new) asked for */
    bool no_new;        /* with echo: the prompt alone */
    bool echo;          /* completion: the answer begins with the prompt */
    bool special;       /* control tokens in a text are meant as such */
    bool bos;           /* a text begins with BOS, where the tokenizer asks for it */
    bool pieces;        /* tokenize: ids with their texts */
    bool strings;       /* tokenize: the texts of all ids, too */
    uint64_t no_effect; /* bit i: http_request_key(i) was given, which changes nothing */
    int n_stop;
    const json_t *stop[HTTP_STOP_MAX]; /* strings, not empty */
    bool stream, ignore_eos, token_ids;
    bool usage, usage_always; /* of a stream: at its end; in every event, too */
    bool logprobs;     /* the log probability of each token, with n_top alternatives */
    int64_t n_top;     /* 0 .. HTTP_TOP_MAX */
    const char *param; /* after an error: the key at fault, or NULL. Static text. */
    bool too_long; /* the error is that the prompt and the answer exceed the context */
};

/* Read body[n]. *r is written in any case and given back with http_request_fini().
 * ERR_FORMAT, ERR_LIMIT: not JSON as it should be. ERR_ARG: a key or value is wrong.
 * ERR_UNSUPPORTED: the value asks for what is not offered. */
MUST int http_request_parse(struct http_request *r, enum http_api api, const char *body,
                            size_t n);
void http_request_fini(struct http_request *r);

/* The i-th prompt: a text, or an array of ids in the range of int32_t. */
static inline const json_t *http_request_prompt(const struct http_request *r, int i)
{
    return r->several ? json_array_get(r->prompt, (size_t)i) : r->prompt;
}
const char *http_request_key(int i);

#endif
