#include "model/sampler.h"

#include <math.h>
#include <string.h>

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
    struct item *typical; /* [vocab] with typical_p: candidates by how typical they are */
    /* What changes logits; each NULL where it does not. */
    int32_t *
        n_seen; /* [vocab] how often it was chosen; IN_PROMPT is added for the prompt's */
    float *bias;   /* [vocab] */
    bool *is_late; /* [vocab] */
    int64_t n_new;
};
#define IN_PROMPT (1 << 30)

static int check(const struct sampler_opts *o, int vocab)
{
    const struct {
        const char *name;
        double value, min, max;
    } ranges[] = {{"temperature", o->temperature, 0, HUGE_VAL},
                  {"top_k", (double)o->top_k, 0, HUGE_VAL},
                  {"min_p", o->min_p, 0, 1},
                  {"typical_p", o->typical_p, 0, 1},
                  {"repetition_penalty", o->repetition_penalty, 0, HUGE_VAL},
                  {"presence_penalty", o->presence_penalty, -HUGE_VAL, HUGE_VAL},
                  {"frequency_penalty", o->frequency_penalty, -HUGE_VAL, HUGE_VAL}};

    if (vocab < 1)
        return err_set(ERR_ARG, "sampler: vocabulary of %d, expected at least 1", vocab);
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++)
        if (!isfinite(ranges[i].value) || ranges[i].value < ranges[i].min ||
            ranges[i].value > ranges[i].max)
            return err_set(ERR_ARG, "%s: expected a number from %g to %g, found %g",
                           ranges[i].name, ranges[i].min, ranges[i].max, ranges[i].value);
    if (!(o->top_p > 0 && o->top_p <= 1))
        return err_set(ERR_ARG, "top_p: expected above 0 to 1, found %g", o->top_p);
    for (int i = 0; i < o->n_bias; i++)
        if (o->bias[i].id < 0 || o->bias[i].id >= vocab || !isfinite(o->bias[i].bias))
            return err_set(ERR_ARG,
                           "logit_bias: id %d: expected a finite bias of an id "
                           "below %d, found %g",
                           o->bias[i].id, vocab, (double)o->bias[i].bias);
    for (int i = 0; i < o->n_late; i++)
        if (o->late[i] < 0 || o->late[i] >= vocab)
            return err_set(ERR_ARG, "stop_token_ids: id %d: expected below %d",
                           o->late[i], vocab);
    return OK;
}

static bool is_on(double p)
{
    return p != 0 && p != 1;
}

/* The arrays that options ask for. */
static int open_arrays(struct sampler *s)
{
    const struct sampler_opts *o = &s->o;
    const size_t n = (size_t)s->vocab;

    s->item = mem_new(MEM_OTHER, n, sizeof(*s->item));
    s->weight = mem_new(MEM_OTHER, n, sizeof(*s->weight));
    if (!s->item || !s->weight)
        return ERR_NOMEM;
    if (is_on(o->typical_p) && !(s->typical = mem_new(MEM_OTHER, n, sizeof(*s->typical))))
        return ERR_NOMEM;
    if ((is_on(o->repetition_penalty) || o->presence_penalty != 0 ||
         o->frequency_penalty != 0) &&
        !(s->n_seen = mem_new(MEM_OTHER, n, sizeof(*s->n_seen))))
        return ERR_NOMEM;
    if (o->n_bias > 0 && !(s->bias = mem_new(MEM_OTHER, n, sizeof(*s->bias))))
        return ERR_NOMEM;
    if (o->min_new > 0 && o->n_late > 0 &&
        !(s->is_late = mem_new(MEM_OTHER, n, sizeof(*s->is_late))))
        return ERR_NOMEM;
    for (int i = 0; i < o->n_bias; i++)
        s->bias[o->bias[i].id] += o->bias[i].bias;
    for (int i = 0; s->is_late && i < o->n_late; i++)
        s->is_late[o->late[i]] = true;
    return OK;
}

