/* http/frame.h - is a request framed in one way only?
 *
 * Where a proxy and this server could disagree on where a request ends, or on what a header
 * says, one client's bytes could become another's request. Such requests are refused with
 * status 400 and their connection is closed: two Content-Lengths, one with a Transfer-Encoding,
 * folded lines, names with spaces, control characters, NUL, no Host. Other codings than chunked are
 * not implemented: status 501 where chunked is the last one, so that the body has an end.
 * RFC 9112, 5 and 6.   Threads: libmicrohttpd's. */
#ifndef HTTP_FRAME_H
#define HTTP_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <microhttpd.h>

/* MHD_OPTION_STRICT_FOR_CLIENT. From 0.9.76 on the library itself refuses folded lines and NUL, and
 * may lay out a header in another way than is checked here. Before, all that it refuses is a
 * missing Host, with a header that comes twice, and a target with a space, without an answer. */
#define HTTP_FRAME_STRICT (MHD_VERSION >= 0x00097600)

/* MHD_OPTION_URI_LOG_CALLBACK: keeps what is to be known of the target as it was received in
 * the place of the exchange, in a form that no pointer has. */
void *http_frame_target(void *unused, const char *target, struct MHD_Connection *c);
bool http_frame_is_target(const void *p);

/* NULL: it may be answered. Else what is wrong, for a person, and *status. `url`, `method` and
 * `version` as libmicrohttpd gives them; `target`: from http_frame_target(). */
const char *http_frame_check(struct MHD_Connection *c, const char *url,
                             const void *target, const char *method, const char *version,
                             int *status);

#endif
