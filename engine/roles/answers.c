/* What machines write to the front, which believes none of it: a machine that breaks the protocol
 * is lost, and what it had is computed again. On the stepping thread. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "roles/front.h"

/* No counter of a machine is as large: sums of them are whole numbers. */
#define COUNT_MAX (INT64_C(1) << 52)

/* The prompt machine has sent the first token before the token machine could have its own, and its
 * message is still to be read; so is its reason for dropping a request, before the token machine
 * can report that it was dropped. */
static void read_prompt_machine(struct roles_front *f, int64_t attempt)
{
    for (;;) {
        struct pollfd p = {.fd = -1, .events = POLLIN};
        struct roles_pending *q;
        int prompt = -1, rc;
        bool any;

        pthread_mutex_lock(&f->lock);
        q = roles_front_find(f, attempt);
        if (q && !q->has_first && q->prompt >= 0 &&
            f->machines[q->prompt].state == ROLES_RUNNING)
            prompt = q->prompt;
        if (prompt >= 0)
            p.fd = f->machines[prompt].fd;
        pthread_mutex_unlock(&f->lock);
        if (prompt < 0 || poll(&p, 1, 0) <= 0)
            return;
        rc = roles_front_read(f, prompt, &any);
        if (rc != OK)
            roles_front_lost(f, prompt, rc);
    }
}

static void read_text(const struct roles_front *f, int machine, char *why)
{
    const struct roles_inbox *in = &f->machines[machine].inbox;

    memset(why, 0, ROLES_TEXT_BYTES);
    memcpy(why, in->more, in->head.n_more < ROLES_TEXT_BYTES ? in->head.n_more : 0);
    roles_text_clean(why);
}

/* Its prompt is another machine's. */
static bool is_handed_over(struct roles_front *f, int machine, int64_t attempt)
{
    const struct roles_pending *q;
    bool is;

    pthread_mutex_lock(&f->lock);
    q = roles_front_find(f, attempt);
    is = q && q->token == machine;
    pthread_mutex_unlock(&f->lock);
    return is;
}

/* The request that an answer is for, *out NULL: it has ended, or is another attempt's by now. The
 * machine must have been given it. With the lock held. */
static int find_answered(struct roles_front *f, int machine,
                         const struct roles_message *head, struct roles_pending **out)
{
    struct roles_pending *q = roles_front_find(f, head->id);

    *out = q;
    if (head->id >= 0 && head->id < f->n_attempts &&
        (!q || q->prompt == machine || q->token == machine))
        return OK;
    return err_set(ERR_FORMAT, "an answer to request %lld, which it was not given",
                   (long long)head->id);
}

/* What the client gets is what the engine of one process would give: the front knows when an
 * answer ends, and how. */
static int check_token(const struct roles_front *f, int machine,
                       const struct roles_message *head, const struct roles_pending *q)
{
    enum serve_finish finish = SERVE_RUNNING;

    if (machine == q->token ? q->arrived < 0 && head->token >= 0
                            : q->token >= 0 && q->has_first)
        return err_set(ERR_FORMAT, "a token that is another machine's");
    if (head->token == -1 &&
        (head->finish == SERVE_ERROR || (head->finish == SERVE_CANCELED && q->canceled)))
        return OK;
    if (head->token < 0 || head->token >= f->api.config.vocab || head->at < 0)
        return err_set(ERR_FORMAT, "token %d, end %d: expected a token of 0 to %d",
                       head->token, head->finish, f->api.config.vocab - 1);
    if (head->at == q->r.max_new - 1)
        finish = SERVE_LENGTH;
    if (!q->r.ignore_eos && serve_is_stop(&f->api, head->token))
        finish = SERVE_EOS;
    if (head->finish != (int)finish)
        return err_set(ERR_FORMAT, "token %d with end %d: expected %d", head->token,
                       head->finish, (int)finish);
    return OK;
}

