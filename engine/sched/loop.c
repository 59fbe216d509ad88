#include "sched/loop.h"

#include "base/mem.h"

static int enlarge(struct sched_loop *l, int n_live_max)
{
    size_t n = (size_t)n_live_max;
    void *p[] = {mem_resize(MEM_OTHER, l->live, n, sizeof(*l->live)),
                 mem_resize(MEM_OTHER, l->batch, n, sizeof(*l->batch)),
                 mem_resize(MEM_OTHER, l->view, n, sizeof(*l->view)),
                 mem_resize(MEM_OTHER, l->entries, n, sizeof(*l->entries))};

    l->live = p[0] ? p[0] : l->live;
    l->batch = p[1] ? p[1] : l->batch;
    l->view = p[2] ? p[2] : l->view;
    l->entries = p[3] ? p[3] : l->entries;
    if (!p[0] || !p[1] || !p[2] || !p[3])
        return ERR_NOMEM;
    l->n_live_max = n_live_max;
    return OK;
}

int sched_loop_open(struct sched_loop *l, const struct sched_loop_opts *o)
{
    *l = (struct sched_loop){.o = *o};
    return enlarge(l, o->n_live);
}

void sched_loop_close(struct sched_loop *l)
{
    mem_free(l->live);
    mem_free(l->batch);
    mem_free(l->view);
    mem_free(l->entries);
    *l = (struct sched_loop){0};
}

static void trace(const struct sched_loop *l, enum sched_event event,
                  const struct sched_request *r)
{
    if (l->o.trace)
        l->o.trace(l->o.trace_ctx, event, r);
}

static void begin_to_wait(struct sched_loop *l, struct sched_request *r)
{
    r->state = SCHED_WAITING;
    r->need_tok = l->o.alloc.need_tok(l->o.ctx, r);
}

int sched_loop_add(struct sched_loop *l, struct sched_request *r)
{
    if (l->n_live == l->n_live_max)
        TRY(enlarge(l, 2 * l->n_live_max + 8));
    l->live[l->n_live++] = r;
    if (r->n_ctx == 0) {
        begin_to_wait(l, r);
        return OK;
    }
    r->state = SCHED_PREFILL;
    r->n_done = r->n_ctx;
    l->n_seqs++;
    l->used_tok += r->n_ctx;
    return OK;
}

void sched_loop_hold(struct sched_loop *l, int n)
{
    l->n_held += n;
}

static void release(struct sched_loop *l, struct sched_request *r)
{
    l->n_seqs--;
    l->used_tok -= r->n_ctx;
    l->o.alloc.release(l->o.ctx, r);
}

void sched_loop_drop(struct sched_loop *l)
{
    int n = 0;

    for (int i = 0; i < l->n_live; i++) {
        struct sched_request *r = l->live[i];

        if (!r->ended) {
            l->live[n++] = r;
            continue;
        }
        if (r->state != SCHED_WAITING)
            release(l, r);
        trace(l, SCHED_DROPPED, r);
        l->o.drop(l->o.ctx, r);
    }
    l->n_live = n;
}

/* ---- what the policy wants ---- */

/* Ask the policy for the tokens of this step. Returns how many requests it admits, which it
 * may only with `admit`. */
