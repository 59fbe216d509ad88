/* serve/phase_choice.h - under which phase's configuration the next step runs.
 *
 * A whole prompt is prefill's and a batch of decoding sequences decode's; a batch that
 * mixes them, or a short piece of a prompt, may be either's. Where the plan has a table of
 * what steps take under each, the table decides, with hysteresis: what the present phase
 * costs more than the other is added up from step to step (never below nothing, so that
 * steps which favour the present phase forgive), and only when the sum exceeds a margin
 * and the price of a switch, the phase changes. One large gain is enough, a small one has
 * to last, and equality never switches. Without a table few rows are decode's.
 *   Paper: Sandwich 5.3.   Threads: the stepping one. Pure: no clock, no engine. */
#ifndef SERVE_PHASE_CHOICE_H
#define SERVE_PHASE_CHOICE_H

#include <stdbool.h>

#include "plan/plan.h"
#include "serve/serve.h"

/* Of the step's cost: tables are medians of few trials on a machine that may have other
 * work, and differ by so much for no reason. */
#define SERVE_CHOICE_MARGIN_FRAC 0.05
/* Waking parked threads; the rest of a switch is below noise (experiments/phase_switch). */
#define SERVE_SWITCH_S 20e-6
/* Fewer rows are decode's where no table says better: arithmetic does not yet bound them,
 * weights do, as in decode. */
#define SERVE_CHOICE_ROWS 32

enum serve_choice_by {
    SERVE_CHOICE_ONE, /* both phases are one: nothing to choose */
    SERVE_CHOICE_ROWS_RULE,
    SERVE_CHOICE_TABLE
};

struct serve_choice {
    enum serve_choice_by by;
    const struct plan_costs *costs[SERVE_N_PHASES]; /* lent by the plan */
    int64_t decode_rows_max; /* decode's phase has room for so many */
    bool begun;
    enum serve_phase now;
    double accumulated_regret_s;     /* what staying has cost */
    int64_t n_steps[SERVE_N_PHASES]; /* that ran under it */
};

/* `plan` must outlive *c. max_seqs: of a step without a prompt; max_step_tok: of any. */
void serve_choice_init(struct serve_choice *c, const struct plan *plan, int64_t max_seqs,
                       int64_t max_step_tok);
/* The phase of a step of n_rows tokens, counted as run. has_prompt: some are of a
 * prompt. */
enum serve_phase serve_choice_next(struct serve_choice *c, int64_t n_rows,
                                   bool has_prompt);
/* "one", "rows", "table" */
const char *serve_choice_by_name(const struct serve_choice *c);

#endif
