/* Counts of requests and tokens. */
#include <math.h>

#include "base/json.h"
#include "base/mem.h"
#include "experiments/record/rule.h"

static void check_counts(struct record_view *v, size_t i)
{
    const struct metrics_row *r = &v->in.rows[i];

    if (r->n_prompt_tok < 1)
        record_fault_row(v, "n_prompt_tok", i, "expected a prompt, found %lld tokens",
                         (long long)r->n_prompt_tok);
    if (r->n_tok > r->n_output_tok)
        record_fault_row(v, "n_output_tok", i,
                         "expected at least the %lld tokens that came, found %lld",
                         (long long)r->n_tok, (long long)r->n_output_tok);
    else if (r->status == METRICS_OK && r->n_tok != r->n_output_tok)
        record_fault_row(v, "n_output_tok", i,
                         "expected %lld, as many as came of a completed one, found %lld",
                         (long long)r->n_tok, (long long)r->n_output_tok);
    if ((r->status == METRICS_OK) != (r->error[0] == 0))
        record_fault_row(v, "error", i,
                         "expected a reason only where it is not ok, found "
                         "%s and \"%.40s\"",
                         metrics_status_name(r->status), r->error);
    if (r->decode_bytes < 0 || isinf(r->decode_bytes))
        record_fault_row(v, "decode_bytes", i, "expected a number of bytes, found %g",
                         r->decode_bytes);
    if (r->prefill_flop < 0 || isinf(r->prefill_flop))
        record_fault_row(v, "prefill_flop", i,
                         "expected an amount of arithmetic, found %g", r->prefill_flop);
}

/* Each once. */
static void check_numbers(struct record_view *v)
{
    const size_t n = v->in.n_rows;
    char *is_there = mem_new(MEM_HARNESS, n + 1, 1);

    for (size_t i = 0; i < n; i++) {
        const int64_t request = v->in.rows[i].request;

        if (request < 0 || (size_t)request >= n || is_there[request])
            record_fault_row(v, "request", i,
                             "expected each number below %zu once, found "
                             "%lld%s",
                             n, (long long)request,
                             request >= 0 && (size_t)request < n ? " twice" : "");
        else
            is_there[request] = 1;
    }
    mem_free(is_there);
}

static void of_cell(struct record_view *v)
{
    for (size_t i = 0; i < v->in.n_rows; i++)
        check_counts(v, i);
    check_numbers(v);
}

const struct record_rule record_rule_tokens = {
    .name = "tokens",
    .text = "Each request is there once, and has the tokens that its columns say.",
    .of_cell = of_cell,
};
