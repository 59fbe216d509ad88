/* experiments/load/ladder.h - the goodputs of several systems on one ladder of rates.
 *
 * All systems ("entries") share the rates min_rps * (1 + precision_frac)^rung. A trial is a block
 * of requests at one rung: block k of a rung has the same requests and arrivals for every entry.
 * The entries for which a block is of interest run it one right after the other, so that a wave of
 * the machine hits all of them. From all trials so far a pure function names the next block:
 *   1. bracket: the rung doubles its rate until the objectives fail, or halves it until they hold;
 *   2. bisection, until the highest rung that holds and the lowest that fails are neighbours;
 *   3. both are measured until it is decided whether they hold, from at least n_least requests, or
 *      their share is near the target, and known to LOAD_LADDER_HALF_FRAC;
 *   4. where that does not decide, the next rung farther out is measured likewise.
 * So each goodput is between a rate that surely holds and one that surely fails. An entry that
 * fails at the lowest rung is below it, one that holds at the highest is at least that: a bound,
 * which is no goodput but decides many a ratio. tests/load/test_load_ladder.c simulates all this.
 * Threads: pure functions. */
#ifndef LOAD_LADDER_H
#define LOAD_LADDER_H

#include "experiments/load/search.h"

/* Half of the 95 % interval at which a share is known. A share of 0.9 needs 140 requests. One that
 * is nearer to the target than half of it would need more than 1000 to be decided. */
#define LOAD_LADDER_HALF_FRAC 0.05
/* At a rung no more blocks are measured. Eight of 25 requests suffice where they depend on each
 * other as if they were 140; what is undecided then is near the target. */
#define LOAD_LADDER_BLOCKS_MAX 8

/* The number of rungs, and the rung of a rate. Of a struct load_search min_rps, max_rps,
 * precision_frac, target_frac, first_rps, n_least and max_trials (of an entry) are read. */
int load_ladder_rungs(const struct load_search *s);
int load_ladder_rung(const struct load_search *s, double rate_rps);

/* The next block; false: there is none.
 *   t      trials of all entries; seed is the block, from 0
 *   ended  [n_entries] those that cannot run
 *   next   its rate and seed
 *   runs   [n_entries] the entries that run it */
bool load_ladder_next(const struct load_search *s, const struct load_trial *t, size_t n,
                      const bool *ended, int n_entries, struct load_trial *next,
                      bool *runs);

/* The goodput of one entry:
 *   rps       the highest rung that holds; NaN, and why, where it is not bounded to both sides
 *   low_rps   the highest rung that surely holds; NaN: none
 *   high_rps  the lowest rung that surely fails; NaN: none */
void load_ladder_result(struct load_goodput *out, const struct load_search *s,
                        const struct load_trial *t, size_t n, int entry);

#endif