/* The prompt machine's first token is the one with which the token machine goes on, or keys and
 * values are another request's: the connection between both is not used any more. */
static bool is_first(struct roles_front *f, struct roles_pending *q)
{
    char why[ROLES_TEXT_BYTES];
    int32_t first;

    if (!q->has_first || q->has_more || q->arrived < 0)
        return true;
    first = q->ids[q->r.n_prompt + q->n_new - 1];
    if (q->arrived == first)
        return true;
    snprintf(why, sizeof(why), "%s sent token %d, but %s received %d",
             f->u.names[q->prompt], first, f->u.names[q->token], q->arrived);
    roles_front_break(&f->connections[q->prompt][q->token], why);
    roles_front_retry(f, q, why);
    return false;
}

/* With the lock held. */
static int take_token(struct roles_front *f, int machine,
                      const struct roles_message *head, const char *why)
{
    struct roles_pending *q;
    bool handed_over;

    TRY(find_answered(f, machine, head, &q));
    if (!q)
        return OK;
    handed_over = q->token == machine;
    TRY(check_token(f, machine, head, q));
    if (handed_over && head->token >= 0 && !q->has_first) {
        roles_front_retry(f, q, "a token came before the first one");
        return OK;
    }
    if (head->token >= 0 && head->at != q->n_new)
        return err_set(ERR_FORMAT, "token %lld of a request: expected token %lld",
                       (long long)head->at, (long long)q->n_new);
    if (handed_over)
        q->has_more = true;
    else
        roles_front_computed_prompt(f, q);
    if (head->finish == SERVE_ERROR) {
        roles_front_give_error(f, q, why);
        return OK;
    }
    roles_front_give_token(f, q, head->token, (enum serve_finish)head->finish);
    q = roles_front_find(f, head->id);
    if (q)
        (void)is_first(f, q);
    return OK;
}

/* TOKEN, ARRIVED and RETRY. */
static int on_answer(struct roles_front *f, int machine, const struct roles_message *head)
{
    char why[ROLES_TEXT_BYTES];
    struct roles_pending *q;
    int rc = OK;

    read_text(f, machine, why);
    if (is_handed_over(f, machine, head->id))
        read_prompt_machine(f, head->id);
    pthread_mutex_lock(&f->lock);
    if (head->type == ROLES_TOKEN) {
        rc = take_token(f, machine, head, why);
    } else {
        rc = find_answered(f, machine, head, &q);
        if (rc == OK && q && head->type == ROLES_RETRY) {
            roles_front_retry(f, q, why);
        } else if (rc == OK && q) {
            if (q->token != machine || q->arrived >= 0 || head->token < 0)
                rc = err_set(ERR_FORMAT, "keys and values with token %d arrived",
                             head->token);
            else
                q->arrived = head->token;
            if (rc == OK)
                (void)is_first(f, q);
        }
    }
    pthread_mutex_unlock(&f->lock);
    return rc;
}

/* Every member is 8 bytes, and neither negative nor larger than COUNT_MAX. */
static bool is_plausible(const struct roles_stat *st)
{
    const double seconds[] = {st->kv.migrate_s, st->kv.alloc_s, st->kv.predict_s};
    struct roles_stat rest = *st;
    int64_t counts[sizeof(rest) / sizeof(int64_t)];

    for (int i = 0; i < 3; i++)
        if (!(seconds[i] >= 0 && seconds[i] < 1e12))
            return false;
    rest.kv.migrate_s = rest.kv.alloc_s = rest.kv.predict_s = 0;
    memcpy(counts, &rest, sizeof(counts));
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
        if (counts[i] < 0 || counts[i] > COUNT_MAX)
            return false;
    return true;
}

/* A machine that has answered all it was given owes nothing: what it has not answered is computed
 * again. With the lock held. */
