#include "roles/join.h"

#define ERR_STATE openssl_err_state /* a type of the library; ours is in base/err.h */
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#undef ERR_STATE
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "cluster/mpi/mpi.h"
#include "cluster/tcp.h"
#include "cluster/wire.h"

#define MAGIC         0x524f4c46u /* and the version */
#define MAC_BYTES     32          /* HMAC-SHA256 */
#define KEY_BYTES_MIN 16
/* For the hello of a connection, and how many are waited for at a time. */
#define HELLO_NS    UINT64_C(5000000000)
#define CALLERS_MAX 64

struct join_address {
    char host[CLUSTER_TCP_HOST_BYTES];
    int32_t port;
};
/* The greeting, in the order in which it is sent. Each MAC is of all before it, nonces of both
 * sides included, so that no part of an older greeting will do. */
struct join_talk {
    struct {
        uint8_t nonce[MAC_BYTES];
    } challenge; /* of who listens */
    struct {     /* machine to front; prompt machine to token machine */
        uint32_t magic, is_prompt;
        int32_t index, port;
        uint64_t model;
        uint8_t nonce[MAC_BYTES], mac[MAC_BYTES];
    } hello;
    struct {
        int32_t index, n_prompt, n_token, reserved;
        char refused[160]; /* why; "": it is welcome */
        struct join_address tokens[ROLES_MACHINES_MAX];
        uint8_t mac[MAC_BYTES];
    } welcome;
};

/* One that has connected, and how many bytes of its hello have come. */
struct join_caller {
    int fd;
    size_t n;
    uint64_t since_ns;
    struct join_talk talk;
};

struct join_listener {
    int fd, n;
    struct join_caller callers[CALLERS_MAX];
};

static int n_prompt(const struct roles_setup *u)
{
    return u->spec.n[CLUSTER_PROMPT];
}

static int n_token(const struct roles_setup *u)
{
    return u->spec.n[CLUSTER_TOKEN];
}

/* ---- the greeting ---- */

/* The MAC that is at `at` in the greeting. */
static void mac_of(const struct roles_setup *u, const struct join_talk *t,
                   const uint8_t *at, uint8_t out[MAC_BYTES])
{
    memset(out, 0, MAC_BYTES);
    HMAC(EVP_sha256(), u->key, (int)u->n_key, (const uint8_t *)t,
         (size_t)(at - (const uint8_t *)t), out, NULL);
}

static bool is_right(const struct roles_setup *u, const struct join_talk *t,
                     const uint8_t *mac)
{
    uint8_t own[MAC_BYTES];

    mac_of(u, t, mac, own);
    return CRYPTO_memcmp(own, mac, MAC_BYTES) == 0;
}

static int draw(uint8_t nonce[MAC_BYTES])
{
    return getrandom(nonce, MAC_BYTES, 0) == MAC_BYTES
               ? OK
               : err_set(ERR_IO, "no random numbers: %m");
}

static int read_key(struct roles_setup *u)
{
    char *text;
    size_t n;

    if (!u->o.key_file)
        return OK;
    TRY(file_read(&text, &n, u->o.key_file, sizeof(u->key)));
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r'))
        n--;
    memcpy(u->key, text, n);
    u->n_key = n;
    mem_free(text);
    return n >= KEY_BYTES_MIN
               ? OK
               : err_set(ERR_ARG, "%s: a key of %zu bytes: expected %d at least",
                         u->o.key_file, n, KEY_BYTES_MIN);
}

/* Without a key only processes of this host are accepted. */
static int check_host(const struct roles_setup *u, int fd, bool other)
{
    char host[CLUSTER_TCP_HOST_BYTES];

    TRY(cluster_tcp_host(fd, other, host));
    if (u->n_key > 0 || strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0)
        return OK;
    return err_set(ERR_ARG, "%s: machines of other hosts need a key: --key-file", host);
}

