#include "roles/join.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "cluster/mpi/mpi.h"
#include "cluster/wire.h"

#define HOST_BYTES 256
#define CONNECT_S  60 /* a front or a token machine may start later */
#define MAGIC      0x524f4c45u

struct join_hello { /* machine to front; prompt machine to token machine: index */
    uint32_t magic, is_prompt;
    int32_t index, port;
};
struct join_welcome { /* then n_token struct join_address to a prompt machine */
    uint32_t magic;
    int32_t index, n_prompt, n_token;
};
struct join_address {
    char host[HOST_BYTES];
    int32_t port;
};

static int n_prompt(const struct roles_setup *u)
{
    return u->spec.n[CLUSTER_PROMPT];
}

static int n_token(const struct roles_setup *u)
{
    return u->spec.n[CLUSTER_TOKEN];
}

/* ---- sockets ---- */

/* "HOST:PORT" or "[::1]:PORT". */
static int split(const char *text, char host[HOST_BYTES], char port[16])
{
    const char *colon = text ? strrchr(text, ':') : NULL;
    const char *from = text;
    size_t n;

    if (!colon || colon == text || !colon[1] || strlen(colon + 1) > 5 ||
        strspn(colon + 1, "0123456789") != strlen(colon + 1))
        return err_set(ERR_ARG, "expected HOST:PORT, found \"%.60s\"", text ? text : "");
    n = (size_t)(colon - text);
    if (text[0] == '[' && colon[-1] == ']') {
        from++;
        n -= 2;
    }
    if (n >= HOST_BYTES)
        return err_set(ERR_ARG, "a host name of %zu bytes", n);
    memcpy(host, from, n);
    host[n] = 0;
    snprintf(port, 16, "%s", colon + 1);
    return OK;
}

static int resolve(const char *host, const char *port, bool passive,
                   struct addrinfo **out)
{
    const struct addrinfo want = {.ai_socktype = SOCK_STREAM,
                                  .ai_flags = passive ? AI_PASSIVE : 0};
    int rc = getaddrinfo(host, port, &want, out);

    return rc == 0
               ? OK
               : err_set(ERR_ARG, "%s:%s: %s", host ? host : "", port, gai_strerror(rc));
}

