/* The sequences that get guesses, the number of these, and their outcome. */
#include "serve/draft.h"

#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"

/* With draft_adapt a request begins with one guess. It gets GROWTH more after a step of right
 * guesses only, and one less after one with a wrong guess, so that their number stays where about a
 * third of such steps are right throughout. Where not even one is, none are made for PAUSE steps,
 * and then one: a draft that is never right costs one row in PAUSE + 1 steps. */
#define GROWTH 2
#define PAUSE  8

int64_t serve_draft_rows(const struct serve_opts *o)
{
    int64_t n = o->max_seqs * (1 + o->draft_tok);

    if (!o->draft || o->max_seqs >= o->max_step_tok)
        return o->max_seqs;
    return n < o->max_step_tok ? n : o->max_step_tok;
}

static bool looks_up(const struct serve_opts *o)
{
    return strcmp(o->draft, "lookup") == 0;
}

int serve_draft_check(const struct serve_opts *o)
{
    if (!o->draft)
        return OK;
    if (o->rank_mode == SERVE_RANKS_PROCESSES)
        return err_set(ERR_UNSUPPORTED, "draft: not with ranks that are processes "
                                        "(rank_mode threads does)");
    if (!looks_up(o) && access(o->draft, R_OK) != 0)
        return err_set(ERR_NOTFOUND, "draft: %s: cannot open: %m", o->draft);
    return OK;
}

int serve_draft_open(struct serve_engine *s)
{
    struct serve_drafting *d = &s->drafting;
    int rc;

    if (!s->api.o.draft)
        return OK;
    if (s->offload)
        return err_set(ERR_UNSUPPORTED, "draft: not with an accelerator");
    d->by = looks_up(&s->api.o) ? &serve_drafter_lookup : &serve_drafter_model;
    d->seqs = mem_new(MEM_OTHER, (size_t)s->api.o.max_seqs, sizeof(*d->seqs));
    if (!d->seqs)
        return ERR_NOMEM;
    rc = d->by->open(&d->state, s, s->api.o.draft);
    return rc == OK ? OK : err_prefix(rc, "draft");
}

void serve_draft_close(struct serve_engine *s)
{
    struct serve_drafting *d = &s->drafting;

    if (d->by)
        d->by->close(&d->state);
    mem_free(d->seqs);
    *d = (struct serve_drafting){0};
}

/* No more than it may still generate, and than its memory holds: a guess takes none from others. */
static int64_t most_guesses(const struct serve_engine *s, const struct serve_seq *q)
{
    int64_t left = q->r.max_new - q->r.n_new - 1;
    int64_t n = s->api.o.draft_adapt ? q->draft_most : s->api.o.draft_tok;

    if (q->r.state != SCHED_DECODE || q->handoff.side || q->r.n_new < q->n_scored)
        return 0;
    n = n < left ? n : left;
    left = q->kv.cap_tok - q->r.n_ctx - 1;
    n = n < left ? n : left;
    return n > 0 ? n : 0;
}

int serve_draft_guess(struct serve_engine *s)
{
    struct serve_drafting *d = &s->drafting;
    int64_t rows_left = s->api.o.max_step_tok;
    uint64_t t0;
    int n = 0, rc;

    if (!d->by)
        return OK;
    for (int i = 0; i < s->loop.n_batch; i++)
        rows_left -= s->loop.batch[i]->step_tok;
    for (int i = 0; i < s->loop.n_batch; i++) {
        struct serve_seq *q = (struct serve_seq *)s->loop.batch[i];
        int64_t most;

        if (q->draft_most <= 0)
            q->draft_most++;
        most = most_guesses(s, q);
        q->n_draft = (int)(most < rows_left ? most : rows_left);
        rows_left -= q->n_draft;
        if (q->n_draft > 0)
            d->seqs[n++] = q;
    }
    if (n == 0)
        return OK;
    t0 = clock_ns();
    rc = d->by->guess(d->state, d->seqs, n);
    d->ns += (int64_t)(clock_ns() - t0);
    return rc == OK ? OK : err_prefix(rc, "draft");
}

/* How many guesses the next step may have, after what became of those of this one. */
static void adapt(struct serve_seq *q, int most)
{
    if (q->n_taken <= q->n_draft)
        q->draft_most = q->draft_most > 1 ? q->draft_most - 1 : -PAUSE;
    else
        q->draft_most = q->draft_most + GROWTH < most ? q->draft_most + GROWTH : most;
}

void serve_draft_count(struct serve_engine *s, struct serve_seq *q)
{
    if (q->n_draft > 0)
        adapt(q, (int)s->api.o.draft_tok);
    s->drafting.n_guessed += q->n_draft;
    s->drafting.n_checked += q->n_taken <= q->n_draft ? q->n_taken : q->n_draft;
    s->drafting.n_right += q->n_taken - 1;
}

void serve_draft_forget(struct serve_engine *s, struct serve_seq *q)
{
    if (s->drafting.by && s->drafting.by->forget)
        s->drafting.by->forget(s->drafting.state, q);
}

void serve_engine_draft_stat(const struct serve *s, struct serve_draft_stat *out)
{
    const struct serve_drafting *d = &((const struct serve_engine *)s)->drafting;

    *out = (struct serve_draft_stat){
        .n_guessed = d->n_guessed,
        .n_checked = d->n_checked,
        .n_right = d->n_right,
        .seconds = (double)d->ns * 1e-9,
        .bytes = d->by && d->by->bytes ? d->by->bytes(d->state) : 0};
}
