/* tests/roles/fake_machine.h - machines without an engine, threads of the test, that join a front:
 * their tokens are a function of what came before, and one of their messages may be changed. */
#ifndef TESTS_ROLES_FAKE_MACHINE_H
#define TESTS_ROLES_FAKE_MACHINE_H

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cluster/wire.h"
#include "roles/join.h"
#include "serve/handoff.h"
#include "tests/roles/machines.h"

#define FAKE_VOCAB       256 /* fewer than a model has */
#define FAKE_IDS_MAX     128
#define FAKE_PENDING_MAX 16

/* The token after ids[n]. */
static inline int32_t fake_next(const int32_t *ids, int64_t n, int vocab)
{
    uint32_t h = 7;

    for (int64_t i = 0; i < n; i++)
        h = h * 31 + (uint32_t)ids[i] + 1;
    return (int32_t)((h >> 8) % (uint32_t)vocab);
}

/* Changes the i-th message of a machine, *head or the bytes that follow, in place of which *n bytes
 * are sent. */
typedef void (*fake_change_fn)(void *ctx, int i, struct roles_message *head, char *more,
                               size_t *n);

struct fake_pending {
    bool used, is_first; /* is_first: its prompt machine has computed it */
    int64_t id;
    struct roles_request r;
    int32_t ids[FAKE_IDS_MAX];
};

struct fake_machine {
    bool is_prompt;
    int port, vocab;
    uint64_t model_id;
    char *key_file;        /* NULL: none */
    fake_change_fn change; /* NULL: none */
    void *ctx;

    pthread_t thread;
    int rc; /* of joining, and why it failed */
    char why[300];
    struct roles_setup u;
    int index, n_sent;
    int64_t end_id;
    struct fake_pending pending[FAKE_PENDING_MAX];
};

static inline void fake_say(struct fake_machine *m, struct roles_message head,
                            const void *more)
{
    char all[sizeof(head) + ROLES_MORE_MAX];
    size_t n = sizeof(head) + head.n_more;
    int fd = m->u.control[m->index][1];

    if (more)
        memcpy(all + sizeof(head), more, head.n_more);
    roles_message_seal(&head, all + sizeof(head));
    if (m->change)
        m->change(m->ctx, m->n_sent++, &head, all + sizeof(head), &n);
    memcpy(all, &head, sizeof(head));
    (void)!send(fd, all, n, MSG_NOSIGNAL);
}

static inline void fake_tell_stat(struct fake_machine *m)
{
    struct roles_stat st = {.end_id = m->end_id};

    for (int i = 0; i < FAKE_PENDING_MAX; i++)
        st.n_open += m->pending[i].used;
    fake_say(m, (struct roles_message){.type = ROLES_STAT, .n_more = sizeof(st)}, &st);
}

static inline struct fake_pending *fake_find(struct fake_machine *m, int64_t id, bool add)
{
    for (int i = 0; i < FAKE_PENDING_MAX; i++)
        if (m->pending[i].used && m->pending[i].id == id)
            return &m->pending[i];
    for (int i = 0; i < FAKE_PENDING_MAX && add; i++)
        if (!m->pending[i].used) {
            m->pending[i] = (struct fake_pending){.used = true, .id = id};
            return &m->pending[i];
        }
    return NULL;
}

/* All that this machine has to say to a request. */
static inline void fake_answer(struct fake_machine *m, struct fake_pending *p)
{
    int64_t n = p->r.n_prompt, last = p->r.max_new;
    bool token_side = p->r.side == SERVE_TOKEN_SIDE;

    for (int64_t i = 0; i < last; i++) {
        struct roles_message head = {.type = ROLES_TOKEN,
                                     .id = p->id,
                                     .token = fake_next(p->ids, n, m->vocab),
                                     .at = p->r.n_drawn + i,
                                     .finish =
                                         i + 1 == last ? SERVE_LENGTH : SERVE_RUNNING};

        if (token_side && i == 0)
            head.type = ROLES_ARRIVED;
        fake_say(m, head, NULL);
        p->ids[n++] = head.token;
        if (p->r.side == SERVE_PROMPT_SIDE) {
            (void)!send(m->u.link[m->index][p->r.peer][0], &p->id, sizeof(p->id),
                        MSG_NOSIGNAL);
            break;
        }
    }
    p->used = false;
    fake_tell_stat(m);
}

