#include "experiments/metrics/saturation.h"

#include <math.h>

#include "base/mem.h"

/* Values of a walk before its variance is trusted. */
#define MIN_VALUES 16
/* Where the bound is tightest: r = n / (2 ln(1/a) + ln(1 + 2 ln(1/a))) at n arrivals, and a rate
 * of 1.3 times the capacity is found after about n = 260. */
#define MIXTURE_R 20.0
#define OVERTAKEN 64
/* Runs of gaps that a variance is taken of: with fewer its own error is large. */
#define MIN_RUNS 8

enum { UNKNOWN, KNOWN, LEFT_OUT };

/* A request, and its state and value in each walk. */
struct request {
    int64_t arrival_ns;
    size_t place; /* among the arrivals */
    bool arrived, ended;
    uint8_t state[METRICS_N_WALKS];
    double value[METRICS_N_WALKS];
};

/* Mean and variance of the steps so far, by Welford. */
struct steps {
    double n, mean, m2;
};

/* A walk, or the means of its consecutive values: what services differ by averages out there. */
static const size_t run_length[] = {1, 16};
enum { N_SCALES = sizeof(run_length) / sizeof(run_length[0]) };

struct scale {
    double sum; /* of the values of the run that is not yet whole */
    size_t n_in_sum;
    size_t n; /* whole runs */
    double last, low;
    size_t low_at;
    struct steps steps;
};

struct walk {
    size_t next;    /* place of the first request that is not yet in the walk */
    size_t n_known; /* requests from there on whose value is known */
    struct scale scales[N_SCALES];
};

struct metrics_saturation {
    struct request *requests; /* [n] */
    size_t *order;            /* [n] by arrival */
    size_t n_arrived, n_in_system;
    int64_t first_ns, last_ns; /* arrivals */
    double dispersion;         /* variance of gaps by their squared mean, at least 1 */
    struct walk walks[METRICS_N_WALKS];
    struct metrics_saturated result;
};

const char *metrics_walk_name(enum metrics_walk w)
{
    static const char *const names[] = {"ttft", "concurrency"};

    return names[w];
}

static void add_step(struct steps *s, double x)
{
    double d = x - s->mean;

    s->n++;
    s->mean += d / s->n;
    s->m2 += d * (x - s->mean);
}

static double variance(const struct steps *s)
{
    return s->n > 1 ? s->m2 / (s->n - 1) : 0;
}

/* The largest variance of runs of 1, 2, 4 ... gaps, per gap and by the squared mean gap: 1 for
 * Poisson arrivals at all lengths, more for bursts. More regular arrivals count as Poisson. */
static double dispersion(const double *arrival_s, size_t n)
{
    double gap = n > 1 ? (arrival_s[n - 1] - arrival_s[0]) / (double)(n - 1) : 0,
           most = 1;

    for (size_t run = 1; gap > 0 && (n - 1) / run >= MIN_RUNS; run *= 2) {
        struct steps s = {0};

        for (size_t i = run; i < n; i += run)
            add_step(&s, arrival_s[i] - arrival_s[i - run]);
        most = fmax(most, variance(&s) / (double)run / (gap * gap));
    }
    return most;
}

int metrics_saturation_open(struct metrics_saturation **out, size_t n,
                            const double *arrival_s, size_t n_arrivals)
{
    struct metrics_saturation *s = mem_new(MEM_HARNESS, 1, sizeof(*s));

    *out = NULL;
    if (!s)
        return ERR_NOMEM;
    s->requests = mem_new(MEM_HARNESS, n, sizeof(*s->requests));
    s->order = mem_new(MEM_HARNESS, n, sizeof(*s->order));
    if (!s->requests || !s->order) {
        metrics_saturation_close(&s);
        return ERR_NOMEM;
    }
    s->dispersion = dispersion(arrival_s, n_arrivals);
    *out = s;
    return OK;
}

void metrics_saturation_close(struct metrics_saturation **sp)
{
    struct metrics_saturation *s = *sp;

    if (!s)
        return;
    mem_free(s->requests);
    mem_free(s->order);
    mem_free(s);
    *sp = NULL;
}

const struct metrics_saturated *
metrics_saturation_result(const struct metrics_saturation *s)
{
    return &s->result;
}

/* The mean gap in the unit of a walk: what one arrival is worth. */
static double unit(const struct metrics_saturation *s, int w)
{
    if (w == METRICS_WALK_CONCURRENCY)
        return 1;
    return (double)(s->last_ns - s->first_ns) / 1e6 / (double)(s->n_arrived - 1);
}

/* The variance of a step in the long run. Neighbours among the steps of means are correlated,
 * those of a random walk by 1/4, and their own variance is then 2/3 of it. */
static double step_variance(const struct metrics_saturation *s, int w, int k,
                            const struct steps *steps)
{
    double own = variance(steps) * (run_length[k] > 1 ? 1.5 : 1);

    return fmax(own, s->dispersion * unit(s, w) * unit(s, w) * (double)run_length[k]);
}

