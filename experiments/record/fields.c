#include "experiments/record/fields.h"

#include <string.h>

#include "base/mem.h"
#include "base/name.h"
#include "experiments/record/record.h"
#include "experiments/load/study.h"

#define NEVER " (-2^63: never)"

const char *const record_states[] = {"done", "failed", "skipped", NULL};

#define AT(member) offsetof(struct metrics_row, member)
/* clang-format off */
const struct record_column record_columns[] = {
    {"request", RECORD_COLUMN_I64, AT(request), "", "number of the request in its cell"},
    {"warmup", RECORD_COLUMN_BOOL, AT(warmup), "", "1: excluded from every statistic"},
    {"intended_ns", RECORD_COLUMN_I64, AT(intended_ns), "ns",
     "scheduled start, from the start of the cell: latency counts from here"},
    {"dispatch_ns", RECORD_COLUMN_I64, AT(dispatch_ns), "ns",
     "when it was really sent; the difference is the harness's lateness" NEVER},
    {"first_token_ns", RECORD_COLUMN_I64, AT(first_token_ns), "ns", "first token" NEVER},
    {"done_ns", RECORD_COLUMN_I64, AT(done_ns), "ns", "end, good or bad" NEVER},
    {"n_prompt_tok", RECORD_COLUMN_I64, AT(n_prompt_tok), "tok", "length of the prompt"},
    {"n_output_tok", RECORD_COLUMN_I64, AT(n_output_tok), "tok", "output tokens asked for"},
    {"n_tok", RECORD_COLUMN_I64, AT(n_tok), "tok", "output tokens received"},
    {"status", RECORD_COLUMN_STATUS, AT(status), "",
     "0 ok, 1 failed, 2 timeout, 3 rejected (not sent)"},
    {"error", RECORD_COLUMN_ERROR, AT(error), "", "why it is not ok"},
    {"decode_bytes", RECORD_COLUMN_F64, AT(decode_bytes), "B",
     "bytes its tokens after the first must read; NaN: the system does not state it"},
    {"prefill_flop", RECORD_COLUMN_F64, AT(prefill_flop), "FLOP",
     "arithmetic of its prompt; NaN: the system does not state it"},
    {0},
};

static const struct field {
    const char *path, *type, *unit, *meaning;
} fields[] = {
    {"/@schema_version", "i64", "", "version of this table"},
    {"/@experiment", "text", "", "name of the experiment"},
    {"/@evidence", "text", "",
     "measured, measured_small, model, simulated, emulated, published or unavailable"},
    {"/@utc", "text", "", "when the run began"},
    {"/@host", "text", "", "name of the machine"},
    {"/@cpu_model", "text", "", "name of the processor"},
    {"/@n_cpus", "i64", "", "CPUs that the run computed on: one for each allowed core"},
    {"/@claim", "text", "", "what the paper says"},
    {"/@expect", "text", "", "what this experiment expects to see"},
    {"/@version", "text", "", "version of the program, such as 0.3.0"},
    {"/@commit", "text", "", "commit of the code"},
    {"/@dirty", "i8", "", "1: the code had changes that are in no commit"},
    {"/@compiler", "text", "", "the compiler's own version line"},
    {"/@flags", "text", "", "optimisation flags"},
    {"/@isa", "text", "",
     "instruction sets of the processor that SANDWICH_ISA left for the run"},
    {"/@swept", "text", "",
     "axes that --set made of single values, separated by blanks; absent: none"},
    {"/@stopped", "text", "", "why a run with repeats \"auto\" ended; absent: it is not one"},
    {"/@n_repeats", "i64", "", "of such a run: how often all cells were run"},
    {"/@prediction_sha256", "text", "",
     "hash of the prediction by which the run is scored; absent: there is none"},
    {"/@prediction_predictor", "text", "", "what made it"},
    {"/@prediction_utc", "text", "", "when it was made"},
    {"/@prediction_n", "i64", "", "headlines that it has an interval and the record a value for"},
    {"/@prediction_inside_50", "i64", "", "of these, inside the interval of 50 %"},
    {"/@prediction_inside_80", "i64", "", "inside that of 80 %"},
    {"/@prediction_inside_95", "i64", "", "inside that of 95 %"},
    {"/@prediction_narrow", "i64", "", "whose interval of 95 % reaches at most 15 % to each side"},
    {"/@prediction_missing", "i64", "", "headlines with an interval, but without a value"},
    {"/@n_cells", "i64", "", "cells below /cells, each attempt at one"},
    {"/@n_interrupted_cells", "i64", "", "cells begun, killed, and measured again"},
    {"/@sha256", "text", "",
     "end of the chain of hashes, of the headline, the root's attributes and documents"},
    {"/@*", "any", "", "every other scalar of the run's header"},
    {"/job_json", "json", "", "the job with every default resolved"},
    {"/provenance_json", "json", "", "commit, compiler, flags and instruction sets"},
    {"/environment_json", "json", "", "the machine's settings when the run began"},
    {"/machine_card_json", "json", "", "measured bandwidth and peaks of the machine"},
    {"/prediction_json", "json", "", "the prediction"},
    {"/resumes_json", "json", "", "when the run was taken up again after an interruption"},
    {"/hwloc_xml", "text", "", "topology of the machine as hwloc 2 XML"},
    {"/*_json", "json", "", "every other object of the run's header"},
    {"/headline@sha256", "text", "", "its link of the chain"},
    {"/headline/*", "f64", "of each", "a number that summarises the experiment"},
    {"/headline/*@better", "text", "", "higher or lower"},
    {"/headline/*@why", "text", "", "why it is NaN"},
    {"/headline/*@evidence", "text", "",
     "kinds of evidence of the values it is made from"},
    {"/headline/*@n_left_out", "i64", "",
     "cells left out because their value is missing; absent: none"},
    {"/headline/*@lo", "f64", "of each", "lower end of its 95 % interval; absent: none"},
    {"/headline/*@hi", "f64", "of each", "upper end of its 95 % interval; absent: none"},
    {"/headline/*@detectable_frac", "f64", "",
     "of a ratio: the smallest difference from 1 that the job's A/A could have seen; absent: the "
     "job has none, or detectable_why"},
    {"/headline/*@detectable_why", "text", "", "why that is not known"},
    {"/cells/NNNN/attributes_json", "json", "",
     "key (axis values and repeat as stable text), state (done, failed or skipped), attempt (1, "
     "or more if the same key was measured before), settings, seeds, the system's description, "
     "warnings, memory and load of the cell"},
    {"/cells/NNNN/*@sha256", "text", "",
     "of attributes_json, requests, tokens, summary and series: SHA-256 of the one before it, of "
     "its name, attributes and data"},
    {"/cells/NNNN/tokens/time_ns", "i64[n]", "ns",
     "when each token came, from the start of the cell; request after request"},
    {"/cells/NNNN/tokens/offset", "i64[n_requests + 1]", "",
     "request i has the tokens offset[i] .. offset[i + 1)"},
    {"/cells/NNNN/summary/*", "f64", "of each", "a metric of the cell"},
    {"/cells/NNNN/summary/*@better", "text", "", "higher or lower, where one of them is"},
    {"/cells/NNNN/summary/*@why", "text", "", "why it is NaN"},
    {"/cells/NNNN/summary/*@evidence", "text", "",
     "what it rests on, as /@evidence"},
    {"/cells/NNNN/summary/*@lo", "f64", "of each",
     "lower end of its 95 % interval; absent: none"},
    {"/cells/NNNN/summary/*@hi", "f64", "of each",
     "upper end of its 95 % interval; absent: none"},
    {"/cells/NNNN/series/*", "f64[n]", "of each", "a named array of the cell"},
    {"/cells/NNNN/series/*@evidence", "text", "", "as of a metric of the cell"},
};
/* clang-format on */

