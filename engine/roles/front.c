/* Requests to the machines and tokens from them. The stepping thread only reads and another one
 * only writes, so that neither a full socket nor a slow machine makes all wait for each other. */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "cluster/wire.h"
#include "roles/impl.h"
#include "serve/handoff.h"

#define LOST_MS       2000 /* for a machine whose socket is closed to be named */
#define MESSAGE_BYTES 512

/* ---- sending; with the lock held ---- */

static int enqueue(struct roles_front *f, int machine, const struct roles_message *head,
                   const void *a, size_t n_a, const void *b)
{
    size_t bytes = sizeof(*head) + head->n_more;
    struct roles_outgoing *o = mem_new(MEM_OTHER, 1, sizeof(*o) + bytes);

    if (!o)
        return ERR_NOMEM;
    o->machine = machine;
    o->bytes = bytes;
    o->next = NULL;
    memcpy(o->message, head, sizeof(*head));
    if (n_a > 0)
        memcpy(o->message + sizeof(*head), a, n_a);
    if (head->n_more > n_a)
        memcpy(o->message + sizeof(*head) + n_a, b, head->n_more - n_a);
    *f->out_tail = o;
    f->out_tail = &o->next;
    pthread_cond_signal(&f->queued);
    return OK;
}

int roles_front_tell(struct roles_front *f, int machine, const struct roles_message *head,
                     const void *more)
{
    int rc;

    pthread_mutex_lock(&f->lock);
    rc = enqueue(f, machine, head, more, head->n_more, NULL);
    pthread_mutex_unlock(&f->lock);
    return rc;
}

