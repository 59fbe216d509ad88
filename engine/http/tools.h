/* http/tools.h - requests with tools: how their model calls them, and a grammar where it has to.
 *   Threads: any, distinct requests. */
#ifndef HTTP_TOOLS_H
#define HTTP_TOOLS_H

#include "chat/chat.h"
#include "http/request.h"

/* Set r->calls, and r->grammar where a call is required: one call, of any of the tools or of the
 * one that is asked for, with arguments that obey its schema.
 * ERR_UNSUPPORTED: no form of calls is known for the template, or a keyword of a schema.
 * ERR_ARG: a tool is not as expected, or none has the name. ERR_NOMEM. */
MUST int http_tools_prepare(struct http_request *r, const struct chat *chat);

#endif
