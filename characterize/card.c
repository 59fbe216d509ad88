#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "characterize/probe.h"
#include "cpu/cpu.h"
#include "measure/card.h"
#include "par/team.h"

#define BUDGET_S      12.0 /* what a first run may cost without being asked */
#define FULL_BUDGET_S 50.0 /* the whole of it stays under a minute */
#define VALUES_MAX    1024

/* ---- measuring ---- */

/* A number, or null where it is unavailable. */
static json_t *number(double v)
{
    return isnan(v) ? json_null() : json_real(v);
}

static json_t *values_json(const struct probe_ctx *c)
{
    json_t *list = json_array();

    for (int i = 0; list && i < c->n_values; i++) {
        const struct probe_value *v = &c->values[i];
        json_t *row = json_pack("{s:s s:s s:i s:o s:o s:o s:i s:s}", "name", v->name,
                                "unit", v->unit, "n_threads", v->n_threads, "estimate",
                                number(v->estimate), "lo", number(v->lo), "hi",
                                number(v->hi), "n_trials", v->n_trials, "why", v->why);

        if (json_array_append_new(list, row) != 0) { /* also when row is NULL */
            json_decref(list);
            list = NULL;
        }
    }
    if (!list)
        err_set(ERR_NOMEM, "machine card: no memory");
    return list;
}

MUST static int run_probes(struct probe_ctx *c, double budget_s)
{
    int n = 0, rc = OK;

    for (int i = 0; probes[i]; i++)
        n += c->full || !probes[i]->full;
    c->budget_s = budget_s / (n ? n : 1);
    for (int i = 0; probes[i] && rc == OK; i++) {
        if (!c->full && probes[i]->full)
            continue;
        log_info("  %s: %s", probes[i]->name, probes[i]->help);
        rc = probes[i]->run(c);
    }
    return rc;
}

MUST static int card_json(json_t **out, const struct probe_ctx *c,
                          const struct cpu_budget *b, double seconds, int64_t steal_ns)
{
    char host[65] = "", utc[32];
    double load = NAN;
    json_t *values = values_json(c);
    int rc;

    if (!values)
        return ERR_NOMEM;
    gethostname(host, sizeof(host) - 1);
    clock_utc(utc, sizeof(utc));
    if (getloadavg(&load, 1) != 1)
        load = NAN;
    /* steal and load say how much to trust the numbers */
    *out = json_pack("{s:s s:s s:s s:f s:o s:o s:o}", "host", host, "measured_utc", utc,
                     "budget", b->reason, "duration_s", seconds, "steal_ns",
                     steal_ns < 0 ? json_null() : json_integer(steal_ns), "load_1min",
                     isnan(load) ? json_null() : json_real(load), "values", values);
    rc =
        *out ? measure_card_seal(*out, b) : err_set(ERR_NOMEM, "machine card: no memory");
    if (rc == OK)
        return OK;
    json_decref(*out);
    *out = NULL;
    return rc;
}

MUST static int measure(json_t **out, const struct cpu_budget *b, bool full,
                        double budget_s)
{
    struct probe_ctx c = {.n_threads_max = b->n, .full = full, .max_values = VALUES_MAX};
    uint64_t start_ns = clock_ns();
    int64_t steal_ns = cpu_steal_ns();
    int rc;

    c.values = mem_new(MEM_HARNESS, VALUES_MAX, sizeof(*c.values));
    rc = c.values ? par_team_open(&c.team, b->cpus, b->n, 1) : ERR_NOMEM;
    if (rc == OK) {
        log_info("measuring this machine once (%s, about %.0f s) ...", b->reason,
                 budget_s);
        rc = run_probes(&c, budget_s);
    }
    if (rc == OK) {
        if (steal_ns >= 0)
            steal_ns = cpu_steal_ns() - steal_ns;
        rc = card_json(out, &c, b, (double)(clock_ns() - start_ns) * 1e-9, steal_ns);
    }
    par_team_close(&c.team);
    mem_free(c.values);
    return rc;
}

static int card_get(json_t **out, const char *dir, bool full, int force, double budget_s)
{
    struct cpu_budget b;
    char path[1200];
    int rc;

    *out = NULL;
    rc = measure_card_path(path, sizeof(path), dir, full ? "-full" : "");
    if (rc == OK && !force) {
        rc = measure_card_read(out, path);
        if (rc == OK || rc == ERR_NOMEM)
            return rc;
        if (rc != ERR_NOTFOUND)
            log_warning("machine_card_refused", NAN, NAN, "%s; measuring again",
                        err_msg());
        err_clear();
        rc = OK;
    }
    if (rc == OK)
        rc = cpu_budget_get(&b);
    if (rc == OK)
        rc = measure(out, &b, full, budget_s);
    if (rc != OK)
        return rc;
    /* the numbers are good even if they cannot be kept, as in a read-only checkout */
    if (json_write_file(*out, path) != OK) {
        log_warning("machine_card_not_kept", NAN, NAN, "%s", err_msg());
        err_clear();
    }
    return OK;
}

int machine_card_get(json_t **out, const char *dir, int force, double budget_s)
{
    return card_get(out, dir, false, force, budget_s > 0 ? budget_s : BUDGET_S);
}

int machine_card_full_get(json_t **out, const char *dir, int force, double budget_s)
{
    return card_get(out, dir, true, force, budget_s > 0 ? budget_s : FULL_BUDGET_S);
}
