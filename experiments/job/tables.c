#include "experiments/job/impl.h"

#include <stddef.h>
#include <string.h>

#include "baselines/sut.h"
#include "base/mem.h"
#include "base/stats_sequence.h"
#include "datasets/dataset.h"
#include "experiments/load/load.h"
#include "experiments/load/search.h"
#include "experiments/load/study.h"

#define OPT_OF struct job_head
const struct opt_row job_head_opt_table[] = {
    OPT_ROW(STR, about, NULL, "What the experiment shows, in one line."),
    OPT_ROW(STR, expect, NULL, "What a correct run looks like."),
    OPT_ROW(STR, published, NULL,
            "\"no: \" and the reason, where no record of it comes with the program."),
    OPT_ROW(ENUM, evidence, "measured",
            "Kind of evidence: measured, measured at reduced scale, computed, simulated, "
            "emulated or read from what others published.",
            .values = "measured|measured_small|model|simulated|emulated|published"),
    OPT_ROW(
        INT, repeats, "1",
        "Number of times all cells are run, one pass after the other. \"auto\": until "
        "the interval of each headline is narrow enough.",
        .min = 1, .max = 10000),
    OPT_ROW(F64, repeats_precision_frac, "0.03",
            "With repeats \"auto\": how far the 95 % interval of a headline may reach to "
            "each side of it.",
            .min = 1e-6, .max = 1),
    OPT_ROW(INT, repeats_min, "6",
            "With repeats \"auto\": the fewest repeats on which anything is decided.",
            .min = STATS_SEQUENCE_LEAST, .max = 10000),
    OPT_ROW(INT, repeats_max, "30", "With repeats \"auto\": the most repeats.",
            .min = STATS_SEQUENCE_LEAST, .max = 10000),
    OPT_ROW(
        ENUM, pairing, "none",
        "none: each variant runs all of its requests, then the next one does. request: "
        "all are loaded, and each request goes to one right after the other, A B, then "
        "B A, in a closed loop with one request at a time. A headline relative to a "
        "variant is then a ratio by request, which no wave of the machine changes. "
        "rate: all are loaded, and their searches for the goodput try the same rates, "
        "search.precision_frac apart, with the same arrivals, in turn. What fails at "
        "search.min_rps is below it: a ratio to it is then a bound.",
        .values = "none|request|rate"),
    OPT_ROW(
        STR, aa, NULL,
        "Variant that runs a second time in each repeat, under its name with ' behind "
        "it. Each headline that is a ratio to a variant then has detectable_frac: the "
        "smallest difference that this A/A could have seen. Nothing runs twice where "
        "the variant is not chosen, or no other one."),
    {0},
};

#undef OPT_OF
#define OPT_OF struct job_claim
const struct opt_row job_claim_opt_table[] = {
    OPT_ROW(STR, paper, NULL,
            "Paper that makes the claim. A job without one asks a question of the "
            "testbed's own."),
    OPT_ROW(STR, section, NULL, "Section of the paper."),
    OPT_ROW(STR, figure, NULL, "Figure or table of the paper."),
    OPT_ROW(STR, text, NULL, "The claim in one sentence."),
    {0},
};

#undef OPT_OF
#define OPT_OF struct job_cost
const struct opt_row job_cost_opt_table[] = {
    OPT_ROW(F64, minutes, NULL, "Expected duration on two cores.", .unit = "min",
            .min = 0, .max = 1e6),
    OPT_ROW(F64, disk_mb, NULL, "Disk space it needs, models included.", .unit = "MB",
            .min = 0, .max = 1e9),
    {0},
};

struct slo_opts {
    double ttft_ms, tpot_ms, target_frac;
};

#undef OPT_OF
#define OPT_OF struct slo_opts
const struct opt_row job_slo_opt_table[] = {
    OPT_ROW(F64, ttft_ms, "0", "Objective for the time to first token. 0: none.",
            .unit = "ms", .min = 0, .max = 1e9),
    OPT_ROW(F64, tpot_ms, "0", "Objective for the time per output token. 0: none.",
            .unit = "ms", .min = 0, .max = 1e9),
    OPT_ROW(F64, target_frac, "0.9",
            "Share of requests that must meet both objectives, for goodput.", .min = 0,
            .max = 1),
    {0},
};