void *roles_front_write(void *arg)
{
    struct roles_front *f = arg;

    pthread_mutex_lock(&f->lock);
    while (!f->closing) {
        struct roles_outgoing *o = f->out;

        if (!o) {
            pthread_cond_wait(&f->queued, &f->lock);
            continue;
        }
        f->out = o->next;
        if (!f->out)
            f->out_tail = &f->out;
        pthread_mutex_unlock(&f->lock);
        /* A machine that has gone is named by the thread that reads. */
        (void)!cluster_wire_write(f->u.control[o->machine][0], o->message, o->bytes);
        mem_free(o);
        pthread_mutex_lock(&f->lock);
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

/* ---- requests ---- */

static struct roles_pending *find(struct roles_front *f, int64_t id)
{
    struct roles_pending *q = f->requests;

    while (q && q->id != id)
        q = q->next;
    return q;
}

static int64_t load_of(const struct roles_machine_state *m, enum cluster_pool kind)
{
    return kind == CLUSTER_PROMPT ? m->prompt_tok + m->n_seqs : m->n_seqs;
}

static int choose(struct roles_front *f, enum cluster_pool kind, int *machine)
{
    int64_t threshold = kind == CLUSTER_PROMPT ? f->u.o.prompt_threshold_tok
                                               : f->u.o.token_threshold_seqs;
    const struct cluster_task task = {.kind = kind,
                                      .threshold = threshold > 0 ? threshold : INT64_MAX};
    struct cluster_candidate candidates[ROLES_MACHINES_ALL];
    struct cluster_chosen x;

    for (int i = 0; i < f->n; i++) {
        int64_t load = load_of(&f->machines[i], kind);

        candidates[i] = (struct cluster_candidate){
            .pool = f->machines[i].pool, .known = load, .actual = load};
    }
    TRY(cluster_pools_choose(&f->pools, &x, candidates, &task));
    *machine = x.machine;
    return OK;
}

/* Would a request that moves from a to b close a circle? Each machine may have given its memory to
 * requests that wait for that of the next one. */
static bool closes_circle(const struct roles_front *f, int a, int b)
{
    bool seen[ROLES_MACHINES_ALL] = {false};
    int reached[ROLES_MACHINES_ALL] = {b}, n = 1;

    seen[b] = true;
    for (int i = 0; i < n; i++)
        for (int to = 0; to < f->n; to++)
            if (f->n_moving[reached[i]][to] > 0 && !seen[to]) {
                seen[to] = true;
                reached[n++] = to;
            }
    return seen[a];
}

/* The machines of a request. Nothing is counted yet. */
static int choose_both(struct roles_front *f, struct roles_pending *q)
{
    int token;

    TRY(choose(f, CLUSTER_PROMPT, &q->prompt));
    q->token = -1;
    if (!q->decodes || f->u.home[q->prompt] == CLUSTER_MIXED)
        return OK;
    TRY(choose(f, CLUSTER_TOKEN, &token));
    if (token != q->prompt && !closes_circle(f, q->prompt, token))
        q->token = token;
    return OK;
}

static int decoder(const struct roles_pending *q)
{
    return q->token >= 0 ? q->token : q->prompt;
}

/* A machine that has a task of a kind that is not its own is in the mixed pool. */
static void update_pool(struct roles_front *f, int machine)
{
    struct roles_machine_state *m = &f->machines[machine];
    enum cluster_pool home = f->u.home[machine], pool = m->pool;

    if (home != CLUSTER_MIXED && m->n_tasks[cluster_pools_opposite(home)] > 0)
        pool = CLUSTER_MIXED;
    else if (cluster_pools_returns(home, m->pool, m->n_tasks, false))
        pool = home;
    if (pool != m->pool)
        log_debug("%s: now in the %s pool", f->u.names[machine],
                  cluster_pool_names[pool]);
    m->pool = pool;
}

static void count_prompt(struct roles_front *f, const struct roles_pending *q, int sign)
{
    f->machines[q->prompt].prompt_tok += sign * q->n_prompt;
    f->machines[q->prompt].n_tasks[CLUSTER_PROMPT] += sign;
    update_pool(f, q->prompt);
}

static void count_tokens(struct roles_front *f, const struct roles_pending *q, int sign)
{
    if (!q->decodes)
        return;
    f->machines[decoder(q)].n_seqs += sign;
    f->machines[decoder(q)].n_tasks[CLUSTER_TOKEN] += sign;
    update_pool(f, decoder(q));
    if (q->token >= 0)
        f->n_moving[q->prompt][q->token] += sign;
}

static int send_request(struct roles_front *f, const struct roles_pending *q,
                        const struct serve_request *r)
{
    size_t n_ids = (size_t)r->n_prompt * sizeof(r->prompt[0]);
    struct roles_request x = {.n_prompt = r->n_prompt,
                              .max_new = r->max_new,
                              .sampling = r->sampling,
                              .ignore_eos = r->ignore_eos,
                              .side = q->token < 0 ? 0 : SERVE_PROMPT_SIDE,
                              .peer = q->token};
    struct roles_message head = {
        .type = ROLES_REQUEST, .id = q->id, .n_more = (uint32_t)(sizeof(x) + n_ids)};
    int rc = enqueue(f, q->prompt, &head, &x, sizeof(x), r->prompt);

    x.side = SERVE_TOKEN_SIDE;
    x.peer = q->prompt;
    if (rc == OK && q->token >= 0)
        rc = enqueue(f, q->token, &head, &x, sizeof(x), r->prompt);
    return rc;
}

static void send_cancel(struct roles_front *f, const struct roles_pending *q)
{
    const struct roles_message head = {.type = ROLES_CANCEL, .id = q->id};

    if (enqueue(f, q->prompt, &head, NULL, 0, NULL) != OK ||
        (q->token >= 0 && enqueue(f, q->token, &head, NULL, 0, NULL) != OK))
        err_clear(); /* it goes on to its end */
}

static int submit(void *ctx, const struct serve_request *r, int64_t *id)
{
    struct roles_front *f = ctx;
    struct roles_pending *q;
    int rc;

    if (r->handoff)
        return err_set(ERR_UNSUPPORTED, "a request of machines cannot be handed over");
    q = mem_new(MEM_OTHER, 1, sizeof(*q));
    if (!q)
        return ERR_NOMEM;
    pthread_mutex_lock(&f->lock);
    *q = (struct roles_pending){.id = f->n_submitted++,
                                .n_prompt = r->n_prompt,
                                .decodes = r->max_new > 1,
                                .on_token = r->on_token,
                                .ctx = r->ctx,
                                .next = f->requests};
    rc = choose_both(f, q);
    if (rc == OK)
        rc = send_request(f, q, r);
    if (rc == OK) {
        *id = q->id;
        f->requests = q;
        count_prompt(f, q, 1);
        count_tokens(f, q, 1);
    } else {
        send_cancel(f, q); /* one of both may have it */
        mem_free(q);
    }
    pthread_mutex_unlock(&f->lock);
    return rc;
}

static void cancel(void *ctx, int64_t id)
{
    struct roles_front *f = ctx;
    struct roles_pending *q;

    pthread_mutex_lock(&f->lock);
    q = find(f, id);
    if (q && !q->canceled) {
        q->canceled = true;
        send_cancel(f, q);
    }
    pthread_mutex_unlock(&f->lock);
}

/* ---- what machines say; on the stepping thread ---- */

static void computed_prompt(struct roles_front *f, struct roles_pending *q)
{
    if (!q->has_first)
        count_prompt(f, q, -1);
    q->has_first = true;
}

static void give_token(struct roles_front *f, int64_t id, int32_t token,
                       enum serve_finish finish)
{
    struct roles_pending *q, **at;
    serve_token_fn on_token;
    void *ctx;

    pthread_mutex_lock(&f->lock);
    q = find(f, id);
    if (!q) { /* it has ended */
        pthread_mutex_unlock(&f->lock);
        return;
    }
    on_token = q->on_token;
    ctx = q->ctx;
    if (finish != SERVE_RUNNING) {
        computed_prompt(f, q);
        count_tokens(f, q, -1);
        for (at = &f->requests; *at != q;)
            at = &(*at)->next;
        *at = q->next;
        mem_free(q);
    }
    pthread_mutex_unlock(&f->lock);
    on_token(ctx, id, token, NULL, finish);
}

static int read_one(struct roles_front *f, int machine);

/* The prompt machine has said the first token before the token machine could have its own, and
 * what it said is still to be read. */
static int wait_for_first(struct roles_front *f, int64_t id)
{
    for (;;) {
        struct roles_pending *q;
        int prompt = -1;

        pthread_mutex_lock(&f->lock);
        q = find(f, id);
        if (q && !q->has_first)
            prompt = q->prompt;
        pthread_mutex_unlock(&f->lock);
        if (prompt < 0)
            return OK;
        TRY(read_one(f, prompt));
    }
}

static int on_token(struct roles_front *f, int machine, const struct roles_message *head)
{
    enum serve_finish finish = (enum serve_finish)head->finish;
    char why[MESSAGE_BYTES] = "";
    struct roles_pending *q;
    bool from_token;

    if (head->n_more >= sizeof(why))
        return err_set(ERR_FORMAT, "an error of %u bytes", head->n_more);
    TRY(cluster_wire_read(f->u.control[machine][0], why, head->n_more));
    pthread_mutex_lock(&f->lock);
    q = find(f, head->id);
    from_token = q && q->token == machine;
    if (q && !from_token)
        computed_prompt(f, q);
    pthread_mutex_unlock(&f->lock);
    if (from_token && head->token >= 0)
        TRY(wait_for_first(f, head->id));
    if (finish == SERVE_ERROR)
        (void)err_set(ERR_STATE, "%s", why);
    give_token(f, head->id, head->token, finish);
    return OK;
}

static int on_stat(struct roles_front *f, int machine, const struct roles_message *head)
{
    struct roles_stat st;

    if (head->n_more != sizeof(st))
        return err_set(ERR_FORMAT, "statistics of %u bytes", head->n_more);
    TRY(cluster_wire_read(f->u.control[machine][0], &st, sizeof(st)));
    pthread_mutex_lock(&f->lock);
    f->machines[machine].stat = st;
    pthread_mutex_unlock(&f->lock);
    return OK;
}

static int read_one(struct roles_front *f, int machine)
{
    struct roles_message head;

    TRY(cluster_wire_read(f->u.control[machine][0], &head, sizeof(head)));
    if (head.type == ROLES_TOKEN)
        return on_token(f, machine, &head);
    if (head.type == ROLES_STAT)
        return on_stat(f, machine, &head);
    return err_set(ERR_FORMAT, "%s: a message of type %u", f->u.names[machine],
                   head.type);
}

int roles_front_name_lost(struct roles_front *f, int machine)
{
    int rc = f->children ? par_ranks_wait(f->children, LOST_MS) : OK;

    f->is_lost = true;
    if (rc == ERR_STATE)
        return rc;
    return err_set(ERR_STATE, "%s closed its connection", f->u.names[machine]);
}

static int poll_all(struct roles_front *f, struct pollfd *fds, int timeout_ms)
{
    for (int i = 0; i < f->n; i++)
        fds[i] = (struct pollfd){.fd = f->u.control[i][0], .events = POLLIN};
    fds[f->n] = (struct pollfd){.fd = f->wake_fd, .events = POLLIN};
    return poll(fds, (nfds_t)f->n + 1, timeout_ms);
}

/* After an error: requests still end, when they are canceled. */
static void end_canceled(struct roles_front *f)
{
    for (;;) {
        struct roles_pending *q;
        int64_t id = -1;

        pthread_mutex_lock(&f->lock);
        for (q = f->requests; q; q = q->next)
            id = q->canceled ? q->id : id;
        pthread_mutex_unlock(&f->lock);
        if (id < 0)
            return;
        give_token(f, id, -1, SERVE_CANCELED);
    }
}

static int step(void *ctx, bool *busy)
{
    struct roles_front *f = ctx;
    struct pollfd fds[ROLES_MACHINES_ALL + 1];
    int rc = f->children ? par_ranks_check(f->children) : OK;

    *busy = false;
    if (rc == OK)
        (void)poll_all(f, fds, 0);
    for (int i = 0; i < f->n && rc == OK; i++) {
        if (fds[i].revents == 0)
            continue;
        *busy = true;
        rc = read_one(f, i);
        if (rc == ERR_IO)
            rc = roles_front_name_lost(f, i);
    }
    if (rc != OK) {
        char why[MESSAGE_BYTES];

        snprintf(why, sizeof(why), "%s", err_msg());
        end_canceled(f);
        (void)err_set(rc, "%s", why);
    }
    return rc;
}

static void wait_for_some(void *ctx, uint64_t timeout_ns)
{
    struct roles_front *f = ctx;
    struct pollfd fds[ROLES_MACHINES_ALL + 1];
    uint64_t ms = timeout_ns / 1000000, n;

    if (poll_all(f, fds, ms > 200 ? 200 : (int)ms) > 0 && fds[f->n].revents)
        (void)!read(f->wake_fd, &n, sizeof(n));
}

static void wake(void *ctx)
{
    struct roles_front *f = ctx;
    uint64_t one = 1;

    (void)!write(f->wake_fd, &one, sizeof(one));
}

/* ---- sums over the machines ---- */

static void kv_stat(void *ctx, struct serve_kv_stat *out)
{
    struct roles_front *f = ctx;

    *out = (struct serve_kv_stat){0};
    pthread_mutex_lock(&f->lock);
    for (int i = 0; i < f->n; i++) {
        const struct serve_kv_stat *s = &f->machines[i].stat.kv;

        out->budget_tok += s->budget_tok;
        out->reserved_tok += s->reserved_tok;
        out->pool_bytes += s->pool_bytes;
        out->reserved_bytes += s->reserved_bytes;
        out->used_bytes += s->used_bytes;
        out->n_preempted += s->n_preempted;
        out->n_recomputed_tok += s->n_recomputed_tok;
        out->n_overflow += s->n_overflow;
        out->migrated_bytes += s->migrated_bytes;
        out->migrate_s += s->migrate_s;
        out->n_alloc += s->n_alloc;
        out->alloc_s += s->alloc_s;
        out->n_predicted += s->n_predicted;
        out->predict_s += s->predict_s;
    }
    pthread_mutex_unlock(&f->lock);
}

/* Of the stepping thread, which alone writes statistics. */
static const struct serve_totals *totals(void *ctx, enum serve_phase phase)
{
    struct roles_front *f = ctx;
    struct serve_totals *t = &f->totals[phase];

    *t = (struct serve_totals){0};
    for (int i = 0; i < f->n; i++) {
        const struct serve_totals *s = &f->machines[i].stat.totals[phase];

        t->n_steps += s->n_steps;
        t->n_tok += s->n_tok;
        t->weight_bytes += s->weight_bytes;
        t->kv_bytes += s->kv_bytes;
        t->flop += s->flop;
        t->forward_ns += s->forward_ns;
        t->wait_ns += s->wait_ns;
        t->sample_ns += s->sample_ns;
        t->sched_ns += s->sched_ns;
    }
    return t;
}

void roles_front_end_all(struct roles_front *f)
{
    while (f->requests)
        give_token(f, f->requests->id, -1, SERVE_CANCELED);
}

void roles_front_api(struct serve_front *out, struct roles_front *f)
{
    *out = (struct serve_front){.submit = submit,
                                .cancel = cancel,
                                .step = step,
                                .wait = wait_for_some,
                                .wake = wake,
                                .kv_stat = kv_stat,
                                .totals = totals,
                                .ctx = f};
}
