/* One step: ask the policy, give memory, compute, sample, report. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "ranks/procs.h"
#include "serve/draft.h"
#include "serve/handoff.h"

#define PACE_SPIN_NS 50000 /* of a step's end: sleep alone wakes up too late */

static void end_canceled(struct serve_engine *s)
{
    bool any = false;

    for (int i = 0; i < s->loop.n_live; i++) {
        struct serve_seq *q = (struct serve_seq *)s->loop.live[i];

        if (!q->canceled)
            continue;
        serve_seq_end(q, -1, NULL, SERVE_CANCELED);
        any = true;
    }
    if (any)
        serve_drop_ended(s);
}

/* The last token of a request, and each guess behind it, of one that decodes; or a piece of what
 * it has not computed yet. */
static int add_chunks(struct serve_engine *s, struct serve_seq *q, int n_chunks,
                      int *n_rows)
{
    int64_t ctx = q->r.n_ctx, n_tok = q->r.step_tok;
    bool want_logits = ctx + n_tok == sched_request_n_known(&q->r);

    q->row = *n_rows;
    q->n_rows = want_logits ? 1 + q->n_draft : 0;
    *n_rows += q->n_rows;
    for (int i = 0; i <= q->n_draft; i++, ctx += n_tok)
        s->chunks[n_chunks++] = (struct model_chunk){.kv = &q->kv,
                                                     .ids = q->ids + ctx,
                                                     .n_tok = n_tok,
                                                     .pos0 = ctx,
                                                     .want_logits = want_logits};
    return n_chunks;
}

/* Turn the loop's batch into chunks; returns how many. *as: prefill where one of them is a piece
 * of a prompt. */
static int make_chunks(struct serve_engine *s, enum serve_phase *as)
{
    int n_chunks = 0, n_rows = 0;

    *as = SERVE_DECODE;
    for (int i = 0; i < s->loop.n_batch; i++) {
        struct serve_seq *q = (struct serve_seq *)s->loop.batch[i];

        /* The first token that another engine chose is not a piece of a prompt. */
        if (q->r.state != SCHED_DECODE &&
            (q->r.n_new == 0 || sched_request_n_known(&q->r) - q->r.n_ctx > 1))
            *as = SERVE_PREFILL;
        n_chunks = add_chunks(s, q, n_chunks, &n_rows);
    }
    return n_chunks;
}

/* There is no token to choose. The other requests of the batch have rows of their own. */
static void end_without(struct serve_seq *q, int32_t id, const float *logits)
{
    int at = 0;

    if (id == SAMPLER_NONE) {
        (void)err_set(ERR_STATE, "new token %lld: %s", (long long)q->r.n_new,
                      *grammar_why(q->matcher)
                          ? grammar_why(q->matcher)
                          : "the grammar allows no token of the vocabulary here");
        serve_seq_end(q, -1, NULL, SERVE_ERROR);
        return;
    }
    while (isfinite(logits[at]))
        at++;
    (void)err_set(ERR_FORMAT,
                  "new token %lld, at position %lld: the logit of id %d is %g: the model "
                  "has weights that are NaN or infinite, or too large to compute with",
                  (long long)q->r.n_new, (long long)q->r.n_ctx, at, logits[at]);
    serve_seq_end(q, -1, NULL, SERVE_ERROR);
}

static bool ends(const struct serve_engine *s, const struct serve_seq *q, int32_t id)
{
    for (int i = 0; i < q->n_stop_ids; i++)
        if (q->stop_ids[i] == id)
            return true;
    return !q->ignore_eos && serve_is_stop(&s->api, id);
}

static void new_token(struct serve_engine *s, struct serve_seq *q, int32_t id,
                      const float *logits)
{
    enum serve_finish finish = SERVE_RUNNING;

    if (id < 0) {
        end_without(q, id, logits);
        return;
    }
    q->ids[sched_request_n_known(&q->r) - 1] = id;
    if (q->r.n_new == q->r.max_new)
        finish = SERVE_LENGTH;
    if (q->r.n_new > q->n_scored && ends(s, q, id))
        finish = SERVE_EOS;
    if (finish == SERVE_RUNNING)
        q->on_token(q->ctx, q->r.id, id, logits, finish);
    else
        serve_seq_end(q, id, logits, finish);
}

