#include "experiments/study/support/card.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "measure/card.h"
#include "par/coll.h"

#define POINTS_MAX  64
#define FIRST_BYTES ((size_t)16 << 10) /* as the latency probe begins */
#define N_SIZES     16                 /* ... and 512 MiB, where it ends */

/* --- curves over a list of names */

struct curve {
    double x[POINTS_MAX], y[4][POINTS_MAX];
    int n;
};

static void report_curve(struct study_cell *c, const struct curve *v, const char *x,
                         const char *x_unit, const char *const *names, const char *unit)
{
    study_series(c, x, x_unit, v->x, (size_t)v->n);
    for (int i = 0; names[i]; i++)
        study_series(c, names[i], unit, v->y[i], (size_t)v->n);
}

/* A point where at least one of the curves has a value. */
static void add_point(struct curve *v, double x, const double *y, int n)
{
    int any = 0;

    for (int i = 0; i < n; i++)
        any |= !isnan(y[i]);
    if (!any || v->n == POINTS_MAX)
        return;
    v->x[v->n] = x;
    for (int i = 0; i < n; i++)
        v->y[i][v->n] = y[i];
    v->n++;
}

static void bandwidths(struct study_cell *c, const json_t *card,
                       const struct cpu_budget *b)
{
    static const char *const names[] = {"read_gbps", "copy_gbps", "triad_gbps", NULL};
    struct curve v = {.n = 0};

    for (int n = 1; n <= b->n; n++) {
        double y[3];

        for (int i = 0; i < 3; i++)
            y[i] = measure_card_value(card, names[i], n, NULL);
        add_point(&v, n, y, 3);
    }
    report_curve(c, &v, "threads", "", names, "GB/s");
}

static void latencies(struct study_cell *c, const json_t *card)
{
    static const char *const names[] = {"latency_huge_ns", "latency_small_ns", NULL};
    static const char *const pages[] = {"huge", "small"};
    struct curve v = {.n = 0};

    for (int s = 0; s < N_SIZES; s++) {
        size_t bytes = FIRST_BYTES << s;
        double y[2];

        for (int i = 0; i < 2; i++) {
            char name[48];

            snprintf(name, sizeof(name), "latency_ns_%s_%zuKiB", pages[i], bytes >> 10);
            y[i] = measure_card_value(card, name, 1, NULL);
        }
        add_point(&v, (double)bytes, y, 2);
    }
    report_curve(c, &v, "latency_bytes", "B", names, "ns");
}

static void blocks(struct study_cell *c, const json_t *card, const struct cpu_budget *b)
{
    static const char *const names[] = {"random_huge_gbps", "random_small_gbps",
                                        "sequential_huge_gbps", "sequential_small_gbps",
                                        NULL};
    struct curve v = {.n = 0};
    double y[4];

    y[2] = measure_card_value(card, "sequential_gbps_huge", b->n, NULL);
    y[3] = measure_card_value(card, "sequential_gbps_small", b->n, NULL);
    for (int bytes = 64; bytes <= 1 << 20; bytes *= 2) {
        char name[48];

        for (int i = 0; i < 2; i++) {
            snprintf(name, sizeof(name), "random_gbps_%s_%dB", i ? "small" : "huge",
                     bytes);
            y[i] = measure_card_value(card, name, b->n, NULL);
        }
        if (!isnan(y[0]) || !isnan(y[1])) /* the sequence alone is not a point */
            add_point(&v, bytes, y, 4);
    }
    report_curve(c, &v, "block_bytes", "B", names, "GB/s");
}

static void collectives(struct study_cell *c, const json_t *card,
                        const struct cpu_budget *b)
{
    int n_ranks = b->n < PAR_RANKS_MAX ? b->n : PAR_RANKS_MAX;

    for (int k = 0; par_colls[k]; k++) {
        char x[64], series[64];
        const char *names[] = {series, NULL};
        struct curve v = {.n = 0};

        for (int bytes = 4; bytes <= 1 << 20; bytes *= 2) {
            char name[48];
            double y;

            snprintf(name, sizeof(name), "allreduce_ns_%s_%dB", par_colls[k]->name,
                     bytes);
            y = measure_card_value(card, name, n_ranks, NULL);
            add_point(&v, bytes, &y, 1);
        }
        snprintf(x, sizeof(x), "allreduce_bytes_%s", par_colls[k]->name);
        snprintf(series, sizeof(series), "allreduce_ns_%s", par_colls[k]->name);
        report_curve(c, &v, x, "B", names, "ns");
    }
}

/* --- matrices, as three lists */

struct triples {
    double *v; /* [4][max] */
    size_t n, max;
};

