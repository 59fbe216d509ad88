#include "plan/trace.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static int check_lengths(const struct plan_lengths *l)
{
    if (l->n < 1)
        return err_set(ERR_ARG, "lengths: expected a request at least, found none");
    for (int64_t i = 0; i < l->n; i++)
        if (l->n_prompt[i] < 1 || l->n_output[i] < 1)
            return err_set(ERR_ARG,
                           "lengths: request %lld: expected 1 token or more, found a "
                           "prompt of %lld and an output of %lld",
                           (long long)i, (long long)l->n_prompt[i],
                           (long long)l->n_output[i]);
    return OK;
}

/* ---- points ---- */

/* Values arrive in ascending order, each `count` times; every `total` / PLAN_POINTS_MAX of
 * them become a point. */
struct parts {
    struct plan_points *out;
    int64_t total, seen;
    struct plan_point
        part;   /* of the present part: the sum of its values, and their number */
    int number; /* of the present part */
    int n_parts;
};

static void parts_init(struct parts *p, struct plan_points *out, int64_t total)
{
    *p = (struct parts){.out = out, .total = total};
    p->n_parts = total < PLAN_POINTS_MAX ? (int)total : PLAN_POINTS_MAX;
    out->n = 0;
}

/* A part that equals the one before is the same point, of more weight. */
static void parts_end(struct parts *p)
{
    struct plan_points *o = p->out;
    double mean = p->part.tok / p->part.weight;

    if (o->n > 0 && o->v[o->n - 1].tok == mean)
        o->v[o->n - 1].weight += p->part.weight;
    else
        o->v[o->n++] = (struct plan_point){mean, p->part.weight};
    p->part = (struct plan_point){0};
    p->number++;
}

static void parts_add(struct parts *p, int64_t value, int64_t count)
{
    while (count > 0) {
        /* where part `number` ends; 128 bits, as totals may be large */
        int64_t end = (int64_t)((__int128)p->total * (p->number + 1) / p->n_parts);
        int64_t n = end - p->seen < count ? end - p->seen : count;

        p->part.tok += (double)value * (double)n;
        p->part.weight += (double)n;
        p->seen += n;
        count -= n;
        if (p->seen == end)
            parts_end(p);
    }
}

double plan_points_mean(const struct plan_points *p)
{
    double sum = 0, weight = 0;

    for (int i = 0; i < p->n; i++) {
        sum += p->v[i].tok * p->v[i].weight;
        weight += p->v[i].weight;
    }
    return sum / weight;
}

void plan_points_merge(struct plan_points *p, int n_max)
{
    int n = n_max < 1 ? 1 : n_max, from = p->n;

    if (from <= n)
        return;
    for (int i = 0; i < n; i++) {
        struct plan_point sum = {0};

        for (int k = i * from / n; k < (i + 1) * from / n; k++) {
            sum.tok += p->v[k].tok * p->v[k].weight;
            sum.weight += p->v[k].weight;
        }
        p->v[i] = (struct plan_point){sum.tok / sum.weight, sum.weight};
    }
    p->n = n;
}

/* ---- traces ---- */

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Sorts prompts[] in place. */
static void prompts_of(struct plan_points *out, int64_t *prompts, int64_t n)
{
    struct parts p;

    qsort(prompts, (size_t)n, sizeof(*prompts), ascending);
    parts_init(&p, out, n);
    for (int64_t i = 0; i < n; i++)
        parts_add(&p, prompts[i], 1);
}

/* Contexts first + 1 ... last of each request, as [n] sorted lists of firsts and lasts: the
 * number of requests that reach a context changes only where one of them begins or ends. */
static void contexts_of(struct plan_points *out, const int64_t *firsts,
                        const int64_t *lasts, int64_t n, int64_t total)
{
    int64_t begun = 0, ended = 0, at = 0;
    struct parts p;

    parts_init(&p, out, total);
    while (ended < n) {
        while (begun < n && firsts[begun] <= at)
            begun++;
        while (ended < n && lasts[ended] <= at)
            ended++;
        if (begun == ended) { /* no request has such contexts */
            at = begun < n ? firsts[begun] : at;
            continue;
        }
        parts_add(&p, ++at, begun - ended);
    }
}

int plan_trace_of(struct plan_trace *out, const struct plan_lengths *l, int64_t max_tok)
{
    int64_t *prompts, *ends, total = 0;
    int rc = check_lengths(l);

    memset(out, 0, sizeof(*out));
    if (rc != OK)
        return rc;
    prompts = mem_new(MEM_OTHER, 2 * (size_t)l->n, sizeof(*prompts));
    if (!prompts)
        return ERR_NOMEM;
    ends = prompts + l->n;
    for (int64_t i = 0; i < l->n; i++) {
        int64_t most = max_tok > 1 ? max_tok : INT64_MAX / 2;

        prompts[i] = least(l->n_prompt[i], most - 1);
        ends[i] = prompts[i] + least(l->n_output[i], most - prompts[i]);
        total += ends[i] - prompts[i];
    }
    prompts_of(&out->prompts, prompts, l->n);
    qsort(ends, (size_t)l->n, sizeof(*ends), ascending);
    contexts_of(&out->contexts, prompts, ends, l->n, total);
    out->mean_output = (double)total / (double)l->n;
    mem_free(prompts);
    return OK;
}

double plan_trace_s(const struct plan_trace *t, int64_t batch, double prefill_s,
                    double decode_s)
{
    return prefill_s + t->mean_output * decode_s / (double)batch;
}
