#include "kv/buckets.h"

#include <math.h>

#include "base/mem.h"

struct kv_buckets {
    struct kv_bucket_opts o;
    struct kv_bounds bounds;
    int64_t n_bins, n_added, n_since;
    int64_t *window; /* [o.window] bins of the latest requests, a ring */
    int64_t *count;  /* [n_bins] requests of the window in bin i: length at most (i + 1) *
                        align_tok */
};

static int64_t align_up(int64_t n, int64_t align)
{
    return (n + align - 1) / align * align;
}

int kv_bounds_bucket(const struct kv_bounds *b, const struct kv_need *need)
{
    int64_t n = need->gen_tok + (b->of_total ? need->prompt_tok : 0);
    int i = 0;

    while (i < b->n && (need->large || b->tok[i] < n))
        i++;
    return i;
}

int64_t kv_bounds_size(const struct kv_bounds *b, const struct kv_need *need,
                       int64_t max_tok)
{
    int i = kv_bounds_bucket(b, need);
    int64_t size = max_tok;

    if (i < b->n)
        size = b->of_total ? b->tok[i]
                           : align_up(need->prompt_tok + b->tok[i], b->align_tok);
    return size < max_tok ? size : max_tok;
}

void kv_bounds_equal(struct kv_bounds *out, int n, int64_t max_tok, int64_t align_tok)
{
    *out = (struct kv_bounds){.of_total = true, .align_tok = align_tok};
    for (int i = 1; i <= n; i++) {
        int64_t tok = align_up((i * max_tok + n - 1) / n, align_tok);

        tok = tok < max_tok ? tok : max_tok;
        if (out->n == 0 || tok > out->tok[out->n - 1])
            out->tok[out->n++] = tok;
    }
}

static int check(const struct kv_bucket_opts *o)
{
    if (o->max_tok < 1 || o->align_tok < 1 || o->window < 1 || o->every < 1)
        return err_set(ERR_ARG,
                       "kv buckets: longest sequence %lld, alignment %lld, window "
                       "%lld, learned every %lld: expected all >= 1",
                       (long long)o->max_tok, (long long)o->align_tok,
                       (long long)o->window, (long long)o->every);
    if (o->n < 0 || o->n > KV_BUCKETS_MAX || o->n_first < 0 ||
        o->n_first > KV_BUCKETS_MAX)
        return err_set(ERR_ARG,
                       "kv buckets: %d quantiles, %d buckets at first: expected 0 to %d",
                       o->n, o->n_first, KV_BUCKETS_MAX);
    for (int i = 0; i < o->n; i++)
        if (!(o->p[i] > (i ? o->p[i - 1] : 0) && o->p[i] <= 1))
            return err_set(
                ERR_ARG,
                "kv buckets: quantile %d is %g: expected ascending ones in (0, 1]", i + 1,
                o->p[i]);
    return OK;
}

int kv_buckets_open(struct kv_buckets **out, const struct kv_bucket_opts *o)
{
    struct kv_buckets *b;

    *out = NULL;
    TRY(check(o));
    b = mem_new(MEM_KV, 1, sizeof(*b));
    if (!b)
        return ERR_NOMEM;
    b->o = *o;
    kv_bounds_equal(&b->bounds, o->n_first, o->max_tok, o->align_tok);
    b->bounds.of_total = o->of_total;
    b->n_bins = align_up(o->max_tok, o->align_tok) / o->align_tok;
    b->window = mem_new(MEM_KV, (size_t)o->window, sizeof(*b->window));
    b->count = mem_new(MEM_KV, (size_t)b->n_bins, sizeof(*b->count));
    if (!b->window || !b->count) {
        kv_buckets_close(&b);
        return ERR_NOMEM;
    }
    *out = b;
    return OK;
}

void kv_buckets_close(struct kv_buckets **b)
{
    if (!*b)
        return;
    mem_free((*b)->window);
    mem_free((*b)->count);
    mem_free(*b);
    *b = NULL;
}

const struct kv_bounds *kv_buckets_bounds(const struct kv_buckets *b)
{
    return &b->bounds;
}

void kv_buckets_add(struct kv_buckets *b, int64_t prompt_tok, int64_t output_tok)
{
    int64_t n = output_tok + (b->o.of_total ? prompt_tok : 0);
    int64_t bin = n < 1 ? 0 : (n - 1) / b->o.align_tok;
    int64_t *slot = &b->window[b->n_added % b->o.window];

    if (b->n_added >= b->o.window)
        b->count[*slot]--;
    *slot = bin < b->n_bins ? bin : b->n_bins - 1;
    b->count[*slot]++;
    b->n_added++;
    b->n_since++;
}

bool kv_buckets_due(const struct kv_buckets *b)
{
    return b->n_since >= b->o.every;
}

void kv_buckets_learn(struct kv_buckets *b)
{
    int64_t n = b->n_added < b->o.window ? b->n_added : b->o.window, below = 0, bin = -1;
    struct kv_bounds *out = &b->bounds;

    if (n == 0)
        return;
    out->n = 0;
    for (int i = 0; i < b->o.n; i++) {
        /* As stats_percentile(): p n may be a rounding error above an integer. */
        double rank = ceil(b->o.p[i] * (double)n * (1 - 1e-14));
        int64_t bound;

        while ((double)below < rank)
            below += b->count[++bin];
        bound = (bin + 1) * b->o.align_tok;
        bound = bound < b->o.max_tok ? bound : b->o.max_tok;
        if (out->n == 0 || bound > out->tok[out->n - 1])
            out->tok[out->n++] = bound;
    }
    while (b->o.steps && out->n > 0 && out->n < KV_BUCKETS_MAX &&
           2 * out->tok[out->n - 1] < b->o.max_tok) {
        out->tok[out->n] = 2 * out->tok[out->n - 1];
        out->n++;
    }
    out->epoch++;
    b->n_since = 0;
}
