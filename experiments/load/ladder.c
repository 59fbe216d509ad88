#include "experiments/load/ladder.h"

#include <math.h>
#include <stdio.h>

/* It is looked at after each block, and both ends of a bracket must be right: 99 % a look. */
#define Z_SURE 2.576
#define Z95    1.960

int load_ladder_rung(const struct load_search *s, double rate_rps)
{
    return (int)lround(log(rate_rps / s->min_rps) / log1p(s->precision_frac));
}

int load_ladder_rungs(const struct load_search *s)
{
    return 1 + (int)floor(log(s->max_rps / s->min_rps) / log1p(s->precision_frac) + 1e-9);
}

static double rate_of(const struct load_search *s, int rung)
{
    return s->min_rps * pow(1 + s->precision_frac, rung);
}

/* The trials of one entry. */
struct view {
    const struct load_search *s;
    const struct load_trial *t;
    size_t n;
    int entry, n_rungs;
};

/* What an entry has shown at a rung. */
struct standing {
    int n_blocks;
    double share; /* NaN: no trial */
    bool holds;   /* by the share */
    bool surely;  /* so it does, or does not */
    bool settled; /* no further block is needed */
};

static bool is_at(const struct view *v, size_t i, double rate)
{
    return v->t[i].entry == v->entry &&
           fabs(v->t[i].rate_rps - rate) < 1e-6 * v->s->precision_frac * rate;
}

static double share_of(const struct load_trial *t)
{
    return isnan(t->within_frac) || t->ended_early ? 0 : t->within_frac;
}

/* Wilson's interval of a share of n, to z standard deviations. */
static void wilson(double share, double n, double z, double *lo, double *hi)
{
    const double zz = z * z / n;
    const double half = z * sqrt(share * (1 - share) / n + zz / (4 * n));

    *lo = (share + zz / 2 - half) / (1 + zz);
    *hi = (share + zz / 2 + half) / (1 + zz);
}

/* How many independent requests n are worth: those of a block share its queue and its moment, so
 * blocks differ by more than chance. */
static double effective(const struct view *v, double rate, double share, double n,
                        int n_blocks)
{
    double squares = 0;

    if (n_blocks < 3 || share <= 0 || share >= 1)
        return n;
    for (size_t i = 0; i < v->n; i++)
        if (is_at(v, i, rate))
            squares += v->t[i].n_requests * pow(share_of(&v->t[i]) - share, 2);
    return n / fmax(1, squares / (n_blocks - 1) / (share * (1 - share)));
}

static struct standing standing_at(const struct view *v, int rung)
{
    const double rate = rate_of(v->s, rung);
    struct standing x = {.share = NAN};
    double n = 0, met = 0, lo, hi;

    for (size_t i = 0; i < v->n; i++)
        if (is_at(v, i, rate)) {
            n += v->t[i].n_requests;
            met += v->t[i].n_requests * share_of(&v->t[i]);
            x.n_blocks++;
        }
    x.settled = x.n_blocks >= LOAD_LADDER_BLOCKS_MAX;
    if (!(n > 0))
        return x;
    x.share = met / n;
    x.holds = x.share >= v->s->target_frac;
    if (n < v->s->n_least)
        return x;
    n = effective(v, rate, x.share, n, x.n_blocks);
    wilson(x.share, n, Z_SURE, &lo, &hi);
    x.surely = x.holds ? lo >= v->s->target_frac : hi < v->s->target_frac;
    wilson(x.share, n, Z95, &lo, &hi);
    x.settled |=
        x.surely || (hi - lo <= 2 * LOAD_LADDER_HALF_FRAC &&
                     fabs(x.share - v->s->target_frac) < LOAD_LADDER_HALF_FRAC / 2);
    return x;
}

/* The lowest rung that fails, and the highest below it that holds; n_rungs and -1: none. */
static void find_ends(const struct view *v, int *low, int *high)
{
    int rung = 0;

    *low = -1;
    for (; rung < v->n_rungs; rung++) {
        const struct standing x = standing_at(v, rung);

        if (!isnan(x.share) && !x.holds)
            break;
        *low = isnan(x.share) ? *low : rung;
    }
    *high = rung;
}

/* From a rung outwards, the first that surely holds (down) or fails (up); -1 or n_rungs: none.
 * *open: it, or one before it, is not settled. */
