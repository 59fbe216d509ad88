#include "experiments/study/support/step_curves.h"

#include <math.h>

#include "base/mem.h"

struct curves {
    struct frame *f;
    const struct cluster_point *points;
    int n;
};

static void set(const struct curves *c, const char *name, double value, const char *why)
{
    frame_set(c->f, frame_named(c->f, "%s", name), value, why);
}

static double prompt_rate(const struct cluster_point *p)
{
    return (double)(p->batch * p->prompt_tok) / p->prompt_ms;
}

static double token_rate(const struct cluster_point *p)
{
    return 1e3 * (double)p->batch / p->token_ms;
}

/* The point with the highest value of `by`, of single prompts only or of all; NULL: none. */
static const struct cluster_point *most(const struct curves *c, bool single,
                                        double (*by)(const struct cluster_point *))
{
    const struct cluster_point *best = NULL;

    for (int i = 0; i < c->n; i++) {
        const struct cluster_point *p = &c->points[i];

        if ((!single || p->batch == 1) && !isnan(by(p)) && (!best || by(p) > by(best)))
            best = p;
    }
    return best;
}

static double prompt_size(const struct cluster_point *p)
{
    return p->prompt_ms > 0 ? (double)(p->batch * p->prompt_tok) : NAN;
}

static double minus_prompt_size(const struct cluster_point *p)
{
    return -prompt_size(p);
}

static double batch_size(const struct cluster_point *p)
{
    return p->token_ms > 0 ? (double)p->batch : NAN;
}

/* The square of the correlation of length and time of single prompts. */
static double linear_r2(const struct curves *c)
{
    double x = 0, y = 0, xx = 0, yy = 0, xy = 0, n = 0;

    for (int i = 0; i < c->n; i++) {
        const struct cluster_point *p = &c->points[i];
        double l = (double)p->prompt_tok, t = p->prompt_ms;

        if (p->batch != 1 || !(t > 0))
            continue;
        n++, x += l, y += t, xx += l * l, yy += t * t, xy += l * t;
    }
    x = (n * xy - x * y) / sqrt((n * xx - x * x) * (n * yy - y * y));
    return n > 2 ? x * x : NAN;
}

/* A longest single prompt of at most half the length of `p`. */
static const struct cluster_point *half_of(const struct curves *c,
                                           const struct cluster_point *p)
{
    const struct cluster_point *best = NULL;

    for (int i = 0; p && i < c->n; i++) {
        const struct cluster_point *q = &c->points[i];

        if (q->batch == 1 && q->prompt_ms > 0 && 2 * q->prompt_tok <= p->prompt_tok &&
            (!best || q->prompt_tok > best->prompt_tok))
            best = q;
    }
    return best;
}

static void report_prompts(const struct curves *c)
{
    static const char why[] = "too few single prompts";
    const struct cluster_point *all = most(c, false, prompt_rate),
                               *one = most(c, true, prompt_rate),
                               *largest = most(c, false, prompt_size),
                               *longest = most(c, true, prompt_size),
                               *half = half_of(c, longest);

    set(c, "prompt_linear_r2", linear_r2(c), why);
    set(c, "prompt_over_linear", half ? prompt_rate(half) / prompt_rate(longest) : NAN,
        why);
    set(c, "prompt_best_tok_ms", all ? prompt_rate(all) : NAN, why);
    set(c, "prompt_best_at_tok", all ? prompt_size(all) : NAN, why);
    set(c, "prompt_after_best", all ? prompt_rate(largest) / prompt_rate(all) : NAN, why);
    set(c, "single_best_tok_ms", one ? prompt_rate(one) : NAN, why);
    set(c, "single_best_at_tok", one ? prompt_size(one) : NAN, why);
    set(c, "single_after_best", one ? prompt_rate(longest) / prompt_rate(one) : NAN, why);
}

