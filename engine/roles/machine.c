/* A machine's process: its engine, which its first thread steps, the ends of its transports, and a
 * thread that reads what the front wants. */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "cluster/wire.h"
#include "roles/machine.h"

#define IDLE_NS    UINT64_C(200000000)
#define STAT_NS    UINT64_C(100000000)
#define PROMPT_MAX ((int64_t)1 << 24)

void roles_tell(struct roles_machine *m, struct roles_message *head, const void *more)
{
    if (cluster_wire_write(m->fd, head, sizeof(*head)) != OK ||
        cluster_wire_write(m->fd, more, head->n_more) != OK)
        err_clear(); /* the reader says that the front has gone */
}

void roles_tell_why(struct roles_machine *m, struct roles_message *head, const char *why)
{
    char text[ROLES_TEXT_BYTES];

    head->n_more = (uint32_t)snprintf(text, sizeof(text), "%.500s", why);
    roles_tell(m, head, text);
}

/* ---- what the front wants ---- */

static int read_request(struct roles_machine *m, const struct roles_message *head,
                        struct roles_request *r, int32_t **ids)
{
    size_t n;
    int rc;

    TRY(cluster_wire_read(m->fd, r, sizeof(*r)));
    n = (size_t)r->n_prompt * sizeof(**ids);
    if (r->n_prompt < 1 || r->n_prompt > PROMPT_MAX || head->n_more != sizeof(*r) + n ||
        r->peer >= ROLES_MACHINES_ALL || (r->side && r->peer < 0))
        return err_set(ERR_FORMAT, "a request of %lld tokens in %u bytes",
                       (long long)r->n_prompt, head->n_more);
    *ids = mem_new(MEM_OTHER, (size_t)r->n_prompt, sizeof(**ids));
    if (!*ids)
        return ERR_NOMEM;
    rc = cluster_wire_read(m->fd, *ids, n);
    if (rc != OK)
        mem_free(*ids);
    return rc;
}

static int on_request(struct roles_machine *m, const struct roles_message *head)
{
    struct roles_request r;
    struct roles_entry *e;
    int32_t *ids = NULL;

    TRY(read_request(m, head, &r, &ids));
    pthread_mutex_lock(&m->lock);
    e = roles_entry_find_or_add(m, head->id);
    if (e) {
        e->r = r;
        e->ids = ids;
        e->requested = true;
        m->last_id = head->id;
        if (r.side != SERVE_PROMPT_SIDE || e->transfer != ROLES_NO_TRANSFER)
            roles_entry_submit(e);
        roles_entry_drop_if_over(e);
    } else {
        mem_free(ids);
    }
    pthread_mutex_unlock(&m->lock);
    return e ? OK : ERR_NOMEM;
}

static void on_cancel(struct roles_machine *m, int64_t id)
{
    struct roles_entry *e;

    pthread_mutex_lock(&m->lock);
    e = roles_entry_find(m, id);
    if (e)
        e->canceled = true;
    if (e && e->submitted) {
        serve_cancel(m->s, e->engine_id);
        if (e->transfer != ROLES_NO_TRANSFER && e->end->receiver)
            cluster_receiver_drop(e->end->receiver, e->transfer);
    } else if (e) {
        e->reported = true; /* no offer will come, or the token machine drops it */
        roles_entry_drop_if_over(e);
    }
    pthread_mutex_unlock(&m->lock);
}

static int on_connect(struct roles_machine *m, const struct roles_message *head)
{
    const struct roles_setup *u = m->u;
    int fd = -1;

    if (u->is_joined && head->sends)
        fd = u->link[m->index][head->peer][0];
    else if (u->is_joined)
        fd = u->link[head->peer][m->index][1];
    else
        TRY(cluster_wire_read_fd(m->fd, &fd));
    roles_end_open(m, head->peer, head->sends, head->id, fd);
    return OK;
}

static int on_link(struct roles_machine *m, const struct roles_message *head)
{
    struct roles_link l;

    if (head->n_more != sizeof(l))
        return err_set(ERR_FORMAT, "a link of %u bytes", head->n_more);
    TRY(cluster_wire_read(m->fd, &l, sizeof(l)));
    roles_end_set_link(m, &l);
    return OK;
}

