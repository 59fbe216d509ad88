#include "experiments/study/support/contest.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/stats.h"

/* --- rivals */

static void report_why(struct study_rivals *r, int i)
{
    snprintf(r->why[i], sizeof(r->why[i]), "%s", err_msg());
}

void study_rivals_open(struct study_rivals *r, const struct gemm_rival_opts *o)
{
    for (int i = 0; gemm_rival_names[i] && i < STUDY_RIVALS_MAX; i++)
        if (!r->r[i] && gemm_rival_open(&r->r[i], gemm_rival_names[i], o) != OK)
            report_why(r, i);
}

void study_rivals_close(struct study_rivals *r)
{
    for (int i = 0; i < STUDY_RIVALS_MAX; i++)
        gemm_rival_close(&r->r[i]);
}

/* --- sides */

int study_contest_add(struct study_contest *c, const char *name, struct tune_bench *bench,
                      const struct kern_schedule *s)
{
    c->sides[c->n] = (struct study_side){.name = name, .bench = bench, .schedule = *s};
    c->n_ours = ++c->n;
    return c->n - 1;
}

bool study_contest_add_rival(struct study_contest *c, int i, const char *type,
                             const struct tune_shape *shape, bool warm, double budget_s)
{
    struct gemm_rival *r = c->rivals->r[i];

    if (!r) /* its reason stands from when it was opened */
        return false;
    if (gemm_rival_shape(r, type, shape->m, shape->n, shape->k, warm, budget_s) != OK) {
        report_why(c->rivals, i);
        return false;
    }
    c->sides[c->n++] = (struct study_side){.name = gemm_rival_names[i], .rival = i};
    return true;
}

/* --- rounds */

static void nothing(void *arg, struct par_self *self)
{
    (void)arg, (void)self;
}

static int run_ours(struct study_contest *c, struct study_side *s, double *seconds)
{
    if (c->team)
        par_team_run(c->team, c->n_threads, nothing, NULL);
    return tune_run_once(s->bench, &s->schedule, c->n_threads, seconds);
}

static int run_side(struct study_contest *c, struct study_side *s, double *seconds)
{
    int rc;

    if (s->bench)
        return run_ours(c, s, seconds);
    rc = gemm_rival_run(c->rivals->r[s->rival], seconds);
    if (rc == OK)
        return OK;
    report_why(c->rivals, s->rival);
    gemm_rival_close(&c->rivals->r[s->rival]);
    s->lost = true;
    return OK; /* the others go on */
}

static int one_round(struct study_contest *c, int round)
{
    int rc = OK;

    for (int i = 0; i < c->n && rc == OK; i++) {
        struct study_side *s = &c->sides[(i + round) % c->n];
        double seconds = NAN;

        if (!s->lost)
            rc = run_side(c, s, &seconds);
        if (round > 0) /* the first warms up */
            s->s[round - 1] = seconds;
    }
    return rc;
}

int study_contest_run(struct study_contest *c, int n_max, double seconds)
{
    uint64_t start_ns = clock_ns();
    int rc = one_round(c, 0);

    n_max = n_max < STUDY_ROUNDS_MAX ? n_max : STUDY_ROUNDS_MAX;
    while (rc == OK && c->n_rounds < n_max &&
           (c->n_rounds < 3 || (double)(clock_ns() - start_ns) < seconds * 1e9))
        rc = one_round(c, ++c->n_rounds);
    for (int i = 0; i < c->n && rc == OK; i++) {
        struct study_side *s = &c->sides[i];

        s->median_s = s->lost ? NAN : stats_median(s->s, (size_t)c->n_rounds);
    }
    return rc;
}

/* --- who won */

int study_contest_best_rival(const struct study_contest *c)
{
    int best = -1;

    for (int i = c->n_ours; i < c->n; i++)
        if (!c->sides[i].lost &&
            (best < 0 || c->sides[i].median_s < c->sides[best].median_s))
            best = i;
    return best;
}

double study_contest_ratio(const struct study_contest *c, int ours, int rival)
{
    double ratio[STUDY_ROUNDS_MAX];

    for (int r = 0; r < c->n_rounds; r++)
        ratio[r] = c->sides[rival].s[r] / c->sides[ours].s[r];
    return stats_median(ratio, (size_t)c->n_rounds);
}
