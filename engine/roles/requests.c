/* Requests of the front: which machines get them, attempts at them, and what their clients get.
 * What a client has got is known here only: an attempt that has failed is followed by another
 * one, of the prompt and these tokens. */
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "roles/front.h"
#include "serve/handoff.h"

/* ---- sending; with the lock held ---- */

int roles_front_send(struct roles_front *f, int machine, const struct roles_message *head,
                     const void *a, size_t n_a, const void *b, int file)
{
    size_t bytes = sizeof(*head) + head->n_more;
    struct roles_message sealed = *head;
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
    if (n_a > 0)
        memcpy(o->message + sizeof(*head), a, n_a);
    if (head->n_more > n_a)
        memcpy(o->message + sizeof(*head) + n_a, b, head->n_more - n_a);
    roles_message_seal(&sealed, o->message + sizeof(sealed));
    memcpy(o->message, &sealed, sizeof(sealed));
    *f->out_tail = o;
    f->out_tail = &o->next;
    pthread_cond_signal(&f->queued);
    return OK;
}

/* ---- which machines there are; with the lock held ---- */

bool roles_front_is_open(const struct roles_front *f, int from, int to)
{
    const struct roles_connection *c = &f->connections[from][to];

    return f->machines[from].state == ROLES_RUNNING &&
           f->machines[to].state == ROLES_RUNNING && c->is_open[0] && c->is_open[1] &&
           !c->broken_ns;
}

bool roles_front_has_machines(const struct roles_front *f)
{
    for (int i = 0; i < f->n; i++)
        if (f->machines[i].state != ROLES_OVER)
            return true;
    return false;
}

/* ---- which machines get a request, and what they have to do; with the lock held ---- */

static int64_t load_of(const struct roles_machine_state *m, enum cluster_pool kind)
{
    return kind == CLUSTER_PROMPT ? m->prompt_tok + m->n_seqs : m->n_seqs;
}

/* Keys and values went between both until just now, and none of them is known to have ended. */
static bool is_in_doubt(const struct roles_front *f, int a, int b)
{
    return (f->connections[a][b].broken_ns || f->connections[b][a].broken_ns) &&
           f->machines[a].state == ROLES_RUNNING && f->machines[b].state == ROLES_RUNNING;
}

static bool may_have_ended(const struct roles_front *f, int machine)
{
    for (int i = 0; i < f->n; i++)
        if (is_in_doubt(f, machine, i))
            return true;
    return false;
}

/* Choose among the running machines to which `from` has a connection. from -1: among all running
 * machines but those that may have ended. */
