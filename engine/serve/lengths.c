/* How long requests will be: predicted when they are submitted, learned when they have ended. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "kv/learn.h"
#include "serve/engine.h"

/* A predictor reads this much of a prompt's text. */
#define TEXT_BYTES 4096

/* The numbers of ODMA 3.3 that the paper does not print. The study odma_replay varies them. */
static const struct kv_caution caution = {.alpha = 0.5, .tau = 0.8};
static const struct kv_bucket_opts bucket_opts = {.align_tok = KV_ALIGN_TOK,
                                                  .window = 1024,
                                                  .of_total = true,
                                                  .steps = true,
                                                  .detect = true,
                                                  .n_first = 10,
                                                  .n = KV_N_QUANTILES,
                                                  .p = KV_QUANTILES};

static int open_predictor(struct serve_engine *s)
{
    struct serve_lengths *l = &s->lengths;
    struct kv_predict_opts o = {.max_tok = s->api.max_tok,
                                .constant_tok = (double)s->api.o.kv_predict_tok,
                                .sigma = s->api.o.kv_predict_sigma,
                                .seed = 1};
    struct kv_learned_from from;
    const struct kv_predictor *p;
    int rc;

    if (!s->api.o.kv_predict)
        return OK;
    TRY(kv_predictor_find(s->api.o.kv_predict, &p));
    if (s->api.o.kv_predict_file) {
        TRY(kv_learned_load(&l->learned, &from, s->api.o.kv_predict_file));
        TRY(serve_made_for(&s->api, from.model_id, s->api.o.kv_predict_file));
    }
    o.learned = l->learned;
    rc = p->open(&l->state, &o);
    if (rc != OK)
        return err_prefix(rc, "kv_predict");
    l->predictor = p;
    return OK;
}

int serve_lengths_open(struct serve_engine *s)
{
    struct kv_bucket_opts b = bucket_opts;

    const struct kv_alloc *alloc;

    TRY(open_predictor(s));
    TRY(kv_alloc_find(s->api.o.kv_alloc ? s->api.o.kv_alloc : "static", &alloc));
    if (!alloc->learns)
        return OK;
    b.max_tok = (s->api.max_tok + KV_ALIGN_TOK - 1) / KV_ALIGN_TOK * KV_ALIGN_TOK;
    b.every = s->api.o.kv_relearn > 0 ? s->api.o.kv_relearn : INT64_MAX;
    return kv_buckets_open(&s->lengths.buckets, &b);
}

void serve_lengths_close(struct serve_engine *s)
{
    struct serve_lengths *l = &s->lengths;

    if (l->predictor)
        l->predictor->close(l->state);
    kv_learned_close(&l->learned);
    kv_buckets_close(&l->buckets);
}

/* The first part of the prompt's text into text[TEXT_BYTES]. Requests are ids. */
static void prompt_text(const struct serve_engine *s, const struct serve_seq *q,
                        char *text, size_t *bytes)
{
    *bytes = 0;
    for (int64_t i = 0; i < q->r.n_prompt && *bytes < TEXT_BYTES; i++) {
        const char *piece;
        size_t n;

        if (tok_piece(s->api.tok, q->ids[i], false, &piece, &n) != OK)
            continue; /* an id that the model has and its tokenizer does not */
        n = n < TEXT_BYTES - *bytes ? n : TEXT_BYTES - *bytes;
        memcpy(text + *bytes, piece, n);
        *bytes += n;
    }
    err_clear();
}

int serve_predict(struct serve_engine *s, struct serve_seq *q)
{
    struct serve_lengths *l = &s->lengths;
    struct kv_query query = {.prompt_tok = q->r.n_prompt,
                             .true_tok = q->ignore_eos ? q->r.max_new : -1};
    char text[TEXT_BYTES];
    uint64_t t0;
    int rc;

    if (!l->predictor)
        return OK;
    t0 = clock_ns();
    if (l->learned && s->api.tok) {
        prompt_text(s, q, text, &query.text_bytes);
        query.text = text;
    }
    pthread_mutex_lock(&l->lock);
    rc = l->predictor->predict(l->state, &query, &q->prediction);
    pthread_mutex_unlock(&l->lock);
    l->predict_ns += (long long)(clock_ns() - t0);
    l->n_predicted++;
    return rc == OK ? OK : err_prefix(rc, "kv_predict");
}

/* The need by the request's prediction. That a request which ignores the end of text has exactly
 * max_new tokens is for the predictor to know. Of others max_new is a limit. */
static struct kv_need predicted_need(const struct serve_engine *s,
                                     const struct serve_seq *q)
{
    int64_t known = sched_request_n_known(&q->r), left = q->r.max_new - q->r.n_new;
    struct kv_prediction p = q->prediction;
    struct kv_need need;

    p.gen_tok -= (double)q->r.n_new;
    need = kv_need_predicted(known, &p, &caution, s->api.max_tok);
    need.large = need.large || q->overflowed;
    if (!q->ignore_eos && (need.large || need.gen_tok > left))
        need = (struct kv_need){.prompt_tok = known, .gen_tok = left};
    return need;
}

struct kv_need serve_need(const struct serve_engine *s, const struct serve_seq *q)
{
    if (q->handoff.side == SERVE_PROMPT_SIDE)
        return (struct kv_need){.prompt_tok = q->r.n_prompt};
    if (s->lengths.predictor)
        return predicted_need(s, q);
    if (s->api.o.kv_admit == SERVE_ADMIT_MAX || q->r.n_preempted > 0)
        return (struct kv_need){.prompt_tok = q->r.n_prompt + q->r.max_new};
    return (struct kv_need){.prompt_tok = q->r.n_prompt, .gen_tok = 1};
}

void serve_learn(struct serve_engine *s, const struct serve_seq *q)
{
    struct kv_buckets *b = s->lengths.buckets;
    uint64_t t0 = clock_ns();

    if (!b || (q->finish != SERVE_EOS && q->finish != SERVE_LENGTH))
        return;
    kv_buckets_add(b, q->r.n_prompt, q->r.n_new);
    if (kv_buckets_due(b))
        kv_buckets_learn(b);
    s->lengths.learn_ns += (int64_t)(clock_ns() - t0);
}
