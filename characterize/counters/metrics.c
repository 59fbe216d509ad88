/* Metrics from raw counts, and the meter that takes them. */
#include "characterize/counters/metrics.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"

const char *counters_metric_name(enum counters_metric_id m)
{
    static const char *const names[] = {"IPC",    "L3LPKI", "DTLBMiss", "RAR",
                                        "MCLPKI", "MCIPKI", "BUSPKI"};

    return names[m];
}

/* ---- formulas ---- */

static struct counters_value sum_of(const struct counters_value *raw, const int *which,
                                    int n)
{
    struct counters_value sum = counters_zero();

    for (int i = 0; i < n; i++)
        counters_add(&sum, &raw[which[i]]);
    return sum;
}

/* Over all controllers there are, so divided by n, not n - 1. */
static double spread(const struct counters_value *v)
{
    double mean = v->value / v->n_parts, sum = 0;

    for (int i = 0; i < v->n_parts; i++)
        sum += (v->part[i] - mean) * (v->part[i] - mean);
    return sqrt(sum / v->n_parts);
}

static void one_metric(const struct counters_metric *m, const char *name,
                       const struct counters_value *raw, struct counters_value *out)
{
    struct counters_value num = sum_of(raw, m->num, m->n_num);
    struct counters_value den = sum_of(raw, m->den, m->n_den);

    if (m->why[0]) {
        counters_none(out, 0, "%s: %s", name, m->why);
        return;
    }
    *out = (struct counters_value){.n_parts = 1};
    if (isnan(num.value) || isnan(den.value)) {
        const struct counters_value *missing = isnan(num.value) ? &num : &den;

        counters_none(out, missing->error, "%s", missing->why);
    } else if (den.value <= 0) {
        counters_none(out, 0, "%s: its divisor counted 0", name);
    } else if (m->spread && num.n_parts < 1) {
        counters_none(out, 0, "%s: no unit was counted apart", name);
    } else {
        out->value = m->scale * (m->spread ? spread(&num) : num.value) / den.value;
        out->part[0] = out->value;
    }
}

void counters_metrics(const struct counters_list *l, const struct counters_value *raw,
                      struct counters_value out[COUNTERS_N_METRICS])
{
    for (int i = 0; i < COUNTERS_N_METRICS; i++)
        one_metric(&l->metrics[i], counters_metric_name(i), raw, &out[i]);
}

/* ---- the meter ---- */

struct counters_meter {
    const struct counters_list *l;
    bool whole_machine;
    struct counters *papi, *perf;
    /* The index of each event's name in `papi` and `perf`. */
    int papi_at[COUNTERS_EVENTS_MAX]; /* -1: not through PAPI */
    int perf_at[COUNTERS_EVENTS_MAX];
    int n_papi, n_perf;
    struct counters_value *values; /* of the larger set */
};

static bool mine(const struct counters_meter *m, int event)
{
    return m->whole_machine || !m->l->events[event].machine;
}

/* PAPI is asked first; what it cannot count is left to the kernel. */
static int open_papi(struct counters_meter *m)
{
    const char *names[COUNTERS_EVENTS_MAX];
    const struct counters_provider *p;
    int rc = counters_provider_find("papi", &p), kept = 0;
    int at[COUNTERS_EVENTS_MAX];

    if (rc != OK)
        return rc;
    for (int i = 0; i < m->l->n_events; i++) {
        m->papi_at[i] = -1;
        if (!m->l->events[i].papi[0] || !mine(m, i))
            continue;
        at[m->n_papi] = i;
        names[m->n_papi++] = m->l->events[i].papi;
    }
    rc = counters_open(&m->papi, p, names, m->n_papi);
    if (rc != OK)
        return rc;
    for (int k = 0; k < m->n_papi; k++)
        if (counters_countable(m->papi, k))
            m->papi_at[at[k]] = k, kept++;
    if (kept == 0)
        counters_close(&m->papi);
    return OK;
}

static int open_perf(struct counters_meter *m)
{
    const char *names[COUNTERS_EVENTS_MAX * COUNTERS_ALIAS_MAX];
    const struct counters_provider *p;
    int rc = counters_provider_find("perf_event", &p);

    for (int i = 0; i < m->l->n_events; i++) {
        m->perf_at[i] = m->n_perf;
        for (int k = 0; k < m->l->events[i].n_perf; k++)
            if (mine(m, i) && m->papi_at[i] < 0)
                names[m->n_perf++] = m->l->events[i].perf[k];
    }
    if (rc == OK)
        rc = counters_open(&m->perf, p, names, m->n_perf);
    return rc;
}

int counters_meter_open(struct counters_meter **out, const struct counters_list *l,
                        bool whole_machine)
{
    struct counters_meter *m = mem_new(MEM_OTHER, 1, sizeof(*m));
    int rc;

    *out = NULL;
    if (!m)
        return ERR_NOMEM;
    m->l = l;
    m->whole_machine = whole_machine;
    rc = open_papi(m);
    if (rc == OK)
        rc = open_perf(m);
    if (rc == OK) {
        int n = m->n_perf > m->n_papi ? m->n_perf : m->n_papi;

        m->values = mem_new(MEM_OTHER, (size_t)n, sizeof(*m->values));
        rc = m->values ? OK : ERR_NOMEM;
    }
    if (rc == OK)
        *out = m, m = NULL;
    counters_meter_close(&m);
    return rc;
}

void counters_meter_close(struct counters_meter **mp)
{
    struct counters_meter *m = *mp;

    *mp = NULL;
    if (!m)
        return;
    counters_close(&m->papi);
    counters_close(&m->perf);
    mem_free(m->values);
    mem_free(m);
}

int counters_meter_passes(const struct counters_meter *m)
{
    int a = m->papi ? counters_passes(m->papi) : 0, b = counters_passes(m->perf);

    return a > b ? a : b;
}

void counters_meter_start(struct counters_meter *m, int pass)
{
    if (m->papi)
        counters_start(m->papi, pass);
    counters_start(m->perf, pass);
}

void counters_meter_stop(struct counters_meter *m, int pass)
{
    counters_stop(m->perf, pass);
    if (m->papi)
        counters_stop(m->papi, pass);
}

/* Names of one event are its units: parts side by side. */
static void put_beside(struct counters_value *v, const struct counters_value *more)
{
    int n = v->n_parts;
    struct counters_value shifted = *more;

    if (n + more->n_parts > COUNTERS_PARTS_MAX && !isnan(more->value))
        counters_none(&shifted, E2BIG, "more than %d units", COUNTERS_PARTS_MAX);
    if (isnan(shifted.value)) {
        counters_add(v, &shifted);
        return;
    }
    memset(shifted.part, 0, sizeof(shifted.part));
    for (int i = 0; i < more->n_parts; i++)
        shifted.part[n + i] = more->part[i];
    shifted.n_parts = n + more->n_parts;
    counters_add(v, &shifted);
}

void counters_meter_read(const struct counters_meter *m, struct counters_value *out)
{
    for (int i = 0; i < m->l->n_events; i++)
        out[i] = counters_zero();
    counters_read(m->perf, m->values);
    for (int i = 0; i < m->l->n_events; i++)
        for (int k = 0; k < m->l->events[i].n_perf; k++)
            if (mine(m, i) && m->papi_at[i] < 0)
                put_beside(&out[i], &m->values[m->perf_at[i] + k]);
    if (!m->papi)
        return;
    counters_read(m->papi, m->values);
    for (int i = 0; i < m->l->n_events; i++)
        if (m->papi_at[i] >= 0)
            out[i] = m->values[m->papi_at[i]];
}
