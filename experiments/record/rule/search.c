/* A search for the goodput says what its trials say. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "experiments/load/ladder.h"
#include "experiments/record/rule.h"

static double at(const struct record_view *v, const char *series, size_t i)
{
    const json_t *x =
        json_array_get(json_object_get(json_object_get(v->series, series), "v"), i);

    return json_is_number(x) ? json_number_value(x) : NAN;
}

static void expect(struct record_view *v, const char *place, double want, double found)
{
    if (!record_same(want, found))
        record_fault(v, place, "expected %.9g by its trials, found %.9g", want, found);
}

/* The series must have the same values of a trial as its own cell. */
static void check_trial(struct record_view *v, const json_t *trial)
{
    static const char *const metrics[] = {"slo_attainment_frac", "n_requests",
                                          "n_completed", NULL};
    const size_t i =
        (size_t)json_int_at(json_object_get(trial, "attributes"), "trial.number");
    const bool ended = json_is_true(
        json_object_get(json_object_get(trial, "attributes"), "saturation.ended"));
    char series[64], place[96];

    for (int k = 0; metrics[k]; k++) {
        snprintf(series, sizeof(series), "trial_%s", metrics[k]);
        snprintf(place, sizeof(place), "series/%s[%zu]", series, i);
        expect(v, place, record_value(json_object_get(trial, "summary"), metrics[k]),
               at(v, series, i));
    }
    snprintf(place, sizeof(place), "series/trial_ended_early[%zu]", i);
    if (ended || json_object_get(v->series, "trial_ended_early"))
        expect(v, place, ended, at(v, "trial_ended_early", i));
}

static void check_result(struct record_view *v)
{
    const json_t *a = v->attributes;
    const size_t n = json_array_size(
        json_object_get(json_object_get(v->series, "trial_rate_rps"), "v"));
    const struct load_search s = {.first_rps = json_f64_at(a, "load.rate_rps"),
                                  .min_rps = json_f64_at(a, "search.min_rps"),
                                  .max_rps = json_f64_at(a, "search.max_rps"),
                                  .target_frac = json_f64_at(a, "slo.target_frac"),
                                  .precision_frac =
                                      json_f64_at(a, "search.precision_frac"),
                                  .n_seeds = (int)json_int_at(a, "search.seeds"),
                                  .n_verify = (int)json_int_at(a, "search.verify"),
                                  .max_trials = (int)json_int_at(a, "search.max_trials"),
                                  .n_least = (int)json_int_at(a, "search.requests")};
    struct load_trial *t = mem_new(MEM_HARNESS, n + 1, sizeof(*t));
    struct load_goodput g;

    for (size_t i = 0; i < n; i++)
        t[i] = (struct load_trial){.rate_rps = at(v, "trial_rate_rps", i),
                                   .seed = (int)at(v, "trial_seed", i),
                                   .within_frac = at(v, "trial_slo_attainment_frac", i),
                                   .n_requests = at(v, "trial_n_requests", i),
                                   .ended_early = at(v, "trial_ended_early", i) == 1};
    if (strcmp(json_str_at(a, "pairing.by", ""), "rate") == 0)
        load_ladder_result(&g, &s, t, n, 0);
    else
        load_search_result(&g, &s, t, n);
    mem_free(t);
    expect(v, "summary/goodput_rps", g.rps, record_value(v->summary, "goodput_rps"));
    expect(v, "summary/goodput_low_rps", g.low_rps,
           record_value(v->summary, "goodput_low_rps"));
    expect(v, "summary/goodput_high_rps", g.high_rps,
           record_value(v->summary, "goodput_high_rps"));
    expect(v, "summary/goodput_n_trials", (double)n,
           record_value(v->summary, "goodput_n_trials"));
}

static void of_cell(struct record_view *v)
{
    const char *key = json_str_at(v->attributes, "key", ""), *name;
    json_t *trial;

    if (!json_object_get(v->summary, "goodput_n_trials"))
        return;
    json_object_foreach(v->trials, name, trial)
    {
        if (strcmp(json_str_at(json_object_get(trial, "attributes"), "trial.of", ""),
                   key) == 0)
            check_trial(v, trial);
    }
    check_result(v);
}

const struct record_rule record_rule_search = {
    .name = "search",
    .text = "A goodput is the one that its trials give, searched again.",
    .of_cell = of_cell,
};
