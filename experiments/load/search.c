#include "experiments/load/search.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define OPT_OF struct load_search_opts
const struct opt_row load_search_opt_table[] = {
    OPT_ROW(
        BOOL, goodput, "false",
        "Search the goodput: the highest rate at which slo.target_frac of the requests "
        "meet the objectives. The search begins at load.rate_rps. Each cell is then a "
        "search, and each of its trials is recorded as a cell of its own."),
    OPT_ROW(F64, min_rps, "0.01", "Lowest rate of the search.", .unit = "req/s",
            .min = LOAD_RATE_MIN_RPS, .max = 1e6),
    OPT_ROW(F64, max_rps, "10000", "Highest rate of the search.", .unit = "req/s",
            .min = LOAD_RATE_MIN_RPS, .max = 1e6),
    OPT_ROW(F64, precision_frac, "0.1",
            "Width, relative to its lower end, at which the bracket is no longer halved.",
            .min = 0.001, .max = 10),
    OPT_ROW(
        INT, seeds, "3",
        "Number of searches, each with its own arrival times, order and outputs, which "
        "are others in each repeat. The goodput is their median, and the interval spans "
        "all of their brackets.",
        .min = 1, .max = LOAD_SEARCH_SEEDS_MAX),
    OPT_ROW(
        INT, verify, "2",
        "Number of trials at each end of the final bracket. The share over all of them "
        "decides.",
        .min = 1, .max = 100),
    OPT_ROW(INT, requests, "100",
            "With pairing \"rate\", where seeds and verify are not used: the fewest "
            "requests at the rates that decide. Fewer than 100 are for smoke runs.",
            .min = 1, .max = 1e6),
    OPT_ROW(
        F64, trial_s, "5",
        "Shortest time in which the requests of a trial arrive. A trial has "
        "load.n_requests requests, or more where these would arrive faster. It should "
        "be many times slo.ttft_ms: a short trial ends before a queue has grown.",
        .unit = "s", .min = 0, .max = 86400),
    OPT_ROW(INT, max_trials, "200", "Largest number of trials of a search, all seeds.",
            .min = 1, .max = 10000),
    {0},
};

int load_search_check(const struct load_search_opts *s, const struct load_opts *load,
                      const char *where)
{
    const struct load_process *p;
    int rc = load_process_find(load->process, &p);

    if (rc != OK)
        return rc;
    if (!load_process_reads(p, "rate_rps"))
        return err_set(ERR_ARG,
                       "%s.goodput: load.process \"%s\" has no rate to search; poisson, "
                       "gamma and constant have one",
                       where, p->name);
    if (!(load->rate_rps >= s->min_rps && load->rate_rps <= s->max_rps))
        return err_set(ERR_ARG,
                       "%s: expected min_rps <= load.rate_rps <= max_rps, found %g, %g "
                       "and %g",
                       where, s->min_rps, load->rate_rps, s->max_rps);
    return OK;
}

/* The first seed knows nothing of the answer. Later ones begin at the answer of the one
 * before, and answers of two arrival patterns differ by some ten per cent. */
#define FIRST_STEP 2.0
#define LATER_STEP 1.25

static double n_at(const struct load_trial *t, size_t n, double rate_rps, int seed)
{
    double count = 0;

    for (size_t i = 0; i < n; i++)
        count += t[i].seed == seed && t[i].rate_rps == rate_rps;
    return count;
}

double load_search_share(const struct load_trial *t, size_t n, double rate_rps, int seed)
{
    double met = 0, all = 0;

    for (size_t i = 0; i < n; i++) {
        if (t[i].seed != seed || t[i].rate_rps != rate_rps)
            continue;
        if (!isnan(t[i].within_frac) && !t[i].ended_early)
            met += t[i].within_frac * t[i].n_requests;
        all += t[i].n_requests;
    }
    return all > 0 ? met / all : NAN;
}

/* The lowest rate that fails, and the highest below it that holds. */
static void find_ends(const struct load_search *s, const struct load_trial *t, size_t n,
                      int seed, double *low, double *high)
{
    *low = *high = NAN;
    for (size_t i = 0; i < n; i++)
        if (t[i].seed == seed && !(t[i].rate_rps >= *high) &&
            load_search_share(t, n, t[i].rate_rps, seed) < s->target_frac)
            *high = t[i].rate_rps;
    for (size_t i = 0; i < n; i++)
        if (t[i].seed == seed && !(t[i].rate_rps >= *high) && !(t[i].rate_rps <= *low))
            *low = t[i].rate_rps;
}

static bool is_narrow(const struct load_search *s, double low, double high)
{
    return high <= low * (1 + s->precision_frac);
}

/* An end that is not there needs no verification. */
static bool is_verified(const struct load_search *s, const struct load_trial *t, size_t n,
                        int seed, double rate)
{
    return isnan(rate) || n_at(t, n, rate, seed) >= s->n_verify;
}

