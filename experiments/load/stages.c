#include "experiments/load/stages.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/opt.h"
#include "base/rng.h"
#include "experiments/load/load.h"

#define RATE_MAX_RPS 1e6

/* A number at *p, which ends at one of `ends`. */
static bool read_rate(const char **p, const char *ends, double *rate_rps)
{
    char *end;

    *rate_rps = strtod(*p, &end);
    if (end == *p || !*end || !strchr(ends, *end) ||
        !(*rate_rps >= 0 && *rate_rps <= RATE_MAX_RPS))
        return false;
    *p = end;
    return true;
}

/* The stage at *p, up to a comma or the end. */
static int read_stage(struct load_stage *s, const char **p, const char *where)
{
    const char *begin = *p;
    const size_t len = strcspn(begin, ",");
    char time[32] = "";
    double seconds = 0;
    bool good = read_rate(p, "-@", &s->from_rps);

    s->to_rps = s->from_rps;
    if (good && **p == '-') {
        ++*p;
        good = read_rate(p, "@", &s->to_rps);
    }
    if (good && (size_t)(begin + len - *p) <= sizeof(time)) {
        memcpy(time, *p + 1, (size_t)(begin + len - *p) - 1);
        good = opt_seconds(&seconds, time, where) == OK && seconds > 0;
    } else {
        good = false;
    }
    if (!good)
        return err_set(ERR_ARG,
                       "%s: expected a stage such as 4@60s or 1-4@30s, requests a second "
                       "from 0 to %.0f and a time, found \"%.*s\"",
                       where, RATE_MAX_RPS, (int)(len < 60 ? len : 60), begin);
    s->end_s = s->begin_s + seconds;
    *p = begin + len;
    return OK;
}

int load_stages_read(struct load_stage out[LOAD_STAGES_MAX], int *n, const char *text,
                     const char *where)
{
    double now_s = 0;

    *n = 0;
    do {
        if (*n == LOAD_STAGES_MAX)
            return err_set(ERR_LIMIT, "%s: expected at most %d stages", where,
                           LOAD_STAGES_MAX);
        out[*n].begin_s = now_s;
        TRY(read_stage(&out[*n], &text, where));
        now_s = out[(*n)++].end_s;
    } while (*text++ == ',');
    if (now_s > LOAD_ARRIVAL_MAX_S)
        return err_set(ERR_LIMIT, "%s: expected at most %g s in all, found %g", where,
                       LOAD_ARRIVAL_MAX_S, now_s);
    if (!(load_stages_expected(out, *n, now_s) > 0))
        return err_set(ERR_ARG, "%s: expected a stage with a rate above 0", where);
    return OK;
}

/* Arrivals expected in the first t seconds of the stage. */
static double expected_in(const struct load_stage *s, double t)
{
    return s->from_rps * t +
           (s->to_rps - s->from_rps) * t * t / (2 * (s->end_s - s->begin_s));
}

double load_stages_expected(const struct load_stage *v, int n, double t_s)
{
    double sum = 0;

    for (int i = 0; i < n && t_s > v[i].begin_s; i++)
        sum += expected_in(&v[i], fmin(t_s, v[i].end_s) - v[i].begin_s);
    return sum;
}

/* The seconds of the stage in which `expected` arrivals are. The form of the root that loses no
 * digits where the rate hardly changes. */
static double seconds_of(const struct load_stage *s, double expected)
{
    const double slope = (s->to_rps - s->from_rps) / (s->end_s - s->begin_s);
    const double root = sqrt(fmax(0, s->from_rps * s->from_rps + 2 * slope * expected));

    return 2 * expected / (s->from_rps + root);
}

size_t load_stages_arrivals(const struct load_stage *v, int n, uint64_t seed,
                            double *arrival_s, size_t max)
{
    const double all = load_stages_expected(v, n, v[n - 1].end_s);
    const double last_rps = v[n - 1].to_rps > 0 ? v[n - 1].to_rps : all / v[n - 1].end_s;
    double at = 0, before = 0;
    size_t n_within = 0;
    struct rng r;
    int k = 0;

    /* Arrivals at rate 1 on a clock that runs as fast as requests are expected. */
    rng_init(&r, seed, "arrival");
    for (size_t i = 0; i < max || at < all; i++) {
        double t;

        at += rng_exp(&r);
        for (; k < n && at - before >= expected_in(&v[k], v[k].end_s - v[k].begin_s); k++)
            before += expected_in(&v[k], v[k].end_s - v[k].begin_s);
        t = k < n ? v[k].begin_s + seconds_of(&v[k], at - before)
                  : v[n - 1].end_s + (at - before) / last_rps;
        n_within += k < n;
        if (i < max)
            arrival_s[i] = t;
    }
    return n_within;
}