static int choose(struct roles_front *f, enum cluster_pool kind, int from, int *machine)
{
    int64_t threshold = kind == CLUSTER_PROMPT ? f->u.o.prompt_threshold_tok
                                               : f->u.o.token_threshold_seqs;
    const struct cluster_task task = {.kind = kind,
                                      .threshold = threshold > 0 ? threshold : INT64_MAX};
    struct cluster_candidate candidates[ROLES_MACHINES_ALL];
    struct cluster_chosen x;

    for (int i = 0; i < f->n; i++) {
        int64_t load = load_of(&f->machines[i], kind);
        bool runs = f->machines[i].state == ROLES_RUNNING &&
                    (from < 0 ? !may_have_ended(f, i)
                              : from == i || roles_front_is_open(f, from, i));

        candidates[i] = (struct cluster_candidate){
            .pool = runs ? f->machines[i].pool : CLUSTER_N_POOLS, /* of none */
            .known = load,
            .actual = load};
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

/* The machines of a request; prompt -1: none runs. Nothing is counted yet. */
static void choose_machines(struct roles_front *f, struct roles_pending *q)
{
    int token;

    q->prompt = q->token = -1;
    if (choose(f, CLUSTER_PROMPT, -1, &q->prompt) == OK && q->decodes &&
        f->u.home[q->prompt] != CLUSTER_MIXED &&
        choose(f, CLUSTER_TOKEN, q->prompt, &token) == OK && token != q->prompt &&
        !closes_circle(f, q->prompt, token))
        q->token = token;
    err_clear();
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

/* Count its prompt, or its tokens, with those of its machine; sign -1: not any more. */
static void count_prompt(struct roles_front *f, const struct roles_pending *q, int sign)
{
    f->machines[q->prompt].prompt_tok += sign * q->prompt_tok;
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

void roles_front_computed_prompt(struct roles_front *f, struct roles_pending *q)
{
    if (!q->has_first)
        count_prompt(f, q, -1);
    q->has_first = true;
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
        count_tokens(f, q, -1);
    }
    q->attempt = q->prompt = q->token = -1;
}

/* An attempt, where there is a machine for it; else later. */
static int dispatch(struct roles_front *f, struct roles_pending *q)
{
    int rc;

    q->decodes = n_left(q) > 1;
    q->prompt_tok = q->r.n_prompt + q->n_new;
    choose_machines(f, q);
    if (q->prompt < 0)
        return OK;
    q->attempt = f->n_attempts++;
    q->n_attempts++;
    q->has_first = q->has_more = false;
    q->arrived = -1;
    count_prompt(f, q, 1);
    count_tokens(f, q, 1);
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

int roles_front_submit(struct serve *s, const struct serve_request *r, int64_t *id)
{
    struct roles_front *f = roles_front_of(s);
    struct roles_pending *q;
    int rc;

    *id = -1;
    TRY(serve_check_request(s, r));
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

void roles_front_cancel(struct serve *s, int64_t id)
{
    struct roles_front *f = roles_front_of(s);

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

struct roles_pending *roles_front_find(struct roles_front *f, int64_t attempt)
{
    struct roles_pending *q = f->requests;

    while (q && q->attempt != attempt)
        q = q->next;
    return q;
}

void roles_front_give_token(struct roles_front *f, struct roles_pending *q, int32_t token,
                            enum serve_finish finish)
{
    serve_token_fn on_token = q->on_token;
    void *ctx = q->ctx;
    int64_t id = q->id;

    if (token >= 0) {
        assert(q->n_new < q->r.max_new);
        q->ids[q->r.n_prompt + q->n_new++] = token;
    }
    if (finish != SERVE_RUNNING) {
        struct roles_pending **at = &f->requests;

        if (q->attempt >= 0) {
            roles_front_computed_prompt(f, q);
            count_tokens(f, q, -1);
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

void roles_front_give_error(struct roles_front *f, struct roles_pending *q,
                            const char *why)
{
    drop_attempt(f, q);
    (void)err_set(ERR_STATE, "%s", why);
    roles_front_give_token(f, q, -1, SERVE_ERROR);
}

void roles_front_retry(struct roles_front *f, struct roles_pending *q, const char *why)
{
    char text[ROLES_TEXT_BYTES];

    drop_attempt(f, q);
    if (q->canceled) {
        roles_front_give_token(f, q, -1, SERVE_CANCELED);
    } else if (q->n_attempts >= f->attempts) {
        snprintf(text, sizeof(text),
                 "the request failed %d times, at last because %.400s", q->n_attempts,
                 why);
        roles_front_give_error(f, q, text);
    } else if (dispatch(f, q) != OK) {
        roles_front_give_error(f, q, err_msg());
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
        roles_front_retry(f, q, why);
        n++;
        q = f->requests; /* it may not be there any more */
    }
    pthread_mutex_unlock(&f->lock);
    return n;
}

void roles_front_dispatch_waiting(struct roles_front *f)
{
    pthread_mutex_lock(&f->lock);
    for (struct roles_pending *q = f->requests; q;) {
        struct roles_pending *next = q->next;

        if (q->attempt < 0 && q->canceled) {
            roles_front_give_token(f, q, -1, SERVE_CANCELED);
            next = f->requests;
        } else if (q->attempt < 0 && dispatch(f, q) != OK) {
            roles_front_give_error(f, q, err_msg());
            next = f->requests;
        }
        q = next;
    }
    pthread_mutex_unlock(&f->lock);
}
