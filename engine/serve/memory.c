/* Memory for keys and values: admission, growth, preemption.
 *
 * Requests are admitted in order of arrival and the youngest is preempted, so that those with
 * memory are always the first ones of `live`. The first can therefore always have what it
 * needs, and ends after finitely many steps: there is no livelock. One that was preempted is
 * admitted for its longest output, lest it be preempted again as soon as it is back. */
#include "serve/impl.h"

int64_t serve_seq_reserve(const struct serve *s, const struct serve_seq *q)
{
    bool whole = s->o.kv_admit == SERVE_ADMIT_MAX || q->preempted;

    return q->n_prompt + (whole ? q->max_new : 1);
}

void serve_seq_release(struct serve *s, struct serve_seq *q)
{
    s->n_slots -= q->kv.base != NULL;
    kv_release(s->pool, &q->kv);
}

/* false: it takes no part in this step. */
static bool admit(struct serve *s, struct serve_seq *q)
{
    int rc = kv_reserve(s->pool, serve_seq_reserve(s, q), &q->kv);

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

static void preempt(struct serve *s, struct serve_seq *q)
{
    serve_seq_release(s, q);
    q->state = SCHED_WAITING;
    q->preempted = true;
    q->n_ctx = q->step_tok = 0;
    s->n_preempted++;
}

/* Memory for the request's tokens of this step: by preempting the youngest that has any, which
 * may be the request itself. Alone it has enough, by the check of serve_submit(). */
static void grow(struct serve *s, struct serve_seq *q)
{
    while (q->kv.base && kv_grow(s->pool, &q->kv, q->n_ctx + q->step_tok) != OK) {
        int youngest = s->n_live - 1;

        err_clear();
        while (!s->live[youngest]->kv.base)
            youngest--;
        preempt(s, s->live[youngest]);
    }
}

void serve_give_memory(struct serve *s, int n_entries)
{
    bool short_of = false;

    for (int i = 0; i < s->n_live; i++)
        s->live[i]->step_tok = 0;
    for (int i = 0; i < n_entries; i++)
        s->live[s->entries[i].seq]->step_tok = s->entries[i].n_tok;
    for (int i = 0; i < s->n_live; i++) {
        struct serve_seq *q = s->live[i];

        if (q->step_tok == 0)
            continue;
        if (q->state == SCHED_WAITING) {
            short_of = short_of || !admit(s, q); /* later ones do not overtake it */
            q->step_tok = short_of ? 0 : q->step_tok;
        } else {
            grow(s, q);
        }
    }
}
