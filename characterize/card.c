#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "characterize/probe.h"
#include "cpu/cpu.h"
#include "measure/card.h"
#include "measure/noise.h"
#include "par/team.h"

#define BUDGET_S      12.0 /* what a first run may cost without being asked */
#define FULL_BUDGET_S 50.0 /* the whole of it stays under a minute */
#define CHECK_S       1.5  /* of checking a kept card, besides writing the memory read */
#define VALUES_MAX    1024
#define ATTEMPTS_MAX  3 /* of a probe whose values spread */
/* Share of the CPUs that others may have before nothing measured is trusted: two threads
 * then hardly ever run at once, however well their trials agree. */
#define LOST_FRAC_MAX 0.75

/* ---- measuring ---- */

/* probe_now() of a team; `c` is changed. */
MUST static int run_now(json_t **out, struct probe_ctx *c, const struct probe *p)
{
    int rc;

    c->n_values = 0;
    c->max_values = VALUES_MAX;
    c->values = mem_new(MEM_HARNESS, VALUES_MAX, sizeof(*c->values));
    rc = c->values ? p->run(c) : ERR_NOMEM;
    if (rc == OK)
        rc = measure_card_of(out, c->values, c->n_values);
    mem_free(c->values);
    return rc;
}

int probe_now(json_t **out, const struct probe_ctx *how, const char *name)
{
    struct par_team *own = NULL;
    struct probe_ctx c = *how;
    const struct probe *const *p = probes;
    struct cpu_budget b;
    int rc;

    *out = NULL;
    while (*p && strcmp((*p)->name, name) != 0)
        p++;
    if (!*p)
        return err_set(ERR_NOTFOUND, "no probe \"%s\"", name);
    if (!c.team) {
        TRY(cpu_budget_get(&b));
        TRY(par_team_open(&own, b.cpus, b.n, 1));
        c.team = own;
        c.n_threads_max = c.n_threads_min = b.n;
    }
    rc = run_now(out, &c, *p);
    par_team_close(&own);
    return rc;
}

/* A measurement of the card, or of its check. */
struct session {
    const struct machine_card_opts *o;
    const struct cpu_budget *budget;
    struct probe_ctx ctx;
    bool check, is_bound[VALUES_MAX]; /* the value is of a probe of bounds */
    struct measure_noise noise;
};

static bool takes_part(const struct session *s, const struct probe *p)
{
    return s->check ? p->bound : s->ctx.full || !p->full;
}

/* Note why values are not trusted as bounds; returns of how many. */
static int doubt_spread(struct measure_card_row *v, int n)
{
    int n_doubts = 0;

    for (int i = 0; i < n; i++) {
        double spread = (v[i].hi - v[i].lo) / v[i].estimate;

        if (!(spread > MEASURE_CARD_SPREAD_MAX)) /* or it is unavailable */
            continue;
        n_doubts++;
        snprintf(v[i].why, sizeof(v[i].why),
                 "its trials spread by %.0f %%, more than %.0f %%", 100 * spread,
                 100 * MEASURE_CARD_SPREAD_MAX);
    }
    return n_doubts;
}

/* Run a probe of bounds; where values spread, once or twice more, for these. */
MUST static int run_bound(struct probe_ctx *c, const struct probe *p)
{
    int first = c->n_values, n, n_doubts, rc = p->run(c);

    n = c->n_values - first;
    n_doubts = doubt_spread(c->values + first, n);
    for (int k = 1; k < ATTEMPTS_MAX && n_doubts && rc == OK; k++) {
        struct measure_card_row *old = c->values + first, *new = old + n;

        rc = p->run(c);
        doubt_spread(new, c->n_values - first - n);
        n_doubts = 0;
        for (int i = 0; i < n && rc == OK; i++) {
            if (old[i].why[0] && !isnan(old[i].estimate)) {
                old[i] = new[i]; /* a probe reports the same values each time */
                n_doubts += new[i].why[0] != '\0';
            }
        }
        c->n_values = first + n;
    }
    return rc;
}

static void doubt_busy(struct session *s)
{
    double frac = measure_noise_lost_cpus(&s->noise) / s->budget->n;

    for (int i = 0; i < s->ctx.n_values && frac > LOST_FRAC_MAX; i++) {
        struct measure_card_row *v = &s->ctx.values[i];

        if (s->is_bound[i] && !isnan(v->estimate) && !v->why[0])
            snprintf(v->why, sizeof(v->why),
                     "other programs had %.0f %% of the CPUs while it was measured",
                     100 * fmin(frac, 1));
    }
}

MUST static int run_probes(struct session *s)
{
    struct probe_ctx *c = &s->ctx;
    int n = 0, rc = OK;

    for (int i = 0; probes[i]; i++)
        n += takes_part(s, probes[i]);
    c->budget_s = (s->check ? CHECK_S : s->o->budget_s) / (n ? n : 1);
    for (int i = 0; probes[i] && rc == OK; i++) {
        int first = c->n_values;

        if (!takes_part(s, probes[i]))
            continue;
        if (!s->check)
            log_info("  %s: %s", probes[i]->name, probes[i]->help);
        rc = probes[i]->bound && !s->o->accept_noise ? run_bound(c, probes[i])
                                                     : probes[i]->run(c);
        for (int k = first; k < c->n_values; k++)
            s->is_bound[k] = probes[i]->bound;
    }
    return rc;
}