/* Is `value`, the next one, too far above the lowest so far? */
static bool exceeds(struct metrics_saturation *s, int w, int k, double value)
{
    static const double ask = METRICS_N_WALKS * N_SCALES / METRICS_SATURATION_ALPHA;
    const struct scale *x = &s->walks[w].scales[k];
    struct steps steps = x->steps;
    double n = (double)x->n, growth = value - x->low, bound;

    if (x->n < MIN_VALUES || (double)s->n_in_system <= sqrt((double)s->n_arrived))
        return false;
    add_step(&steps, value - x->last);
    bound = sqrt(step_variance(s, w, k, &steps) * (n + MIXTURE_R) *
                 (2 * log(ask) + log((n + MIXTURE_R) / MIXTURE_R)));
    if (!(growth > bound))
        return false;
    s->result.growth = growth;
    s->result.bound = bound;
    s->result.slope = growth / (double)((x->n - x->low_at) * run_length[k]);
    return true;
}

static void append(struct scale *x, double value)
{
    if (x->n)
        add_step(&x->steps, value - x->last);
    if (!x->n || value < x->low) {
        x->low = value;
        x->low_at = x->n;
    }
    x->last = value;
    x->n++;
}

/* Append a value to the walk and its means; is a bound exceeded? */
static bool append_all(struct metrics_saturation *s, int w, double value)
{
    for (int k = 0; k < N_SCALES; k++) {
        struct scale *x = &s->walks[w].scales[k];

        x->sum += value;
        if (++x->n_in_sum < run_length[k])
            continue;
        x->sum /= (double)x->n_in_sum;
        if (exceeds(s, w, k, x->sum))
            return true;
        append(x, x->sum);
        x->sum = 0;
        x->n_in_sum = 0;
    }
    return false;
}

/* The value that a request has if its event comes at t_ns, and until then the least that it will
 * be. */
static double value_at(const struct metrics_saturation *s, const struct request *r, int w,
                       int64_t t_ns)
{
    return w == METRICS_WALK_TTFT ? (double)(t_ns - r->arrival_ns) / 1e6
                                  : (double)(s->n_arrived - r->place - 1);
}

/* Append what has become known, in the order of arrivals; is the bound exceeded? */
static bool advance(struct metrics_saturation *s, int w, int64_t t_ns)
{
    struct walk *k = &s->walks[w];

    for (; k->next < s->n_arrived; k->next++) {
        const struct request *r = &s->requests[s->order[k->next]];

        if (r->state[w] == LEFT_OUT)
            continue;
        if (r->state[w] == UNKNOWN && k->n_known >= OVERTAKEN)
            continue;
        if (r->state[w] == UNKNOWN)
            return k->n_known == 0 && exceeds(s, w, 0, value_at(s, r, w, t_ns));
        k->n_known--;
        if (append_all(s, w, r->value[w])) {
            k->next++;
            return true;
        }
    }
    return false;
}

static void look(struct metrics_saturation *s, int64_t t_ns)
{
    for (int w = 0; w < METRICS_N_WALKS && !s->result.found; w++) {
        if (!advance(s, w, t_ns))
            continue;
        s->result.found = true;
        s->result.walk = (enum metrics_walk)w;
        s->result.n_arrivals = s->n_arrived;
        s->result.n_in_system = s->n_in_system;
        s->result.t_ns = t_ns;
    }
}

/* The walk has this value of r, unless it went on without it. */
static void know(struct metrics_saturation *s, struct request *r, int w, int64_t t_ns,
                 bool failed)
{
    if (r->state[w] != UNKNOWN)
        return;
    r->state[w] = failed ? LEFT_OUT : KNOWN;
    r->value[w] = value_at(s, r, w, t_ns);
    s->walks[w].n_known += !failed && r->place >= s->walks[w].next;
}

void metrics_saturation_arrival(struct metrics_saturation *s, size_t i, int64_t t_ns)
{
    struct request *r = &s->requests[i];

    if (s->result.found || r->arrived)
        return;
    r->arrived = true;
    r->arrival_ns = t_ns;
    r->place = s->n_arrived;
    if (s->n_arrived == 0)
        s->first_ns = t_ns;
    s->last_ns = t_ns;
    s->order[s->n_arrived++] = i;
    s->n_in_system++;
    look(s, t_ns);
}

void metrics_saturation_first_token(struct metrics_saturation *s, size_t i, int64_t t_ns)
{
    struct request *r = &s->requests[i];

    if (s->result.found || !r->arrived || r->ended)
        return;
    know(s, r, METRICS_WALK_TTFT, t_ns, false);
    look(s, t_ns);
}

void metrics_saturation_end(struct metrics_saturation *s, size_t i, int64_t t_ns,
                            bool failed)
{
    struct request *r = &s->requests[i];

    if (s->result.found || !r->arrived || r->ended)
        return;
    for (int w = 0; w < METRICS_N_WALKS; w++)
        know(s, r, w, t_ns, failed);
    r->ended = true;
    s->n_in_system--;
    look(s, t_ns);
}
