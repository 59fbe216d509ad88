/* measure/compare.h - the one way to time alternatives and to say which is faster.
 *
 * Kernel variants, schedules, collectives, plans and baselines are all compared here, so
 * that the same question gets the same answer wherever it is asked. A round runs every
 * alternative once, in a newly drawn order: a drift of the machine meets all alike, and
 * none always follows the same other one. Rounds go on until the intervals are narrow or
 * the budget is spent; an alternative that is surely slower takes no part in later rounds.
 *
 * The estimator is the lowest decile of the trials: the smallest of up to ten. Work of 0.1,
 * 1 and 10 ms, computing and reading, by one and two threads, was timed in rounds on a
 * virtual machine of two CPUs together with the same work enlarged by 2 %. How often the
 * larger was taken for the faster, on the quiet machine and while compilers ran, in %:
 *
 *     rounds   lowest decile   smallest    median     mean     median of differences
 *          3     5.5   16      5.5   16    11   26    19   33     11    23
 *         15     1.8    7.2    1.0    6.1   2.5 18    17   43      1.0  13
 *         31     0.2    6.5    0.4    6.0   0.6 17    13   46      0.1  10
 *
 * The smallest is as good there, but of many trials a single lucky one decides it. Whether two
 * differ at all is decided by the rounds' ratios, which no drift touches: measure_ratio(). A trial
 * in which a thread lost its CPU is set apart where it took longer than every other.
 *   Threads: one caller for each `struct measure`. */
#ifndef MEASURE_COMPARE_H
#define MEASURE_COMPARE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* The result of one trial, from the callback. */
struct measure_trial {
    double seconds; /* -1 on entry: left so, the time of the call counts. NaN: this
                       alternative cannot run any more and leaves; the others go on */
    bool disturbed; /* false on entry; true: the machine did something else meanwhile */
};
/* Run one trial of an alternative. An error ends the comparison and is its result. */
typedef int (*measure_fn)(void *arg, int alternative, struct measure_trial *t);

/* Time as a test writes it; with such a clock the machine is not watched, either. */
struct measure_clock {
    uint64_t (*now_ns)(void *arg);
    void *arg;
};
/* A clock that stands still: for trials of a simulator or a model, which say what they took,
 * and for comparisons that only their rounds end. */
extern const struct measure_clock measure_no_clock;

/* 0 in any member: its default. */
struct measure_opts {
    int min_rounds;      /* 6; no decision is made on fewer */
    int max_rounds;      /* 25, at most what measure_open() was told */
    int n_warm_up;       /* rounds before these, which do not count; 1. -1: none */
    double budget_s;     /* no round begins later, once min_rounds are done; 0.25 */
    double min_s;        /* each alternative runs for at least so long, so that a
                            disturbance cannot last for all of its trials; 0.003 */
    double precise_frac; /* hi - lo over the estimate that is narrow enough; 0.02 */
    bool keep_all;       /* one that is surely slower goes on, too: each is reported */
    uint64_t seed;       /* of the order in a round */
    const struct measure_clock *clock; /* NULL: the machine's */
};

/* Exactly this many rounds of all alternatives in an order that depends on nothing but the
 * seed: for threads that must all run the same trials, and for records of rounds. */
#define MEASURE_EXACTLY(rounds)                                                          \
    .min_rounds = (rounds), .max_rounds = (rounds), .keep_all = true

struct measure_report {
    double estimate; /* NaN: no trial was made, or it left */
    double lo, hi;   /* its 95 % interval; less sure below 6 trials */
    double best;     /* the smallest */
    int n;           /* trials that count: not those that were disturbed and slower than
                           all undisturbed ones, where 3 trials are left then */
    int n_disturbed; /* trials that were disturbed, counted or not */
};

struct measure;

/* Room for comparisons of up to n_max alternatives in up to rounds_max rounds: nothing
 * else is ever allocated. *out: measure_close(), NULL on error. ERR_ARG, ERR_NOMEM. */
MUST int measure_open(struct measure **out, int n_max, int rounds_max);
void measure_close(struct measure **m); /* twice is fine */

/* Time alternatives 0 .. n - 1; what was measured before is forgotten. o may be NULL.
 * ERR_ARG: n or the rounds do not fit; else what fn returns. */
MUST int measure_compare(struct measure *m, int n, const struct measure_opts *o,
                         measure_fn fn, void *arg);

/* Seconds of alternative i. */
void measure_report(const struct measure *m, int i, struct measure_report *out);
/* Time of a over time of b, by the rounds that both ran in. */
void measure_ratio(const struct measure *m, int a, int b, struct measure_report *out);

/* ---- the rule of choice ----
 *
 * Of alternatives that were compared, the simplest that is not surely slower than the fastest
 * by more than a margin. So near ties have the same answer every time, what is used now is
 * left for something better only, and structure that only noise suggests is not chosen.
 *
 * Surely: the 95 % interval of the rounds' ratios is beyond the margin. With 4 or 5 rounds,
 * which have no such interval, each must be beyond it by a further 2 %; with fewer, nothing is
 * sure. One that left the comparison early was surely slower. */
#define MEASURE_SURE_ROUNDS                                                              \
    6 /* the fewest whose smallest and largest are such an interval */

/* The index of the choice; -1: no alternative has an estimate.
 *   complexity   [n], the simplest has the least; of equals the fastest is taken. NULL: all
 *                are equally simple, so that the fastest is the answer
 *   margin_frac  how much slower the simpler one may be, as a fraction of the fastest */
int measure_choose(const struct measure *m, const int64_t *complexity,
                   double margin_frac);
/* The same rule for plain estimates, such as a model's, of which a larger one is surely
 * slower: the margin has to include their noise. seconds[n]; NaN or infinite: none. */
int measure_choose_estimate(const double *seconds, int n, const int64_t *complexity,
                            double margin_frac);
/* Is alternative i surely slower than the fastest by more than the margin? */
bool measure_surely_slower(const struct measure *m, int i, int fastest,
                           double margin_frac);

/* The time of each round, NaN where i did not run; lent until the next comparison. */
const double *measure_times(const struct measure *m, int i, int *n_rounds);

/* Test hook: from now on fn runs every trial of this process in place of the caller's
 * function, and disturbances are not detected. NULL switches it off. */
void measure_script(measure_fn fn, void *arg);

#endif
