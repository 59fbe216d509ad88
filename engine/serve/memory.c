/* Memory for keys and values: admission, growth, waiting, preemption.
 *
 * A request that outgrows its memory waits, and nobody is admitted meanwhile. A request
 * that waits too long, or while nobody goes on, gets the memory of the youngest. The oldest can
 * therefore always have what it needs, and ends after finitely many steps: there is no livelock. A
 * request that was preempted is admitted for its longest output where no length is
 * predicted, lest it be preempted again as soon as it is back. */
#include "kv/admit.h"
#include "serve/impl.h"

/* Steps for which others of the bucket that was admitted last may pass a request. The study
 * odma_replay uses the same number. */
#define MAX_AGE 256

void serve_seq_release(struct serve *s, struct serve_seq *q)
{
    s->n_slots -= q->kv.base != NULL;
    s->n_used_tok -= q->kv.base ? q->n_ctx : 0;
    kv_release(s->pool, &q->kv);
}

/* ---- admission ---- */

/* false: there is none now, or the request has ended with an error. */
static bool admit(struct serve *s, struct serve_seq *q)
{
    const struct kv_need need = serve_need(s, q);
    int rc = kv_reserve(s->pool, &need, &q->kv);

    if (rc == OK) {
        s->n_slots++;
        q->state = SCHED_PREFILL;
        return true;
    }
    /* Short of memory it waits for a release; alone with the pool it would wait for ever.
     */
    if (rc != ERR_NOMEM || s->n_slots == 0)
        serve_seq_end(q, -1, NULL, SERVE_ERROR);
    else
        err_clear();
    return false;
}

/* The requests without memory, oldest first; how many. */
static int list_waiting(struct serve *s)
{
    int n = 0;

    for (int i = 0; i < s->n_live; i++) {
        struct serve_seq *q = s->live[i];
        struct kv_need need;

        if (q->state != SCHED_WAITING || q->ended)
            continue;
        need = serve_need(s, q);
        s->waiting_seq[n] = q;
        s->waiting[n++] =
            (struct kv_waiting){.tag = kv_bucket(s->pool, &need), .age = q->age};
    }
    return n;
}

static void leave_waiting(struct serve *s, int i, int *n)
{
    for (--*n; i < *n; i++) {
        s->waiting[i] = s->waiting[i + 1];
        s->waiting_seq[i] = s->waiting_seq[i + 1];
    }
}

static bool anyone_waits_to_grow(const struct serve *s)
{
    bool any = false;

    for (int i = 0; i < s->n_live; i++)
        any = any || s->live[i]->n_waited > 0;
    return any;
}

bool serve_admit(struct serve *s, int n_entries)
{
    uint64_t refused = 0;
    int n_wanted = 0, n_missed = 0, n, i;

    for (i = 0; i < s->n_live; i++)
        s->live[i]->wanted = false;
    for (i = 0; i < n_entries; i++) {
        s->live[s->entries[i].seq]->wanted = s->entries[i].admit;
        n_wanted += s->entries[i].admit;
    }
    if (n_wanted == 0)
        return true;
    if (anyone_waits_to_grow(s))
        return false;
    n = list_waiting(s);
    for (; n_wanted > 0; n_wanted--) {
        struct serve_seq *q;

        while ((i = kv_admit_next(s->waiting, n, s->tag, refused, MAX_AGE)) >= 0) {
            if (admit(s, s->waiting_seq[i]))
                break;
            if (s->waiting_seq[i]->ended)
                leave_waiting(s, i, &n);
            else
                refused |= UINT64_C(1) << s->waiting[i].tag;
        }
        if (i < 0)
            return false;
        q = s->waiting_seq[i];
        s->tag = s->waiting[i].tag;
        n_missed += !q->wanted;
        leave_waiting(s, i, &n);
    }
    return n_missed == 0;
}

/* ---- growth ---- */

static void preempt(struct serve *s, struct serve_seq *q)
{
    serve_seq_release(s, q);
    q->state = SCHED_WAITING;
    q->preempted = true;
    q->n_ctx = q->step_tok = q->n_waited = 0;
    s->n_preempted++;
}

static bool grow(struct serve *s, struct serve_seq *q)
{
    int64_t n_tok = q->n_ctx + q->want_tok;

    if (n_tok > q->kv.cap_tok && !q->kv.blocks && q->n_waited == 0) {
        q->overflowed = true;
        s->n_overflow++;
    }
    if (kv_grow(s->pool, &q->kv, q->n_ctx, n_tok) != OK) {
        err_clear();
        return false;
    }
    q->n_waited = 0;
    q->step_tok = q->want_tok;
    return true;
}

/* Memory for the tokens of this step, oldest first; how many take part in it. `again`: not the
 * first time in this step. */
static int grow_all(struct serve *s, bool again)
{
    int n = 0;

    for (int i = 0; i < s->n_live; i++) {
        struct serve_seq *q = s->live[i];

        if (q->want_tok == 0 || !q->kv.base)
            continue;
        if (q->step_tok == 0 && !grow(s, q))
            q->n_waited += !again;
        n += q->step_tok > 0;
    }
    return n;
}

/* The request to preempt; NULL: none. */
static struct serve_seq *choose_victim(struct serve *s, int64_t patience)
{
    int n = 0, victim;

    for (int i = 0; i < s->n_live; i++) {
        if (!s->live[i]->kv.base)
            continue;
        s->stepping[n] = s->live[i];
        s->running[n++] = (struct kv_running){.n_waited = s->live[i]->n_waited};
    }
    victim = kv_preempt_next(s->running, n, patience);
    return victim < 0 ? NULL : s->stepping[victim];
}

void serve_give_memory(struct serve *s, int n_entries)
{
    struct serve_seq *victim;
    int n;

    for (int i = 0; i < s->n_live; i++)
        s->live[i]->step_tok = s->live[i]->want_tok = 0;
    for (int i = 0; i < n_entries; i++)
        s->live[s->entries[i].seq]->want_tok = s->entries[i].n_tok;
    n = grow_all(s, false);
    while ((victim = choose_victim(s, n > 0 ? s->o.kv_patience : 0)) != NULL) {
        preempt(s, victim);
        n = grow_all(s, true);
    }
}

/* ---- what is reported ---- */

void serve_count_memory(struct serve *s, int64_t step_ns)
{
    struct serve_kv_use *u = &s->kv_use;
    struct kv_stat kv;
    double used, inner, outer;

    kv_pool_stat(s->pool, &kv);
    if (kv.reserved_bytes == 0)
        return;
    used = (double)(s->n_used_tok * s->kv_token_bytes);
    inner = used / (double)kv.reserved_bytes;
    outer = used / (double)kv.pool_bytes;
    u->time_ns += step_ns;
    u->inner_ns += inner * (double)step_ns;
    u->outer_ns += outer * (double)step_ns;
    series_add(&u->inner, inner);
    series_add(&u->outer, outer);
}
