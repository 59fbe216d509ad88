#include "measure/compare.h"

#include <math.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/stats_interval.h"

#define MIN_ROUNDS   MEASURE_SURE_ROUNDS
#define MAX_ROUNDS   25
#define BUDGET_S     0.25
#define MIN_S        0.003
#define PRECISE_FRAC 0.02

#define QUANTILE        0.1
#define UNDISTURBED_MIN 3
/* Linux gives another runnable thread some 4 ms; that matters above 1 % of a trial. */
#define SWITCH_S       0.004
#define DISTURBED_FRAC 0.01

struct measure {
    int n_max, rounds_max;
    int n, n_rounds;
    double *seconds; /* [n_max, rounds_max]; NaN: not run */
    double *sorted;  /* [rounds_max] */
    bool *disturbed; /* [n_max, rounds_max] */
    char *state;     /* [n_max]: of enum state */
    int *order;      /* [n_max] */
};

enum state { TAKES_PART, SLOWER, FAILED };

/* ---- memory ---- */

int measure_open(struct measure **out, int n_max, int rounds_max)
{
    struct measure *m;
    size_t cells;

    *out = NULL;
    if (n_max < 1 || rounds_max < 1)
        return err_set(ERR_ARG, "%d alternatives in %d rounds, expected 1 or more", n_max,
                       rounds_max);
    cells = (size_t)n_max * (size_t)rounds_max;
    m = mem_new(MEM_OTHER, 1, sizeof(*m));
    if (!m)
        return ERR_NOMEM;
    *m = (struct measure){.n_max = n_max, .rounds_max = rounds_max};
    m->seconds = mem_new(MEM_OTHER, cells, sizeof(*m->seconds));
    m->sorted = mem_new(MEM_OTHER, (size_t)rounds_max, sizeof(*m->sorted));
    m->disturbed = mem_new(MEM_OTHER, cells, sizeof(*m->disturbed));
    m->state = mem_new(MEM_OTHER, (size_t)n_max, sizeof(*m->state));
    m->order = mem_new(MEM_OTHER, (size_t)n_max, sizeof(*m->order));
    if (!m->seconds || !m->sorted || !m->disturbed || !m->state || !m->order) {
        measure_close(&m);
        return ERR_NOMEM;
    }
    *out = m;
    return OK;
}

void measure_close(struct measure **m)
{
    struct measure *old = *m;

    if (!old)
        return;
    mem_free(old->order);
    mem_free(old->state);
    mem_free(old->disturbed);
    mem_free(old->sorted);
    mem_free(old->seconds);
    mem_free(old);
    *m = NULL;
}

/* ---- the estimator ---- */

static void insert(double *sorted, int n, double v)
{
    for (; n > 0 && sorted[n - 1] > v; n--)
        sorted[n] = sorted[n - 1];
    sorted[n] = v;
}

/* The estimate is the q-quantile by nearest rank. */
static void quantile(const double *sorted, int n, double q, struct measure_report *r)
{
    int at = (int)ceil(q * n * (1 - 1e-14)) - 1, lo, hi;

    r->estimate = r->lo = r->hi = r->best = NAN;
    r->n = n;
    if (n == 0)
        return;
    stats_quantile95(n, q, &lo, &hi);
    r->estimate =
        q == 0.5 && n % 2 == 0 ? (sorted[n / 2 - 1] + sorted[n / 2]) / 2 : sorted[at];
    r->best = sorted[0];
    r->lo = sorted[lo];
    r->hi = sorted[hi];
}

/* The slowest of i's undisturbed trials; infinite where there are not enough. A disturbed one
 * is set apart if it was slower: a thread may lose its CPU without a loss of time. */
static double limit(const struct measure *m, int i)
{
    size_t at = (size_t)i * (size_t)m->rounds_max;
    double most = 0;
    int n = 0;

    for (int r = 0; r < m->n_rounds; r++) {
        if (m->disturbed[at + (size_t)r] || isnan(m->seconds[at + (size_t)r]))
            continue;
        most = fmax(most, m->seconds[at + (size_t)r]);
        n++;
    }
    return n < UNDISTURBED_MIN ? INFINITY : most;
}

/* Sorts i's times, or with `under` >= 0 those times over that one's, into m->sorted, except
 * disturbed rounds in which either took longer than its limit. Returns how many. */
static int collect(const struct measure *m, int i, int under, double most,
                   double most_below, int *n_disturbed)
{
    size_t at = (size_t)i * (size_t)m->rounds_max;
    size_t below = (size_t)(under < 0 ? i : under) * (size_t)m->rounds_max;
    int n = 0;

    *n_disturbed = 0;
    for (int r = 0; r < m->n_rounds; r++, at++, below++) {
        double x = m->seconds[at], y = m->seconds[below];
        bool disturbed = m->disturbed[at] || m->disturbed[below];

        if (isnan(x) || isnan(y))
            continue;
        *n_disturbed += disturbed;
        if (!disturbed || (x <= most && y <= most_below))
            insert(m->sorted, n++, under < 0 ? x : x / y);
    }
    return n;
}