/* The threads of a phase, of all its ranks. */
static int n_threads(const struct serve_engine *s, const struct model_phase *phase)
{
    const struct plan_phase *f = phase == s->prefill ? &s->plan.prefill : &s->plan.decode;

    return f->n_ranks * f->n_threads;
}

/* The configuration that this step runs under. */
static struct model_phase *choose(struct serve_engine *s, int n_chunks, bool prefill)
{
    int64_t n_rows = 0;

    for (int i = 0; i < n_chunks; i++)
        n_rows += s->chunks[i].n_tok;
    return serve_choice_next(&s->choice, n_rows, prefill) == SERVE_PREFILL ? s->prefill
                                                                           : s->decode;
}

/* The token that follows: given, or sampled; -1: the logits are not finite. */
static int32_t next_token(struct serve_seq *q, const float *logits, int vocab)
{
    if (q->r.n_new >= q->n_scored)
        return sampler_sample(q->sampler, logits);
    for (int i = 0; i < vocab; i++)
        if (!isfinite(logits[i]))
            return -1;
    return q->ids[sched_request_n_known(&q->r)];
}

/* Its rows in turn, up to the first after which a guess was wrong: a sampler draws for no other. */
static void take_rows(struct serve_engine *s, struct serve_seq *q)
{
    const int32_t *guesses = q->ids + sched_request_n_known(&q->r);
    int vocab = serve_vocab(&s->api);

    for (int i = 0; i < q->n_rows; i++) {
        int32_t id = next_token(q, s->logits + (int64_t)(q->row + i) * vocab, vocab);

        s->new_ids[q->row + i] = id;
        q->n_taken = i + 1;
        if (i < q->n_draft && id != guesses[i])
            break;
    }
}

/* Thread `id` of n takes every n-th request of the batch that gets tokens. */
static void sample(void *arg, struct par_self *self)
{
    struct serve_engine *s = arg;
    int k = 0;

    for (int i = 0; i < s->loop.n_batch; i++) {
        struct serve_seq *q = (struct serve_seq *)s->loop.batch[i];

        if (q->n_rows > 0 && k++ % self->n == self->id)
            take_rows(s, q);
    }
}

/* A sampler reads every logit, and tens of thousands of them for each of a batch would cost
 * a hundredth of a step, so the threads that have just computed the step share the requests. */
static void sample_all(struct serve_engine *s, const struct model_phase *phase)
{
    struct par_team *team = model_team(s->model);
    int n = n_threads(s, phase), n_seqs = 0;

    for (int i = 0; i < s->loop.n_batch; i++)
        n_seqs += ((struct serve_seq *)s->loop.batch[i])->n_rows > 0;
    n = n < par_team_size(team) ? n : par_team_size(team); /* of this process */
    n = n < n_seqs ? n : n_seqs;
    if (n > 0)
        par_team_run(team, n, sample, s);
}

/* The request's tokens of this step. */
static void take_tokens(struct serve_engine *s, struct serve_seq *q)
{
    if (q->n_rows == 0) {
        (void)sched_loop_computed(&s->loop, &q->r);
        return;
    }
    serve_draft_count(s, q);
    for (int i = q->row; i < q->row + q->n_taken && !q->r.ended; i++)
        if (sched_loop_computed(&s->loop, &q->r))
            new_token(s, q, s->new_ids[i], s->logits + (int64_t)i * serve_vocab(&s->api));
}

static void count_forward(struct serve_engine *s, const struct model_phase *phase,
                          struct serve_totals *t, uint64_t forward_ns, uint64_t wait_ns)
{
    uint64_t ns[MODEL_T_N];

    model_times_take(s->model, ns);
    for (int i = 0; i < MODEL_T_N; i++)
        s->op_s[i] += (double)ns[i] * 1e-9;
    t->forward_ns += (int64_t)forward_ns;
    t->wait_ns += (int64_t)(wait_ns / (uint64_t)n_threads(s, phase));
    s->n_steps++;
    s->n_switches += s->last && s->last != phase;
    s->last = phase;
}

