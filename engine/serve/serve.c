/* One step: ask the policy, compute, sample, report. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "model/procs.h"
#include "serve/impl.h"

/* The request is over; its memory is given back when the step is. */
static void end(struct serve_seq *q, int32_t id, const float *logits,
                enum serve_finish why)
{
    q->ended = true;
    q->on_token(q->ctx, q->id, id, logits, why);
}

static void end_canceled(struct serve *s)
{
    bool any = false;

    for (int i = 0; i < s->n_live; i++) {
        if (!s->live[i]->canceled)
            continue;
        end(s->live[i], -1, NULL, SERVE_CANCELED);
        any = true;
    }
    if (any)
        serve_drop_ended(s);
}

static int ask_policy(struct serve *s)
{
    struct sched_view v = {.seqs = s->view,
                           .n_seqs = s->n_live,
                           .max_step_tok = s->o.max_step_tok,
                           .n_free_slots = s->o.max_seqs - s->n_slots};

    for (int i = 0; i < s->n_live; i++) {
        const struct serve_seq *q = s->live[i];

        s->view[i] = (struct sched_seq){
            .id = q->id,
            .state = q->state,
            .n_prompt_left = q->state == SCHED_DECODE ? 0 : q->n_prompt - q->n_ctx,
            .n_ctx = q->n_ctx,
            .n_max = q->n_prompt + q->max_new,
            .arrival = q->id};
    }
    return s->policy->step(&v, s->entries, (int)s->o.max_seqs);
}

/* Reserve memory for an admitted request. false: it does not take part in this step. */
static bool admit(struct serve *s, struct serve_seq *q)
{
    int rc = kv_reserve(s->pool, q->n_prompt + q->max_new, &q->kv);

    if (rc == OK) {
        s->n_slots++;
        q->state = SCHED_PREFILL;
        return true;
    }
    /* Short of memory it waits for a release; alone with the pool it would wait for ever.
     */
    if (rc != ERR_NOMEM || s->n_slots == 0)
        end(q, -1, NULL, SERVE_ERROR);
    return false;
}

/* Turn batch entries into chunks; returns how many. *prefill: whether one of them is a prompt. */
static int make_chunks(struct serve *s, int n_entries, bool *prefill)
{
    int n = 0;

    *prefill = false;
    for (int i = 0; i < n_entries; i++) {
        const struct sched_batch_entry *p = &s->entries[i];
        struct serve_seq *q = s->live[p->seq];
        bool decode = q->state == SCHED_DECODE;

        if (p->admit && !admit(s, q))
            continue;
        *prefill |= !decode;
        s->chunks[n] = (struct model_chunk){
            .kv = &q->kv,
            .ids = decode ? &q->last_id : q->prompt + q->n_ctx,
            .n_tok = p->n_tok,
            .pos0 = q->n_ctx,
            .want_logits = decode || q->n_ctx + p->n_tok == q->n_prompt};
        s->stepping[n++] = q;
    }
    return n;
}

/* There is no token to choose. The other requests of the batch have rows of their own. */
static void end_not_finite(struct serve_seq *q, const float *logits)
{
    int at = 0;

    while (isfinite(logits[at]))
        at++;
    (void)err_set(ERR_FORMAT,
                  "new token %lld, at position %lld: the logit of id %d is %g: the model "
                  "has weights that are NaN or infinite, or too large to compute with",
                  (long long)q->n_new + 1, (long long)q->n_ctx, at, logits[at]);
    end(q, -1, NULL, SERVE_ERROR);
}

static void new_token(struct serve *s, struct serve_seq *q, const float *logits)
{
    int32_t id = sampler_sample(q->sampler, logits);
    enum serve_finish finish = SERVE_RUNNING;

    if (id < 0) {
        end_not_finite(q, logits);
        return;
    }
    q->state = SCHED_DECODE;
    q->last_id = id;
    q->n_new++;
    if (q->n_new == q->max_new)
        finish = SERVE_LENGTH;
    if (!q->ignore_eos && serve_is_stop(s, id))
        finish = SERVE_EOS;
    if (finish == SERVE_RUNNING)
        q->on_token(q->ctx, q->id, id, logits, finish);
    else
        end(q, id, logits, finish);
}

/* The threads of a phase, of all its ranks. */
static int n_threads(const struct serve *s, const struct model_phase *phase)
{
    const struct plan_phase *f = phase == s->prefill ? &s->plan.prefill : &s->plan.decode;

    return f->n_ranks * f->n_threads;
}

/* The configuration that this step runs under. */
static struct model_phase *choose(struct serve *s, int n_chunks, bool prefill)
{
    int64_t n_rows = 0;

    for (int i = 0; i < n_chunks; i++)
        n_rows += s->chunks[i].n_tok;
    return serve_choice_next(&s->choice, n_rows, prefill) == SERVE_PREFILL ? s->prefill
                                                                           : s->decode;
}

static int compute(struct serve *s, int n_chunks, bool prefill)
{
    struct model_phase *phase = choose(s, n_chunks, prefill);
    const float *logits = s->logits;
    uint64_t t0 = clock_ns(), wait0 = model_wait_ns(s->model), forward_ns, wait_ns;
    uint64_t ns[MODEL_T_N];
    int rc;

    rc = model_forward(phase, s->chunks, n_chunks, s->logits);
    if (rc != OK)
        return rc;
    forward_ns = clock_ns() - t0;
    s->busy_s += (double)forward_ns * 1e-9;
    wait_ns = (model_wait_ns(s->model) - wait0) / (uint64_t)n_threads(s, phase);
    model_times_take(s->model, ns);
    serve_totals_add(s, prefill ? SERVE_PREFILL : SERVE_DECODE, s->chunks, n_chunks,
                     (int64_t)forward_ns, (int64_t)wait_ns);
    for (int i = 0; i < MODEL_T_N; i++)
        s->op_s[i] += (double)ns[i] * 1e-9;
    s->n_steps++;
    s->n_switches += s->last && s->last != phase;
    s->last = phase;
    for (int i = 0; i < n_chunks; i++) {
        s->stepping[i]->n_ctx += s->chunks[i].n_tok;
        s->n_tok += s->chunks[i].n_tok;
        if (!s->chunks[i].want_logits)
            continue;
        new_token(s, s->stepping[i], logits);
        logits += serve_vocab(s);
    }
    return OK;
}

int serve_step(struct serve *s, bool *busy)
{
    bool prefill;
    int n, rc = model_procs_check(s->model);

    serve_take_queue(s);
    end_canceled(s); /* also where no step is possible any more */
    n = rc == OK ? make_chunks(s, ask_policy(s), &prefill) : 0;
    if (n > 0)
        rc = compute(s, n, prefill);
    serve_drop_ended(s);
    pthread_mutex_lock(&s->lock);
    *busy = s->n_live > 0 || s->queue_head;
    pthread_mutex_unlock(&s->lock);
    return rc;
}