static int take_caller(struct join_listener *l)
{
    struct join_caller *c = &l->callers[l->n];
    int rc;

    *c = (struct join_caller){.since_ns = clock_ns()};
    TRY(cluster_tcp_accept(l->fd, &c->fd));
    rc = draw(c->talk.challenge.nonce);
    if (rc == OK)
        rc = cluster_wire_write(c->fd, &c->talk.challenge, sizeof(c->talk.challenge));
    if (rc == OK)
        l->n++;
    else
        close(c->fd);
    return rc;
}

/* 1: its hello is there and right; -1: it never will be. */
static int read_hello(const struct roles_setup *u, struct join_caller *c)
{
    ssize_t n = recv(c->fd, (char *)&c->talk.hello + c->n, sizeof(c->talk.hello) - c->n,
                     MSG_DONTWAIT);

    c->n += n > 0 ? (size_t)n : 0;
    if (c->n < sizeof(c->talk.hello))
        return n == 0 || clock_ns() - c->since_ns > HELLO_NS ? -1 : 0;
    return c->talk.hello.magic == MAGIC && is_right(u, &c->talk, c->talk.hello.mac) ? 1
                                                                                    : -1;
}

/* Wait for the next that says hello and has the key. None waits for another, and one that is
 * silent is closed. */
static int next_hello(const struct roles_setup *u, struct join_listener *l,
                      struct join_caller *out)
{
    struct pollfd fds[1 + CALLERS_MAX];

    for (;;) {
        fds[0] = (struct pollfd){.fd = l->n < CALLERS_MAX ? l->fd : -1, .events = POLLIN};
        for (int i = 0; i < l->n; i++)
            fds[1 + i] = (struct pollfd){.fd = l->callers[i].fd, .events = POLLIN};
        (void)poll(fds, 1 + (nfds_t)l->n, 200);
        if (fds[0].revents && take_caller(l) != OK)
            err_clear(); /* it has gone */
        for (int i = l->n - 1; i >= 0; i--) {
            int there = read_hello(u, &l->callers[i]);

            if (there == 0)
                continue;
            *out = l->callers[i];
            l->callers[i] = l->callers[--l->n];
            if (there > 0)
                return OK;
            log_warn("a connection that is not a machine's, or has another key, was "
                     "closed");
            close(out->fd);
        }
    }
}

static void close_listener(struct join_listener *l)
{
    for (int i = 0; i < l->n; i++)
        close(l->callers[i].fd);
    close(l->fd);
}

/* Answer a hello. */
static int welcome(const struct roles_setup *u, int fd, struct join_talk *t)
{
    mac_of(u, t, t->welcome.mac, t->welcome.mac);
    return cluster_wire_write(fd, &t->welcome, sizeof(t->welcome));
}

/* Connect and say hello; the welcome comes when all others are there. */
static int greet(const struct roles_setup *u, int fd, struct join_talk *t)
{
    TRY(check_host(u, fd, true));
    t->hello.magic = MAGIC;
    t->hello.model = u->model_id;
    TRY(draw(t->hello.nonce));
    TRY(cluster_wire_read(fd, &t->challenge, sizeof(t->challenge)));
    mac_of(u, t, t->hello.mac, t->hello.mac);
    TRY(cluster_wire_write(fd, &t->hello, sizeof(t->hello)));
    if (cluster_wire_read(fd, &t->welcome, sizeof(t->welcome)) != OK)
        return err_set(ERR_STATE, "the other end does not want this machine: it has "
                                  "another key, or went away");
    if (!is_right(u, t, t->welcome.mac))
        return err_set(ERR_FORMAT, "the other end did not say hello, or has another key");
    t->welcome.refused[sizeof(t->welcome.refused) - 1] = 0;
    roles_text_clean(t->welcome.refused);
    return t->welcome.refused[0]
               ? err_set(ERR_STATE, "the front refuses this machine: %s",
                         t->welcome.refused)
               : OK;
}

/* ---- the front ---- */

/* One that is missing, of the same model; others are refused. Where ranks of MPI are machines, they
 * have their number already. */
static void admit(struct roles_setup *u, struct join_caller *c, int *n,
                  struct join_talk *talks)
{
    struct join_talk *t = &c->talk;
    bool is_prompt = t->hello.is_prompt != 0;
    int n_kind = is_prompt ? n_prompt(u) : n_token(u);
    int index = t->hello.index >= 0 ? t->hello.index : n[!is_prompt];
    int machine = (is_prompt ? 0 : n_prompt(u)) + index;

