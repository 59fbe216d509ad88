#include "experiments/run/bound.h"

#include <math.h>
#include <stdio.h>

#include "base/json.h"
#include "base/log.h"
#include "base/text_number.h"
#include "characterize/probe.h"
#include "cpu/cpu.h"
#include "experiments/run/session.h"
#include "measure/card.h"

#define READ_S    0.3
#define PEAK_S    0.1
#define HANDOFF_S 0.01

/* NULL: it cannot be measured. */
static json_t *probe(const char *name, double budget_s)
{
    json_t *card;

    if (probe_now(&card, &(struct probe_ctx){.budget_s = budget_s}, name) != OK)
        err_clear();
    return card;
}

void run_bound_look(struct run_bound *b, const struct run_session *s, enum run_when when)
{
    json_t *read = s->card ? probe("read", READ_S) : NULL;
    json_t *peak = s->card ? probe("peak", PEAK_S) : NULL;
    json_t *handoff = s->card ? probe("handoff", HANDOFF_S) : NULL;
    struct cpu_budget cpus;

    b->now[when].handoff_ns = measure_card_range(handoff, "handoff_ns", 0, NULL).most;
    if (cpu_budget_get(&cpus) == OK) {
        b->now[when].read_gbps = measure_card_read_gbps(read, cpus.n);
        b->now[when].peak_gflops = measure_card_peak_gflops(peak, "f32", "exact", cpus.n);
    } else {
        err_clear(); /* without a measurement there is no bound to correct */
    }
    json_decref(read);
    json_decref(peak);
    json_decref(handoff);
}

double run_bound_scaled(double bound, double card, double before, double after)
{
    double share = fmax(before, after) / card;

    return isnan(share) ? bound : bound * share;
}

/* A wrong roof would flatter every number under it, so it is reported once and not used. */
static void warn_no_bound(const struct run_bound *b, struct run_session *s)
{
    bool read = isnan(b->read_gbps), peak = isnan(b->peak_gflops);

    if (s->warned_bound || (!read && !peak))
        return;
    s->warned_bound = true;
    log_warning("no_bound", NAN, NAN,
                "%s%s%s; shares of the bound are n/a (testbed machine --force measures "
                "again)",
                read ? b->read_why : "", read && peak ? "; " : "",
                peak ? b->peak_why : "");
}

static void warn_changed(const char *cell, const char *what, const char *unit,
                         double before, double after)
{
    if (fabs(after - before) > MEASURE_CARD_SPREAD_MAX * fmin(before, after))
        log_warning("bound_changed", after, before,
                    "%s: the %s was %s %s before it and %s after it; its share is that "
                    "of the larger",
                    cell, what, TEXT_NUMBER(before, 4), unit, TEXT_NUMBER(after, 4));
}

static void warn_moved(const char *cell, double before, double after)
{
    if (fmax(before, after) > RUN_MOVED_FACTOR * fmin(before, after))
        log_warning("cpus_moved", after, before,
                    "%s: a line went from one CPU to another in %.0f ns before it and in "
                    "%.0f ns after it, as when a host moves virtual CPUs to other cores",
                    cell, before, after);
}

static void scale(struct run_bound *b, const json_t *card, const char *cell)
{
    struct cpu_budget cpus;

    if (cpu_budget_get(&cpus) != OK) { /* as above */
        err_clear();
        return;
    }
    b->read_gbps =
        run_bound_scaled(b->read_gbps, measure_card_read_gbps(card, cpus.n),
                         b->now[RUN_BEFORE].read_gbps, b->now[RUN_AFTER].read_gbps);
    b->peak_gflops = run_bound_scaled(
        b->peak_gflops, measure_card_peak_gflops(card, "f32", "exact", cpus.n),
        b->now[RUN_BEFORE].peak_gflops, b->now[RUN_AFTER].peak_gflops);
    warn_changed(cell, "read bandwidth", "GB/s", b->now[RUN_BEFORE].read_gbps,
                 b->now[RUN_AFTER].read_gbps);
    warn_changed(cell, "peak", "GFLOP/s", b->now[RUN_BEFORE].peak_gflops,
                 b->now[RUN_AFTER].peak_gflops);
    warn_moved(cell, b->now[RUN_BEFORE].handoff_ns, b->now[RUN_AFTER].handoff_ns);
}

static void set_why(struct run_bound *b, const char *why)
{
    snprintf(b->read_why, sizeof(b->read_why), "%s", why);
    snprintf(b->peak_why, sizeof(b->peak_why), "%s", why);
}

void run_bound_find(struct run_bound *b, struct run_session *s, const char *cell,
                    const json_t *described)
{
    const char *type = json_string_value(json_object_get(described, "weight_type"));
    const char *precision = json_string_value(json_object_get(described, "precision"));
    int decode = (int)json_integer_value(json_object_get(described, "decode_threads"));
    int prefill = (int)json_integer_value(json_object_get(described, "prefill_threads"));

    if (!precision)
        precision = "exact";
    if (!s->card) {
        set_why(b, s->card_why);
        return;
    }
    if (decode < 1 || prefill < 1 || !type) {
        set_why(b, "the system does not say its threads and weight type");
        return;
    }
    b->read_gbps = measure_card_read_bound(s->card, decode, b->read_why);
    b->peak_gflops =
        measure_card_peak_bound(s->card, type, precision, prefill, b->peak_why);
    scale(b, s->card, cell);
    warn_no_bound(b, s);
}

static bool exceeds(const char *cell, const char *what, const char *unit, double reached,
                    double *bound, char why[96])
{
    if (!(reached > *bound * (1 + MEASURE_CARD_SPREAD_MAX)))
        return false;
    snprintf(why, 96, "the measured %s of %s %s was exceeded: %s", what,
             TEXT_NUMBER(*bound, 4), unit, TEXT_NUMBER(reached, 4));
    log_warning("bound_exceeded", reached, *bound,
                "%s: %s; the card is measured again at the next run", cell, why);
    *bound = NAN;
    return true;
}

bool run_bound_exceeded(struct run_bound *b, const struct run_session *s,
                        const char *cell, double read_gbps, double gflops)
{
    bool read =
        exceeds(cell, "read bandwidth", "GB/s", read_gbps, &b->read_gbps, b->read_why);
    bool peak = exceeds(cell, "peak", "GFLOP/s", gflops, &b->peak_gflops, b->peak_why);

    if (read || peak)
        measure_card_drop(s->o->machine_dir);
    return read || peak;
}

double run_surely_read_gbps(double gbps, double token_bytes, double cache_bytes)
{
    return gbps * fmax(0, 1 - cache_bytes / token_bytes);
}

static json_t *now_json(const struct run_bound *b, enum run_when when)
{
    return json_pack("{s:o, s:o, s:o}", "read_gbps", json_number(b->now[when].read_gbps),
                     "peak_f32_gflops", json_number(b->now[when].peak_gflops),
                     "handoff_ns", json_number(b->now[when].handoff_ns));
}

json_t *run_bound_json(const struct run_bound *b)
{
    return json_pack("{s:o, s:o, s:o, s:o}", "read_gbps", json_number(b->read_gbps),
                     "peak_gflops", json_number(b->peak_gflops), "before",
                     now_json(b, RUN_BEFORE), "after", now_json(b, RUN_AFTER));
}
