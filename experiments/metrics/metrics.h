/* experiments/metrics/metrics.h - every number we publish, defined once.
 *
 * One table (metrics_defs) holds name, unit, meaning and the function that computes it
 * from the rows of a cell; the docs, the record, the terminal and the checks of a job's
 * headline all read it. Latency counts from the intended start, so a stalled sender
 * cannot hide it (coordinated omission). An undefined number is NaN with the reason
 * with it, never 0. Threads: none of its own; rows are read only. */
#ifndef METRICS_METRICS_H
#define METRICS_METRICS_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"

#define METRICS_NEVER INT64_MIN /* a time that never came */

enum metrics_status {
    METRICS_OK,       /* exactly the tokens asked for */
    METRICS_FAILED,   /* the system reported it, or ended with another number of tokens */
    METRICS_TIMEOUT,  /* canceled by the harness */
    METRICS_REJECTED, /* not sent: too many outstanding, or the cell was ended */
};
const char *metrics_status_name(enum metrics_status s);

/* One request. Times are ns from the start of the cell. */
struct metrics_row {
    int64_t request;
    bool warmup; /* excluded from every statistic but the identity checks */
    int64_t intended_ns, dispatch_ns, first_token_ns, done_ns;
    int64_t n_prompt_tok, n_output_tok; /* asked for */
    int64_t n_tok;                      /* received */
    enum metrics_status status;
    char error[96];          /* "" if ok */
    const int64_t *token_ns; /* n_tok times; lent */
    /* The physical floor, NaN where the system does not state it: bytes that its tokens
     * after the first must read, arithmetic of its prompt. */
    double decode_bytes, prefill_flop;
};

/* Move all of its times. token_ns: where those of its n_tok tokens are put, perhaps in place. */
void metrics_row_move(struct metrics_row *r, int64_t by_ns, int64_t *token_ns);

struct metrics_slo {
    double ttft_ms, tpot_ms; /* 0: no such objective */
    const double *scale;     /* multiples of both to judge as well */
    int n_scale;
};

struct metrics_input {
    const struct metrics_row *rows;
    size_t n_rows;
    struct metrics_slo slo;
    /* Bounds of this machine; NaN: not known, and why. */
    double read_gbps, peak_gflops;
    const char *read_why, *peak_why;
    const double *timer_error_us; /* overshoot of timed waits, measured before the cell */
    size_t n_timer_error;
    /* Energy that the machine had taken since the first reading, at times of the cell in
     * ascending order. n 0: it was not read; energy_why may then say why. */
    const double *energy_s, *energy_joules;
    size_t n_energy;
    const char *energy_why;
    /* [n_rows] when each began its turn, on a clock of all systems that took turns; NULL: none. */
    const double *turn_s;
};

/* The kinds of evidence that a number can rest on: "measured", "measured_small", "model",
 * "simulated", "emulated", "published" (read from a file that others published, not made
 * by this project), "unavailable", NULL. */
extern const char *const metrics_evidence[];
/* The word of metrics_evidence[] that equals `name`, which may be NULL; NULL: there is none. */
const char *metrics_evidence_find(const char *name);

struct metrics_value {
    char name[48], unit[16];
    double value;
    char why[96];         /* why `value` is NaN, else "" */
    const char *evidence; /* a word of metrics_evidence[]; NULL: that of its cell */
    /* 95 % of confidence that it is in [lo, hi]. Where `value` is NaN these are bounds of it: at
     * least lo, at most hi; that which is NaN is not known. */
    bool has_interval;
    double lo, hi;
};
/* A value between lo and hi, of which one may be NaN. Without both it is a bound, and no value. */
static inline void metrics_bound(struct metrics_value *v, double lo, double hi)
{
    v->lo = lo;
    v->hi = hi;
    v->has_interval = !isnan(lo) || !isnan(hi);
    v->value = isnan(lo) || isnan(hi) ? NAN : v->value;
}

struct metrics_series {
    char name[48], unit[16];
    double *v;
    size_t n;
    const char *evidence; /* as of a value */
};

