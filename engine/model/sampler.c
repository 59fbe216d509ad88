#include "model/sampler.h"

#include <math.h>

#include "base/mem.h"
#include "base/rng.h"

struct item {
    float logit;
    int32_t id;
};

struct sampler {
    struct sampler_opts o;
    int vocab;
    kern_argmax_fn argmax;
    struct rng rng;
    struct item *item; /* [vocab] candidates; a heap while the best are taken out */
    float *weight; /* [vocab] exp((logit - highest) / temperature) of each candidate */
};

int sampler_open(struct sampler **out, const struct sampler_opts *o, int vocab,
                 const struct kern_table *kern)
{
    struct sampler *s = NULL;
    int rc = OK;

    *out = NULL;
    if (vocab < 1)
        return err_set(ERR_ARG, "sampler: vocabulary of %d, expected at least 1", vocab);
    if (!(o->temperature >= 0) || !isfinite(o->temperature))
        return err_set(ERR_ARG, "temperature: expected 0 or more, found %g",
                       o->temperature);
    if (o->top_k < 0)
        return err_set(ERR_ARG, "top_k: expected 0 or more, found %lld",
                       (long long)o->top_k);
    if (!(o->top_p > 0 && o->top_p <= 1))
        return err_set(ERR_ARG, "top_p: expected above 0 to 1, found %g", o->top_p);
    if (!(o->min_p >= 0 && o->min_p <= 1))
        return err_set(ERR_ARG, "min_p: expected 0 to 1, found %g", o->min_p);
    s = mem_new(MEM_OTHER, 1, sizeof(*s));
    if (!s) {
        rc = ERR_NOMEM;
        goto out;
    }
    s->o = *o;
    s->vocab = vocab;
    s->argmax = kern->v[KERN_ARGMAX]->fn.argmax;
    rng_init(&s->rng, (uint64_t)o->seed, "sample");
    s->item = mem_new(MEM_OTHER, (size_t)vocab, sizeof(*s->item));
    s->weight = mem_new(MEM_OTHER, (size_t)vocab, sizeof(*s->weight));
    if (!s->item || !s->weight) {
        rc = ERR_NOMEM;
        goto out;
    }
    *out = s, s = NULL;
out:
    sampler_close(&s);
    return rc;
}

void sampler_close(struct sampler **ps)
{
    struct sampler *s = *ps;

    *ps = NULL;
    if (!s)
        return;
    mem_free(s->item);
    mem_free(s->weight);
    mem_free(s);
}

/* --- a heap with the best on top; ties go to the lower id, as in argmax */

static bool better(struct item a, struct item b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

static void sift_down(struct item *h, int n, int i)
{
    struct item moved = h[i];

    for (int child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && better(h[child + 1], h[child]))
            child++;
        if (!better(h[child], moved))
            break;
        h[i] = h[child];
    }
    h[i] = moved;
}

static void heapify(struct item *h, int n)
{
    for (int i = n / 2 - 1; i >= 0; i--)
        sift_down(h, n, i);
}

/* Move the best to the end of the heap, which shrinks by one. */
static void take_best(struct item *h, int *n)
{
    struct item best = h[0];

    h[0] = h[--*n];
    h[*n] = best;
    sift_down(h, *n, 0);
}

/* --- the pipeline; each step keeps a run of s->item */

/* Weights of n items, and their sum. */
static double weigh(const struct sampler *s, const struct item *item, float *weight,
                    int n, float highest)
{
    float per_t = (float)(1 / s->o.temperature);
    double sum = 0;

    for (int i = 0; i < n; i++) {
        float below =
            item[i].logit - highest; /* 0 stays 0 however small the temperature */

        weight[i] = below < 0 ? expf(below * per_t) : 1;
        sum += weight[i];
    }
    return sum;
}

/* Keep the fewest of the best whose probabilities reach top_p; they end up last in
 * `item`, best at the end. `sum`: over all n items, which form a heap. Returns how many.
 */
static int top_p(const struct sampler *s, struct item *item, int n, float highest,
                 double sum)
{
    double reached = 0;
    int left = n;

    while (left > 0 && reached < s->o.top_p * sum) {
        float weight;

        take_best(item, &left);
        reached += weigh(s, item + left, &weight, 1, highest);
    }
    return n - left;
}

static int32_t draw(struct sampler *s, const struct item *item, int n, float highest)
{
    double sum = 0, at;
    int32_t id = item[n - 1].id;

    (void)weigh(s, item, s->weight, n, highest);
    for (int i = 0; i < n; i++) {
        if (s->weight[i] < s->o.min_p) /* the best one's weight is 1 */
            s->weight[i] = 0;
        sum += s->weight[i];
    }
    at = rng_f64(&s->rng) * sum;
    for (int i = 0; i < n; i++) {
        if (s->weight[i] == 0)
            continue;
        id = item[i].id;
        at -= s->weight[i];
        if (at < 0)
            break;
    }
    return id; /* rounding may leave `at` at 0: then the last one that has weight */
}

/* Greedy ids need no random number. */
static bool draws(const struct sampler *s)
{
    return s->o.temperature != 0 && s->o.top_k != 1;
}

void sampler_skip(struct sampler *s)
{
    if (draws(s))
        (void)rng_f64(&s->rng);
}

int32_t sampler_sample(struct sampler *s, const float *logits)
{
    int32_t best = (int32_t)s->argmax(logits, s->vocab);
    struct item *item = s->item;
    int n = s->vocab, left = n;
    float highest;

    if (best < 0 || !draws(s))
        return best;
    highest = logits[best];
    for (int i = 0; i < n; i++)
        item[i] = (struct item){logits[i], i};
    if ((s->o.top_k > 0 && s->o.top_k < n) || s->o.top_p < 1)
        heapify(item, n);
    if (s->o.top_k > 0 && s->o.top_k < n) {
        while (n - left < s->o.top_k)
            take_best(item, &left);
        item += left;
        n -= left;
        if (s->o.top_p < 1)
            heapify(item, n);
    }
    if (s->o.top_p < 1) {
        int kept = top_p(s, item, n, highest, weigh(s, item, s->weight, n, highest));

        item += n - kept;
        n = kept;
    }
    return draw(s, item, n, highest);
}