static void on_stored(void *ctx, int layer)
{
    struct serve_engine *s = ctx;

    for (int i = 0; i < s->loop.n_batch; i++) {
        const struct serve_seq *q = (struct serve_seq *)s->loop.batch[i];
        const struct model_chunk *c = &s->chunks[i];

        if (q->handoff.on_layer)
            q->handoff.on_layer(q->handoff.ctx, q->r.id, c->kv, layer, c->pos0,
                                c->pos0 + c->n_tok);
    }
}

/* Let the step of the loop's batch call on_layer(). */
static void announce_layers(struct serve_engine *s, struct model_phase *phase)
{
    bool any = false;

    for (int i = 0; i < s->loop.n_batch; i++)
        any = any || ((struct serve_seq *)s->loop.batch[i])->handoff.on_layer;
    model_phase_stored_set(phase, any ? on_stored : NULL, s);
}

static void add_totals(struct serve_engine *s, enum serve_phase phase,
                       const struct model_chunk *chunks, int n_chunks)
{
    struct model_cost cost = model_cost_step(
        model_config_of(s->model), model_cost_types_of(s->model), chunks, n_chunks);
    struct serve_totals *t = &s->totals[phase];

    for (int i = 0; i < n_chunks; i++)
        t->n_tok += chunks[i].n_tok;
    t->n_steps++;
    t->weight_bytes += (int64_t)cost.weight_bytes;
    t->kv_bytes += (int64_t)cost.kv_read_bytes;
    t->flop += (int64_t)cost.flop;
}

static int compute(struct serve_engine *s, int n_chunks, enum serve_phase as)
{
    struct model_phase *phase = choose(s, n_chunks, as == SERVE_PREFILL);
    struct serve_totals *t = &s->totals[as];
    uint64_t wait0 = model_wait_ns(s->model), t0 = clock_ns(), t1;
    int rc;

    announce_layers(s, phase);
    rc = model_forward(phase, s->chunks, n_chunks, s->logits);
    if (rc != OK)
        return rc;
    if (s->pace)
        clock_sleep_until_ns(
            t0 + (uint64_t)s->pace->step_ns(s->pace->ctx, s->chunks, n_chunks),
            PACE_SPIN_NS);
    t1 = clock_ns();
    count_forward(s, phase, t, t1 - t0, model_wait_ns(s->model) - wait0);
    add_totals(s, as, s->chunks, n_chunks);
    t1 = clock_ns();
    sample_all(s, phase);
    t->sample_ns += (int64_t)(clock_ns() - t1);
    for (int i = 0; i < n_chunks; i++)
        s->n_tok += s->chunks[i].n_tok;
    for (int i = 0; i < s->loop.n_batch; i++)
        take_tokens(s, (struct serve_seq *)s->loop.batch[i]);
    return OK;
}

static int64_t computed_ns(const struct serve_totals *t)
{
    return t->forward_ns + t->sample_ns;
}

int serve_engine_step(struct serve *api, bool *busy)
{
    struct serve_engine *s = serve_engine_of(api);
    int64_t draft0 = s->drafting.ns;
    uint64_t t0 = clock_ns();
    int n = 0, rc = model_procs_check(s->model);
    bool moved;

    serve_take_queue(s);
    end_canceled(s); /* also where no step is possible any more */
    (void)serve_outside_step(s);
    if (rc == OK) {
        n = sched_loop_batch(&s->loop);
    }
    if (n > 0)
        rc = serve_draft_guess(s);
    t0 += (uint64_t)(s->drafting.ns - draft0); /* it has a time of its own */
    if (n > 0 && rc == OK) {
        enum serve_phase as;
        int n_chunks = make_chunks(s, &as);
        struct serve_totals *t = &s->totals[as];
        int64_t before = computed_ns(t);

        rc = compute(s, n_chunks, as);
        sched_loop_age(&s->loop);
        serve_count_memory(s, (int64_t)(clock_ns() - t0));
        t->sched_ns += (int64_t)(clock_ns() - t0) - (computed_ns(t) - before);
    }
    serve_drop_ended(s);
    moved = serve_outside_step(s); /* with the memory of those that ended */
    pthread_mutex_lock(&s->lock);
    s->waits = n == 0 && s->loop.n_held > 0 && !moved;
    *busy = (s->loop.n_live > 0 && !s->waits) || s->queue_head;
    pthread_mutex_unlock(&s->lock);
    return rc;
}