#define METRICS_MAX_SERIES 4
struct metrics {
    struct metrics_value *values;
    size_t n_values;
    struct metrics_series series[METRICS_MAX_SERIES];
    size_t n_series;
};

/* All metrics of a cell. *out is given back with metrics_fini(). */
void metrics_compute(struct metrics *out, const struct metrics_input *in);
void metrics_fini(struct metrics *m);
/* NULL: no such metric. */
const struct metrics_value *metrics_find(const struct metrics *m, const char *name);

/* The one that is published as `name`, NaN where it is undefined. ERR_NOTFOUND as of
 * metrics_known(), ERR_NOMEM. */
MUST int metrics_one(double *out, const struct metrics_input *in, const char *name);

/* Per request, NaN where undefined. */
double metrics_ttft_ms(const struct metrics_row *r);         /* intended -> first token */
double metrics_ttft_service_ms(const struct metrics_row *r); /* dispatch -> first token */
double metrics_e2e_ms(const struct metrics_row *r);          /* intended -> last token */
double metrics_tpot_ms(const struct metrics_row *r); /* (e2e - ttft) / (n - 1), n > 1 */
bool metrics_slo_met(const struct metrics_row *r, const struct metrics_slo *s,
                     double scale);

/* Did requests come faster than they ended? Then latencies grow with the length of the run,
 * and say more of it than of the system. The backlog must have grown by more than chance
 * does: by more than the square root of the number of requests. In 400 simulated queues of
 * 1 and 4 servers each that flags 1 % at half of the capacity and 12 % at 80 % of it with
 * 20 requests, 0 and 4 % with 400; 79 and 100 % at twice the capacity. */
struct metrics_overload {
    double observed, threshold; /* of the rate in req/s, or of the backlog's growth */
    char text[200];
};
bool metrics_overloaded(const struct metrics *m, struct metrics_overload *out);

/* The highest measured rate up to which attainment never fell below `target`; NaN when
 * the lowest rate already fails. Points in any order. */
double metrics_goodput_rps(const double *rate_rps, const double *attainment, size_t n,
                           double target);

/* A definition; `samples` marks a distribution, published as mean_, std_, min_, p50_,
 * p90_, p95_, p99_, p99.9_ and max_<name>. */
/* The rows, and those of them that count. */
struct metrics_work {
    const struct metrics_input *in;
    const struct metrics_row **ok;       /* measured and answered in full */
    const struct metrics_row **measured; /* all but the warm-up */
    size_t n_ok, n_measured;
    double duration_s; /* first intended start -> last end of the measured; NaN if none */
    bool overlapped;   /* two requests were ever served at once */
};
struct metrics_def {
    const char *name, *unit, *better; /* "higher", "lower" or "" */
    const char *text;
    double (*scalar)(const struct metrics_work *w, const char **why);
    size_t (*samples)(const struct metrics_work *w,
                      double *out); /* out NULL: count only */
};
extern const struct metrics_def metrics_defs[]; /* ends with a NULL name */
/* Further metrics of a cell that has searched its goodput (run/search.c); they have no functions.
 * Ends with a NULL name. */
#define METRICS_N_GOODPUT 4
extern const struct metrics_def metrics_goodput_defs[METRICS_N_GOODPUT + 1];

/* ERR_NOTFOUND with the nearest name if no cell publishes `name`. */
MUST int metrics_known(const char *name);
const char *
metrics_unit(const char *name); /* of a published name or goodput_rps, else "" */
/* Is it a metric of a single request: a mean, a median or a rate, and no tail, count or share? */
bool metrics_is_of_request(const char *name);
/* Is `value` a share of a measured bound, by its name (decode_bandwidth_frac, prefill_peak_frac,
 * roof_frac, ...) and as it has no unit, but above MEASURE_SHARE_MAX? Nothing exceeds what the
 * machine can do: the bound is wrong, and the number is n/a because of `why`, which is written
 * only then. */
bool metrics_exceeds_bound(const char *name, const char *unit, double value,
                           char why[96]);
void metrics_docs(FILE *f); /* the table as Markdown */

#endif