static int read_one(struct roles_machine *m)
{
    struct roles_message head;

    TRY(cluster_wire_read(m->fd, &head, sizeof(head)));
    if (head.peer < 0 || head.peer >= ROLES_MACHINES_ALL)
        return err_set(ERR_FORMAT, "the front sent a message of machine %d", head.peer);
    switch (head.type) {
    case ROLES_REQUEST:
        return on_request(m, &head);
    case ROLES_CANCEL:
        on_cancel(m, head.id);
        return OK;
    case ROLES_CONNECT:
        return on_connect(m, &head);
    case ROLES_LINK:
        return on_link(m, &head);
    case ROLES_DISCONNECT:
        roles_end_close_all(m, head.peer);
        return OK;
    default:
        return err_set(ERR_FORMAT, "the front sent a message of type %u", head.type);
    }
}

static void *read_all(void *arg)
{
    struct roles_machine *m = arg;

    while (read_one(m) == OK)
        ;
    atomic_store(&m->closing, true);
    serve_wake(m->s);
    return NULL;
}

/* ---- the process ---- */

/* Files and sockets of the process that started this one do not belong to it. */
static void close_others(int fd)
{
    if (fd > 3)
        close_range(3, (unsigned)fd - 1, 0);
    close_range((unsigned)fd + 1, ~0u, 0);
}

/* What was computed since, ten times a second, and when there is nothing to do. */
static void tell_stat(struct roles_machine *m, bool busy)
{
    struct roles_message head = {.type = ROLES_STAT, .n_more = sizeof(m->stat)};
    uint64_t now = clock_ns();
    struct roles_stat st;

    if (busy && now - m->stat_ns < STAT_NS)
        return;
    memset(&st, 0, sizeof(st));
    serve_kv_stat(m->s, &st.kv);
    for (int i = 0; i < SERVE_N_PHASES; i++)
        st.totals[i] = *serve_totals_of(m->s, i);
    m->stat_ns = now;
    if (memcmp(&st, &m->stat, sizeof(st)) == 0)
        return;
    m->stat = st;
    pthread_mutex_lock(&m->lock);
    roles_tell(m, &head, &st);
    pthread_mutex_unlock(&m->lock);
}

static int work(struct roles_machine *m)
{
    struct roles_message ready = {.type = ROLES_READY, .id = serve_max_tok(m->s)};
    bool busy;

    if (cluster_wire_write(m->fd, &ready, sizeof(ready)) != OK) {
        err_clear(); /* the front has gone */
        return OK;
    }
    TRY(thread_start(&m->reader, 0, read_all, m, "machine"));
    m->reading = true;
    while (!atomic_load(&m->closing)) {
        TRY(serve_step(m->s, &busy));
        tell_stat(m, busy);
        if (!busy)
            serve_wait(m->s, IDLE_NS);
    }
    return OK;
}

static void close_machine(struct roles_machine *m)
{
    if (m->reading) {
        shutdown(m->fd, SHUT_RDWR);
        pthread_join(m->reader, NULL);
    }
    for (int i = 0; i < m->u->n; i++)
        roles_end_close_all(m, i);
    serve_close(&m->s);
    while (m->entries) {
        struct roles_entry *e = m->entries;

        m->entries = e->next;
        roles_entry_free(e);
    }
    while (m->ends) {
        struct roles_end *x = m->ends;

        m->ends = x->next;
        mem_free(x);
    }
    pthread_rwlock_destroy(&m->end_lock);
    pthread_mutex_destroy(&m->lock);
}

int roles_machine(const struct roles_setup *u, int machine, int fd)
{
    struct roles_machine m = {.u = u, .index = machine, .fd = fd, .last_id = -1};
    char why[ROLES_TEXT_BYTES] = "";
    int rc;

    if (!u->is_joined)
        close_others(fd);
    pthread_rwlock_init(&m.end_lock, NULL);
    rc = thread_mutex_init(&m.lock);
    if (rc == OK)
        rc = serve_open_mapped(&m.s, &u->spec.engine[u->home[machine]], NULL, NULL);
    if (rc == OK)
        rc = work(&m);
    if (rc != OK)
        snprintf(why, sizeof(why), "%s", err_msg());
    close_machine(&m);
    return rc == OK ? OK : err_set(rc, "%s", why);
}