/* The mean, as there are several contexts or outputs, of a batch's `what`. */
static double of_batch(const struct curves *c, int64_t batch, int64_t prompt,
                       double (*what)(const struct cluster_point *))
{
    double sum = 0;
    int n = 0;

    for (int i = 0; i < c->n; i++)
        if (c->points[i].batch == batch &&
            (prompt < 0 || c->points[i].prompt_tok == prompt) &&
            !isnan(what(&c->points[i]))) {
            sum += what(&c->points[i]);
            n++;
        }
    return n ? sum / n : NAN;
}

static double token_ms(const struct cluster_point *p)
{
    return p->token_ms;
}

static double power(const struct cluster_point *p)
{
    return p->power;
}

static double batch_with_power(const struct cluster_point *p)
{
    return isnan(p->power) ? NAN : (double)p->batch;
}

static double prompt_with_power(const struct cluster_point *p)
{
    return isnan(p->power_most) ? NAN : (double)p->prompt_tok;
}

static double minus_prompt_with_power(const struct cluster_point *p)
{
    return -prompt_with_power(p);
}

static void report_tokens(const struct curves *c)
{
    static const char why[] = "no such token step";
    const struct cluster_point *best = most(c, false, token_rate),
                               *largest = most(c, false, batch_size),
                               *longest = most(c, true, prompt_size),
                               *shortest = most(c, true, minus_prompt_size);
    double knee = NAN, base, at_largest;

    if (!best)
        best = largest = &c->points[0];
    /* at the contexts that the largest batch has */
    base = of_batch(c, 1, largest->prompt_tok, token_ms);
    at_largest = of_batch(c, largest->batch, largest->prompt_tok, token_ms);
    if (isnan(base)) {
        base = of_batch(c, 1, -1, token_ms);
        at_largest = of_batch(c, largest->batch, -1, token_ms);
    }
    for (int i = 0; i < c->n; i++)
        if (token_rate(&c->points[i]) >= 0.9 * token_rate(best))
            knee = fmin(isnan(knee) ? INFINITY : knee, (double)c->points[i].batch);

    set(c, "token_best_tok_s", token_rate(best), why);
    set(c, "token_best_at_batch", (double)best->batch, why);
    set(c, "token_knee_batch", knee, why);
    set(c, "token_gain", token_rate(best) * 1e-3 * of_batch(c, 1, -1, token_ms), why);
    set(c, "largest_batch", (double)largest->batch, why);
    set(c, "token_slowdown", at_largest / base, why);
    set(c, "token_context_slowdown",
        longest ? longest->token_ms / shortest->token_ms : NAN, why);
}

static void report_power(const struct curves *c)
{
    static const char why[] = "power is missing";
    const struct cluster_point *batch = most(c, false, batch_with_power),
                               *longest = most(c, true, prompt_with_power),
                               *shortest = most(c, true, minus_prompt_with_power);

    set(c, "power_prompt_growth",
        longest ? longest->power_most / shortest->power_most : NAN, why);
    set(c, "power_token_growth",
        batch ? batch->power / of_batch(c, 1, batch->prompt_tok, power) : NAN, why);
}

/* By the straight lines between single prompts. */
static void report_prompt_as_tokens(const struct curves *c, double n_tok)
{
    const struct cluster_perf_kind *kind;
    struct cluster_point *single = mem_new(MEM_OTHER, (size_t)c->n, sizeof(*single));
    struct cluster_perf perf = {0};
    double v = NAN;
    int n = 0;

    for (int i = 0; i < c->n; i++)
        if (c->points[i].batch == 1)
            single[n++] = c->points[i];
    if (cluster_perf_find("table", &kind) == OK && kind->fit(&perf, single, n) == OK)
        v = kind->prompt_ms(&perf, n_tok, n_tok * n_tok) /
            kind->token_ms(&perf, 1, n_tok);
    set(c, "prompt_as_tokens", v, err_msg());
    mem_free(single);
}

void study_curves(struct frame *f, const struct cluster_point *points, int n,
                  int64_t prompt_tok)
{
    const struct curves c = {f, points, n};

    report_prompts(&c);
    report_tokens(&c);
    report_power(&c);
    report_prompt_as_tokens(&c, (double)prompt_tok);
}
