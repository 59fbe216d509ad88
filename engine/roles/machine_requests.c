/* Requests of a machine: what its engine and its transports say of them. */
#include <stdio.h>

#include "base/mem.h"
#include "cluster/transport.h"
#include "roles/machine.h"

/* ---- entries; with the lock held ---- */

struct roles_entry *roles_entry_find(struct roles_machine *m, int64_t id)
{
    struct roles_entry *e = m->entries;

    while (e && e->id != id)
        e = e->next;
    return e;
}

static struct roles_entry *find_transfer(const struct roles_end *x, uint64_t transfer)
{
    struct roles_entry *e = x->m->entries;

    while (e && (e->transfer != transfer || e->end != x))
        e = e->next;
    return e;
}

struct roles_entry *roles_entry_find_or_add(struct roles_machine *m, int64_t id)
{
    struct roles_entry *e = roles_entry_find(m, id);

    if (e)
        return e;
    e = mem_new(MEM_OTHER, 1, sizeof(*e));
    if (!e)
        return NULL;
    *e = (struct roles_entry){.m = m, .id = id, .next = m->entries};
    m->entries = e;
    return e;
}

void roles_entry_free(struct roles_entry *e)
{
    mem_free((void *)e->slot.blocks);
    mem_free(e->ids);
    mem_free(e);
}

void roles_entry_drop_if_over(struct roles_entry *e)
{
    struct roles_entry **at = &e->m->entries;

    if (e->transfer != ROLES_NO_TRANSFER || (e->submitted && !e->ended) || !e->requested)
        return;
    if (!e->submitted && !e->reported)
        return; /* it waits for an offer */
    while (*at != e)
        at = &(*at)->next;
    *at = e->next;
    roles_entry_free(e);
}

/* This machine cannot go on with it; the front tries it again. */
static void tell_retry(struct roles_entry *e, const char *why)
{
    struct roles_message head = {.type = ROLES_RETRY, .id = e->id};

    if (!e->reported)
        roles_tell_why(e->m, &head, why);
    e->reported = true;
}

static void tell_token(struct roles_entry *e, int32_t token, enum serve_finish finish)
{
    struct roles_message head = {
        .type = ROLES_TOKEN, .id = e->id, .token = token, .finish = (int32_t)finish};

    if (e->reported)
        return;
    e->reported = finish != SERVE_RUNNING;
    roles_tell_why(e->m, &head, finish == SERVE_ERROR ? err_msg() : "");
}

/* ---- the engine of a token machine, or of a request that one machine has alone ---- */

static void on_token(void *ctx, int64_t request, int32_t id, const float *logits,
                     enum serve_finish finish)
{
    struct roles_entry *e = ctx;
    struct roles_machine *m = e->m;

    (void)request, (void)logits;
    pthread_mutex_lock(&m->lock);
    if (finish == SERVE_CANCELED && !e->canceled)
        tell_retry(e, e->why);
    else
        tell_token(e, id, finish);
    if (finish != SERVE_RUNNING) {
        e->ended = true;
        roles_entry_drop_if_over(e);
    }
    pthread_mutex_unlock(&m->lock);
}

static void on_memory(void *ctx, int64_t request, const struct kv_slot *slot)
{
    struct roles_entry *e = ctx;
    struct roles_machine *m = e->m;
    int rc;

    pthread_mutex_lock(&m->lock);
    e->end = m->from[e->r.peer];
    rc = e->end && e->end->receiver
             ? cluster_receiver_expect(e->end->receiver, &e->transfer, slot,
                                       e->r.n_prompt, e->id)
             : err_set(ERR_STATE, "there is no connection with its prompt machine");
    if (rc != OK) {
        if (e->end && (rc == ERR_STATE || rc == ERR_IO))
            roles_end_tell_broken(e->end); /* else the request would come over it again */
        e->transfer = ROLES_NO_TRANSFER;
        tell_retry(e, err_msg());
        rc = serve_release(m->s, request);
    }
    pthread_mutex_unlock(&m->lock);
    if (rc != OK)
        err_clear();
}

/* ---- the receiving end ---- */

void roles_on_arrived(void *ctx, uint64_t transfer, int32_t first_id)
{
    struct roles_end *x = ctx;
    struct roles_entry *e;

    pthread_mutex_lock(&x->m->lock);
    e = find_transfer(x, transfer);
    if (e) {
        e->transfer = ROLES_NO_TRANSFER;
        if (serve_arrived(x->m->s, e->engine_id, first_id) != OK)
            tell_token(e, -1, SERVE_ERROR);
        roles_entry_drop_if_over(e);
    }
    pthread_mutex_unlock(&x->m->lock);
}

static void release(struct roles_entry *e, const char *why)
{
    e->transfer = ROLES_NO_TRANSFER;
    snprintf(e->why, sizeof(e->why), "%s", why);
    if (serve_release(e->m->s, e->engine_id) != OK)
        err_clear(); /* it has ended */
    roles_entry_drop_if_over(e);
}

void roles_on_dropped(void *ctx, uint64_t transfer, int rc)
{
    struct roles_end *x = ctx;
    struct roles_entry *e;

    (void)rc;
    pthread_mutex_lock(&x->m->lock);
    e = find_transfer(x, transfer);
    if (e)
        release(e, err_msg());
    pthread_mutex_unlock(&x->m->lock);
}