    if (index >= n_kind || u->control[machine][0] >= 0)
        snprintf(t->welcome.refused, sizeof(t->welcome.refused),
                 "it has all %s machines already", is_prompt ? "prompt" : "token");
    else if (t->hello.model != u->model_id)
        snprintf(t->welcome.refused, sizeof(t->welcome.refused),
                 "its model is %016llx, expected %016llx: weights, configuration or "
                 "tokenizer differ",
                 (unsigned long long)t->hello.model, (unsigned long long)u->model_id);
    if (t->welcome.refused[0]) {
        log_warn("a machine was refused: %s", t->welcome.refused);
        if (welcome(u, c->fd, t) != OK)
            err_clear();
        close(c->fd);
        return;
    }
    u->control[machine][0] = c->fd;
    t->welcome.index = index;
    talks[machine] = *t;
    n[!is_prompt]++;
}

/* All are there: each learns where the token machines are. */
static int welcome_all(struct roles_setup *u, struct join_talk *talks)
{
    struct join_address tokens[ROLES_MACHINES_MAX] = {{.port = 0}};
    int all = n_prompt(u) + n_token(u);

    for (int i = n_prompt(u); i < all; i++) {
        TRY(cluster_tcp_host(u->control[i][0], true, tokens[i - n_prompt(u)].host));
        tokens[i - n_prompt(u)].port = talks[i].hello.port;
    }
    for (int i = 0; i < all; i++) {
        talks[i].welcome.n_prompt = n_prompt(u);
        talks[i].welcome.n_token = n_token(u);
        memcpy(talks[i].welcome.tokens, tokens, sizeof(tokens));
        TRY(welcome(u, u->control[i][0], &talks[i]));
    }
    return OK;
}

static int listen_front(const struct roles_setup *u, int *listener)
{
    char host[CLUSTER_TCP_HOST_BYTES], port[16];
    int rc;

    if (!u->o.machines)
        return cluster_tcp_listen(NULL, "0", listener);
    TRY(cluster_tcp_split(u->o.machines, host, port));
    TRY(cluster_tcp_listen(host, port, listener));
    rc = check_host(u, *listener, false);
    if (rc != OK)
        close(*listener);
    return rc == OK ? OK : err_prefix(rc, "machines");
}

/* Under mpirun ranks ask rank 0 for the address, and for the key of this run. */
struct join_rank {
    struct join_address front;
    uint8_t key[MAC_BYTES];
};

static int tell_address(struct roles_setup *u, int listener)
{
    struct join_rank a = {.front.port = cluster_tcp_port(listener)};

    if (!u->is_mpi)
        return OK;
    TRY(draw(a.key));
    memcpy(u->key, a.key, sizeof(a.key));
    u->n_key = sizeof(a.key);
    if (gethostname(a.front.host, sizeof(a.front.host) - 1) != 0)
        return err_set(ERR_IO, "this host has no name: %m");
    return cluster_mpi_bcast(&a, sizeof(a));
}

int roles_join_wait(struct roles_setup *u)
{
    struct join_talk *talks = mem_new(MEM_OTHER, ROLES_MACHINES_ALL, sizeof(*talks));
    struct join_listener *l = mem_new(MEM_OTHER, 1, sizeof(*l));
    int n[2] = {0, 0}, rc = talks && l ? read_key(u) : ERR_NOMEM;
    struct join_caller c;

    if (rc == OK)
        rc = listen_front(u, &l->fd);
    if (rc != OK)
        goto out;
    rc = tell_address(u, l->fd);
    if (rc == OK && u->o.machines)
        log_info("waiting at %s for %d prompt and %d token machines", u->o.machines,
                 n_prompt(u), n_token(u));
    while (rc == OK && n[0] + n[1] < n_prompt(u) + n_token(u)) {
        rc = next_hello(u, l, &c);
        if (rc == OK)
            admit(u, &c, n, talks);
    }
    close_listener(l);
    if (rc == OK)
        rc = welcome_all(u, talks);
out:
    mem_free(talks);
    mem_free(l);
    return rc;
}

