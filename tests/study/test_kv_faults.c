/* Faults of transports, drawn at random: none is silent, and no prompt is lost. 10^4 of them, or as
 * many as KV_FAULTS says; a seed makes them the same again. */
#include <pthread.h>
#include <stdlib.h>

#include "experiments/study/support/kv_faults.h"
#include "tests/support/test.h"

#define N_THREADS 64

static const char *const transports[] = {"shm", "socket"};

struct table {
    int n[STUDY_N_FAULTS][STUDY_N_PHASES][2];
    int n_named[STUDY_N_FAULTS][STUDY_N_PHASES][2];
};

struct worker {
    pthread_t thread;
    struct rng rng;
    int n, n_silent, n_lost;
    bool failed;
    char why[200];
    struct table t;
};

static struct study_fault_case draw(struct rng *r, int *transport)
{
    struct study_fault_case c;

    do {
        *transport = (int)rng_below(r, 2);
        c = (struct study_fault_case){
            .fault = (enum study_fault)rng_below(r, STUDY_N_FAULTS),
            .phase = (enum study_phase)rng_below(r, STUDY_N_PHASES)};
        if (cluster_transport_find(transports[*transport], &c.transport) != OK)
            abort();
    } while (study_fault_excluded(&c));
    return c;
}

/* What is not what it should be, in words; of the first. */
static void note(struct worker *w, const struct study_fault_case *c, const char *what,
                 const char *says)
{
    if (!w->why[0])
        snprintf(w->why, sizeof(w->why), "%s in %s by %s: %s: %.100s",
                 study_fault_names[c->fault], study_phase_names[c->phase],
                 c->transport->name, what, says);
}

static void *work(void *arg)
{
    struct study_fault_world *world;
    struct worker *w = arg;

    w->failed = study_fault_open(&world) != OK;
    for (int i = 0; i < w->n && !w->failed; i++) {
        struct study_fault_result r;
        int t;
        const struct study_fault_case c = draw(&w->rng, &t);

        if (study_fault_run(world, &c, &w->rng, &r) != OK) {
            w->failed = true;
            note(w, &c, "not carried out", err_msg());
            break;
        }
        w->t.n[c.fault][c.phase][t]++;
        w->t.n_named[c.fault][c.phase][t] += r.named;
        w->n_silent += r.silent;
        w->n_lost += r.lost;
        if (r.silent || r.lost)
            note(w, &c, r.silent ? "silent" : "lost", r.says);
    }
    study_fault_close(&world);
    return NULL;
}

TEST(none_is_silent)
{
    const char *text = getenv("KV_FAULTS");
    int n = text ? atoi(text) : 10000, n_silent = 0, n_lost = 0, n_done = 0;
    static struct worker all[N_THREADS];
    static struct table sum;

    for (int i = 0; i < N_THREADS; i++) {
        all[i] = (struct worker){.n = n / N_THREADS + 1};
        rng_init(&all[i].rng, test_seed() + (uint64_t)i, "faults");
        assert_int_equal(pthread_create(&all[i].thread, NULL, work, &all[i]), 0);
    }
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(all[i].thread, NULL);
    for (int i = 0; i < N_THREADS; i++) {
        n_silent += all[i].n_silent;
        n_lost += all[i].n_lost;
        if (all[i].failed || all[i].n_silent || all[i].n_lost)
            fail_msg("%s", all[i].why);
        for (int k = 0; k < STUDY_N_FAULTS * STUDY_N_PHASES * 2; k++) {
            (&sum.n[0][0][0])[k] += (&all[i].t.n[0][0][0])[k];
            (&sum.n_named[0][0][0])[k] += (&all[i].t.n_named[0][0][0])[k];
            n_done += (&all[i].t.n[0][0][0])[k];
        }
    }
    assert_int_equal(n_silent + n_lost, 0);
    assert_true(n_done >= n);
    for (int f = 0; f < STUDY_N_FAULTS; f++)
        for (int p = 0; p < STUDY_N_PHASES; p++)
            for (int t = 0; t < 2; t++) {
                struct study_fault_case c = {.fault = (enum study_fault)f,
                                             .phase = (enum study_phase)p};

                assert_ok(cluster_transport_find(transports[t], &c.transport));
                if (study_fault_excluded(&c))
                    continue;
                print_message("# %s, %s, %s: %d, %d named\n", study_fault_names[f],
                              study_phase_names[p], transports[t], sum.n[f][p][t],
                              sum.n_named[f][p][t]);
                assert_true(sum.n[f][p][t] > 0 || n < 5000);
            }
}