/* The q-quantile of i's times, or with `under` >= 0 of those times over that one's. A ratio
 * needs both of a round: where each round was disturbed for one of the two, all rounds have
 * to do. */
static void estimate(const struct measure *m, int i, int under, double q,
                     struct measure_report *out)
{
    double most = limit(m, i), most_below = under < 0 ? most : limit(m, under);
    int n = collect(m, i, under, most, most_below, &out->n_disturbed);

    if (n < UNDISTURBED_MIN)
        n = collect(m, i, under, INFINITY, INFINITY, &out->n_disturbed);
    if (m->state[i] == FAILED || (under >= 0 && m->state[under] == FAILED))
        n = 0;
    quantile(m->sorted, n, q, out);
}

void measure_report(const struct measure *m, int i, struct measure_report *out)
{
    estimate(m, i, -1, QUANTILE, out);
}

void measure_ratio(const struct measure *m, int a, int b, struct measure_report *out)
{
    estimate(m, a, b, 0.5, out);
}

/* ---- the rule of choice ---- */

#define FEW_ROUNDS      4
#define FEW_ROUNDS_FRAC 0.02

bool measure_surely_slower(const struct measure *m, int i, int fastest,
                           double margin_frac)
{
    struct measure_report r;

    if (i == fastest)
        return false;
    if (m->state[i] == SLOWER && margin_frac <= 0)
        return true;
    measure_ratio(m, fastest, i, &r);
    if (r.n < MEASURE_SURE_ROUNDS)
        margin_frac += FEW_ROUNDS_FRAC;
    return r.n >= FEW_ROUNDS && r.hi * (1 + margin_frac) < 1;
}

static double seconds_of(const struct measure *m, const double *seconds, int i)
{
    struct measure_report r;

    if (!m)
        return seconds[i];
    measure_report(m, i, &r);
    return r.estimate;
}

/* Choose by m, or where it is NULL by seconds[n]. */
static int choose(const struct measure *m, const double *seconds, int n,
                  const int64_t *complexity, double margin_frac)
{
    double fastest_s = INFINITY, chosen_s;
    int fastest = -1, chosen;

    for (int i = 0; i < n; i++)
        if (seconds_of(m, seconds, i) < fastest_s) {
            fastest_s = seconds_of(m, seconds, i);
            fastest = i;
        }
    chosen = fastest;
    chosen_s = fastest_s;
    for (int i = 0; i < n && fastest >= 0 && complexity; i++) {
        double s = seconds_of(m, seconds, i);
        int64_t more = complexity[i] - complexity[chosen];
        bool slower = m ? measure_surely_slower(m, i, fastest, margin_frac)
                        : s > fastest_s * (1 + margin_frac);

        if (isfinite(s) && !slower && (more < 0 || (more == 0 && s < chosen_s))) {
            chosen = i;
            chosen_s = s;
        }
    }
    return chosen;
}

int measure_choose(const struct measure *m, const int64_t *complexity, double margin_frac)
{
    return choose(m, NULL, m->n, complexity, margin_frac);
}

int measure_choose_estimate(const double *seconds, int n, const int64_t *complexity,
                            double margin_frac)
{
    return choose(NULL, seconds, n, complexity, margin_frac);
}

const double *measure_times(const struct measure *m, int i, int *n_rounds)
{
    *n_rounds = m->n_rounds;
    return m->seconds + (size_t)i * (size_t)m->rounds_max;
}

/* ---- rounds ---- */

static struct {
    measure_fn fn;
    void *arg;
} script;

void measure_script(measure_fn fn, void *arg)
{
    script.fn = fn;
    script.arg = arg;
}

static uint64_t no_time(void *arg)
{
    (void)arg;
    return 0;
}
const struct measure_clock measure_no_clock = {no_time, NULL};

struct run {
    struct measure *m;
    struct measure_opts o;
    measure_fn fn;
    void *arg;
    struct rng rng;
};

static uint64_t now_ns(const struct run *r)
{
    return r->o.clock ? r->o.clock->now_ns(r->o.clock->arg) : clock_ns();
}

/* The number of involuntary context switches of this process. */
static long switches(const struct run *r)
{
    struct rusage u;

    return r->o.clock || getrusage(RUSAGE_SELF, &u) != 0 ? 0 : u.ru_nivcsw;
}