static inline bool fake_read(struct fake_machine *m)
{
    char more[sizeof(struct roles_request) + FAKE_IDS_MAX * sizeof(int32_t)];
    int fd = m->u.control[m->index][1];
    struct roles_message head;
    struct fake_pending *p;

    if (cluster_wire_read(fd, &head, sizeof(head)) != OK || head.n_more > sizeof(more) ||
        cluster_wire_read(fd, more, head.n_more) != OK)
        return false;
    if (head.type == ROLES_CONNECT)
        fake_say(m,
                 (struct roles_message){.type = ROLES_CONNECTED,
                                        .id = head.id,
                                        .peer = head.peer,
                                        .sends = head.sends},
                 NULL);
    p = fake_find(m, head.id, head.type == ROLES_REQUEST);
    if (p && head.type == ROLES_CANCEL) {
        p->used = false;
    } else if (p && head.type == ROLES_REQUEST) {
        memcpy(&p->r, more, sizeof(p->r));
        memcpy(p->ids, more + sizeof(p->r), head.n_more - sizeof(p->r));
        m->end_id = head.id + 1;
        if (p->r.side != SERVE_TOKEN_SIDE || p->is_first)
            fake_answer(m, p);
    }
    return true;
}

static inline void fake_join(struct fake_machine *m)
{
    char front[32];

    snprintf(front, sizeof(front), "127.0.0.1:%d", m->port);
    m->u = (struct roles_setup){.is_joined = true,
                                .mpi_index = -1,
                                .model_id = m->model_id,
                                .o = {.front = front, .key_file = m->key_file}};
    memset(m->u.control, -1, sizeof(m->u.control));
    memset(m->u.link, -1, sizeof(m->u.link));
    m->rc = roles_join(&m->u, m->is_prompt, &m->index);
    snprintf(m->why, sizeof(m->why), "%.299s", m->rc == OK ? "" : err_msg());
}

static inline void fake_close(struct fake_machine *m)
{
    for (int i = 0; i < ROLES_MACHINES_ALL; i++)
        for (int k = 0; k < 2; k++) {
            if (m->u.control[i][k] >= 0)
                close(m->u.control[i][k]);
            for (int j = 0; j < ROLES_MACHINES_ALL; j++)
                if (m->u.link[i][j][k] >= 0)
                    close(m->u.link[i][j][k]);
        }
}

static inline void *fake_main(void *arg)
{
    struct fake_machine *m = arg;
    struct pollfd fds[1 + ROLES_MACHINES_ALL];
    int64_t id;

    do /* again where the front, stopped for long, took it for silent */
        fake_join(m);
    while (m->rc != OK && strstr(m->why, "went away"));
    if (m->rc != OK)
        return NULL;
    fake_say(m, (struct roles_message){.type = ROLES_READY, .id = FAKE_IDS_MAX}, NULL);
    for (bool on = true; on;) {
        fds[0] = (struct pollfd){.fd = m->u.control[m->index][1], .events = POLLIN};
        for (int i = 0; i < m->u.n; i++)
            fds[1 + i] = (struct pollfd){
                .fd = m->is_prompt ? -1 : m->u.link[i][m->index][1], .events = POLLIN};
        (void)poll(fds, 1 + (nfds_t)m->u.n, -1);
        if (fds[0].revents)
            on = fake_read(m);
        for (int i = 0; i < m->u.n; i++) {
            struct fake_pending *p;

            if (!fds[1 + i].revents)
                continue;
            if (cluster_wire_read(fds[1 + i].fd, &id, sizeof(id)) != OK) {
                close(fds[1 + i].fd);
                m->u.link[i][m->index][1] = -1;
                continue;
            }
            p = fake_find(m, id, id >= m->end_id); /* or it was canceled */
            if (p && p->r.n_prompt > 0)
                fake_answer(m, p);
            else if (p)
                p->is_first = true;
        }
    }
    return NULL;
}

static inline void fake_start(struct fake_machine *m)
{
    assert_int_equal(pthread_create(&m->thread, NULL, fake_main, m), 0);
}

/* After the front was closed, or will not come. */
static inline void fake_stop(struct fake_machine *m)
{
    pthread_join(m->thread, NULL);
    fake_close(m);
}

/* A port of the loopback that is free now. */
static inline int fake_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t n = sizeof(a);
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    close(fd);
    return ntohs(a.sin_port);
}

/* ---- a front with fake machines, and what its clients get ---- */

#define N_FAKES 4
#define N_ASKED 3
#define NEW     6

/* A front with fake machines. */
struct world {
    struct fake_machine fakes[N_FAKES]; /* two of each kind */
    struct serve *s;
    char *key_file;
    /* Called when the front listens; whether the fakes come now. NULL: they do. */
    bool (*before)(struct world *w, int port);
};
static struct world *listening; /* whose front begins to listen */

