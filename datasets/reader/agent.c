#include <math.h>
#include <stdio.h>

#include "base/json.h"
#include "base/mem.h"
#include "datasets/build.h"

#define MAX_S 4e9 /* in nanoseconds it fits 64 bits */

/* Sessions of an agent, recorded as one object each: {start_s, calls: [{input_tok, output_tok,
 * pause_s}]}. The input of a call is all that the model was sent, the answers and results of tools
 * before it included; pause_s is the time from the end of the last answer to this call, in which
 * tools ran. */
static int read_s(const json_t *o, const char *key, double *s, const char *where)
{
    TRY(json_opt_f64(o, key, s, where));
    if (!isnan(*s) && !(*s >= 0 && *s <= MAX_S))
        return err_set(ERR_FORMAT, "%s: %s: expected 0 to %g s, found %g", where, key,
                       MAX_S, *s);
    return OK;
}

static int read_call(struct dataset_item *it, const json_t *call, size_t k,
                     const char *where)
{
    char at[400];

    snprintf(at, sizeof(at), "%.300s: calls: element %zu", where, k);
    if (!json_is_object(call))
        return err_set(ERR_FORMAT, "%s: expected an object", at);
    *it = (struct dataset_item){.arrival_s = NAN};
    TRY(json_get_int(call, "input_tok", 1, DATASET_MAX_TOK, &it->n_prompt, at));
    TRY(json_get_int(call, "output_tok", 1, DATASET_MAX_TOK, &it->n_output, at));
    return read_s(call, "pause_s", &it->pause_s, at);
}

/* Calls on their own, or one after the other. */
static int offer_calls(struct dataset *d, const struct dataset_opts *o,
                       struct dataset_item *v, size_t n, double start_s,
                       const char *where, bool *full)
{
    if (o->turns == DATASET_TURNS_EACH) {
        for (size_t k = 0; k < n && !*full; k++)
            TRY(dataset_offer(d, &v[k], full));
        return OK;
    }
    for (size_t k = 1; k < n && o->turns != DATASET_TURNS_FIRST; k++)
        v[k - 1].later = &v[k];
    if (isnan(start_s))
        return dataset_offer(d, v, full);
    return dataset_offer_at(d, v, (int64_t)(start_s * 1e9), where, full);
}

static int offer(struct dataset *d, const struct dataset_opts *o, const char *text,
                 size_t n, const char *where, bool *full)
{
    struct dataset_item *v = NULL;
    const json_t *calls = NULL;
    double start_s = NAN;
    json_t *record = NULL;
    int rc = json_read_text(&record, text, n, where);

    *full = false;
    if (rc == OK)
        rc = json_get_arr(record, "calls", &calls, where);
    if (rc == OK)
        rc = read_s(record, "start_s", &start_s, where);
    n = rc == OK ? json_array_size(calls) : 0;
    if (rc == OK && n == 0)
        dataset_skip(d, "no call");
    v = mem_new(MEM_DATASET, n + 1, sizeof(*v));
    if (rc == OK && !v)
        rc = ERR_NOMEM;
    for (size_t k = 0; k < n && rc == OK; k++)
        rc = read_call(&v[k], json_array_get(calls, k), k, where);
    if (rc == OK && n > 0)
        rc = offer_calls(d, o, v, n, start_s, where, full);
    mem_free(v);
    json_decref(record);
    return rc;
}

static int agent_open(struct dataset *d, const struct dataset_opts *o)
{
    return dataset_read_records(d, o, offer);
}

const struct dataset_reader dataset_reader_agent = {
    .name = "agent",
    .help = "sessions of agents, JSONL {start_s, calls: [{input_tok, output_tok, "
            "pause_s}]}",
    .needs_path = true,
    .keys = "calls",
    .open = agent_open,
};