struct load_bracket load_search_bracket(const struct load_search *s,
                                        const struct load_trial *t, size_t n, int seed)
{
    struct load_bracket b = {.state = LOAD_SEARCH_OPEN};

    find_ends(s, t, n, seed, &b.low_rps, &b.high_rps);
    if (!is_verified(s, t, n, seed, b.low_rps) || !is_verified(s, t, n, seed, b.high_rps))
        return b;
    if (isnan(b.high_rps) && b.low_rps >= s->max_rps)
        b.state = LOAD_SEARCH_AT_MAX;
    else if (isnan(b.low_rps) && b.high_rps <= s->min_rps)
        b.state = LOAD_SEARCH_AT_MIN;
    else if (is_narrow(s, b.low_rps, b.high_rps))
        b.state = LOAD_SEARCH_CLOSED;
    return b;
}

static double within_limits(const struct load_search *s, double rate)
{
    return fmin(fmax(rate, s->min_rps), s->max_rps);
}

/* Where a seed begins. */
static double first_rate(const struct load_search *s, const struct load_trial *t,
                         size_t n, int seed)
{
    struct load_bracket b = {.low_rps = NAN, .high_rps = NAN};

    if (seed > 0)
        b = load_search_bracket(s, t, n, seed - 1);
    return within_limits(s, !isnan(b.low_rps)    ? b.low_rps
                            : !isnan(b.high_rps) ? b.high_rps
                                                 : s->first_rps);
}

static double next_rate(const struct load_search *s, const struct load_trial *t, size_t n,
                        int seed, const struct load_bracket *b)
{
    double low = b->low_rps, high = b->high_rps;
    double step = seed > 0 ? LATER_STEP : FIRST_STEP;

    if (isnan(low) && isnan(high))
        return first_rate(s, t, n, seed);
    if (isnan(high) && low < s->max_rps)
        return within_limits(s, low * step);
    if (isnan(low) && high > s->min_rps)
        return within_limits(s, high / step);
    if (!isnan(low) && !isnan(high) && !is_narrow(s, low, high))
        return sqrt(low * high);
    return is_verified(s, t, n, seed, low) ? high : low;
}

bool load_search_next(const struct load_search *s, const struct load_trial *t, size_t n,
                      struct load_trial *next)
{
    if (n >= (size_t)s->max_trials)
        return false;
    for (int seed = 0; seed < s->n_seeds; seed++) {
        struct load_bracket b = load_search_bracket(s, t, n, seed);

        if (b.state != LOAD_SEARCH_OPEN)
            continue;
        *next =
            (struct load_trial){.rate_rps = next_rate(s, t, n, seed, &b), .seed = seed};
        return true;
    }
    return false;
}

/* --- what was found */

/* The seed whose lower end is the median; the count of lower ends before it decides. */
static int median_seed(const struct load_bracket *b, int n)
{
    for (int k = 0; k < n; k++) {
        int below = 0;

        for (int i = 0; i < n; i++)
            below +=
                b[i].low_rps < b[k].low_rps || (b[i].low_rps == b[k].low_rps && i < k);
        if (below == (n - 1) / 2)
            return k;
    }
    return 0;
}

/* Unknown with anything is unknown. */
static double both(double a, double b, double (*choose)(double, double))
{
    return isnan(a) || isnan(b) ? NAN : choose(a, b);
}

static void take_bracket(struct load_goodput *out, const struct load_bracket *b, int seed)
{
    out->n_at_max += b->state == LOAD_SEARCH_AT_MAX;
    out->n_at_min += b->state == LOAD_SEARCH_AT_MIN;
    out->n_open += b->state == LOAD_SEARCH_OPEN;
    out->low_rps = both(out->low_rps, b->low_rps, fmin);
    out->high_rps = both(out->high_rps, b->high_rps, fmax);
    if (isnan(b->low_rps) && !out->why[0])
        snprintf(out->why, sizeof(out->why),
                 "seed %d: the objectives hold at no rate that was tried, down to %g",
                 seed, b->high_rps);
}

void load_search_result(struct load_goodput *out, const struct load_search *s,
                        const struct load_trial *t, size_t n)
{
    struct load_bracket b[LOAD_SEARCH_SEEDS_MAX];
    int n_seeds = 0;

    *out = (struct load_goodput){.rps = NAN, .low_rps = INFINITY};
    for (; n_seeds < s->n_seeds && n_seeds < LOAD_SEARCH_SEEDS_MAX; n_seeds++) {
        b[n_seeds] = load_search_bracket(s, t, n, n_seeds);
        if (isnan(b[n_seeds].low_rps) && isnan(b[n_seeds].high_rps))
            break; /* no trial of this seed, nor of later ones */
        take_bracket(out, &b[n_seeds], n_seeds);
    }
    out->n_open += s->n_seeds - n_seeds;
    if (n_seeds == 0) {
        snprintf(out->why, sizeof(out->why), "no trial was measured");
        out->low_rps = out->high_rps = NAN;
        return;
    }
    out->seed = median_seed(b, n_seeds);
    out->trial_rps =
        isnan(b[out->seed].low_rps) ? b[out->seed].high_rps : b[out->seed].low_rps;
    if (!out->why[0])
        out->rps = b[out->seed].low_rps;
}