static int ask_policy(struct sched_loop *l, bool admit)
{
    struct sched_view v = {.seqs = l->view,
                           .n_seqs = l->n_live,
                           .max_step_tok = l->o.max_step_tok,
                           .max_batch_prompt_tok = l->o.max_batch_prompt_tok,
                           .n_free_slots =
                               admit ? l->o.max_seqs - l->n_seqs - l->n_held : 0,
                           .n_free_tok = l->o.alloc.free_tok(l->o.ctx)};
    int max = l->n_live < l->o.max_seqs ? l->n_live : (int)l->o.max_seqs;
    int n, n_admitted = 0;

    for (int i = 0; i < l->n_live; i++) {
        struct sched_request *r = l->live[i];
        int64_t n_known = sched_request_n_known(r);

        r->want_tok = r->step_tok = 0;
        r->wanted = false;
        r->viewed = true;
        l->view[i] = (struct sched_seq){
            .id = r->id,
            .state = r->state,
            .n_prompt_left = r->state == SCHED_DECODE ? 0 : n_known - r->n_ctx,
            .n_ctx = r->n_ctx,
            .n_max = r->n_prompt + r->max_new,
            .n_reserve = r->state == SCHED_WAITING ? r->need_tok : 0,
            .arrival = r->id,
            .age = r->age,
            .n_paused = r->n_paused};
    }
    n = l->o.policy->step(&v, l->entries, max);
    for (int i = 0; i < n; i++) {
        struct sched_request *r = l->live[l->entries[i].seq];

        r->want_tok = l->entries[i].n_tok;
        r->wanted = l->entries[i].admit;
        n_admitted += r->wanted;
    }
    return n_admitted;
}

/* ---- admission ---- */

/* By the rule of the header; NULL: no request now.
 *   refused  bit i: a request of bucket i has been refused memory in this step */
static struct sched_request *next_to_admit(const struct sched_loop *l, uint64_t refused)
{
    struct sched_request *oldest = NULL;
    bool is_first = true;

    for (int i = 0; i < l->n_live; i++) {
        struct sched_request *r = l->live[i];
        bool is_refused = refused >> r->bucket & 1;

        if (r->state != SCHED_WAITING || r->ended)
            continue;
        if (is_first && r->age > l->o.max_age)
            return is_refused ? NULL : r;
        is_first = false;
        if (is_refused)
            continue;
        if (r->bucket == l->bucket && !l->o.mix_buckets)
            return r;
        oldest = oldest ? oldest : r;
    }
    return oldest;
}

/* false: it stays without memory, or has ended. */
static bool reserve(struct sched_loop *l, struct sched_request *r)
{
    int rc = l->o.alloc.reserve(l->o.ctx, r);

    if (rc == OK) {
        l->n_seqs++;
        l->used_tok += r->n_ctx;
        r->n_done = r->n_ctx > r->n_done ? r->n_ctx : r->n_done;
        r->state = SCHED_PREFILL;
        trace(l, SCHED_ADMITTED, r);
        return true;
    }
    /* Short of memory it waits for a release; where no request has any it would wait for
     * ever. */
    if (rc == ERR_NOMEM && l->n_seqs + l->n_held > 0) {
        err_clear();
        return false;
    }
    r->ended = true;
    l->o.refuse(l->o.ctx, r, rc);
    return false;
}

/* Admit n requests. false: not n, not those that the policy wants, or one has fewer tokens to
 * compute than the policy knows, so that it has to choose again. */
static bool admit(struct sched_loop *l, int n)
{
    uint64_t refused = 0;
    bool as_wanted = true;

    for (int i = 0; l->o.alloc.bucket && i < l->n_live; i++)
        if (l->live[i]->state == SCHED_WAITING)
            l->live[i]->bucket = l->o.alloc.bucket(l->o.ctx, l->live[i]);
    while (n > 0) {
        struct sched_request *r = next_to_admit(l, refused);

        if (!r)
            return false;
        if (reserve(l, r)) {
            l->bucket = r->bucket;
            as_wanted = as_wanted && r->wanted && r->n_ctx == 0;
            n--;
        } else if (!r->ended) {
            refused |= UINT64_C(1) << r->bucket;
        }
    }
    return as_wanted;
}

/* ---- growth ---- */

static void preempt(struct sched_loop *l, struct sched_request *r)
{
    release(l, r);
    r->n_ctx = r->step_tok = r->n_waited = 0;
    r->n_preempted++;
    l->n_preempted++;
    begin_to_wait(l, r);
    trace(l, SCHED_PREEMPTED, r);
}

static void grow(struct sched_loop *l, struct sched_request *r)
{
    int rc = l->o.alloc.grow(l->o.ctx, r, r->n_ctx + r->want_tok);

    if (rc == OK) {
        r->n_waited = 0;
        r->step_tok = r->want_tok;
        return;
    }
    err_clear();
    if (rc == ERR_UNSUPPORTED) {
        preempt(l, r);
    } else if (r->waited_step != l->step) { /* once a step, however often it is tried */
        r->waited_step = l->step;
        r->n_waited++;
    }
}

