/* Requests to the machines and tokens from them. The stepping thread only reads and another one
 * only writes, so that neither a full socket nor a slow machine makes all wait for each other.
 * What a client has got is known here only: an attempt that has failed is followed by another
 * one, of the prompt and these tokens, and what machines still say of it is not heard. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "cluster/wire.h"
#include "roles/impl.h"
#include "serve/handoff.h"

/* ---- sending; with the lock held ---- */

int roles_front_send(struct roles_front *f, int machine, const struct roles_message *head,
                     const void *a, size_t n_a, const void *b, int file)
{
    size_t bytes = sizeof(*head) + head->n_more;
    struct roles_outgoing *o = mem_new(MEM_OTHER, 1, sizeof(*o) + bytes);

    if (!o) {
        if (file >= 0)
            close(file);
        return ERR_NOMEM;
    }
    o->machine = machine;
    o->file = file;
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
    rc = roles_front_send(f, machine, head, more, head->n_more, NULL, -1);
    pthread_mutex_unlock(&f->lock);
    return rc;
}

/* A machine that has gone is named by the starter. */
static void write_out(const struct roles_outgoing *o, int fd)
{
    int rc = fd < 0 ? ERR_IO : cluster_wire_write(fd, o->message, o->bytes);

    if (rc == OK && o->file >= 0)
        (void)!cluster_wire_write_fd(fd, o->file);
    if (o->file >= 0)
        close(o->file);
}

