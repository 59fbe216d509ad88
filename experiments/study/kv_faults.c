/* Faults of a transport of keys and values, drawn at random: how many are named and how soon, how
 * many are silent, and whether the prompt's keys and values arrive afterwards.
 * Paper: Splitwise IV-E. */
#include <math.h>
#include <stdio.h>

#include "base/stats.h"
#include "experiments/frame/frame.h"
#include "experiments/study/support/kv_fault_table.h"
#include "experiments/study/support/options.h"

static const char *transport_name(int i)
{
    return cluster_transports[i] ? cluster_transports[i]->name : NULL;
}

#define OPTIONS(X)                                                                       \
    X(STR, transport, "shm", "Transport.", .unit = "NAME", .names = transport_name)      \
    X(BOOL, checksums, "true", "Compare a checksum of each layer.")                      \
    X(INT, n, "10000", "Faults.", .min = 1, .max = 10000000)                             \
    X(INT, threads, "64", "Pairs of ends at once; most of them wait.", .min = 1,         \
      .max = 1024)                                                                       \
    X(INT, seed, "1", "Seed of the faults and where they come.", .min = 0, .max = 9e15)

#define RESULTS(X)                                                                       \
    X(n_faults, "", 0, "faults that were injected")                                      \
    X(n_silent, "", LOWER,                                                               \
      "of these: not named, or wrong bytes were taken for right ones")                   \
    X(n_lost, "", LOWER, "of these: the prompt did not arrive afterwards")               \
    X(named_frac, "", 0,                                                                 \
      "share that an end named; slow and idle ends are to be borne, not named")          \
    X(named_p50, "ms", LOWER, "from a fault's begin until it is named, median")          \
    X(named_p99, "ms", LOWER, "99th percentile of the same")                             \
    X(named_max, "ms", LOWER, "the longest")

FRAME_TYPES;

struct kv_faults {
    FRAME_CELL;
    struct study_fault_table t;
};

/* A list for each fault, by phase; NaN: there is no such case. */
static void report_series(struct kv_faults *c)
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

static int kv_faults_run(struct kv_faults *c)
{
    struct study_fault_opts o = {.checksums = c->o->checksums,
                                 .n = (int)c->o->n,
                                 .n_threads = (int)c->o->threads,
                                 .seed = (uint64_t)c->o->seed};
    const struct study_fault_count *all = &c->t.all;
    size_t n;

    FRAME_CLOSE(c->f, study_fault_table_free, &c->t);
    if (o.n_threads > o.n)
        o.n_threads = o.n;
    TRY(cluster_transport_find(c->o->transport, &o.transport));
    if (o.transport->mpi || o.transport->in_place)
        return err_set(ERR_NOTFOUND,
                       "transport %s: its ends are not two pools of one process",
                       o.transport->name);
    TRY(study_fault_many(&c->t, &o));
    n = (size_t)all->n_named;
    c->r->n_faults = all->n;
    c->r->n_silent = all->n_silent;
    c->r->n_lost = all->n_lost;
    c->r->named_frac = (double)all->n_named / all->n;
    c->r->named_p50 = n ? stats_median(c->t.named_ms, n) : NAN;
    c->r->named_p99 = n ? stats_percentile(c->t.named_ms, n, 0.99) : NAN;
    c->r->named_max = n ? stats_max(c->t.named_ms, n) : NAN;
    frame_why(c->f, NULL, "none was named");
    if (c->t.why[0])
        study_note_text(c->out, "first_silent_or_lost", c->t.why);
    report_series(c);
    return OK;
}

STUDY(kv_faults, "faults of a transport of keys and values: named, silent, lost");
