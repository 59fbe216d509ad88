/* chat/template.h - the programs that models carry to write a conversation as text.
 *
 * They are written in a subset of Jinja2, run as the library transformers runs them: its
 * settings of whitespace, its functions (raise_exception, strftime_now) and its tojson. A
 * rendering has the bytes that jinja2 would write, or fails where jinja2 would.
 * Each byte keeps its origin through filters, slices and concatenation: what the template
 * wrote may hold control tokens, what users wrote never does.
 * A template reads no files, calls no code, and ends: its steps, depth and output are bounded.
 *   Threads: a template is immutable; any thread may render. */
#ifndef CHAT_TEMPLATE_H
#define CHAT_TEMPLATE_H

#include <stdbool.h>
#include <stdint.h>
#include <jansson.h>

#include "base/text.h"
#include "tokenizer/tokenizer.h"

#define CHAT_SOURCE_MAX                                                                  \
    ((size_t)1 << 20) /* bytes of a template; the largest published has 25 kB */

struct chat_template;

/* `where` begins messages ("FILE: chat template"). ERR_FORMAT: the text breaks Jinja's syntax.
 * ERR_UNSUPPORTED: it has a construct, filter, test, method or function that is not known,
 * which the message names with line and column. ERR_LIMIT: it is too long or too deep. */
MUST int chat_template_open(struct chat_template **out, const char *text, size_t n,
                            const char *where);
void chat_template_close(struct chat_template **t);

/* A variable of the template. The texts in `value` are of users, but for those of a variable
 * that is `trusted`, which may hold control tokens. */
struct chat_variable {
    const char *name;
    const json_t *value;
    bool trusted;
    bool read; /* out: the rendering used it */
};

struct chat_input {
    struct chat_variable *variables; /* [n_variables] */
    int n_variables;
    int64_t time_s;   /* since 1970, local time: of strftime_now */
    size_t max_bytes; /* of the output; longer is ERR_LIMIT */
    /* ERR_ARG where a member of an object in the list "messages" says something and the
     * template did not read it: the model would not see it. null, false and what is empty say
     * nothing, and a tool_call_id may stay unread. */
    bool refuse_unread;
    bool too_long;   /* out: it failed because of max_bytes */
    int64_t n_steps; /* out: of which a rendering may take CHAT_STEPS_MAX */
};

/* A conversation as text, whose parts mark where control tokens may be. */
struct chat_prompt {
    struct text text;
    struct tok_part *parts; /* [n_parts], together text.n bytes */
    size_t n_parts, capacity;
};

/* Run the template. *out begins empty and is given back with chat_prompt_fini(), also after an
 * error. ERR_ARG: the template fails with these variables, or refuses them (raise_exception).
 * ERR_LIMIT: it takes too many steps, nests too deep, or writes too much. ERR_NOMEM. */
MUST int chat_template_render(const struct chat_template *t, struct chat_input *in,
                              struct chat_prompt *out);
void chat_prompt_fini(struct chat_prompt *p);

#endif
