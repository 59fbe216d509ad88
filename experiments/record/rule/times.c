/* Causes come before effects. */
#include "experiments/record/rule.h"

static void check_tokens(struct record_view *v, size_t i)
{
    const struct metrics_row *r = &v->in.rows[i];
    const int64_t first = r->n_tok ? r->token_ns[0] : METRICS_NEVER;

    if (r->first_token_ns != first)
        record_fault_row(v, "first_token_ns", i,
                         "expected %lld, its first token, found %lld", (long long)first,
                         (long long)r->first_token_ns);
    for (int64_t k = 1; k < r->n_tok; k++)
        if (r->token_ns[k] < r->token_ns[k - 1])
            record_fault(
                v, "tokens/time_ns[]",
                "expected token %lld of request %zu not before the one before it, at "
                "%lld, found %lld",
                (long long)k, i, (long long)r->token_ns[k - 1],
                (long long)r->token_ns[k]);
    if (r->n_tok && first < r->dispatch_ns)
        record_fault_row(v, "dispatch_ns", i,
                         "expected it sent before its first token, at %lld, found %lld",
                         (long long)first, (long long)r->dispatch_ns);
    /* A canceled one is closed with the time at which the harness noticed. */
    if (r->n_tok && r->status != METRICS_TIMEOUT &&
        r->done_ns < r->token_ns[r->n_tok - 1])
        record_fault_row(v, "done_ns", i,
                         "expected an end after its last token, at %lld, "
                         "found %lld",
                         (long long)r->token_ns[r->n_tok - 1], (long long)r->done_ns);
}

static void check_row(struct record_view *v, size_t i)
{
    const struct metrics_row *r = &v->in.rows[i];
    const bool is_sent = r->dispatch_ns != METRICS_NEVER;

    if (r->intended_ns < 0)
        record_fault_row(v, "intended_ns", i, "expected a time in the cell, found %lld",
                         (long long)r->intended_ns);
    if (r->done_ns < r->intended_ns)
        record_fault_row(v, "done_ns", i,
                         "expected an end after its start, at %lld, found "
                         "%lld",
                         (long long)r->intended_ns, (long long)r->done_ns);
    if (is_sent != (r->status != METRICS_REJECTED))
        record_fault_row(v, "status", i, "expected it rejected or sent, found %s and %s",
                         metrics_status_name(r->status), is_sent ? "sent" : "not sent");
    if (is_sent && r->dispatch_ns < r->intended_ns)
        record_fault_row(
            v, "dispatch_ns", i,
            "expected it sent when it was due, at %lld, or later, found %lld",
            (long long)r->intended_ns, (long long)r->dispatch_ns);
    check_tokens(v, i);
}

static void of_cell(struct record_view *v)
{
    for (size_t i = 0; i < v->in.n_rows; i++)
        check_row(v, i);
}

const struct record_rule record_rule_times = {
    .name = "times",
    .text = "A request is due, sent, answered token by token, and ends, in this order.",
    .of_cell = of_cell,
};
