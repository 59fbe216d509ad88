/* tests/support/web_server.h - a server of the OpenAI protocol that does what it was told:
 * programmed delays, the dialects of real servers, and every fault that one can have. It
 * writes down when it got each request and sent each token. Plain sockets; a thread for each
 * connection. */
#ifndef TESTS_SUPPORT_WEB_SERVER_H
#define TESTS_SUPPORT_WEB_SERVER_H

#include <stdint.h>

enum web_dialect {
    WEB_PLAIN, /* text only, one token an event, usage at the end */
    WEB_VLLM,  /* token ids and a running count in each event */
    WEB_LLAMA, /* a running count of its own; some events hold two tokens */
    WEB_HELD,  /* text only; the last token is shown by the usage alone */
    WEB_CHAT,  /* chats only; the first half of the tokens is reasoning */
};

enum web_fault {
    WEB_OK,
    WEB_500,
    WEB_401,
    WEB_429,
    WEB_CLOSED,        /* in the middle of an event */
    WEB_GARBAGE,       /* an event that is not JSON */
    WEB_NO_EVENTS,     /* text that is no event at all */
    WEB_HEADERS,       /* without an end */
    WEB_WRONG_TYPE,    /* application/json */
    WEB_TRICKLE,       /* a comment's byte now and then, forever */
    WEB_HANG,          /* no answer */
    WEB_NO_DONE,       /* ends well, but without [DONE] */
    WEB_SHORT,         /* one token fewer, finish_reason stop */
    WEB_LONG,          /* one token more */
    WEB_ERROR_EVENT,   /* an error instead of the second token */
    WEB_ENDLESS_EVENT, /* a line without an end */
    WEB_BIG_COUNT,     /* a count beyond all sense */
    WEB_LONG_ERROR,    /* status 500 and a body without an end */
    WEB_N_FAULTS
};

struct web_script {
    enum web_dialect dialect;
    enum web_fault fault;
    int fault_from; /* requests for a completion from this one on have it */
    double ttft_ms, itl_ms;
    int slow_every; /* each such request waits slow_ms more; 0: none */
    double slow_ms;
    int stall_request; /* this one holds its slot for stall_ms first; 0: none */
    double stall_ms;
    int slots;           /* served at once; 0: all */
    int split_bytes;     /* events are sent in pieces of this size; 0: whole */
    const char *refuses; /* a word in a request's body: HTTP 400, which names it */
    const char *key;     /* the API key it wants, or NULL */
    int no_models;       /* 404 for the list of models */
    int max_connections; /* further ones are closed at once; 0: none is */
    int closes;          /* each answer to a completion ends its connection */
    int prompt_excess;   /* it counts this many prompt tokens more */
    int chatty; /* events that say nothing before each token; capitals in the content type */
};

struct web_server;
struct web_server *web_start(const struct web_script *s);
void web_stop(struct web_server *w);
/* Serve in this process for ever, on a port that is given. */
void web_serve(const struct web_script *s, int port);
const char *web_url(const struct web_server *w); /* "http://127.0.0.1:PORT" */

/* What it has seen of its n-th request for a completion, the client's trial being number 0. */
#define WEB_MAX_REQUESTS 512
#define WEB_MAX_TOK      64
struct web_seen {
    uint64_t received_ns, sent_ns[WEB_MAX_TOK]; /* before each event's bytes */
    uint64_t began_ns, ended_ns;                /* of holding its slot */
    /* With `closes`: the client had closed the connection, and so had read all; 0: it has not. */
    uint64_t closed_ns;
    int n_tok, n_asked;
    int closed_by_client; /* it could not send all */
    char body[512];       /* its beginning */
};
int web_n_seen(struct web_server *w);
int web_n_used(struct web_server *w); /* connections that a completion has come on */
struct web_seen web_seen_at(struct web_server *w, int i);

#endif
