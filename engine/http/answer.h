/* http/answer.h - the response to a generation, as JSON in OpenAI's shape.
 *   Threads: one owner, the reader of the generation. */
#ifndef HTTP_ANSWER_H
#define HTTP_ANSWER_H

#include "base/text.h"
#include "http/gen.h"
#include "http/request.h"

/* What was decoded of a sequence. */
struct http_decoded {
    struct tok_stream stream;
    struct text text; /* all of it */
    size_t n_shown;   /* bytes of it that were sent */
    int64_t n_chars;  /* characters in it */
    bool begun;
    struct chat_call_parser calls; /* of tools; no format: not looked for */
};

struct http_answer {
    const struct http_request *r; /* lent, like g, model and tok */
    struct http_gen *g;
    const struct tok *tok; /* NULL: answers have no text, only ids */
    const char *model;     /* UTF-8 */
    char id[40];
    int64_t created_s;
    char *piece; /* [capacity] text of one token */
    size_t capacity;
    struct http_decoded *decoded; /* [g->n_seqs] */
    bool ended;
};

/* `number`: of the request in this process, for its id. ERR_NOMEM. */
MUST int http_answer_init(struct http_answer *a, const struct http_request *r,
                          struct http_gen *g, const struct tok *tok, const char *model,
                          uint64_t number);
void http_answer_fini(struct http_answer *a);

/* Append to *out the events of all tokens that have come since the last call, by http_gen_ready():
 * one chunk per token, even where its text is empty or held back, so that a client can time tokens.
 * With the last one: usage if asked for, and the end, and a->ended is set. ERR_NOMEM. */
MUST int http_answer_stream(struct http_answer *a, struct text *out);
/* Append the answer as one object. All sequences have ended well. ERR_NOMEM. */
MUST int http_answer_whole(struct http_answer *a, struct text *out);

/* An error in OpenAI's shape, from err_msg(). type, code, param: NULL for null. */
MUST int http_error_text(struct text *out, const char *message, const char *type,
                         const char *code, const char *param);

#endif