static int trial(struct run *r, int i, struct measure_trial *t)
{
    long before = switches(r);
    uint64_t start = now_ns(r);
    int rc;

    *t = (struct measure_trial){.seconds = -1};
    rc = r->fn(r->arg, i, t);
    if (t->seconds < 0)
        t->seconds = (double)(now_ns(r) - start) * 1e-9;
    if ((double)(switches(r) - before) * SWITCH_S > t->seconds * DISTURBED_FRAC)
        t->disturbed = true;
    if (isnan(t->seconds))
        r->m->state[i] = FAILED;
    return rc;
}

/* Each that still takes part, once; `count`: its time is kept. */
static int one_round(struct run *r, bool count)
{
    struct measure *m = r->m;
    int rc = OK;

    for (int i = m->n - 1; i > 0; i--) {
        int j = (int)rng_below(&r->rng, (uint64_t)i + 1), other = m->order[j];

        m->order[j] = m->order[i];
        m->order[i] = other;
    }
    for (int k = 0; k < m->n && rc == OK; k++) {
        int i = m->order[k];
        size_t at = (size_t)i * (size_t)m->rounds_max + (size_t)m->n_rounds;
        struct measure_trial t = {.seconds = NAN};

        if (m->state[i] == TAKES_PART)
            rc = trial(r, i, &t);
        m->seconds[at] = t.seconds;
        m->disturbed[at] = t.disturbed;
    }
    m->n_rounds += rc == OK && count;
    return rc;
}

/* Leave out each alternative that is surely slower than the fastest, round by round and as a
 * whole. */
static void leave_out_slower(struct measure *m)
{
    int best = measure_choose(m, NULL, 0);
    struct measure_report least, r, ratio;

    for (int i = 0; i < m->n && best >= 0; i++) {
        measure_report(m, best, &least);
        measure_report(m, i, &r);
        measure_ratio(m, best, i, &ratio);
        if (r.lo > least.hi && ratio.n >= MEASURE_SURE_ROUNDS && ratio.hi < 1)
            m->state[i] = SLOWER;
    }
}

/* Is each that still takes part known well enough? */
static bool precise(const struct run *r)
{
    const struct measure *m = r->m;
    struct measure_report x;

    for (int i = 0; i < m->n; i++) {
        if (m->state[i] != TAKES_PART)
            continue;
        measure_report(m, i, &x);
        if (x.n < r->o.min_rounds || x.n * x.estimate < r->o.min_s ||
            x.hi - x.lo > r->o.precise_frac * x.estimate)
            return false;
    }
    return true;
}

static bool enough(const struct run *r, uint64_t start_ns)
{
    int n = r->m->n_rounds;

    return n >= r->o.max_rounds ||
           (n >= r->o.min_rounds &&
            ((double)(now_ns(r) - start_ns) * 1e-9 >= r->o.budget_s || precise(r)));
}

static void set_defaults(struct measure_opts *o, const struct measure *m)
{
    int most = m->rounds_max < MAX_ROUNDS ? m->rounds_max : MAX_ROUNDS;

    o->max_rounds = o->max_rounds ? o->max_rounds : most;
    o->min_rounds = o->min_rounds ? o->min_rounds : MIN_ROUNDS;
    o->min_rounds = o->min_rounds < o->max_rounds ? o->min_rounds : o->max_rounds;
    o->n_warm_up = o->n_warm_up ? o->n_warm_up : 1;
    o->budget_s = o->budget_s > 0 ? o->budget_s : BUDGET_S;
    o->min_s = o->min_s > 0 ? o->min_s : MIN_S;
    o->precise_frac = o->precise_frac > 0 ? o->precise_frac : PRECISE_FRAC;
}

int measure_compare(struct measure *m, int n, const struct measure_opts *o, measure_fn fn,
                    void *arg)
{
    struct run r = {.m = m, .fn = fn, .arg = arg};
    uint64_t start_ns;
    int rc = OK;

    if (o)
        r.o = *o;
    if (script.fn) {
        r.fn = script.fn;
        r.arg = script.arg;
        r.o.clock = &measure_no_clock;
    }
    set_defaults(&r.o, m);
    if (n < 1 || n > m->n_max || r.o.max_rounds < 1 || r.o.max_rounds > m->rounds_max)
        return err_set(ERR_ARG,
                       "%d alternatives in %d rounds, expected 1 to %d in 1 to %d", n,
                       r.o.max_rounds, m->n_max, m->rounds_max);
    m->n = n;
    m->n_rounds = 0;
    rng_init(&r.rng, r.o.seed, "order");
    for (int i = 0; i < n; i++) {
        m->order[i] = i;
        m->state[i] = TAKES_PART;
    }
    for (int i = 0; i < r.o.n_warm_up && rc == OK; i++)
        rc = one_round(&r, false);
    start_ns = now_ns(&r);
    do {
        rc = rc == OK ? one_round(&r, true) : rc;
        if (!r.o.keep_all && m->n_rounds >= r.o.min_rounds)
            leave_out_slower(m);
    } while (rc == OK && !enough(&r, start_ns));
    return rc;
}