static void retry_unanswered(struct roles_front *f, int machine,
                             const struct roles_stat *st)
{
    char why[ROLES_TEXT_BYTES];

    snprintf(why, sizeof(why), "%s has it no more and did not answer",
             f->u.names[machine]);
    for (struct roles_pending *q = st->n_open == 0 ? f->requests : NULL; q;) {
        bool owes = q->token == machine || (q->prompt == machine && !q->has_first) ||
                    (q->prompt == machine && q->token < 0);

        if (q->attempt < 0 || q->attempt >= st->end_id || !owes) {
            q = q->next;
            continue;
        }
        roles_front_retry(f, q, why);
        q = f->requests; /* it may not be there any more; attempts ascend */
    }
}

static int on_stat(struct roles_front *f, int machine, const struct roles_message *head)
{
    struct roles_stat st;

    if (head->n_more != sizeof(st))
        return err_set(ERR_FORMAT, "statistics of %u bytes", head->n_more);
    memcpy(&st, f->machines[machine].inbox.more, sizeof(st));
    if (!is_plausible(&st) || st.end_id > f->n_attempts)
        return err_set(ERR_FORMAT, "statistics that are negative, or larger than any");
    pthread_mutex_lock(&f->lock);
    f->machines[machine].stat = st;
    retry_unanswered(f, machine, &st);
    pthread_mutex_unlock(&f->lock);
    return OK;
}

static int on_broken(struct roles_front *f, int machine, const struct roles_message *head)
{
    char why[ROLES_TEXT_BYTES];

    read_text(f, machine, why);
    return roles_front_on_broken(f, machine, head, why);
}

/* Receive into the inbox until it has `bytes`; *all: it has. */
static int fill(struct roles_machine_state *m, size_t bytes, bool *all)
{
    struct roles_inbox *in = &m->inbox;

    while (in->n < bytes) {
        ssize_t n = recv(m->fd, (char *)in + in->n, bytes - in->n, MSG_DONTWAIT);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            break;
        if (n <= 0)
            return err_set(ERR_IO, "it closed its connection");
        if (in->n == 0)
            in->since_ns = clock_ns();
        in->n += (size_t)n;
    }
    *all = in->n >= bytes;
    return OK;
}

/* Its next message into its inbox, so far as it is there; *any: it is. */
static int receive(struct roles_machine_state *m, bool *any)
{
    struct roles_inbox *in = &m->inbox;

    if (m->untrusted)
        return err_set(ERR_FORMAT, "%s", m->why);
    TRY(fill(m, sizeof(in->head), any));
    if (!*any)
        return OK;
    TRY(roles_message_check(&in->head, sizeof(in->more)));
    TRY(fill(m, sizeof(in->head) + in->head.n_more, any));
    if (!*any)
        return OK;
    in->n = 0;
    return roles_message_check_more(&in->head, in->more);
}

int roles_front_read(struct roles_front *f, int machine, bool *any)
{
    struct roles_message head;

    *any = false;
    TRY(receive(&f->machines[machine], any));
    if (!*any)
        return OK;
    head = f->machines[machine].inbox.head;
    if (head.n_more > 0 && (head.type == ROLES_READY || head.type == ROLES_CONNECTED))
        return err_set(ERR_FORMAT, "a message of type %u with %u bytes", head.type,
                       head.n_more);
    if (head.type != ROLES_READY && f->machines[machine].state == ROLES_STARTING)
        return err_set(ERR_FORMAT, "a message of type %u before it was ready", head.type);
    switch (head.type) {
    case ROLES_READY:
        return roles_front_on_ready(f, machine, &head);
    case ROLES_CONNECTED:
        return roles_front_on_connected(f, machine, &head);
    case ROLES_BROKEN:
        return on_broken(f, machine, &head);
    case ROLES_TOKEN:
    case ROLES_ARRIVED:
    case ROLES_RETRY:
        return on_answer(f, machine, &head);
    case ROLES_STAT:
        return on_stat(f, machine, &head);
    default:
        return err_set(ERR_FORMAT, "a message of type %u", head.type);
    }
}