static inline void on_line(void *ctx, enum log_level level, const char *line)
{
    (void)ctx, (void)level;
    if (!strstr(line, "waiting at"))
        return;
    if (listening->before && !listening->before(listening, listening->fakes[0].port))
        return;
    for (int i = 0; i < N_FAKES; i++)
        fake_start(&listening->fakes[i]);
}

/* Of the front's model. */
static inline uint64_t fake_identity(const struct serve_opts *o)
{
    struct serve head = {0};

    assert_ok(serve_init(&head, NULL, o));
    assert_ok(serve_open_head(&head));
    serve_fini(&head);
    return head.identity;
}

static inline int open_at(struct world *w, int port)
{
    struct roles_opts o = roles_opts("prompt=2,token=2");
    struct serve_opts so = engine_opts();
    char at[32];
    int rc;

    snprintf(at, sizeof(at), "127.0.0.1:%d", port);
    assert_ok(opt_set(roles_opt_table, &o, "machines", at, "test"));
    assert_ok(opt_set(roles_opt_table, &o, "transport", "socket", "test"));
    if (w->key_file)
        assert_ok(opt_set(roles_opt_table, &o, "key_file", w->key_file, "test"));
    for (int i = 0; i < N_FAKES; i++) {
        w->fakes[i].is_prompt = i < 2;
        w->fakes[i].port = port;
        w->fakes[i].vocab = FAKE_VOCAB;
        w->fakes[i].model_id = fake_identity(&so);
        w->fakes[i].key_file = w->key_file;
    }
    listening = w;
    log_set_sink(on_line, NULL);
    w->s = NULL;
    rc = roles_open(&w->s, &so, &o);
    log_set_sink(NULL, NULL);
    opt_free(roles_opt_table, &o);
    free_opts(&so);
    return rc;
}

/* Another process may take the port that was free. */
static inline void open_world(struct world *w)
{
    int rc;

    do
        rc = open_at(w, fake_port());
    while (rc != OK && strstr(err_msg(), "Address already in use"));
    if (rc != OK && !strstr(err_msg(), "machine"))
        fail_msg("%s", err_msg());
}

static inline void close_world(struct world *w)
{
    serve_close(&w->s);
    for (int i = 0; i < N_FAKES; i++)
        fake_stop(&w->fakes[i]);
}

static inline void ask(struct serve *s, int i, struct got *g)
{
    int32_t ids[8];
    struct serve_request r = {.prompt = ids,
                              .n_prompt = 3 + i,
                              .max_new = NEW,
                              .ignore_eos = true,
                              .sampling = {.top_p = 1},
                              .on_token = on_token,
                              .ctx = g};

    *g = (struct got){.n = 0};
    for (int k = 0; k < 3 + i; k++)
        ids[k] = 11 * i + 5 * k + 1;
    assert_ok(serve_submit(s, &r, &g->id));
}

/* The answer is the one of fake machines, or an error. */
static inline bool check_answer(const struct got *g, int i)
{
    int32_t ids[8 + NEW];
    int64_t n = 3 + i;

    for (int k = 0; k < 3 + i; k++)
        ids[k] = 11 * i + 5 * k + 1;
    for (int k = 0; k < g->n; k++) {
        int32_t want = fake_next(ids, n, FAKE_VOCAB);

        if (g->ids[k] != want)
            fail_msg("request %d: token %d is %d, wanted %d", i, k, g->ids[k], want);
        ids[n++] = want;
    }
    if (g->finish == SERVE_LENGTH && g->n == NEW)
        return true;
    if (g->finish != SERVE_ERROR || !g->why[0])
        fail_msg("request %d: ended with %d after %d tokens", i, g->finish, g->n);
    return false;
}

/* Ask, and step until all have ended. Returns how many got their text. */
static inline int run_requests(struct world *w, int n)
{
    struct got g[N_ASKED];
    int n_texts = 0;
    bool busy;

    began_ns = clock_ns();
    for (int i = 0; i < n; i++)
        ask(w->s, i, &g[i]);
    for (bool any = true; any;) {
        int rc = serve_step(w->s, &busy);

        if (rc == OK && !busy)
            serve_wait(w->s, 50000000);
        any = false;
        for (int i = 0; i < n; i++)
            any = any || g[i].finish == SERVE_RUNNING;
        if (clock_ns() - began_ns > UINT64_C(30000000000))
            fail_msg("requests do not end");
    }
    for (int i = 0; i < n; i++)
        n_texts += check_answer(&g[i], i);
    return n_texts;
}

#endif