/* ---- a machine ---- */

static int front_address(struct roles_setup *u, char host[CLUSTER_TCP_HOST_BYTES],
                         char port[16])
{
    struct join_rank a;

    if (!u->is_mpi)
        return cluster_tcp_split(u->o.front, host, port);
    TRY(cluster_mpi_bcast(&a, sizeof(a)));
    memcpy(u->key, a.key, sizeof(a.key));
    u->n_key = sizeof(a.key);
    snprintf(host, CLUSTER_TCP_HOST_BYTES, "%s", a.front.host);
    snprintf(port, 16, "%d", a.front.port);
    return OK;
}

static int connect_links(struct roles_setup *u, int index, struct join_address *tokens)
{
    char port[16];

    for (int t = 0; t < n_token(u); t++) {
        int *fd = &u->link[index][n_prompt(u) + t][0];
        struct join_talk talk = {.hello = {.is_prompt = 1, .index = index}};

        tokens[t].host[CLUSTER_TCP_HOST_BYTES - 1] = 0;
        snprintf(port, sizeof(port), "%d", tokens[t].port);
        TRY(cluster_tcp_connect(tokens[t].host, port, fd));
        TRY(greet(u, *fd, &talk));
    }
    return OK;
}

static int accept_links(struct roles_setup *u, int index, struct join_listener *l)
{
    struct join_caller c;

    for (int n = 0; n < n_prompt(u); n++) {
        int from;

        TRY(next_hello(u, l, &c));
        from = c.talk.hello.index;
        if (from < 0 || from >= n_prompt(u) ||
            u->link[from][n_prompt(u) + index][1] >= 0) {
            close(c.fd);
            return err_set(ERR_FORMAT, "a link with prompt machine %d", from);
        }
        u->link[from][n_prompt(u) + index][1] = c.fd;
        TRY(welcome(u, c.fd, &c.talk));
    }
    return OK;
}

static int read_welcome(struct roles_setup *u, const struct join_talk *t, int *machine)
{
    int index = t->welcome.index, p = t->welcome.n_prompt, n = t->welcome.n_token;

    if (p < 1 || p > ROLES_MACHINES_MAX || n < 1 || n > ROLES_MACHINES_MAX || index < 0 ||
        index >= (t->hello.is_prompt ? p : n))
        return err_set(ERR_FORMAT, "the front made this machine %d of %d and %d", index,
                       p, n);
    *machine = t->hello.is_prompt ? index : p + index;
    u->spec.n[CLUSTER_PROMPT] = p;
    u->spec.n[CLUSTER_TOKEN] = n;
    u->spec.n[CLUSTER_MIXED] = 0;
    roles_setup_number(u);
    return OK;
}

int roles_join(struct roles_setup *u, bool is_prompt, int *machine)
{
    struct join_talk t = {.hello = {.is_prompt = is_prompt, .index = u->mpi_index}};
    struct join_listener *l = mem_new(MEM_OTHER, 1, sizeof(*l));
    char host[CLUSTER_TCP_HOST_BYTES], port[16];
    int control = -1, rc = l ? read_key(u) : ERR_NOMEM;

    if (l)
        l->fd = -1;
    if (rc == OK)
        rc = front_address(u, host, port);
    if (rc == OK)
        rc = cluster_tcp_connect(host, port, &control);
    if (rc == OK)
        rc = cluster_tcp_host(control, false, host);
    if (rc == OK && !is_prompt)
        rc = cluster_tcp_listen(host, "0", &l->fd);
    if (rc == OK && !is_prompt)
        t.hello.port = cluster_tcp_port(l->fd);
    if (rc == OK)
        rc = greet(u, control, &t);
    if (rc == OK)
        rc = read_welcome(u, &t, machine);
    if (rc == OK)
        rc = is_prompt ? connect_links(u, *machine, t.welcome.tokens)
                       : accept_links(u, *machine - n_prompt(u), l);
    if (l && l->fd >= 0)
        close_listener(l);
    mem_free(l);
    if (rc == OK)
        u->control[*machine][1] = control;
    else if (control >= 0)
        close(control);
    return rc;
}

