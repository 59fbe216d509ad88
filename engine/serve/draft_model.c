/* Guesses of a smaller model with the same vocabulary: its most likely tokens, one after the
 * other. It is computed by the threads that decode, and has keys and values of its own, of what it
 * has read of each sequence. */
#include "serve/draft.h"

#include "base/mem.h"
#include "ranks/phase.h"

struct draft_model {
    struct model *model;
    struct model_phase *phase;
    struct kv_pool *pool;
    kern_argmax_fn argmax;
    int vocab;
    int64_t max_tok, max_step_tok;
    /* [max_seqs] each, of a step; logits [max_seqs, vocab] */
    struct model_chunk *chunks;
    float *logits;
    int *of;            /* whose chunk it is: an index of seqs */
    int *made;          /* guesses of seqs[i] so far */
    atomic_llong bytes; /* that its steps had to read */
};

/* Where the draft model has one: an id is the same text to both. */
static int check_tokenizer(const struct tok *t, const char *path)
{
    struct tok *own;
    bool same;

    if (tok_open(&own, path, NULL) != OK) {
        err_clear();
        return OK;
    }
    same = tok_identity(own) == tok_identity(t);
    tok_close(&own);
    return same ? OK
                : err_set(ERR_ARG, "%s: its tokens have other texts than the model's",
                          path);
}

static int open_model(struct draft_model *d, struct serve_engine *s, const char *path)
{
    struct model_opts mo = {.weight_type = KERN_N_TYPES,
                            .kv_type = (enum kern_kv_type)s->api.o.kv_type,
                            .precision = (enum kern_precision)s->api.o.precision,
                            .one_rank = true,
                            .max_step_tok = s->api.o.max_step_tok,
                            .max_tok = s->api.max_tok};
    int vocab = model_config_of(s->model)->vocab, rc = OK;
    struct format_file *f;

    TRY(format_open(&f, path));
    if (f->config.vocab != vocab)
        rc = err_set(ERR_ARG,
                     "%s: vocabulary: expected %d tokens, as the model has, found %d",
                     path, vocab, f->config.vocab);
    if (f->config.max_tok < mo.max_tok) /* beyond that it does not guess */
        mo.max_tok = f->config.max_tok;
    if (rc == OK && s->api.tok && !s->api.o.tokenizer)
        rc = check_tokenizer(s->api.tok, path);
    if (rc == OK)
        rc = model_open(&d->model, f, s->team, &mo);
    format_close(&f);
    d->vocab = vocab;
    d->max_tok = mo.max_tok;
    d->max_step_tok = mo.max_step_tok;
    return rc;
}

static int open_phase(struct draft_model *d, const struct serve_engine *s)
{
    const struct plan_phase *f = &s->plan.decode;
    int threads[CPU_MAX];
    const struct model_phase_opts o = {
        .n_ranks = 1, .n_threads = f->n_ranks * f->n_threads, .threads = threads};

    serve_number_threads(&s->plan, f, threads);
    return model_phase_open(&d->phase, d->model, &o);
}

static int open_kv(struct draft_model *d, int64_t max_seqs)
{
    struct kv_pool_opts o = {.max_tok = d->max_tok};
    struct kv_shape shape;

    model_kv_shape(d->model, &shape);
    TRY(kv_pool_bytes(&o.budget_bytes, &shape, &o, max_seqs));
    return kv_pool_open(&d->pool, &shape, &o);
}

static int open_draft(void **state, struct serve_engine *s, const char *from)
{
    struct draft_model *d = mem_new(MEM_OTHER, 1, sizeof(*d));
    size_t n = (size_t)s->api.o.max_seqs;

    *state = d;
    if (!d)
        return ERR_NOMEM;
    TRY(open_model(d, s, from));
    TRY(open_phase(d, s));
    TRY(open_kv(d, s->api.o.max_seqs));
    d->argmax = model_kern(d->model)->v[KERN_ARGMAX]->fn.argmax;
    d->chunks = mem_new(MEM_OTHER, n, sizeof(*d->chunks));
    d->of = mem_new(MEM_OTHER, n, sizeof(*d->of));
    d->made = mem_new(MEM_OTHER, n, sizeof(*d->made));
    d->logits = mem_new(MEM_ACTIVATIONS, n * (size_t)d->vocab, sizeof(*d->logits));
    return d->chunks && d->of && d->made && d->logits ? OK : ERR_NOMEM;
}

