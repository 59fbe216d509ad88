/* Faults of a transport of keys and values, drawn at random: how many are named and how soon, how
 * many are silent, and whether the prompt's keys and values arrive afterwards.
 * Paper: Splitwise IV-E. */
#include <math.h>
#include <stdio.h>

#include "base/stats.h"
#include "experiments/study/support/kv_fault_table.h"
#include "experiments/study/support/rows.h"

struct opts {
    char *transport;
    bool checksums;
    int64_t n, threads, seed;
};

static const char *transport_name(int i)
{
    return cluster_transports[i] ? cluster_transports[i]->name : NULL;
}

static const struct opt_row table[] = {
    OPT_ROW(STR, transport, "shm", "Transport.", .unit = "NAME", .names = transport_name),
    OPT_ROW(BOOL, checksums, "true", "Compare a checksum of each layer."),
    OPT_ROW(INT, n, "10000", "Faults.", .min = 1, .max = 10000000),
    OPT_ROW(INT, threads, "64", "Pairs of ends at once; most of them wait.", .min = 1,
            .max = 1024),
    OPT_ROW(INT, seed, "1", "Seed of the faults and where they come.", .min = 0,
            .max = INT64_MAX),
    {0},
};

static const struct study_metric metrics[] = {
    {"n_faults", "", "", "faults that were injected"},
    {"n_silent", "", "lower",
     "of these: not named, or wrong bytes were taken for right ones"},
    {"n_lost", "", "lower", "of these: the prompt did not arrive afterwards"},
    {"named_frac", "", "",
     "share that an end named; slow and idle ends are to be borne, not named"},
    {"named_p50", "ms", "lower", "from a fault's begin until it is named, median"},
    {"named_p99", "ms", "lower", "99th percentile of the same"},
    {"named_max", "ms", "lower", "the longest"},
    {0},
};

struct cell {
    const struct opts *o;
    struct study_cell *out;
    struct study_fault_table t;
};

/* A list for each fault, by phase; NaN: there is no such case. */
static void report_series(struct cell *c)
{
    double v[3][STUDY_N_PHASES];
    static const char *const stems[3] = {"n", "silent", "worst_ms"};

    for (int f = 0; f < STUDY_N_FAULTS; f++) {
        for (int p = 0; p < STUDY_N_PHASES; p++) {
            const struct study_fault_count *k = &c->t.by[f][p];
            const struct study_fault_case one = {.fault = (enum study_fault)f,
                                                 .phase = (enum study_phase)p};
            bool has = !study_fault_excluded(&one);

            v[0][p] = has ? k->n : NAN;
            v[1][p] = has ? k->n_silent + k->n_lost : NAN;
            v[2][p] = k->n_named > 0 ? k->worst_ms : NAN;
        }
        for (int i = 0; i < 3; i++) {
            char name[64];

            snprintf(name, sizeof(name), "%s_%s", stems[i], study_fault_names[f]);
            for (char *at = name; *at; at++)
                if (*at == ' ')
                    *at = '_';
            study_series(c->out, name, i == 2 ? "ms" : "", v[i], STUDY_N_PHASES);
        }
    }
}

static int run(struct cell *c)
{
    struct study_fault_opts o = {.checksums = c->o->checksums,
                                 .n = (int)c->o->n,
                                 .n_threads = (int)c->o->threads,
                                 .seed = (uint64_t)c->o->seed};
    const struct study_fault_count *all = &c->t.all;
    size_t n;

    if (o.n_threads > o.n)
        o.n_threads = o.n;
    TRY(cluster_transport_find(c->o->transport, &o.transport));
    if (o.transport->mpi || o.transport->in_place)
        return err_set(ERR_NOTFOUND,
                       "transport %s: its ends are not two pools of one process",
                       o.transport->name);
    TRY(study_fault_many(&c->t, &o));
    n = (size_t)all->n_named;
    const struct study_number v[] = {
        {"n_faults", all->n},
        {"n_silent", all->n_silent},
        {"n_lost", all->n_lost},
        {"named_frac", (double)all->n_named / all->n},
        {"named_p50", n ? stats_median(c->t.named_ms, n) : NAN},
        {"named_p99", n ? stats_percentile(c->t.named_ms, n, 0.99) : NAN},
        {"named_max", n ? stats_max(c->t.named_ms, n) : NAN},
    };
    STUDY_VALUES(c->out, v, "none was named");
    if (c->t.why[0])
        study_note_text(c->out, "first_silent_or_lost", c->t.why);
    report_series(c);
    return OK;
}

static void end(struct cell *c)
{
    study_fault_table_free(&c->t);
}

STUDY(kv_faults, "faults of a transport of keys and values: named, silent, lost");