int sampler_open(struct sampler **out, const struct sampler_opts *o, int vocab,
                 const struct kern_table *kern)
{
    struct sampler *s;
    int rc;

    *out = NULL;
    TRY(check(o, vocab));
    s = mem_new(MEM_OTHER, 1, sizeof(*s));
    if (!s)
        return ERR_NOMEM;
    s->o = *o;
    s->vocab = vocab;
    s->argmax = kern->v[KERN_ARGMAX]->fn.argmax;
    rng_init(&s->rng, (uint64_t)o->seed, "sample");
    rc = open_arrays(s);
    s->o.bias = NULL; /* the caller's */
    s->o.late = NULL;
    if (rc == OK)
        *out = s, s = NULL;
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
    mem_free(s->typical);
    mem_free(s->n_seen);
    mem_free(s->bias);
    mem_free(s->is_late);
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

/* Keep the fewest of the most typical whose probabilities reach typical_p, at the beginning of
 * `item`. Returns how many. */
static int typical_p(const struct sampler *s, struct item *item, int n, float highest)
{
    const double sum = weigh(s, item, s->weight, n, highest);
    struct item *by = s->typical;
    double entropy = 0, reached = 0;
    int left = n;

    for (int i = 0; i < n; i++)
        if (s->weight[i] > 0)
            entropy -= s->weight[i] / sum * log(s->weight[i] / sum);
    for (int i = 0; i < n; i++)
        by[i] = (struct item){s->weight[i] > 0
                                  ? (float)-fabs(log(s->weight[i] / sum) + entropy)
                                  : -HUGE_VALF,
                              i};
    heapify(by, n);
    while (left > 0 && reached < s->o.typical_p) {
        take_best(by, &left);
        reached += s->weight[by[left].id] / sum;
    }
    for (int i = left; i < n; i++)
        by[i] = item[by[i].id];
    memcpy(item, by + left, (size_t)(n - left) * sizeof(*item));
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

void sampler_prompt(struct sampler *s, const int32_t *ids, int64_t n)
{
    for (int64_t i = 0; s->n_seen && i < n; i++)
        s->n_seen[ids[i]] |= IN_PROMPT;
}

/* The id was chosen. */
static int32_t count(struct sampler *s, int32_t id)
{
    if (s->n_seen && id >= 0)
        s->n_seen[id]++;
    if (s->o.constraint.take && id >= 0)
        s->o.constraint.take(s->o.constraint.ctx, id);
    s->n_new++;
    return id;
}

void sampler_skip(struct sampler *s, int32_t id)
{
    if (draws(s))
        (void)rng_f64(&s->rng);
    (void)count(s, id);
}

static float changed(const struct sampler *s, int32_t id, float logit)
{
    const int32_t seen = s->n_seen ? s->n_seen[id] : 0, n = seen & ~IN_PROMPT;

    if (seen && is_on(s->o.repetition_penalty))
        logit *=
            (float)(logit > 0 ? 1 / s->o.repetition_penalty : s->o.repetition_penalty);
    if (n > 0)
        logit -= (float)(s->o.presence_penalty + n * s->o.frequency_penalty);
    if (s->bias)
        logit += s->bias[id];
    return s->is_late && s->is_late[id] && s->n_new < s->o.min_new ? -HUGE_VALF : logit;
}

/* The ids that are allowed with their logits, changed; returns how many. bits NULL: all ids.
 * *best: an index. */
static int gather(struct sampler *s, const float *logits, const uint64_t *bits, int *best)
{
    int n = 0;

    *best = 0;
    for (int i = 0; i < s->vocab; i++) {
        const uint64_t left = bits ? bits[i / 64] >> i % 64 : 1;

        i = left ? i + __builtin_ctzll(left) : i | 63; /* the end of its word */
        if (!left || i >= s->vocab)
            continue;
        s->item[n] = (struct item){changed(s, i, logits[i]), i};
        if (better(s->item[n], s->item[*best]))
            *best = n;
        n++;
    }
    return n;
}

static int32_t choose(struct sampler *s, const float *logits, int best)
{
    const struct sampler_constraint *c = &s->o.constraint;
    const uint64_t *bits = c->allowed ? c->allowed(c->ctx) : NULL;
    const bool change = s->n_seen || s->bias || s->is_late;
    struct item *item = s->item;
    int n = s->vocab, left;
    float highest;

    if (c->allowed && !bits)
        return SAMPLER_NONE;
    if (!change && !draws(s) && (!bits || bits[best / 64] >> best % 64 & 1))
        return best;
    if (change || bits)
        n = gather(s, logits, bits, &best);
    if (n == 0)
        return SAMPLER_NONE;
    left = n;
    for (int i = 0; !change && !bits && i < n; i++)
        item[i] = (struct item){logits[i], i};
    highest = item[best].logit;
    if (!draws(s) || highest == -HUGE_VALF)
        return item[best].id;
    if (s->o.top_k > 0 && s->o.top_k < n) {
        heapify(item, n);
        while (n - left < s->o.top_k)
            take_best(item, &left);
        item += left;
        n -= left;
    }
    if (s->typical) {
        n = typical_p(s, item, n, highest);
        highest = -HUGE_VALF;
        for (int i = 0; i < n; i++)
            highest = item[i].logit > highest ? item[i].logit : highest;
    }
    if (s->o.top_p < 1) {
        double sum;
        int kept;

        heapify(item, n);
        sum = weigh(s, item, s->weight, n, highest);
        kept = top_p(s, item, n, highest, sum);
        item += n - kept;
        n = kept;
    }
    return draw(s, item, n, highest);
}

int32_t sampler_sample(struct sampler *s, const float *logits)
{
    int32_t best = (int32_t)s->argmax(logits, s->vocab);

    return best < 0 ? best : count(s, choose(s, logits, best));
}