static void close_draft(void **state)
{
    struct draft_model *d = *state;

    if (!d)
        return;
    model_phase_close(&d->phase);
    model_close(&d->model);
    kv_pool_close(&d->pool);
    mem_free(d->chunks);
    mem_free(d->of);
    mem_free(d->made);
    mem_free(d->logits);
    mem_free(d);
    *state = NULL;
}

/* Prepare the sequence for guesses: the draft model forgets those that were not taken, and reserves
 * memory if it has none yet. */
static int prepare(struct draft_model *d, struct serve_seq *q)
{
    const struct kv_need need = {.prompt_tok = d->max_tok};
    int64_t left = d->max_tok - sched_request_n_known(&q->r);

    if (q->draft_ctx > q->r.n_ctx)
        q->draft_ctx = q->r.n_ctx;
    if (q->n_draft > left)
        q->n_draft = left > 0 ? (int)left : 0;
    if (q->n_draft == 0 || q->draft_kv.base)
        return OK;
    return kv_reserve(d->pool, &need, &q->draft_kv);
}

/* The next step: each sequence that wants a guess reads what it has not read yet, as much as fits.
 * Returns how many take part. */
static int make_chunks(struct draft_model *d, struct serve_seq **seqs, int n)
{
    int64_t left = d->max_step_tok;
    int n_chunks = 0;

    for (int i = 0; i < n && left > 0; i++) {
        struct serve_seq *q = seqs[i];
        int64_t unread = sched_request_n_known(&q->r) + d->made[i] - q->draft_ctx;
        int64_t n_tok = unread < left ? unread : left;

        if (d->made[i] == q->n_draft)
            continue;
        d->of[n_chunks] = i;
        d->chunks[n_chunks++] = (struct model_chunk){.kv = &q->draft_kv,
                                                     .ids = q->ids + q->draft_ctx,
                                                     .n_tok = n_tok,
                                                     .pos0 = q->draft_ctx,
                                                     .want_logits = n_tok == unread};
        left -= n_tok;
    }
    return n_chunks;
}

static int step(struct draft_model *d, struct serve_seq **seqs, int n_chunks)
{
    struct model_cost cost = model_cost_step(
        model_config_of(d->model), model_cost_types_of(d->model), d->chunks, n_chunks);
    int row = 0;

    TRY(model_forward(d->phase, d->chunks, n_chunks, d->logits));
    d->bytes += (int64_t)(cost.weight_bytes + cost.kv_read_bytes);
    for (int i = 0; i < n_chunks; i++) {
        struct serve_seq *q = seqs[d->of[i]];
        int64_t next = sched_request_n_known(&q->r) + d->made[d->of[i]];

        q->draft_ctx += d->chunks[i].n_tok;
        if (!d->chunks[i].want_logits)
            continue;
        q->ids[next] =
            (int32_t)d->argmax(d->logits + (int64_t)row++ * d->vocab, d->vocab);
        d->made[d->of[i]]++;
    }
    return OK;
}

static int guess(void *state, struct serve_seq **seqs, int n)
{
    struct draft_model *d = state;
    int n_chunks;

    for (int i = 0; i < n; i++) {
        TRY(prepare(d, seqs[i]));
        d->made[i] = 0;
    }
    while ((n_chunks = make_chunks(d, seqs, n)) > 0)
        TRY(step(d, seqs, n_chunks));
    return OK;
}

static void forget(void *state, struct serve_seq *q)
{
    struct draft_model *d = state;

    if (q->draft_kv.base)
        kv_release(d->pool, &q->draft_kv);
    q->draft_ctx = 0;
}

static int64_t bytes(const void *state)
{
    return ((const struct draft_model *)state)->bytes;
}

const struct serve_drafter serve_drafter_model = {.open = open_draft,
                                                  .close = close_draft,
                                                  .guess = guess,
                                                  .forget = forget,
                                                  .bytes = bytes};