static void add_triple(struct triples *t, double a, double b, double x, double y)
{
    if ((isnan(x) && isnan(y)) || t->n == t->max)
        return;
    t->v[t->n] = a;
    t->v[t->max + t->n] = b;
    t->v[2 * t->max + t->n] = x;
    t->v[3 * t->max + t->n++] = y;
}

static void report_triples(struct study_cell *c, struct triples *t,
                           const char *const names[4], const char *const units[4])
{
    for (size_t i = 0; i < 4 && names[i]; i++)
        study_series(c, names[i], units[i], t->v + i * t->max, t->n);
    mem_free(t->v);
}

MUST static int triples_open(struct triples *t, int n)
{
    t->n = 0;
    t->max = (size_t)n * (size_t)n + 1;
    t->v = mem_new(MEM_OTHER, 4 * t->max, sizeof(*t->v));
    return t->v ? OK : ERR_NOMEM;
}

static int cpu_pairs(struct study_cell *c, const json_t *card, const struct cpu_budget *b)
{
    static const char *const names[] = {"pair_cpu_a", "pair_cpu_b", "pair_handoff_ns",
                                        "pair_share_speed"};
    static const char *const units[] = {"", "", "ns", "1"};
    struct triples t;

    TRY(triples_open(&t, b->n));
    for (int i = 0; i < b->n; i++) {
        for (int k = i + 1; k < b->n; k++) {
            char handoff[48], share[48];

            snprintf(handoff, sizeof(handoff), "handoff_ns_cpu%d_cpu%d", b->cpus[i],
                     b->cpus[k]);
            snprintf(share, sizeof(share), "share_speed_cpu%d_cpu%d", b->cpus[i],
                     b->cpus[k]);
            add_triple(&t, b->cpus[i], b->cpus[k],
                       measure_card_value(card, handoff, 2, NULL),
                       measure_card_value(card, share, 2, NULL));
        }
    }
    report_triples(c, &t, names, units);
    return OK;
}

static int node_pairs(struct study_cell *c, const json_t *card,
                      const struct topo_machine *m)
{
    static const char *const names[] = {"node_of_cpus", "node_of_memory",
                                        "node_read_gbps", NULL};
    static const char *const units[] = {"", "", "GB/s", NULL};
    struct triples t;

    TRY(triples_open(&t, m->n_nodes));
    for (int i = 0; i < m->n_nodes; i++) {
        for (int k = 0; k < m->n_nodes; k++) {
            int a = m->nodes[i].os_index, b = m->nodes[k].os_index;
            char name[48];

            snprintf(name, sizeof(name), "node_read_gbps_cpu%d_mem%d", a, b);
            add_triple(&t, a, b, measure_card_range(card, name, 0, NULL).most, NAN);
        }
    }
    report_triples(c, &t, names, units);
    return OK;
}

int study_card_curves(struct study_cell *c, const json_t *card,
                      const struct cpu_budget *b, const struct topo_machine *m)
{
    bandwidths(c, card, b);
    latencies(c, card);
    blocks(c, card, b);
    collectives(c, card, b);
    TRY(cpu_pairs(c, card, b));
    return node_pairs(c, card, m);
}

/* --- what only root sees */

static int first_line(const char *path, char *out, size_t n)
{
    FILE *f = fopen(path, "re");
    int ok = f && fgets(out, (int)n, f);

    if (f)
        fclose(f);
    out[ok ? strcspn(out, "\n") : 0] = '\0';
    return ok;
}

void study_card_root(char *out, size_t n)
{
    char paranoid[32], thp[64], governor[64];
    size_t at = 0;

    out[0] = '\0';
#define ADD(...) at += at < n ? (size_t)snprintf(out + at, n - at, __VA_ARGS__) : 0
    if (geteuid() == 0)
        ADD("this run had the rights of root; ");
    if (first_line("/proc/sys/kernel/perf_event_paranoid", paranoid, sizeof(paranoid)))
        ADD("perf_event_paranoid is %s: 1 or less lets everybody count the kernel's "
            "share, "
            "0 the whole CPU; ",
            paranoid);
    else
        ADD("the kernel has no perf events: no hardware counter for anybody; ");
    if (!first_line("/sys/kernel/mm/transparent_hugepage/enabled", thp, sizeof(thp)) ||
        strstr(thp, "[never]"))
        ADD("transparent huge pages are off: enabled = madvise gives them; ");
    if (first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", governor,
                   sizeof(governor)))
        ADD("the clock's governor is %s: root can fix the clock; ", governor);
    else
        ADD("the clock is not ours to fix; ");
    ADD("root could also see physical addresses and empty the page cache");
#undef ADD
}
