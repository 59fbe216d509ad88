/* http/server.h - the server, for the files of this module only: server.c opens and closes it,
 * steps the engine and ends slow connections, routes.c answers requests, prepare.c reads and
 * completion.c answers those that generate. */
#ifndef HTTP_SERVER_H
#define HTTP_SERVER_H

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <microhttpd.h>

#include "chat/chat.h"
#include "http/access.h"
#include "http/answer.h"
#include "http/gen.h"
#include "http/http.h"
#include "http/metrics.h"
#include "http/request.h"

/* A connection waits for one of these, which decides its deadline. */
enum http_phase {
    HTTP_HEAD,    /* the header of a request */
    HTTP_BODY,    /* its body */
    HTTP_COMPUTE, /* the engine: no deadline */
    HTTP_WRITE,   /* the client, to read */
};

struct http_conn {
    int fd; /* libmicrohttpd's, open as long as the connection is in the list */
    enum http_phase phase;
    bool used;          /* it has had a request */
    bool closing;       /* the watcher has ended it */
    uint64_t since_ns;  /* when the phase began, or the client last read */
    struct http_gen *g; /* of the present request; NULL: none */
    struct http_conn *next, **link;
};

/* A request from its header until it is answered: of the thread of libmicrohttpd, but for the
 * time in which it is prepared. */
struct http_exchange {
    struct http *h;
    struct MHD_Connection *connection;
    struct http_conn *conn;
    int refused;     /* a status: known from the header, sent after the body */
    const char *bad; /* what is wrong with its framing */
    int bad_status;  /* with it */
    char method[16];
    int status; /* that was answered; 0: none */
    uint64_t begun_ns;
    struct text body;
    const char *path;               /* libmicrohttpd's */
    const struct http_route *route; /* NULL: none */
    bool prepared;                  /* submitted, `out` written, or failed as `rc` says */
    bool submitted;                 /* it leaves the list when its sequences have ended */
    bool busy;                      /* it failed because its sequences are too many now */
    int rc;
    char why[512];
    struct http_exchange *next; /* to be prepared */
    struct http_request request;
    struct http_gen *g;
    struct http_answer answer;
    struct text out; /* what is to be written, of a stream: next */
    size_t n_written;
};

struct http {
    const struct http_opts *o;
    struct http_access access;
    cpu_set_t cpus; /* for the threads that do not step */
    int fd, port;   /* the socket that listens */
    struct serve *s;
    const struct tok *tok;
    struct chat *chat; /* NULL: chats are refused as no_chat says */
    char no_chat[512];
    int64_t chat_time_s; /* what templates take for now; -1: the clock */
    char model[256];     /* its name, UTF-8 */
    char server[40];     /* of the header Server */
    int64_t started_s, max_seqs;
    struct MHD_Daemon *daemon;
    struct http_metrics metrics;
    pthread_t watcher, preparer;
    bool watching, preparing;

    /* Locked before the lock of a generation, never after it. */
    pthread_mutex_t lock;
    pthread_cond_t stopped, added; /* for the watcher; for the preparer */
    bool stop, draining;
    struct http_exchange *to_prepare, **last_to_prepare;
    struct http_gen *gens;   /* submitted and not ended in the engine */
    struct http_conn *conns; /* open */
    int64_t n_admitted; /* requests to be prepared, sequences not ended in the engine */
    int64_t n_conns;
    int64_t n_exchanges; /* requests not answered to the end */
    uint64_t n_requests,
        said; /* the preparer's; said: keys of which the log says that they have
                                  no effect */
};

/* ---- routes.c: callbacks of libmicrohttpd ---- */
enum MHD_Result http_on_request(void *h, struct MHD_Connection *c, const char *url,
                                const char *method, const char *version, const char *body,
                                size_t *n_body, void **exchange);
void http_on_completed(void *h, struct MHD_Connection *c, void **exchange,
                       enum MHD_RequestTerminationCode how);
void http_on_connection(void *h, struct MHD_Connection *c, void **conn,
                        enum MHD_ConnectionNotificationCode how);

/* The methods that the path of a request takes, as the header Allow has them. */
const char *http_allowed(const struct http_exchange *x);

/* ---- prepare.c ---- */

/* The main function of the preparer. It reads bodies and encodes prompts, which can take long
 * for large ones and must not hold up the thread that writes. */
void *http_prepare(void *h);

/* ---- completion.c: requests that are prepared ---- */

/* The body is whole: leave it to the preparer, or refuse it. */
enum MHD_Result http_begin(struct http_exchange *x);
/* The request is prepared, or the engine has gone on with it. */
enum MHD_Result http_continue(struct http_exchange *x);

/* Answer with `body`, whose memory stays the caller's. */
enum MHD_Result http_respond(struct http_exchange *x, int status, const char *type,
                             const struct text *body);
/* Answer with an error in OpenAI's shape; param NULL: none. */
enum MHD_Result http_refuse(struct http_exchange *x, int status, const char *param,
                            const char *message);

/* The same for the error `rc` with err_msg(). */
enum MHD_Result http_refuse_error(struct http_exchange *x, int rc, const char *param);

/* The connection's phase begins now. */
void http_phase_set(struct http_exchange *x, enum http_phase phase);

#endif
