/* The cells as a whole. */
#include "base/json.h"
#include "base/name.h"
#include "experiments/record/record.h"
#include "experiments/record/rule.h"

static void of_cell(struct record_view *v)
{
    const json_t *a = v->attributes;
    const char *state = json_str_at(a, "state", "");
    const json_int_t attempt = json_int_at(a, "attempt"),
                     expected = json_int_at(v->seen, json_str_at(a, "key", "")) + 1;

    if (name_index(record_states, state) < 0)
        record_fault(v, "attributes_json/state",
                     "expected done, failed or skipped, found "
                     "\"%.30s\"",
                     state);
    else if (state != NULL && state[0] != 'd' && json_object_size(v->summary) > 0)
        record_fault(v, "attributes_json/state", "expected done with a summary, found %s",
                     state);
    if (attempt != expected)
        record_fault(v, "attributes_json/attempt", "expected %lld, found %lld",
                     (long long)expected, (long long)attempt);
}

static void of_file(struct record_view *v)
{
    const json_int_t n = json_int_at(v->run, "n_cells");
    const char *evidence = json_str_at(v->run, "evidence", "");

    if ((size_t)n != v->n_cells)
        record_fault(v, "@n_cells", "expected %zu, found %lld", v->n_cells, (long long)n);
    if (!metrics_evidence_find(evidence))
        record_fault(v, "@evidence", "expected a kind of evidence, found \"%.30s\"",
                     evidence);
}

const struct record_rule record_rule_cells = {
    .name = "cells",
    .text = "All cells are there, and each attempt once.",
    .of_file = of_file,
    .of_cell = of_cell,
};
