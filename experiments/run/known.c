/* When a run with repeats "auto" ends: each headline has an interval that is narrow enough. */
#include "experiments/run/session.h"

#include <math.h>

struct job run_job_of(const struct job *j, int64_t repeats)
{
    struct job out = *j;

    out.n_cells = j->n_cells / (int)j->head.repeats * (int)repeats;
    out.head.repeats = repeats;
    return out;
}

/* How far the interval reaches to each side: 0.03 from 1 / 1.03 of the value to 1.03 of it.
 * INFINITY: there is none. */
static double reach(const struct record_headline *h)
{
    if (!h->has_interval)
        return INFINITY;
    return h->lo == h->hi ? 0 : sqrt(h->hi / h->lo) - 1;
}

/* The headline that is known least; NULL: none has a value. */
static const struct record_headline *widest(const struct run_summary *s)
{
    const struct record_headline *out = NULL;

    for (int k = 0; k < s->job->n_headlines; k++) {
        const struct record_headline *h = &s->headlines[k];

        if (!isnan(h->value) && (!out || reach(h) > reach(out)))
            out = h;
    }
    return out;
}

static void say_why(char why[RUN_KNOWN_BYTES], bool known,
                    const struct record_headline *h, const struct job *j)
{
    long long n = (long long)j->head.repeats;

    if (!h)
        snprintf(why, RUN_KNOWN_BYTES, "after %lld repeats no headline has a value", n);
    else if (isinf(reach(h)))
        snprintf(
            why, RUN_KNOWN_BYTES,
            "not known after %lld repeats: %.80s has no interval, since a repeat has "
            "no value above 0",
            n, h->name);
    else
        snprintf(
            why, RUN_KNOWN_BYTES,
            "%s after %lld repeats: the widest interval, of %.80s, reaches %.2g %% to "
            "each side, %.2g %% were asked for",
            known ? "known" : "not known", n, h->name, 100 * reach(h),
            100 * j->head.repeats_precision_frac);
}

int run_known(bool *known, char why[RUN_KNOWN_BYTES], const struct run_session *s,
              int64_t repeats)
{
    struct job so_far = run_job_of(s->job, repeats);
    const struct record_headline *h;
    struct run_summary summary;

    TRY(run_summarise(&summary, &so_far, journal_path(s->journal)));
    h = widest(&summary);
    *known = !h || reach(h) <= so_far.head.repeats_precision_frac;
    say_why(why, *known, h, &so_far);
    run_summary_fini(&summary);
    return OK;
}
