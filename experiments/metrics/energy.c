/* Energy by token: differences of a counter that was read now and then, on a line between two
 * readings. */
#include <math.h>

#include "experiments/metrics/impl.h"

#define NS_PER_S 1e9

/* Joules until time t_ns of the cell; NaN outside of the readings. */
static double at(const struct metrics_input *in, int64_t t_ns)
{
    double t = (double)t_ns / NS_PER_S;
    size_t lo = 0, hi = in->n_energy - 1; /* t is between these two readings */

    if (!(t >= in->energy_s[lo] && t <= in->energy_s[hi]))
        return NAN;
    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;

        *(in->energy_s[mid] <= t ? &lo : &hi) = mid;
    }
    if (in->energy_s[hi] <= t)
        return in->energy_joules[hi];
    return in->energy_joules[lo] + (in->energy_joules[hi] - in->energy_joules[lo]) *
                                       (t - in->energy_s[lo]) /
                                       (in->energy_s[hi] - in->energy_s[lo]);
}

static bool was_read(const struct metrics_work *w, const char **why)
{
    if (w->in->n_energy > 0)
        return true;
    *why = w->in->energy_why && w->in->energy_why[0] ? w->in->energy_why
                                                     : "energy was not read";
    return false;
}

static double by_token(double joules, double n_tok, const char **why)
{
    if (isnan(joules)) {
        *why = "energy was read for a part of the time only";
        return NAN;
    }
    return metrics_ratio(joules, n_tok, why, "no request made such tokens");
}

double metrics_joules_per_tok(const struct metrics_work *w, const char **why)
{
    int64_t first = INT64_MAX, last = INT64_MIN;
    double n_tok = 0;

    if (!was_read(w, why))
        return NAN;
    for (size_t i = 0; i < w->n_measured; i++) {
        const struct metrics_row *r = w->measured[i];

        first = r->intended_ns < first ? r->intended_ns : first;
        last = r->done_ns > last ? r->done_ns : last;
    }
    for (size_t i = 0; i < w->n_ok; i++)
        n_tok += (double)(w->ok[i]->n_prompt_tok + w->ok[i]->n_tok);
    return by_token(w->n_measured ? at(w->in, last) - at(w->in, first) : 0, n_tok, why);
}

static bool alone(const struct metrics_work *w, const char **why)
{
    if (!w->overlapped)
        return true;
    *why = "requests overlapped: a phase has no energy of its own";
    return false;
}

double metrics_prefill_joules_per_tok(const struct metrics_work *w, const char **why)
{
    double joules = 0, n_tok = 0;

    if (!was_read(w, why) || !alone(w, why))
        return NAN;
    for (size_t i = 0; i < w->n_ok; i++) {
        joules += at(w->in, w->ok[i]->first_token_ns) - at(w->in, w->ok[i]->dispatch_ns);
        n_tok += (double)w->ok[i]->n_prompt_tok;
    }
    return by_token(joules, n_tok, why);
}

double metrics_decode_joules_per_tok(const struct metrics_work *w, const char **why)
{
    double joules = 0, n_tok = 0;

    if (!was_read(w, why) || !alone(w, why))
        return NAN;
    for (size_t i = 0; i < w->n_ok; i++) {
        const struct metrics_row *r = w->ok[i];

        if (r->n_tok < 2)
            continue;
        joules += at(w->in, r->token_ns[r->n_tok - 1]) - at(w->in, r->first_token_ns);
        n_tok += (double)(r->n_tok - 1);
    }
    return by_token(joules, n_tok, why);
}