#undef OPT_OF
#define OPT_OF struct job_headline
const struct opt_row job_headline_opt_table[] = {
    OPT_ROW(STR, name, NULL, "Name of the number in the record and in latest.json."),
    OPT_ROW(STR, metric, NULL,
            "Metric (`testbed describe metrics` lists them). goodput_rps is that of a "
            "search, or "
            "of the cells of all rates."),
    OPT_ROW(STR, unit, NULL, "Unit. Default: that of the metric."),
    OPT_ROW(ENUM, better, "higher", "Direction that is better.",
            .values = "higher|lower"),
    OPT_ROW(ENUM, over, "median",
            "How the matching settings are combined. median: exactly one setting must "
            "match. share: of values that are 0 or 1, with Wilson's 95 % interval.",
            .values = "median|geomean|min|max|mean|sum|share"),
    OPT_ROW(BOOL, needs_finite, "false",
            "Leave out cells whose value is missing. Their number is recorded as "
            "n_left_out."),
    OPT_ROW(STR, interval, NULL,
            "Axis whose values are independent measurements, such as a seed. Each gives "
            "a number of its own, and the spread of these gives the headline, a mean or "
            "geomean, a 95 % interval."),
    {0},
};

static int find_adapter(const char *name, const struct opt_row **out)
{
    const struct sut_adapter *a;
    int rc = sut_adapter_find(name, &a);

    *out = rc == OK ? a->opts : NULL;
    return rc;
}

static const char *adapter_name(int i)
{
    return sut_adapters[i] ? sut_adapters[i]->name : NULL;
}

static const char *study_name(int i)
{
    return studies[i] ? studies[i]->name : NULL;
}

static int find_study(const char *name, const struct opt_row **out)
{
    const struct study *s;
    int rc = study_find(name, &s);

    *out = rc == OK ? s->opts : NULL;
    return rc;
}

const struct job_section job_serve_sections[] = {
    {"system", NULL, "The system under test: `adapter` and the options of that adapter.",
     "adapter", adapter_name, find_adapter},
    {"dataset", dataset_opt_table, "The requests. `seed` defaults to seeds.sample.", 0, 0,
     0},
    {"load", load_opt_table, "When requests are sent.", 0, 0, 0},
    {"search", load_search_opt_table,
     "The search for the highest rate at which the objectives hold.", 0, 0, 0},
    {"slo", job_slo_opt_table,
     "Latency objectives. `scale`: list of multiples of them to evaluate as well.", 0, 0,
     0},
    {"seeds", load_seeds_opt_table, "The four random seeds. All are recorded.", 0, 0, 0},
    {0},
};

const struct job_section job_study_sections[] = {
    {"study", NULL, "The study to run: `name` and the options of that study.", "name",
     study_name, find_study},
    {0},
};

const struct job_section *job_section_find(const char *name)
{
    const struct job_section *s;

    for (s = job_serve_sections; s->name; s++)
        if (strcmp(s->name, name) == 0)
            return s;
    for (s = job_study_sections; s->name; s++)
        if (strcmp(s->name, name) == 0)
            return s;
    return NULL;
}

int job_section_opts(const struct job_section *s, const json_t *given,
                     const struct opt_row **out, const char *where)
{
    const json_t *name = s->choice ? json_object_get(given, s->choice) : NULL;
    int rc;

    *out = s->opts;
    if (s->opts)
        return OK;
    if (!json_is_string(name))
        return err_set(ERR_ARG, "%s.%s: expected the name of a plug-in, found %s", where,
                       s->choice, name ? "another type" : "none");
    rc = s->find(json_string_value(name), out);
    return rc == OK ? OK : err_prefix(rc, "%s.%s", where, s->choice);
}

/* A size that is enough for the struct that a table describes: the table has the offsets
 * of the members, not the size of the struct. */
static size_t struct_bytes(const struct opt_row *table)
{
    size_t n = 0;

    for (; table->name; table++)
        if (table->offset > n)
            n = table->offset;
    return n + sizeof(int64_t) + sizeof(void *);
}

int job_section_resolve(const struct job_section *s, const json_t *given, json_t **out,
                        const char *where)
{
    const struct opt_row *opts;
    const json_t *choice = s->choice ? json_object_get(given, s->choice) : NULL;
    json_t *rest = NULL, *all = NULL;
    void *scratch = NULL;
    int rc;

    *out = NULL;
    rc = job_section_opts(s, given, &opts, where);
    if (rc != OK)
        return rc;
    rest = json_copy((json_t *)given);
    scratch = mem_new(MEM_HARNESS, 1, struct_bytes(opts));
    if (!rest || !scratch) {
        rc = err_set(ERR_NOMEM, "%s: out of memory", where);
        goto out;
    }
    if (choice)
        json_object_del(rest, s->choice);
    rc = opt_init(opts, scratch);
    if (rc != OK)
        goto out;
    rc = opt_from_json(opts, scratch, rest, where);
    if (rc == OK && !(all = opt_to_json(opts, scratch)))
        rc = ERR_NOMEM;
    opt_free(opts, scratch);
    if (rc == OK && choice && json_object_set(all, s->choice, (json_t *)choice) != 0)
        rc = err_set(ERR_NOMEM, "%s: out of memory", where);
    if (rc == OK)
        *out = all, all = NULL;
out:
    json_decref(all);
    json_decref(rest);
    mem_free(scratch);
    return rc;
}
