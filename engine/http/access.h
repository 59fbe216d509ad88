/* http/access.h - who may use the server: the API key, names of the server, foreign pages.
 *
 * A page in a browser can send requests to any address that the browser reaches, a server of
 * this machine included. It cannot hide where it is from: the browser states the page's Origin,
 * and the Host that the page asked for, which is the attacker's own name if that name was made to
 * lead here (DNS rebinding). So a Host must be an address, localhost, this machine's name or one
 * that --allow-host gives, and an Origin this server's own or one that --cors gives.
 *   Threads: open and close by the owner; the checks by any. */
#ifndef HTTP_ACCESS_H
#define HTTP_ACCESS_H

#include <stdbool.h>
#include <microhttpd.h>

#include "http/http.h"

struct http_access {
    char *key;                            /* NULL: none is asked for */
    const char *host, *allow_host, *cors; /* lent from the options; NULL: none */
    char machine[256];                    /* its host name */
};

/* *a: http_access_close(), also after an error. ERR_ARG: several sources of a key, an empty key,
 * or a variable that is not set. ERR_IO, ERR_NOTFOUND: the file cannot be read. */
MUST int http_access_open(struct http_access *a, const struct http_opts *o);
void http_access_close(struct http_access *a);

bool http_access_has_key(const struct http_access *a, struct MHD_Connection *c);
/* May this Host be asked for, this Origin ask? NULL: there is none, which is fine. Returns 0, or
 * the status of the refusal. */
int http_access_check(const struct http_access *a, const char *host, const char *origin);
/* An Origin that --cors gives: what a response then says, lent; NULL: it says nothing. */
const char *http_access_cors(const struct http_access *a, const char *origin);

#endif