/* Memory for the tokens of this step; how many take part in it. */
static int grow_all(struct sched_loop *l)
{
    int n = 0;

    for (int i = 0; i < l->n_live; i++) {
        struct sched_request *r = l->live[i];

        if (r->want_tok == 0 || r->state == SCHED_WAITING)
            continue;
        if (r->step_tok == 0)
            grow(l, r);
        n += r->step_tok > 0;
    }
    return n;
}

static bool anyone_waits_to_grow(const struct sched_loop *l)
{
    bool any = false;

    for (int i = 0; i < l->n_live; i++)
        any = any || l->live[i]->n_waited > 0;
    return any;
}

/* The request to preempt; NULL: none. */
static struct sched_request *choose_victim(const struct sched_loop *l, int64_t patience)
{
    struct sched_request *youngest = NULL;
    bool too_long = false;

    for (int i = 0; i < l->n_live; i++) {
        if (l->live[i]->state == SCHED_WAITING)
            continue;
        too_long = too_long || l->live[i]->n_waited > patience;
        if (!l->live[i]->pinned)
            youngest = l->live[i];
    }
    return too_long ? youngest : NULL;
}

/* ---- a step ---- */

int sched_loop_batch(struct sched_loop *l)
{
    struct sched_request *victim;
    int n_admitted, n;

    l->step++;
    n_admitted = ask_policy(l, !anyone_waits_to_grow(l));
    if (n_admitted > 0) {
        grow_all(l);
        if (anyone_waits_to_grow(l) || !admit(l, n_admitted))
            ask_policy(l, false);
    } else if (l->n_seqs + l->n_held == 0 && l->n_live > 0) {
        /* By tokens there is no memory for the oldest, although no request has any. The
         * allocator knows whether there can be. */
        admit(l, 1);
        ask_policy(l, false);
    }
    n = grow_all(l);
    while ((victim = choose_victim(l, n > 0 ? l->o.patience : 0)) != NULL) {
        preempt(l, victim);
        n = grow_all(l);
    }
    l->n_batch = 0;
    for (int i = 0; i < l->n_live; i++)
        if (l->live[i]->step_tok > 0)
            l->batch[l->n_batch++] = l->live[i];
    return l->n_batch;
}

bool sched_loop_computed(struct sched_loop *l, struct sched_request *r)
{
    int64_t again = r->n_done - r->n_ctx;

    if (again > 0)
        l->n_recomputed_tok += again < r->step_tok ? again : r->step_tok;
    r->n_ctx += r->step_tok;
    l->used_tok += r->step_tok;
    r->n_done = r->n_ctx > r->n_done ? r->n_ctx : r->n_done;
    if (r->n_ctx < sched_request_n_known(r))
        return false;
    r->state = SCHED_DECODE;
    r->n_new++;
    return true;
}

void sched_loop_age(struct sched_loop *l)
{
    for (int i = 0; i < l->n_live; i++) {
        struct sched_request *r = l->live[i];
        int64_t left = sched_request_n_known(r) - r->n_ctx;

        r->age = r->step_tok > 0 ? 0 : r->age + 1;
        r->n_paused += r->viewed && r->want_tok == 0 && r->n_ctx > 0 && left == 1;
    }
}

void sched_loop_skip(struct sched_loop *l, int64_t n)
{
    for (int i = 0; i < l->n_live; i++) {
        struct sched_request *r = l->live[i];

        r->state = SCHED_DECODE;
        r->n_new += n;
        r->n_ctx += n;
        r->n_done = r->n_ctx;
        r->age = 0;
    }
    l->used_tok += n * l->n_live;
    l->step += n;
}

void sched_loop_abort(struct sched_loop *l)
{
    l->n_live = l->n_batch = 0;
    l->n_seqs = l->used_tok = 0;
}
