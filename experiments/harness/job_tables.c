#include "experiments/harness/job_private.h"

#include <stddef.h>
#include <string.h>

#include "baselines/sut.h"
#include "base/mem.h"
#include "datasets/dataset.h"
#include "experiments/harness/load.h"
#include "experiments/harness/run.h"
#include "experiments/harness/study.h"

#define TEXT(struct_, word, text)                                                        \
    {                                                                                    \
        .name = #word, .type = OPT_STR, .offset = offsetof(struct struct_, word),        \
        .help = text                                                                     \
    }

const struct opt_row job_head_opt_table[] = {
    TEXT(job_head, about, "one line: what the experiment shows"),
    TEXT(job_head, expect, "what a correct run looks like"),
    {.name = "evidence",
     .type = OPT_ENUM,
     .offset = offsetof(struct job_head, evidence),
     .def = "measured",
     .values = "measured|measured_small|model|simulated|emulated",
     .help = "what the numbers rest on"},
    {.name = "repeats",
     .type = OPT_INT,
     .offset = offsetof(struct job_head, repeats),
     .min = 1,
     .max = 10000,
     .def = "1",
     .help = "times the whole product of the axes is run, one after the other"},
    {0},
};

const struct opt_row job_claim_opt_table[] = {
    TEXT(job_claim, paper, "whose claim it is"),
    TEXT(job_claim, section, "where in the paper"),
    TEXT(job_claim, figure, "which figure or table"),
    TEXT(job_claim, text, "the claim in one sentence"),
    {0},
};

const struct opt_row job_cost_opt_table[] = {
    {.name = "minutes",
     .type = OPT_F64,
     .offset = offsetof(struct job_cost, minutes),
     .unit = "min",
     .min = 0,
     .max = 1e6,
     .help = "time on the machine it was written on"},
    {.name = "disk_mb",
     .type = OPT_F64,
     .offset = offsetof(struct job_cost, disk_mb),
     .unit = "MB",
     .min = 0,
     .max = 1e9,
     .help = "disk it needs, models included"},
    {0},
};

struct slo_opts {
    double ttft_ms, tpot_ms, target_frac;
};

const struct opt_row job_slo_opt_table[] = {
    {.name = "ttft_ms",
     .type = OPT_F64,
     .offset = offsetof(struct slo_opts, ttft_ms),
     .unit = "ms",
     .min = 0,
     .max = 1e9,
     .def = "0",
     .help = "objective for the time to first token; 0: none"},
    {.name = "tpot_ms",
     .type = OPT_F64,
     .offset = offsetof(struct slo_opts, tpot_ms),
     .unit = "ms",
     .min = 0,
     .max = 1e9,
     .def = "0",
     .help = "objective for the time per output token; 0: none"},
    {.name = "target_frac",
     .type = OPT_F64,
     .offset = offsetof(struct slo_opts, target_frac),
     .min = 0,
     .max = 1,
     .def = "0.9",
     .help = "share of requests that must meet both, for goodput"},
    {0},
};

const struct opt_row job_headline_opt_table[] = {
    TEXT(job_headline, name, "name of the scalar in the record and in latest.json"),
    TEXT(job_headline, metric, "a metric (testbed describe metrics), or goodput_rps"),
    TEXT(job_headline, unit, "its unit; default: the metric's"),
    {.name = "better",
     .type = OPT_ENUM,
     .offset = offsetof(struct job_headline, better),
     .def = "higher",
     .values = "higher|lower",
     .help = "which way is better"},
    {.name = "over",
     .type = OPT_ENUM,
     .offset = offsetof(struct job_headline, over),
     .def = "median",
     .values = "median|geomean|min|max|mean|sum",
     .help = "what is made of the settings that match; median: exactly one must"},
    {.name = "needs_finite",
     .type = OPT_BOOL,
     .offset = offsetof(struct job_headline, needs_finite),
     .def = "false",
     .help = "leave out cells whose value is missing; how many stands beside the number"},
    {0},
};

static int find_adapter(const char *name, const struct opt_row **out)
{
    const struct sut_adapter *a;
    int rc = sut_adapter_find(name, &a);

    *out = rc == OK ? a->opts : NULL;
    return rc;
}

static int find_study(const char *name, const struct opt_row **out)
{
    const struct study *s;
    int rc = study_find(name, &s);

    *out = rc == OK ? s->opts : NULL;
    return rc;
}

const struct job_section job_serve_sections[] = {
    {"system", NULL, "the system under test: `adapter` and that adapter's own options",
     "adapter", find_adapter},
    {"dataset", dataset_opt_table, "the requests; `seed` defaults to seeds.sample", NULL,
     NULL},
    {"load", load_opt_table, "when they are sent", NULL, NULL},
    {"slo", job_slo_opt_table, "objectives; `scale`: list of multiples to judge as well",
     NULL, NULL},
    {"seeds", run_seeds_opt_table, "the four seeds, all recorded", NULL, NULL},
    {0},
};

const struct job_section job_study_sections[] = {
    {"study", NULL, "what is studied: `name` and that study's own options", "name",
     find_study},
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

/* A table says where members lie but not how large their struct is. */
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