void roles_entry_release_all(struct roles_end *x)
{
    pthread_mutex_lock(&x->m->lock);
    for (struct roles_entry *e = x->m->entries, *next; e; e = next) {
        next = e->next;
        if (e->end == x && e->transfer != ROLES_NO_TRANSFER)
            release(e, "the connection with its prompt machine failed");
    }
    pthread_mutex_unlock(&x->m->lock);
}

/* ---- the engine of a prompt machine ---- */

static void on_layer(void *ctx, int64_t request, const struct kv_slot *slot, int layer,
                     int64_t lo, int64_t hi)
{
    const struct roles_entry *e = ctx;

    (void)request, (void)lo;
    pthread_rwlock_rdlock(&e->m->end_lock);
    if (e->end->sender)
        cluster_sender_stored(e->end->sender, e->offer, slot, layer, hi);
    pthread_rwlock_unlock(&e->m->end_lock);
}

static void on_first(void *ctx, int64_t request, int32_t id, const float *logits,
                     enum serve_finish finish)
{
    struct roles_entry *e = ctx;
    struct roles_machine *m = e->m;
    struct cluster_sender *sender;

    (void)request, (void)logits;
    pthread_mutex_lock(&m->lock);
    e->ended = true;
    sender = e->end->sender; /* NULL: it is closed, or the process ends */
    /* Where its transfer failed, the token machine says so, or the connection has failed. */
    if (finish != SERVE_CANCELED || e->canceled)
        tell_token(e, id, finish == SERVE_LENGTH ? SERVE_RUNNING : finish);
    e->reported = true; /* the token machine says the rest */
    if (sender && finish == SERVE_LENGTH)
        cluster_sender_computed(sender, e->offer, id);
    else if (sender)
        cluster_sender_drop(sender, e->offer);
    roles_entry_drop_if_over(e);
    pthread_mutex_unlock(&m->lock);
}

void roles_entry_submit(struct roles_entry *e)
{
    bool is_prompt = e->r.side == SERVE_PROMPT_SIDE;
    const struct serve_handoff h = {.side = e->r.side,
                                    .on_layer = is_prompt ? on_layer : NULL,
                                    .on_memory = on_memory,
                                    .slot = e->slot.base ? &e->slot : NULL,
                                    .ctx = e};
    struct serve_request r = {.prompt = e->ids,
                              .n_prompt = e->r.n_prompt,
                              .max_new = is_prompt ? 1 : e->r.max_new,
                              .n_drawn = e->r.n_drawn,
                              .ignore_eos = e->r.ignore_eos,
                              .sampling = e->r.sampling,
                              .on_token = is_prompt ? on_first : on_token,
                              .ctx = e,
                              .handoff = e->r.side ? &h : NULL};

    e->submitted = true;
    if (serve_submit(e->m->s, &r, &e->engine_id) == OK)
        return;
    e->ended = true;
    tell_token(e, -1, SERVE_ERROR);
    if (is_prompt && e->transfer != ROLES_NO_TRANSFER && e->end->sender)
        cluster_sender_drop(e->end->sender, e->transfer);
}

/* ---- the sending end ---- */

/* The receiver's: what is computed there is dropped when the engine has left it. */
void roles_on_forget(void *ctx, uint64_t transfer)
{
    struct roles_end *x = ctx;
    const struct roles_entry *e;

    pthread_mutex_lock(&x->m->lock);
    e = find_transfer(x, transfer);
    if (e && e->submitted)
        serve_cancel(x->m->s, e->engine_id);
    if ((!e || !e->submitted || e->ended) && x->sender)
        cluster_sender_drop(x->sender, transfer);
    pthread_mutex_unlock(&x->m->lock);
}

static int find_slot(struct roles_end *x, struct roles_entry *e, uint64_t transfer)
{
    mem_free((void *)e->slot.blocks);
    e->slot = (struct kv_slot){0};
    if (!x->m->u->transport->in_place)
        return OK;
    return x->sender ? cluster_sender_slot(x->sender, transfer, &e->slot) : ERR_STATE;
}

void roles_on_offer(void *ctx, uint64_t transfer, int64_t n_tok, int64_t tag)
{
    struct roles_end *x = ctx;
    struct roles_entry *e;

    (void)n_tok;
    pthread_mutex_lock(&x->m->lock);
    /* A request that came before and is not there was canceled. */
    e = tag > x->m->last_id ? roles_entry_find_or_add(x->m, tag)
                            : roles_entry_find(x->m, tag);
    if (e && find_slot(x, e, transfer) == OK) {
        e->transfer = e->offer = transfer;
        e->end = x;
        e->r.side = SERVE_PROMPT_SIDE;
        if (e->requested)
            roles_entry_submit(e);
        roles_entry_drop_if_over(e);
    } else if (x->sender) { /* else it is being closed, and ends all */
        cluster_sender_drop(x->sender, transfer);
    }
    pthread_mutex_unlock(&x->m->lock);
}

void roles_on_sent(void *ctx, uint64_t transfer, int rc)
{
    struct roles_end *x = ctx;
    struct roles_entry *e;

    pthread_mutex_lock(&x->m->lock);
    e = find_transfer(x, transfer);
    if (e) {
        e->transfer = ROLES_NO_TRANSFER;
        if (rc != OK && e->submitted)
            serve_cancel(x->m->s, e->engine_id);
        if (e->submitted && serve_release(x->m->s, e->engine_id) != OK)
            err_clear(); /* it never had memory */
        e->reported |= !e->submitted;
        roles_entry_drop_if_over(e);
    }
    pthread_mutex_unlock(&x->m->lock);
}