static void no_delay(int fd)
{
    int one = 1;

    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

static int listen_at(const char *host, const char *port, int *out)
{
    struct addrinfo *a;
    int one = 1, fd;

    TRY(resolve(host, port, true, &a));
    fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (fd < 0 || bind(fd, a->ai_addr, a->ai_addrlen) != 0 || listen(fd, 64) != 0) {
        (void)err_set(ERR_IO, "%s:%s: cannot listen: %m", host ? host : "", port);
        if (fd >= 0)
            close(fd);
        fd = -1;
    }
    freeaddrinfo(a);
    *out = fd;
    return fd >= 0 ? OK : ERR_IO;
}

static int accept_one(int listener, int *out)
{
    *out = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (*out < 0)
        return err_set(ERR_IO, "cannot accept a connection: %m");
    no_delay(*out);
    return OK;
}

static int try_connect(const char *host, const char *port)
{
    struct addrinfo *a;
    int fd = -1;

    if (resolve(host, port, false, &a) != OK)
        return -1;
    for (const struct addrinfo *i = a; i && fd < 0; i = i->ai_next) {
        fd = socket(i->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd >= 0 && connect(fd, i->ai_addr, i->ai_addrlen) != 0) {
            (void)err_set(ERR_IO, "%s:%s: cannot connect for %d s: %m", host, port,
                          CONNECT_S);
            close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(a);
    return fd;
}

static int connect_to(const char *host, const char *port, int *out)
{
    const struct timespec pause = {.tv_nsec = 100000000};

    for (int i = 0; i < CONNECT_S * 10; i++) {
        *out = try_connect(host, port);
        if (*out >= 0) {
            no_delay(*out);
            err_clear();
            return OK;
        }
        nanosleep(&pause, NULL);
    }
    return ERR_IO;
}

static int port_of(int fd)
{
    struct sockaddr_storage a;
    socklen_t n = sizeof(a);
    char port[16] = "0";

    if (getsockname(fd, (struct sockaddr *)&a, &n) == 0)
        (void)getnameinfo((struct sockaddr *)&a, n, NULL, 0, port, sizeof(port),
                          NI_NUMERICSERV);
    return atoi(port);
}

/* This end's, or the other's, as a number. */
static int host_of(int fd, bool other, char host[HOST_BYTES])
{
    struct sockaddr_storage a;
    socklen_t n = sizeof(a);
    int rc = other ? getpeername(fd, (struct sockaddr *)&a, &n)
                   : getsockname(fd, (struct sockaddr *)&a, &n);

    if (rc != 0 || getnameinfo((struct sockaddr *)&a, n, host, HOST_BYTES, NULL, 0,
                               NI_NUMERICHOST) != 0)
        return err_set(ERR_IO, "a connection without an address: %m");
    return OK;
}

/* ---- the front ---- */

static int welcome(const struct roles_setup *u, int machine,
                   const struct join_address *tokens)
{
    bool is_prompt = u->home[machine] == CLUSTER_PROMPT;
    struct join_welcome w = {.magic = MAGIC,
                             .index = is_prompt ? machine : machine - n_prompt(u),
                             .n_prompt = n_prompt(u),
                             .n_token = n_token(u)};
    int fd = u->control[machine][0];

    TRY(cluster_wire_write(fd, &w, sizeof(w)));
    return is_prompt
               ? cluster_wire_write(fd, tokens, (size_t)n_token(u) * sizeof(*tokens))
               : OK;
}

/* One that says hello; others are turned away. Where ranks of MPI are machines, they have their
 * number already. */
static int admit(struct roles_setup *u, int fd, int *n, struct join_address *tokens)
{
    struct join_hello h;
    int machine;

    if (cluster_wire_read(fd, &h, sizeof(h)) != OK || h.magic != MAGIC) {
        log_warn("a connection that is not a machine's was closed");
        close(fd);
        return OK;
    }
    machine = h.is_prompt ? n[0] : n_prompt(u) + n[1];
    if (h.index >= 0)
        machine = h.is_prompt ? h.index : n_prompt(u) + h.index;
    else if (n[!h.is_prompt] >= (h.is_prompt ? n_prompt(u) : n_token(u)))
        machine = -1;
    if (machine < 0 || machine >= n_prompt(u) + n_token(u) ||
        (u->home[machine] == CLUSTER_PROMPT) != (bool)h.is_prompt ||
        u->control[machine][0] >= 0) {
        log_warn("one %s machine too many was turned away",
                 h.is_prompt ? "prompt" : "token");
        close(fd);
        return OK;
    }
    u->control[machine][0] = fd;
    n[!h.is_prompt]++;
    if (h.is_prompt)
        return OK;
    tokens[machine - n_prompt(u)].port = h.port;
    return host_of(fd, true, tokens[machine - n_prompt(u)].host);
}

static int listen_front(const struct roles_setup *u, int *listener)
{
    char host[HOST_BYTES], port[16];

    if (u->o.machines) {
        TRY(split(u->o.machines, host, port));
        return listen_at(host, port, listener);
    }
    return listen_at(NULL, "0", listener);
}

/* Under mpirun ranks ask rank 0 for the address. */
static int tell_address(const struct roles_setup *u, int listener)
{
    struct join_address a = {.port = port_of(listener)};

    if (!u->is_mpi)
        return OK;
    if (gethostname(a.host, sizeof(a.host) - 1) != 0)
        return err_set(ERR_IO, "this host has no name: %m");
    return cluster_mpi_bcast(&a, sizeof(a));
}

int roles_join_wait(struct roles_setup *u)
{
    struct join_address tokens[ROLES_MACHINES_MAX] = {{.port = 0}};
    int listener, fd, n[2] = {0, 0}, rc;

    TRY(listen_front(u, &listener));
    rc = tell_address(u, listener);
    if (rc == OK && u->o.machines)
        log_info("waiting at %s for %d prompt and %d token machines", u->o.machines,
                 n_prompt(u), n_token(u));
    while (rc == OK && n[0] + n[1] < n_prompt(u) + n_token(u)) {
        rc = accept_one(listener, &fd);
        if (rc == OK)
            rc = admit(u, fd, n, tokens);
    }
    close(listener);
    for (int i = 0; i < n_prompt(u) + n_token(u) && rc == OK; i++)
        rc = welcome(u, i, tokens);
    return rc;
}

/* ---- a machine ---- */

static int front_address(const struct roles_setup *u, char host[HOST_BYTES],
                         char port[16])
{
    struct join_address a;

    if (!u->is_mpi)
        return split(u->o.front, host, port);
    TRY(cluster_mpi_bcast(&a, sizeof(a)));
    snprintf(host, HOST_BYTES, "%s", a.host);
    snprintf(port, 16, "%d", a.port);
    return OK;
}

static int connect_links(struct roles_setup *u, int index, int control)
{
    struct join_address tokens[ROLES_MACHINES_MAX];
    const struct join_hello h = {.magic = MAGIC, .is_prompt = 1, .index = index};
    char port[16];

    TRY(cluster_wire_read(control, tokens, (size_t)n_token(u) * sizeof(tokens[0])));
    for (int t = 0; t < n_token(u); t++) {
        tokens[t].host[HOST_BYTES - 1] = 0;
        snprintf(port, sizeof(port), "%d", tokens[t].port);
        TRY(connect_to(tokens[t].host, port, &u->link[index][n_prompt(u) + t][0]));
        TRY(cluster_wire_write(u->link[index][n_prompt(u) + t][0], &h, sizeof(h)));
    }
    return OK;
}

static int accept_links(struct roles_setup *u, int index, int listener)
{
    struct join_hello h;
    int fd;

    for (int n = 0; n < n_prompt(u);) {
        TRY(accept_one(listener, &fd));
        if (cluster_wire_read(fd, &h, sizeof(h)) != OK || h.magic != MAGIC ||
            h.index < 0 || h.index >= n_prompt(u) ||
            u->link[h.index][n_prompt(u) + index][1] >= 0) {
            log_warn("a connection that is not a prompt machine's was closed");
            close(fd);
            continue;
        }
        u->link[h.index][n_prompt(u) + index][1] = fd;
        n++;
    }
    return OK;
}

static int read_welcome(struct roles_setup *u, int control, int *index)
{
    struct join_welcome w;

    if (cluster_wire_read(control, &w, sizeof(w)) != OK)
        return err_set(ERR_STATE,
                       "the front does not want this machine: it has others, or "
                       "went away");
    if (w.magic != MAGIC || w.n_prompt < 1 || w.n_prompt > ROLES_MACHINES_MAX ||
        w.n_token < 1 || w.n_token > ROLES_MACHINES_MAX || w.index < 0 ||
        w.index >= ROLES_MACHINES_MAX)
        return err_set(ERR_FORMAT, "the front did not say hello");
    *index = w.index;
    u->spec.n[CLUSTER_PROMPT] = w.n_prompt;
    u->spec.n[CLUSTER_TOKEN] = w.n_token;
    u->spec.n[CLUSTER_MIXED] = 0;
    roles_setup_number(u);
    return OK;
}

int roles_join(struct roles_setup *u, bool is_prompt, int *machine)
{
    struct join_hello h = {.magic = MAGIC, .is_prompt = is_prompt, .index = u->mpi_index};
    char host[HOST_BYTES], port[16];
    int control, listener = -1, rc;

    TRY(front_address(u, host, port));
    TRY(connect_to(host, port, &control));
    rc = host_of(control, false, host);
    if (rc == OK && !is_prompt)
        rc = listen_at(host, "0", &listener);
    if (rc == OK && !is_prompt)
        h.port = port_of(listener);
    if (rc == OK)
        rc = cluster_wire_write(control, &h, sizeof(h));
    if (rc == OK)
        rc = read_welcome(u, control, machine);
    if (rc == OK)
        rc = is_prompt ? connect_links(u, *machine, control)
                       : accept_links(u, *machine, listener);
    if (listener >= 0)
        close(listener);
    if (rc == OK && !is_prompt)
        *machine += n_prompt(u);
    if (rc == OK)
        u->control[*machine][1] = control;
    return rc;
}
