/* chat/calls.h - calls of tools in what a model answers.
 *
 * Models are trained on different forms of a call, and their template says which: a row of
 * `formats` in calls.c for each form. The parser reads bytes one by one, so that an answer that is
 * streamed gives the calls of the whole one, however it is divided.
 *   Threads: a format any, a parser one. Not in the five papers. */
#ifndef CHAT_CALLS_H
#define CHAT_CALLS_H

#include <stdbool.h>
#include <jansson.h>

#include "base/text.h"

struct chat_call_format {
    const char *name;
    const char *marks[2]; /* what a template of it holds; NULL: nothing more */
    const char *without;  /* and does not hold; NULL: anything */
    const char *open,
        *close; /* around a call, no byte twice at its beginning; "": nothing */
    const char *arguments; /* the key of the arguments, next to "name" */
};
/* That of a template's text; NULL: none that is known. */
const struct chat_call_format *chat_call_format_of(const char *source, size_t n);
/* The names of all, for people. */
extern const char chat_call_formats[];

/* All zero but for the format, at the beginning of an answer. */
struct chat_call_parser {
    const struct chat_call_format *format;
    /* What was found since the caller last took it: text outside of calls, and (object {name,
     * arguments}, where arguments are JSON in a text) calls. NULL: none. */
    struct text content;
    json_t *calls;
    int n_calls; /* so far, with those that were taken */

    /* Private. */
    enum { CHAT_CALL_NONE, CHAT_CALL_OBJECT, CHAT_CALL_CLOSE, CHAT_CALL_NEVER } state;
    struct text
        held; /* spaces before a call, and the call, until it is known to be one */
    size_t object_at, arguments_at, arguments_end; /* places in `held`; 0: not yet */
    size_t n_matched;                              /* bytes of open or close */
    int depth;
    bool in_string, escaped;
    json_t *call; /* until it is closed */
};
/* n further bytes. */
void chat_call_parser_put(struct chat_call_parser *p, const char *text, size_t n);
/* The answer ends here. What is not a whole call is content. */
void chat_call_parser_end(struct chat_call_parser *p);
/* ERR_NOMEM of any call before, or OK. */
MUST int chat_call_parser_rc(const struct chat_call_parser *p);
void chat_call_parser_fini(struct chat_call_parser *p);

#endif
