#include "experiments/load/load.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/name.h"
#include "experiments/load/stages.h"

static const char *process_name(int i)
{
    return load_processes[i] ? load_processes[i]->name : NULL;
}

#define OPT_OF struct load_opts
const struct opt_row load_opt_table[] = {
    OPT_ROW(STR, process, "closed",
            "Arrival process. In the closed loop a fixed number of requests is "
            "outstanding. In an open loop requests arrive whether or not others have "
            "ended.",
            .names = process_name),
    OPT_ROW(INT, concurrency, "1",
            "Closed loop: number of outstanding requests. 1: one sequence at a time.",
            .min = 1, .max = 65536),
    OPT_ROW(F64, rate_rps, "0",
            "Open loop: mean arrival rate, at least 1e-6. 0: closed loop.",
            .unit = "req/s", .min = 0, .max = 1e6),
    OPT_ROW(F64, burstiness, "1",
            "gamma: shape of the distribution of gaps, whose coefficient of variation is "
            "1/sqrt(burstiness). Below 1 arrivals are burstier than those of poisson, "
            "above 1 more regular.",
            .min = 0.001, .max = 1e6),
    OPT_ROW(F64, time_scale, "1",
            "trace: arrival times are multiplied by this. 0.5: twice the rate.",
            .min = 1e-9, .max = 1e9),
    OPT_ROW(STR, stages, NULL,
            "stages: rates in requests a second, each for a time, and ramps, one after "
            "the other. Example: 1@60s,1-4@30s,4@60s.",
            .unit = "LIST"),
    OPT_ROW(INT, n_requests, "0",
            "Number of measured requests. 0: all of the data set; with stages all that "
            "come in them.",
            .min = 0, .max = 1e7),
    OPT_ROW(INT, warmup_requests, "0",
            "Number of requests that are sent first. They are recorded and excluded "
            "from the statistics.",
            .min = 0, .max = 1e6),
    OPT_ROW(F64, timeout_s, "600",
            "Cancel a request this long after its intended start. 0: never.", .unit = "s",
            .min = 0, .max = 86400),
    OPT_ROW(
        F64, think_s, "0",
        "With dataset.turns = conversation: time from the end of an answer to the next "
        "turn of its conversation. Arrivals are then those of conversations.",
        .unit = "s", .min = 0, .max = 86400),
    OPT_ROW(INT, max_requests_outstanding, "0",
            "Open loop: with this many outstanding, a further request is not sent and "
            "counts as rejected. 0: no limit.",
            .min = 0, .max = 1e7),
    OPT_ROW(ENUM, order, "dataset",
            "Order of the requests: that of the data set, or shuffled by the order seed.",
            .values = "dataset|shuffle"),
    OPT_ROW(F64, lateness_warn_ms, "2",
            "Warn when the 90th percentile of the harness's own sending delay exceeds "
            "this.",
            .unit = "ms", .min = 0, .max = 1e6),
    OPT_ROW(
        ENUM, saturation, "mark",
        "Open loop: what to do when requests come faster than the system serves them, "
        "found while the cell runs by the growth of TTFT and of concurrency, with at "
        "most 1 % of false alarms. off: nothing. mark: a warning, saturated. end: the "
        "warning, and the cell ends: requests in flight are canceled, the rest is not "
        "sent, and a search takes the rate as failed.",
        .values = "off|mark|end"),
    {0},
};
#undef OPT_OF

#define OPT_OF           struct load_seeds
#define EXACT_INT_MAX    9007199254740992.0 /* 2^53: exact in every JSON reader */
#define SEED(word, text) OPT_ROW(INT, word, "1", text, .min = 0, .max = EXACT_INT_MAX)
const struct opt_row load_seeds_opt_table[] = {
    SEED(arrival, "Seed of the arrival times."),
    SEED(sample, "Seed of the choice of requests, and of the ids of synthetic prompts."),
    SEED(order, "Seed of the order of requests, with load.order = shuffle."),
    SEED(output, "Seed of the sampler of output tokens."),
    {0},
};