void *roles_front_write(void *arg)
{
    struct roles_front *f = arg;

    pthread_mutex_lock(&f->lock);
    while (!f->closing) {
        struct roles_outgoing *o = f->out;
        int fd;

        if (!o) {
            pthread_cond_wait(&f->queued, &f->lock);
            continue;
        }
        f->out = o->next;
        if (!f->out)
            f->out_tail = &f->out;
        f->writing_to = o->machine;
        fd = f->machines[o->machine].fd;
        pthread_mutex_unlock(&f->lock);
        write_out(o, fd);
        mem_free(o);
        pthread_mutex_lock(&f->lock);
        f->writing_to = -1;
        pthread_cond_broadcast(&f->written);
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

/* ---- attempts; with the lock held ---- */

static int64_t n_left(const struct roles_pending *q)
{
    return q->r.max_new - q->n_new;
}

static int send_request(struct roles_front *f, const struct roles_pending *q)
{
    struct roles_request x = {.n_prompt = q->r.n_prompt + q->n_new,
                              .max_new = n_left(q),
                              .n_drawn = q->n_new,
                              .sampling = q->r.sampling,
                              .ignore_eos = q->r.ignore_eos,
                              .side = q->token < 0 ? 0 : SERVE_PROMPT_SIDE,
                              .peer = q->token};
    size_t n_ids = (size_t)x.n_prompt * sizeof(q->ids[0]);
    struct roles_message head = {
        .type = ROLES_REQUEST, .id = q->attempt, .n_more = (uint32_t)(sizeof(x) + n_ids)};

    TRY(roles_front_send(f, q->prompt, &head, &x, sizeof(x), q->ids, -1));
    x.side = SERVE_TOKEN_SIDE;
    x.peer = q->prompt;
    return q->token < 0 ? OK
                        : roles_front_send(f, q->token, &head, &x, sizeof(x), q->ids, -1);
}

static void send_cancel(struct roles_front *f, const struct roles_pending *q)
{
    const struct roles_message head = {.type = ROLES_CANCEL, .id = q->attempt};
    const int machines[2] = {q->prompt, q->token};

    for (int i = 0; i < 2; i++)
        if (machines[i] >= 0 && f->machines[machines[i]].state == ROLES_RUNNING &&
            roles_front_send(f, machines[i], &head, NULL, 0, NULL, -1) != OK)
            err_clear(); /* it goes on to its end */
}

static void drop_attempt(struct roles_front *f, struct roles_pending *q)
{
    if (q->attempt >= 0) {
        send_cancel(f, q);
        roles_front_computed_prompt(f, q);
        roles_front_count_tokens(f, q, -1);
    }
    q->attempt = q->prompt = q->token = -1;
}

/* An attempt, where there is a machine for it; else later. */
static int dispatch(struct roles_front *f, struct roles_pending *q)
{
    int rc;

    q->decodes = n_left(q) > 1;
    q->prompt_tok = q->r.n_prompt + q->n_new;
    roles_front_choose(f, q);
    if (q->prompt < 0)
        return OK;
    q->attempt = f->n_attempts++;
    q->n_attempts++;
    q->has_first = q->has_more = false;
    roles_front_count_prompt(f, q, 1);
    roles_front_count_tokens(f, q, 1);
    rc = send_request(f, q);
    if (rc != OK)
        drop_attempt(f, q); /* one of both may have it */
    return rc;
}

/* ---- requests; by any thread ---- */

static void free_pending(struct roles_pending *q)
{
    mem_free(q->ids);
    mem_free(q);
}

static struct roles_pending *new_pending(const struct serve_request *r)
{
    struct roles_pending *q = mem_new(MEM_OTHER, 1, sizeof(*q));
    size_t n = (size_t)(r->n_prompt + r->max_new);

    if (!q)
        return NULL;
    *q = (struct roles_pending){
        .attempt = -1, .r = *r, .on_token = r->on_token, .ctx = r->ctx};
    q->ids = mem_new(MEM_OTHER, n, sizeof(q->ids[0]));
    if (!q->ids) {
        mem_free(q);
        return NULL;
    }
    memcpy(q->ids, r->prompt, (size_t)r->n_prompt * sizeof(q->ids[0]));
    return q;
}

static int submit(void *ctx, const struct serve_request *r, int64_t *id)
{
    struct roles_front *f = ctx;
    struct roles_pending *q;
    int rc;

    if (r->handoff || r->n_drawn > 0)
        return err_set(ERR_UNSUPPORTED, "a request of machines cannot be handed over");
    q = new_pending(r);
    if (!q)
        return ERR_NOMEM;
    pthread_mutex_lock(&f->lock);
    rc = roles_front_has_machines(f) ? dispatch(f, q) : err_set(ERR_STATE, "%s", f->why);
    if (rc == OK) {
        *id = q->id = f->n_submitted++;
        q->next = f->requests;
        f->requests = q;
    } else {
        free_pending(q);
    }
    pthread_mutex_unlock(&f->lock);
    return rc;
}

static void cancel(void *ctx, int64_t id)
{
    struct roles_front *f = ctx;

    pthread_mutex_lock(&f->lock);
    for (struct roles_pending *q = f->requests; q; q = q->next)
        if (q->id == id && !q->canceled) {
            q->canceled = true;
            if (q->attempt >= 0)
                send_cancel(f, q);
        }
    pthread_mutex_unlock(&f->lock);
}

/* ---- what clients get; on the stepping thread, with the lock held ---- */

static struct roles_pending *find(struct roles_front *f, int64_t attempt)
{
    struct roles_pending *q = f->requests;

    while (q && q->attempt != attempt)
        q = q->next;
    return q;
}

/* The lock is released during the callback. */
static void give_token(struct roles_front *f, struct roles_pending *q, int32_t token,
                       enum serve_finish finish)
{
    serve_token_fn on_token = q->on_token;
    void *ctx = q->ctx;
    int64_t id = q->id;

    if (token >= 0)
        q->ids[q->r.n_prompt + q->n_new++] = token;
    if (finish != SERVE_RUNNING) {
        struct roles_pending **at = &f->requests;

        if (q->attempt >= 0) {
            roles_front_computed_prompt(f, q);
            roles_front_count_tokens(f, q, -1);
        }
        while (*at != q)
            at = &(*at)->next;
        *at = q->next;
        free_pending(q);
    }
    pthread_mutex_unlock(&f->lock);
    on_token(ctx, id, token, NULL, finish);
    pthread_mutex_lock(&f->lock);
}

static void give_error(struct roles_front *f, struct roles_pending *q, const char *why)
{
    drop_attempt(f, q);
    (void)err_set(ERR_STATE, "%s", why);
    give_token(f, q, -1, SERVE_ERROR);
}

/* Another attempt, unless it is not wanted any more, or there were enough. */
static void again(struct roles_front *f, struct roles_pending *q, const char *why)
{
    char text[ROLES_TEXT_BYTES];

    drop_attempt(f, q);
    if (q->canceled) {
        give_token(f, q, -1, SERVE_CANCELED);
    } else if (q->n_attempts >= f->attempts) {
        snprintf(text, sizeof(text),
                 "the request failed %d times, at last because %.400s", q->n_attempts,
                 why);
        give_error(f, q, text);
    } else if (dispatch(f, q) != OK) {
        give_error(f, q, err_msg());
    }
}

int roles_front_again(struct roles_front *f, int machine, int other, const char *why)
{
    int64_t end;
    int n = 0;

    pthread_mutex_lock(&f->lock);
    end = f->n_attempts; /* later ones are not of it */
    for (struct roles_pending *q = f->requests; q;) {
        bool is_with = other < 0 || q->token == other;
        bool prompt = q->prompt == machine && is_with && !q->has_more;
        bool token = q->token == machine && other < 0;

        if (q->attempt < 0 || q->attempt >= end || (!prompt && !token)) {
            q = q->next;
            continue;
        }
        again(f, q, why);
        n++;
        q = f->requests; /* it may not be there any more */
    }
    pthread_mutex_unlock(&f->lock);
    return n;
}

/* Requests that wait for machines. */
static void go_on_waiting(struct roles_front *f)
{
    pthread_mutex_lock(&f->lock);
    for (struct roles_pending *q = f->requests; q;) {
        struct roles_pending *next = q->next;

        if (q->attempt < 0 && q->canceled) {
            give_token(f, q, -1, SERVE_CANCELED);
            next = f->requests;
        } else if (q->attempt < 0 && dispatch(f, q) != OK) {
            give_error(f, q, err_msg());
            next = f->requests;
        }
        q = next;
    }
    pthread_mutex_unlock(&f->lock);
}

/* ---- what machines say; on the stepping thread ---- */

static int read_one(struct roles_front *f, int machine);

/* The prompt machine has said the first token before the token machine could have its own, and
 * what it said is still to be read; so is why it has dropped a request, before the token machine
 * can say that it was. */
static void hear_prompt(struct roles_front *f, int64_t attempt)
{
    for (;;) {
        struct pollfd p = {.fd = -1, .events = POLLIN};
        struct roles_pending *q;
        int prompt = -1, rc;

        pthread_mutex_lock(&f->lock);
        q = find(f, attempt);
        if (q && !q->has_first && q->prompt >= 0 &&
            f->machines[q->prompt].state == ROLES_RUNNING)
            prompt = q->prompt;
        if (prompt >= 0)
            p.fd = f->machines[prompt].fd;
        pthread_mutex_unlock(&f->lock);
        if (prompt < 0 || poll(&p, 1, 0) <= 0)
            return;
        rc = read_one(f, prompt);
        if (rc != OK)
            roles_front_lost(f, prompt, rc);
    }
}

static int read_text(struct roles_front *f, int machine, const struct roles_message *head,
                     char *why)
{
    if (head->n_more >= ROLES_TEXT_BYTES)
        return err_set(ERR_FORMAT, "an error of %u bytes", head->n_more);
    memset(why, 0, ROLES_TEXT_BYTES);
    return cluster_wire_read(f->machines[machine].fd, why, head->n_more);
}

/* Its prompt is another machine's. */
static bool is_handed_over(struct roles_front *f, int machine, int64_t attempt)
{
    const struct roles_pending *q;
    bool is;

    pthread_mutex_lock(&f->lock);
    q = find(f, attempt);
    is = q && q->token == machine;
    pthread_mutex_unlock(&f->lock);
    return is;
}

static int on_token(struct roles_front *f, int machine, const struct roles_message *head)
{
    enum serve_finish finish = (enum serve_finish)head->finish;
    bool handed_over = is_handed_over(f, machine, head->id);
    char why[ROLES_TEXT_BYTES];
    struct roles_pending *q;

    TRY(read_text(f, machine, head, why));
    if (handed_over)
        hear_prompt(f, head->id);
    pthread_mutex_lock(&f->lock);
    q = find(f, head->id);
    if (q && handed_over && head->token >= 0 && !q->has_first) {
        again(f, q, "a token came before the first one");
        q = NULL;
    }
    if (q) {
        if (handed_over)
            q->has_more = true;
        else
            roles_front_computed_prompt(f, q);
        if (finish == SERVE_ERROR)
            (void)err_set(ERR_STATE, "%s", why);
        give_token(f, q, head->token, finish);
    }
    pthread_mutex_unlock(&f->lock);
    return OK;
}

static int on_retry(struct roles_front *f, int machine, const struct roles_message *head)
{
    char why[ROLES_TEXT_BYTES];
    struct roles_pending *q;

    TRY(read_text(f, machine, head, why));
    if (is_handed_over(f, machine, head->id))
        hear_prompt(f, head->id);
    pthread_mutex_lock(&f->lock);
    q = find(f, head->id);
    if (q)
        again(f, q, why);
    pthread_mutex_unlock(&f->lock);
    return OK;
}

static int on_stat(struct roles_front *f, int machine, const struct roles_message *head)
{
    struct roles_stat st;

    if (head->n_more != sizeof(st))
        return err_set(ERR_FORMAT, "statistics of %u bytes", head->n_more);
    TRY(cluster_wire_read(f->machines[machine].fd, &st, sizeof(st)));
    pthread_mutex_lock(&f->lock);
    f->machines[machine].stat = st;
    pthread_mutex_unlock(&f->lock);
    return OK;
}

static int on_broken(struct roles_front *f, int machine, const struct roles_message *head)
{
    char why[ROLES_TEXT_BYTES];

    TRY(read_text(f, machine, head, why));
    return roles_front_on_broken(f, machine, head, why);
}

static int read_one(struct roles_front *f, int machine)
{
    struct roles_message head;

    TRY(cluster_wire_read(f->machines[machine].fd, &head, sizeof(head)));
    switch (head.type) {
    case ROLES_READY:
        return roles_front_on_ready(f, machine, &head);
    case ROLES_CONNECTED:
        return roles_front_on_connected(f, machine, &head);
    case ROLES_BROKEN:
        return on_broken(f, machine, &head);
    case ROLES_TOKEN:
        return on_token(f, machine, &head);
    case ROLES_RETRY:
        return on_retry(f, machine, &head);
    case ROLES_STAT:
        return on_stat(f, machine, &head);
    default:
        return err_set(ERR_FORMAT, "a message of type %u", head.type);
    }
}

void roles_front_drain(struct roles_front *f, int machine)
{
    while (f->machines[machine].fd >= 0 && read_one(f, machine) == OK)
        ;
    err_clear();
}

int roles_front_poll(struct roles_front *f, struct pollfd *fds, int timeout_ms)
{
    for (int i = 0; i < f->n; i++)
        fds[i] = (struct pollfd){
            .fd = f->machines[i].state == ROLES_LOST ? -1 : f->machines[i].fd,
            .events = POLLIN};
    fds[f->n] = (struct pollfd){.fd = f->wake_fd, .events = POLLIN};
    fds[f->n + 1] = (struct pollfd){.fd = f->u.starter[0], .events = POLLIN};
    return poll(fds, (nfds_t)f->n + 2, timeout_ms);
}

int roles_front_read(struct roles_front *f, const struct pollfd *fds, bool *busy)
{
    *busy = false;
    for (int i = 0; i < f->n; i++) {
        int rc;

        /* Another one's message may have been a reason to read this one's. */
        if (fds[i].revents == 0 || f->machines[i].fd != fds[i].fd ||
            f->machines[i].state == ROLES_LOST)
            continue;
        *busy = true;
        rc = read_one(f, i);
        if (rc == ERR_STATE)
            return rc;
        if (rc != OK)
            roles_front_lost(f, i, rc);
    }
    if (fds[f->n + 1].revents) {
        *busy = true;
        return roles_front_read_starter(f);
    }
    return OK;
}

/* No machine computes them any more. */
static int fail_all(struct roles_front *f, int rc)
{
    char why[ROLES_TEXT_BYTES];

    snprintf(why, sizeof(why), "%s", err_msg());
    pthread_mutex_lock(&f->lock);
    snprintf(f->why, sizeof(f->why), "%s", why);
    while (f->requests)
        give_error(f, f->requests, why);
    pthread_mutex_unlock(&f->lock);
    return err_set(rc, "%s", why);
}

static int step(void *ctx, bool *busy)
{
    struct roles_front *f = ctx;
    struct pollfd fds[ROLES_MACHINES_ALL + 2];
    int rc = f->starter ? par_ranks_check(f->starter) : OK;
    bool any;

    *busy = false;
    if (rc == OK && roles_front_poll(f, fds, 0) > 0)
        rc = roles_front_read(f, fds, busy);
    if (rc == OK) {
        rc = roles_front_repair(f);
    }
    if (rc == OK) {
        pthread_mutex_lock(&f->lock);
        any = roles_front_has_machines(f);
        pthread_mutex_unlock(&f->lock);
        rc = any ? OK : err_set(ERR_STATE, "%s", f->why);
    }
    if (rc != OK)
        return fail_all(f, rc);
    go_on_waiting(f);
    return OK;
}

static void wait_for_some(void *ctx, uint64_t timeout_ns)
{
    struct roles_front *f = ctx;
    struct pollfd fds[ROLES_MACHINES_ALL + 2];
    uint64_t ms = timeout_ns / 1000000, n;

    if (roles_front_poll(f, fds, ms > 200 ? 200 : (int)ms) > 0 && fds[f->n].revents)
        (void)!read(f->wake_fd, &n, sizeof(n));
}

static void wake(void *ctx)
{
    struct roles_front *f = ctx;
    uint64_t one = 1;

    (void)!write(f->wake_fd, &one, sizeof(one));
}

void roles_front_end_all(struct roles_front *f)
{
    pthread_mutex_lock(&f->lock);
    while (f->requests)
        give_token(f, f->requests, -1, SERVE_CANCELED);
    pthread_mutex_unlock(&f->lock);
}

void roles_front_api(struct serve_front *out, struct roles_front *f)
{
    *out = (struct serve_front){.submit = submit,
                                .cancel = cancel,
                                .step = step,
                                .wait = wait_for_some,
                                .wake = wake,
                                .kv_stat = roles_front_kv_stat,
                                .totals = roles_front_totals,
                                .ctx = f};
}