const char *record_field_meaning(const char *path)
{
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        if (strcmp(fields[i].path, path) == 0)
            return fields[i].meaning;
    return "";
}

/* "p99_ttft_ms" is a statistic of "ttft_ms": the name ends in '_' and the definition's.
 */
static int defines(const struct metrics_def *d, const char *name)
{
    size_t n = strlen(name), m = strlen(d->name);

    return strcmp(name, d->name) == 0 ||
           (d->samples && n > m + 1 && name[n - m - 1] == '_' &&
            strcmp(name + n - m, d->name) == 0);
}

static const char *study_meaning(const char *name, const struct study *study,
                                 const char **better)
{
    const struct study_metric *m = study->metrics;

    while (m->name && strcmp(m->name, name) != 0)
        m++;
    *better = m->name ? m->better : "";
    return m->name ? m->text : name;
}

const char *record_metric_meaning(const char *name, const struct study *study,
                                  const char **better)
{
    const struct metrics_def *best = NULL;

    if (study)
        return study_meaning(name, study, better);

    for (const struct metrics_def *d = metrics_defs; d->name; d++)
        if (defines(d, name) && (!best || strlen(d->name) > strlen(best->name)))
            best = d;
    for (const struct metrics_def *d = metrics_goodput_defs; d->name; d++)
        if (strcmp(d->name, name) == 0)
            best = d;
    *better = best ? best->better : "";
    return best ? best->text : name;
}

static const char *const kind_words[] = {
    [RECORD_COLUMN_I64] = "i64[n_requests]",    [RECORD_COLUMN_F64] = "f64[n_requests]",
    [RECORD_COLUMN_BOOL] = "i8[n_requests]",    [RECORD_COLUMN_STATUS] = "i8[n_requests]",
    [RECORD_COLUMN_ERROR] = "text[n_requests]",
};

static void add_field(json_t *list, const char *prefix, const struct field *f)
{
    json_array_append_new(list,
                          json_pack("{s:s+ s:s s:s s:s}", "name", prefix, f->path, "type",
                                    f->type, "unit", f->unit, "meaning", f->meaning));
}

json_t *record_schema(void)
{
    json_t *list = json_array();

    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        add_field(list, "", &fields[i]);
    for (const struct record_column *c = record_columns; c->name; c++) {
        const struct field f = {c->name, kind_words[c->kind], c->unit, c->meaning};
        add_field(list, "/cells/NNNN/requests/", &f);
    }
    return json_pack("{s:i s:o}", "schema_version", RECORD_SCHEMA_VERSION, "fields",
                     list);
}
