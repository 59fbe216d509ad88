#include "kv/buckets.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "kv/least.h"

struct kv_buckets {
    struct kv_bucket_opts o;
    struct kv_bounds bounds;
    int64_t n_bins, n_added, n_since;
    int64_t n_window; /* requests in the window */
    int64_t *window;  /* [o.window] bins of the latest requests, a ring */
    int64_t *count; /* [n_bins] requests of the window in bin i: length at most (i + 1) *
                         align_tok */
    int64_t
        *weight; /* [n_bins] o.half_life, o.detect: of the window's requests, or of the
                         latest, in bin i */
    struct kv_least *least; /* o.least */
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
    if (o->half_life < 0)
        return err_set(ERR_ARG, "kv buckets: half-life %lld: expected >= 0",
                       (long long)o->half_life);
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
    int rc;

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
    b->weight = mem_new(MEM_KV, (size_t)b->n_bins, sizeof(*b->weight));
    rc = b->window && b->count && b->weight ? OK : ERR_NOMEM;
    if (rc == OK && o->least)
        rc = kv_least_open(&b->least, b->n_bins, o->n);
    if (rc == OK)
        *out = b;
    else
        kv_buckets_close(&b);
    return rc;
}

void kv_buckets_close(struct kv_buckets **b)
{
    if (!*b)
        return;
    mem_free((*b)->window);
    mem_free((*b)->count);
    mem_free((*b)->weight);
    kv_least_close(&(*b)->least);
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

    if (b->n_window == b->o.window)
        b->count[*slot]--;
    else
        b->n_window++;
    *slot = bin < b->n_bins ? bin : b->n_bins - 1;
    b->count[*slot]++;
    b->n_added++;
    b->n_since++;
}

bool kv_buckets_due(const struct kv_buckets *b)
{
    return b->n_since >= b->o.every;
}

/* The bin of the request before which `age` others finished. */
static int64_t bin_of(const struct kv_buckets *b, int64_t age)
{
    return b->window[(b->n_added - 1 - age) % b->o.window];
}

/* Whether the latest n lengths are of another distribution than those before in the window: the
 * test of Kolmogorov and Smirnov, wrong in one of a hundred cases. */
#define KS_1_PERCENT 1.63

static bool lengths_changed(struct kv_buckets *b, int64_t n)
{
    int64_t n_before = b->n_window - n, latest = 0, before = 0;
    double most = 0;

    if (n < 1 || n_before < 1)
        return false;
    memset(b->weight, 0, (size_t)b->n_bins * sizeof(*b->weight));
    for (int64_t i = 0; i < n; i++)
        b->weight[bin_of(b, i)]++;
    for (int64_t i = 0; i < b->n_bins; i++) {
        latest += b->weight[i];
        before += b->count[i] - b->weight[i];
        most = fmax(most,
                    fabs((double)latest / (double)n - (double)before / (double)n_before));
    }
    return most >
           KS_1_PERCENT * sqrt((double)b->n_window / ((double)n * (double)n_before));
}

static void forget_before(struct kv_buckets *b, int64_t n)
{
    for (; b->n_window > n; b->n_window--)
        b->count[bin_of(b, b->n_window - 1)]--;
}

/* The weight of each bin: its requests, or more for later ones. *total: of all bins. */
#define WEIGHT_NEW (1 << 20) /* of a request that has just finished */

static const int64_t *weights(int64_t *total, struct kv_buckets *b)
{
    *total = b->n_window;
    if (b->o.half_life == 0)
        return b->count;
    *total = 0;
    memset(b->weight, 0, (size_t)b->n_bins * sizeof(*b->weight));
    for (int64_t age = 0; age < b->n_window; age++) {
        int64_t w = llround(WEIGHT_NEW * exp2(-(double)age / (double)b->o.half_life));

        b->weight[bin_of(b, age)] += w;
        *total += w;
    }
    return b->weight;
}

static void add_bound(const struct kv_buckets *b, struct kv_bounds *out, int64_t bin)
{
    int64_t bound = (bin + 1) * b->o.align_tok;

    bound = bound < b->o.max_tok ? bound : b->o.max_tok;
    if (out->n == 0 || bound > out->tok[out->n - 1])
        out->tok[out->n++] = bound;
}

static void quantiles(struct kv_buckets *b, const int64_t *weight, int64_t n)
{
    int64_t below = 0, bin = -1;

    for (int i = 0; i < b->o.n; i++) {
        /* As stats_percentile(): p n may be a rounding error above an integer. */
        double rank = ceil(b->o.p[i] * (double)n * (1 - 1e-14));

        while ((double)below < rank)
            below += weight[++bin];
        add_bound(b, &b->bounds, bin);
    }
}

void kv_buckets_learn(struct kv_buckets *b)
{
    struct kv_bounds *out = &b->bounds;
    const int64_t *weight;
    int64_t n;

    if (b->o.detect && lengths_changed(b, b->n_since))
        forget_before(b, b->n_since);
    weight = weights(&n, b);
    if (n == 0)
        return;
    out->n = 0;
    if (b->o.least) {
        int64_t bins[KV_BUCKETS_MAX];
        int n_bounds = kv_least_find(b->least, bins, weight);

        for (int i = 0; i < n_bounds; i++)
            add_bound(b, out, bins[i]);
    } else {
        quantiles(b, weight, n);
    }
    while (b->o.steps && out->n > 0 && out->n < KV_BUCKETS_MAX &&
           2 * out->tok[out->n - 1] < b->o.max_tok) {
        out->tok[out->n] = 2 * out->tok[out->n - 1];
        out->n++;
    }
    out->epoch++;
    b->n_since = 0;
}
