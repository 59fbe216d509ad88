/* serve/phase_choice.h - chooses the phase whose configuration the next step uses.
 *
 * A whole prompt belongs to prefill and a batch of decoding sequences to decode. A batch
 * that mixes them, or a short piece of a prompt, may run under either. Where the plan has a
 * table of step times under each phase, the table decides, with hysteresis: the extra time
 * of the present phase is accumulated from step to step (never below zero, so that steps
 * that favour the present phase reduce it), and the phase changes only when the sum exceeds
 * a margin and the cost of a switch. One large gain is enough, a small one has to last, and
 * equal phases never switch. Without a table, steps of few rows use decode's phase.
 *   Paper: Sandwich 5.3.   Threads: the stepping one. Pure: no clock, no engine. */
#ifndef SERVE_PHASE_CHOICE_H
#define SERVE_PHASE_CHOICE_H

#include <stdbool.h>

#include "plan/plan.h"
#include "serve/serve.h"

/* Fraction of the step's cost. Tables are medians of a few trials on a machine that may be
 * shared, and vary by about this much. */
#define SERVE_CHOICE_MARGIN_FRAC 0.05
/* Waking parked threads; the rest of a switch is below noise (experiments/phase_switch). */
#define SERVE_SWITCH_S 20e-6
/* Without a table, fewer rows than this use decode's phase: like decode they are bound by
 * reading weights, not by arithmetic. */
#define SERVE_CHOICE_ROWS 32

enum serve_choice_by {
    SERVE_CHOICE_ONE, /* both phases are the same one */
    SERVE_CHOICE_ROWS_RULE,
    SERVE_CHOICE_TABLE
};

struct serve_choice {
    enum serve_choice_by by;
    const struct plan_costs *costs[SERVE_N_PHASES]; /* lent by the plan */
    int64_t decode_rows_max; /* the largest step that decode's phase has memory for */
    bool begun;
    enum serve_phase now;
    double accumulated_regret_s;     /* what staying has cost */
    int64_t n_steps[SERVE_N_PHASES]; /* steps that ran under each phase */
};

/* `plan` must outlive *c. max_seqs: most rows of a step without a prompt; max_step_tok: of
 * any step. */
void serve_choice_init(struct serve_choice *c, const struct plan *plan, int64_t max_seqs,
                       int64_t max_step_tok);
/* The phase of a step of n_rows tokens, counted as run. has_prompt: some are of a
 * prompt. */
enum serve_phase serve_choice_next(struct serve_choice *c, int64_t n_rows,
                                   bool has_prompt);
/* "one", "rows", "table" */
const char *serve_choice_by_name(const struct serve_choice *c);

#endif