/* Run the probes on all CPUs of the budget; the values are owned by s until session_fini(). */
MUST static int session_run(struct session *s)
{
    int rc = measure_noise_begin(&s->noise);

    s->ctx.n_threads_max = s->budget->n;
    s->ctx.n_threads_min = s->check ? s->budget->n : 1;
    s->ctx.full = s->o->full && !s->check;
    s->ctx.buffer_bytes = s->o->buffer_bytes;
    s->ctx.max_values = VALUES_MAX;
    s->ctx.values = mem_new(MEM_HARNESS, VALUES_MAX, sizeof(*s->ctx.values));
    if (rc == OK)
        rc = s->ctx.values ? par_team_open(&s->ctx.team, s->budget->cpus, s->budget->n, 1)
                           : ERR_NOMEM;
    if (rc == OK)
        rc = run_probes(s);
    if (rc == OK)
        rc = measure_noise_end(&s->noise);
    if (rc == OK && !s->o->accept_noise)
        doubt_busy(s);
    par_team_close(&s->ctx.team);
    return rc;
}

static void session_fini(struct session *s)
{
    mem_free(s->ctx.values);
}

MUST static int measure(json_t **out, const struct cpu_budget *b,
                        const struct machine_card_opts *o)
{
    struct session s = {.o = o, .budget = b};
    uint64_t start_ns = clock_ns();
    const char *doubt;
    int rc;

    log_info("measuring this machine once (%s, about %.0f s) ...", b->reason,
             o->budget_s);
    rc = session_run(&s);
    if (rc == OK)
        rc = measure_card_new(out, s.ctx.values, s.ctx.n_values, b, &s.noise,
                              (double)(clock_ns() - start_ns) * 1e-9);
    if (rc == OK) {
        measure_noise_warn(&s.noise, "machine card");
        doubt = measure_card_doubtful(*out, b->n);
        if (doubt)
            log_warning("machine_card_doubtful", NAN, MEASURE_CARD_SPREAD_MAX,
                        "the machine card has bounds that are not trusted, and is "
                        "measured again next time: %s",
                        doubt);
    }
    session_fini(&s);
    return rc;
}

/* ---- a kept card ---- */

/* A bound of `card` that a short measurement of now contradicts, in *now; false: none. What
 * spreads now contradicts nothing. */
static bool contradicted(const json_t *card, const struct session *s,
                         struct measure_card_row *now, double *kept)
{
    for (int i = 0; i < s->ctx.n_values; i++) {
        *now = s->ctx.values[i];
        *kept = measure_card_value(card, now->name, now->n_threads, NULL);
        if (!now->why[0] && now->n_threads == s->budget->n &&
            fabs(now->estimate / *kept - 1) > MEASURE_CARD_SPREAD_MAX)
            return true;
    }
    return false;
}

/* *again: the card must be measured again, and a warning has stated why. */
MUST static int check(bool *again, const json_t *card, const struct cpu_budget *b,
                      const struct machine_card_opts *o)
{
    struct session s = {.o = o, .budget = b, .check = true};
    struct measure_card_row now;
    double kept;
    int rc = session_run(&s);

    *again = rc == OK && contradicted(card, &s, &now, &kept);
    if (*again)
        log_warning("machine_card_changed", now.estimate, kept,
                    "machine card: %s of %d threads was %.4g %s and is %.4g now; "
                    "measuring again",
                    now.name, now.n_threads, kept, now.unit, now.estimate);
    session_fini(&s);
    return rc;
}

/* *card: what is kept, if it may be used; NULL, after a warning where something is kept: it
 * must be measured. */
MUST static int read_kept(json_t **card, const char *path, const struct cpu_budget *b,
                          const struct machine_card_opts *o)
{
    int rc = measure_card_read(card, path);
    const char *doubt;
    bool again = false;

    if (rc == ERR_NOMEM)
        return rc;
    if (rc != OK) {
        if (rc != ERR_NOTFOUND)
            log_warning("machine_card_refused", NAN, NAN, "%s; measuring again",
                        err_msg());
        err_clear();
        return OK;
    }
    doubt = o->any ? NULL : measure_card_doubtful(*card, b->n);
    if (doubt)
        log_warning("machine_card_refused", NAN, NAN,
                    "%s: has bounds that are not trusted: %s; measuring again", path,
                    doubt);
    else if (o->check)
        rc = check(&again, *card, b, o);
    if (rc != OK || doubt || again) {
        json_decref(*card);
        *card = NULL;
    }
    return rc;
}

int machine_card_get(json_t **out, const struct machine_card_opts *given)
{
    struct machine_card_opts o = *given;
    struct cpu_budget b;
    char path[1200];
    int rc;

    *out = NULL;
    if (!(o.budget_s > 0))
        o.budget_s = o.full ? FULL_BUDGET_S : BUDGET_S;
    rc = measure_card_path(path, sizeof(path), o.dir, o.full ? "-full" : "");
    if (rc == OK)
        rc = cpu_budget_get(&b);
    if (rc == OK && !o.force)
        rc = read_kept(out, path, &b, &o);
    if (rc != OK || *out)
        return rc;
    rc = measure(out, &b, &o);
    if (rc != OK)
        return rc;
    /* the numbers are good even if they cannot be kept, as in a read-only checkout */
    if (json_write_file(*out, path) != OK) {
        log_warning("machine_card_not_kept", NAN, NAN, "%s", err_msg());
        err_clear();
    }
    return OK;
}
