#include "kv/accuracy.h"

#include <math.h>

#include "base/mem.h"
#include "base/stats.h"

void kv_outcome_bucket(struct kv_outcome *q, const struct kv_bounds *b,
                       const struct kv_need *need, int64_t max_tok)
{
    int i = kv_bounds_bucket(b, need);

    q->bucket_tok[0] = i > 0 ? b->tok[i - 1] : 0;
    q->bucket_tok[1] = i < b->n ? b->tok[i] : max_tok;
    q->of_total = b->of_total;
}

static double share(int64_t part, int64_t whole)
{
    return whole > 0 ? (double)part / (double)whole : NAN;
}

/* Add one request; the shares are divided at the end. */
struct counts {
    double log_error, used_tok, memory_tok;
    int64_t n_within, n_bucketed, n_in_bucket, n_safe, n_overflow, n_large;
};

static void count(struct counts *c, const struct kv_outcome *q, int64_t max_tok)
{
    int64_t total = q->prompt_tok + q->output_tok;
    int64_t length = q->of_total ? total : q->output_tok;
    double predicted = fmax(q->predicted_tok, 1), output = (double)q->output_tok;

    c->log_error += fabs(log(predicted / output));
    c->n_within += fabs(predicted - output) <= 0.1 * output;
    c->n_overflow += total > q->first_tok;
    c->n_large += q->first_tok >= max_tok;
    c->used_tok += (double)total;
    c->memory_tok += (double)q->last_tok;
    if (q->bucket_tok[1] == 0)
        return;
    c->n_bucketed++;
    c->n_safe += length <= q->bucket_tok[1];
    c->n_in_bucket += length > q->bucket_tok[0] && length <= q->bucket_tok[1];
}

int kv_accuracy(struct kv_accuracy *out, const struct kv_outcome *q, int64_t n,
                int64_t max_tok)
{
    double *x = mem_new(MEM_KV, 2 * (size_t)n, sizeof(*x));
    struct counts c = {0};

    if (!x)
        return ERR_NOMEM;
    for (int64_t i = 0; i < n; i++) {
        count(&c, &q[i], max_tok);
        x[i] = q[i].predicted_tok;
        x[n + i] = (double)q[i].output_tok;
    }
    *out = (struct kv_accuracy){
        .log_mae = n > 0 ? c.log_error / (double)n : NAN,
        .kendall_tau = stats_kendall(x, x + n, (size_t)n),
        .within_frac = share(c.n_within, n),
        .bucket_frac = share(c.n_in_bucket, c.n_bucketed),
        .safe_frac = share(c.n_safe, c.n_bucketed),
        .overflow_frac = share(c.n_overflow, n),
        .utilization_frac = c.memory_tok > 0 ? c.used_tok / c.memory_tok : NAN,
        .large_frac = share(c.n_large, n),
    };
    mem_free(x);
    return OK;
}