/* ---- the process of a machine that joins: by --role, or as a rank of MPI ---- */

bool roles_is_machine(const struct roles_opts *o)
{
    return o->role != ROLES_AS_FRONT || (o->roles && cluster_mpi_rank() > 0);
}

int roles_check_joining(const struct roles_setup *u)
{
    if (u->transport->mpi && cluster_mpi_rank() < 0)
        return err_set(
            ERR_STATE,
            "transport %s: start all processes with mpirun: mpirun -n %d sandwich "
            "serve --roles prompt=N,token=N",
            u->transport->name, 1 + u->n);
    if (u->transport->lend && !u->transport->mpi)
        return err_set(ERR_UNSUPPORTED,
                       "transport %s: only between processes that the front starts; "
                       "machines that connect use socket, or mpi_put under mpirun",
                       u->transport->name);
    if (u->spec.n[CLUSTER_MIXED] > 0 || u->o.prompt_threshold_tok > 0 ||
        u->o.token_threshold_seqs > 0)
        return err_set(
            ERR_UNSUPPORTED,
            "roles: mixed machines and thresholds: only between processes that "
            "the front starts; machines that connect keep to their kind");
    return OK;
}

int roles_open_mpi(struct roles_setup *u)
{
    int n_prompt = u->spec.n[CLUSTER_PROMPT], n_token = u->spec.n[CLUSTER_TOKEN];
    char text[128];
    int rank, size;

    if (cluster_mpi_rank() < 0)
        return OK;
    TRY(cluster_mpi_open(&rank, &size, text, sizeof(text)));
    u->is_mpi = true;
    u->mpi_index = rank <= n_prompt ? rank - 1 : rank - 1 - n_prompt;
    if (size != 1 + n_prompt + n_token)
        return err_set(ERR_ARG,
                       "mpirun has started %d processes: expected %d: the front, %d "
                       "prompt and %d token machines",
                       size, 1 + n_prompt + n_token, n_prompt, n_token);
    if (rank == 0)
        log_info("machines of %s", text);
    else
        for (int i = 0; i < 3; i++) /* mpirun passes it on; the front ends its machines */
            signal((const int[]){SIGINT, SIGTERM, SIGHUP}[i], SIG_IGN);
    return OK;
}

static int read_identity(struct roles_setup *u, const struct serve_opts *engine)
{
    struct serve head = {0};
    int rc = serve_init(&head, NULL, engine);

    if (rc == OK)
        rc = serve_open_head(&head);
    u->model_id = head.identity;
    serve_fini(&head);
    return rc;
}

static int join_and_serve(struct roles_setup *u, const struct serve_opts *engine)
{
    const struct roles_opts *o = &u->o;
    bool is_prompt = o->role == ROLES_AS_PROMPT;
    int machine = -1;

    TRY(cluster_transport_find(o->transport, &u->transport));
    /* One that connects has the options of its own command. */
    TRY(roles_setup_parse(u, o->role == ROLES_AS_FRONT ? o->roles : "prompt=1,token=1",
                          engine));
    TRY(roles_check_joining(u));
    TRY(read_identity(u, engine));
    if (o->role == ROLES_AS_FRONT)
        TRY(roles_open_mpi(u));
    if (u->is_mpi)
        is_prompt = cluster_mpi_rank() <= u->spec.n[CLUSTER_PROMPT];
    TRY(roles_join(u, is_prompt, &machine));
    TRY(roles_machine(u, machine, u->control[machine][1]));
    cluster_mpi_close();
    return OK;
}

int roles_machine_serve(const struct serve_opts *engine, const struct roles_opts *o)
{
    struct roles_setup u = {.o = *o, .is_joined = true, .mpi_index = -1};
    int rc;

    memset(u.control, -1, sizeof(u.control));
    memset(u.link, -1, sizeof(u.link));
    rc = join_and_serve(&u, engine);
    roles_spec_free(&u.spec);
    return rc;
}
