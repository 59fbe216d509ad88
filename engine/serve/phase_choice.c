#include "serve/phase_choice.h"

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* With more rows than this the choice never takes decode: its phase need not hold them. */
static int64_t decode_rows(const struct serve_choice *c, int64_t max_seqs,
                           int64_t max_step_tok)
{
    int64_t n = max_step_tok;

    if (c->by == SERVE_CHOICE_ROWS_RULE)
        n = SERVE_CHOICE_ROWS - 1;
    if (c->by == SERVE_CHOICE_TABLE)
        n = plan_costs_most_rows(c->costs[SERVE_DECODE], c->costs[SERVE_PREFILL],
                                 SERVE_CHOICE_MARGIN_FRAC, max_step_tok);
    n = most(n, max_seqs);
    return n < max_step_tok ? n : max_step_tok;
}

void serve_choice_init(struct serve_choice *c, const struct plan *plan, int64_t max_seqs,
                       int64_t max_step_tok)
{
    *c = (struct serve_choice){
        .by = SERVE_CHOICE_TABLE,
        .costs = {[SERVE_PREFILL] = &plan->prefill.costs,
                  [SERVE_DECODE] = &plan->decode.costs},
    };
    if (plan->prefill.costs.n < 1 || plan->decode.costs.n < 1)
        c->by = SERVE_CHOICE_ROWS_RULE;
    if (plan_is_one(plan))
        c->by = SERVE_CHOICE_ONE;
    c->decode_rows_max = decode_rows(c, max_seqs, max_step_tok);
}

static enum serve_phase by_rows(int64_t n_rows, bool has_prompt)
{
    return has_prompt && n_rows >= SERVE_CHOICE_ROWS ? SERVE_PREFILL : SERVE_DECODE;
}

static enum serve_phase by_table(struct serve_choice *c, int64_t n_rows, bool has_prompt)
{
    enum serve_phase now = c->begun ? c->now : has_prompt ? SERVE_PREFILL : SERVE_DECODE;
    enum serve_phase other = now == SERVE_PREFILL ? SERVE_DECODE : SERVE_PREFILL;
    double cost_s = plan_costs_at(c->costs[now], n_rows);

    if (n_rows > c->decode_rows_max) {
        c->accumulated_regret_s = 0;
        return SERVE_PREFILL;
    }
    c->accumulated_regret_s += cost_s - plan_costs_at(c->costs[other], n_rows);
    if (c->accumulated_regret_s < 0)
        c->accumulated_regret_s = 0;
    if (c->accumulated_regret_s <= SERVE_CHOICE_MARGIN_FRAC * cost_s + SERVE_SWITCH_S)
        return now;
    c->accumulated_regret_s = 0;
    return other;
}

enum serve_phase serve_choice_next(struct serve_choice *c, int64_t n_rows,
                                   bool has_prompt)
{
    enum serve_phase next = has_prompt ? SERVE_PREFILL : SERVE_DECODE;

    if (c->by == SERVE_CHOICE_ROWS_RULE)
        next = by_rows(n_rows, has_prompt);
    if (c->by == SERVE_CHOICE_TABLE)
        next = by_table(c, n_rows, has_prompt);
    c->begun = true;
    c->now = next;
    c->n_steps[next]++;
    return next;
}

const char *serve_choice_by_name(const struct serve_choice *c)
{
    static const char *const names[] = {"one", "rows", "table"};

    return names[c->by];
}