int load_process_find(const char *name, const struct load_process **out)
{
    *out = name_find(load_processes, name, "load process");
    return *out ? OK : ERR_NOTFOUND;
}

int load_arrivals(const struct load_process *p, const struct load_opts *o, uint64_t seed,
                  const struct load_trace *trace, double *arrival_s, size_t n)
{
    double last;

    if (p->wants_trace && (trace->n == 0 || !trace->arrival_s))
        return err_set(
            ERR_ARG,
            "load.process: \"%s\" needs a data set with arrival times, and "
            "this one has none (reader azure, synth with the fit of such a trace "
            "and lengths_csv with a column arrival_s have them)",
            p->name);
    p->arrivals(o, seed, trace, arrival_s, n);
    last = n ? arrival_s[n - 1] : 0;
    if (last <= LOAD_ARRIVAL_MAX_S)
        return OK;
    if (p->wants_trace)
        return err_set(ERR_LIMIT,
                       "load.time_scale: at %g the last of %zu requests would come after "
                       "%.3g s, expected at most %g: lower it, or n_requests",
                       o->time_scale, n, last, LOAD_ARRIVAL_MAX_S);
    return err_set(
        ERR_LIMIT,
        "load.rate_rps: at %g requests a second the last of %zu would come "
        "after %.3g s, expected at most %g: raise the rate or lower n_requests",
        o->rate_rps, n, last, LOAD_ARRIVAL_MAX_S);
}

bool load_process_reads(const struct load_process *p, const char *option)
{
    const char *at = strstr(p->reads, option);
    size_t n = strlen(option);

    return at && (at == p->reads || at[-1] == ' ') && (!at[n] || at[n] == ' ');
}

/* An option that the process does not read would be a sweep that changes nothing. */
static int check_reads(const struct load_process *p, const struct load_opts *o,
                       const char *where)
{
    const struct {
        const char *name;
        double value, unset;
    } options[] = {{"concurrency", (double)o->concurrency, 1},
                   {"rate_rps", o->rate_rps, 0},
                   {"burstiness", o->burstiness, 1},
                   {"time_scale", o->time_scale, 1}};
    char who[128] = "";

    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
        if (options[i].value == options[i].unset ||
            load_process_reads(p, options[i].name))
            continue;
        for (int k = 0; load_processes[k]; k++)
            if (load_process_reads(load_processes[k], options[i].name)) {
                size_t n = strlen(who);

                snprintf(who + n, sizeof(who) - n, "%s%s", n ? ", " : "",
                         load_processes[k]->name);
            }
        return err_set(
            ERR_ARG, "%s.%s: process \"%s\" has no such option, found %g (%s: %s)", where,
            options[i].name, p->name, options[i].value,
            strchr(who, ',') ? "those that have it" : "the one that has it", who);
    }
    return OK;
}

int load_check(const struct load_opts *o, const char *where)
{
    const struct load_process *p;
    int rc = load_process_find(o->process, &p);

    if (rc != OK)
        return err_prefix(rc, "%s", where);
    if (load_process_reads(p, "rate_rps") && !(o->rate_rps >= LOAD_RATE_MIN_RPS))
        return err_set(
            ERR_ARG, "%s.rate_rps: process \"%s\" needs a rate of at least %g, found %g",
            where, o->process, LOAD_RATE_MIN_RPS, o->rate_rps);
    if (o->stages && !load_process_reads(p, "stages"))
        return err_set(ERR_ARG,
                       "%s.stages: process \"%s\" has no such option (the one that has "
                       "it: stages)",
                       where, p->name);
    if (load_process_reads(p, "stages")) {
        struct load_stage v[LOAD_STAGES_MAX];
        char name[96];
        int n;

        if (!o->stages)
            return err_set(ERR_ARG,
                           "%s.stages: process \"%s\" needs stages such as "
                           "1@60s,1-4@30s, found none",
                           where, p->name);
        snprintf(name, sizeof(name), "%.80s.stages", where);
        TRY(load_stages_read(v, &n, o->stages, name));
    }
    return check_reads(p, o, where);
}