static int sure_end(const struct view *v, int rung, int by, bool *open)
{
    for (*open = false; rung >= 0 && rung < v->n_rungs; rung += by) {
        const struct standing x = standing_at(v, rung);

        *open = !x.settled;
        if (*open || (x.surely && x.holds == (by < 0)))
            break;
    }
    return rung;
}

/* The rung that the entry has to run; -1: none. */
static int wanted_rung(const struct view *v)
{
    const int top = v->n_rungs - 1;
    const int twice = (int)fmax(1, round(log(2) / log1p(v->s->precision_frac)));
    int low, high, rung;
    bool open;

    find_ends(v, &low, &high);
    if (low < 0 && high > top)
        return (int)fmin(fmax(load_ladder_rung(v->s, v->s->first_rps), 0), top);
    if (high > top && low < top)
        return low + twice < top ? low + twice : top;
    if (low < 0 && high > 0)
        return high > twice ? high - twice : 0;
    if (low >= 0 && high <= top && high - low > 1)
        return (low + high) / 2;
    rung = sure_end(v, high, 1, &open);
    if (!open)
        rung = sure_end(v, low, -1, &open);
    return open ? rung : -1;
}

static size_t n_trials(const struct view *v)
{
    size_t n = 0;

    for (size_t i = 0; i < v->n; i++)
        n += v->t[i].entry == v->entry;
    return n;
}

/* Is block `block` of this rung of interest to it? What is outside of its bracket is known. */
static bool joins(const struct view *v, int rung, int block)
{
    int low, high;

    if (n_trials(v) >= (size_t)v->s->max_trials || standing_at(v, rung).n_blocks != block)
        return false;
    find_ends(v, &low, &high);
    return (low < rung && rung < high) || wanted_rung(v) == rung;
}

bool load_ladder_next(const struct load_search *s, const struct load_trial *t, size_t n,
                      const bool *ended, int n_entries, struct load_trial *next,
                      bool *runs)
{
    struct view v = {s, t, n, 0, load_ladder_rungs(s)};
    size_t least = (size_t)s->max_trials;
    int rung = -1, block = 0;

    for (; v.entry < n_entries; v.entry++) { /* whoever has had the fewest says which */
        const int wanted = ended[v.entry] || n_trials(&v) >= least ? -1 : wanted_rung(&v);

        if (wanted < 0)
            continue;
        least = n_trials(&v);
        rung = wanted;
        block = standing_at(&v, rung).n_blocks;
    }
    for (v.entry = 0; v.entry < n_entries && rung >= 0; v.entry++)
        runs[v.entry] = !ended[v.entry] && joins(&v, rung, block);
    *next =
        (struct load_trial){.rate_rps = rung < 0 ? 0 : rate_of(s, rung), .seed = block};
    return rung >= 0;
}

void load_ladder_result(struct load_goodput *out, const struct load_search *s,
                        const struct load_trial *t, size_t n, int entry)
{
    const struct view v = {s, t, n, entry, load_ladder_rungs(s)};
    int low, high, sure_low, sure_high;
    bool open[2];

    find_ends(&v, &low, &high);
    sure_low = sure_end(&v, low, -1, &open[0]);
    sure_high = sure_end(&v, high, 1, &open[1]);
    *out = (struct load_goodput){
        .rps = NAN,
        .low_rps = open[0] || sure_low < 0 ? NAN : rate_of(s, sure_low),
        .high_rps = open[1] || sure_high >= v.n_rungs ? NAN : rate_of(s, sure_high),
        .trial_rps = rate_of(s, low < 0 ? high : low),
        .n_at_max = low == v.n_rungs - 1,
        .n_at_min = high == 0,
        .n_open = n_trials(&v) == 0 || wanted_rung(&v) >= 0};
    if (n_trials(&v) == 0)
        snprintf(out->why, sizeof(out->why), "no trial was measured");
    else if (high == 0)
        snprintf(out->why, sizeof(out->why),
                 "the objectives fail at the lowest rate, %.4g req/s", s->min_rps);
    else if (low == v.n_rungs - 1)
        snprintf(out->why, sizeof(out->why),
                 "the objectives hold at the highest rate, %.4g req/s", rate_of(s, low));
    else if (isnan(out->low_rps) || isnan(out->high_rps))
        snprintf(out->why, sizeof(out->why), "no rate that was tried surely %s",
                 isnan(out->low_rps) ? "holds" : "fails");
    else
        out->rps = rate_of(s, low);
}
