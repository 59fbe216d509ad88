/* Rates and times against what the machine was measured to do. */
#include <math.h>

#include "base/json.h"
#include "experiments/record/rule.h"
#include "measure/card.h"

#define MARGIN                                                                           \
    (1 + MEASURE_CARD_SPREAD_MAX) /* as when the cell was judged (run/bound.h) */
/* One request may meet a better moment than the probes before and after the cell. */
#define REQUEST_MARGIN 1.5

/* A bound of the cell is that of the card, scaled by what the probes of all CPUs found. */
static void check_bound(struct record_view *v)
{
    const double bound = v->in.read_gbps;
    const double most =
        fmax(measure_card_read_gbps(v->card, (int)json_int_at(v->run, "n_cpus")),
             fmax(json_f64_at(v->attributes, "bound.before.read_gbps"),
                  json_f64_at(v->attributes, "bound.after.read_gbps")));

    if (v->card && bound > most * REQUEST_MARGIN)
        record_fault(
            v, "attributes_json/bound.read_gbps",
            "expected at most the %.4g GB/s that the socket was measured to read, "
            "found %.4g",
            most, bound);
}

/* Bytes per token that surely come from memory: each thread may have a last-level cache of its
 * own. NaN: the caches are not known. */
static double from_memory(const struct record_view *v, double bytes)
{
    const double n = json_f64_at(v->attributes, "described.decode_threads");

    return fmax(0, bytes - v->cache_bytes * n) + 0 * v->cache_bytes * n;
}

static double recorded(const struct record_view *v, const char *name)
{
    return record_value(v->summary, name);
}

/* Requests that overlap share reads and threads: then the summary has no rate of its own. */
static void check_decode(struct record_view *v)
{
    const double gbps = recorded(v, "decode_read_gbps");
    double bytes = 0, n = 0;

    for (size_t i = 0; i < v->in.n_rows && !isnan(gbps); i++) {
        const struct metrics_row *r = &v->in.rows[i];
        const double steps = (double)r->n_tok - 1, took_ms = metrics_tpot_ms(r) * steps;
        const double least_ms =
            from_memory(v, r->decode_bytes / steps) * steps / v->in.read_gbps / 1e6;

        if (r->status != METRICS_OK || r->n_tok < 2)
            continue;
        bytes += r->decode_bytes;
        n += steps;
        if (took_ms * REQUEST_MARGIN < least_ms)
            record_fault_row(
                v, "decode_bytes", i,
                "expected tokens at least %.4g ms apart, by bytes / bandwidth, "
                "found %.4g ms",
                least_ms / steps, took_ms / steps);
    }
    if (gbps * from_memory(v, bytes / n) / (bytes / n) > v->in.read_gbps * MARGIN)
        record_fault(v, "summary/decode_read_gbps",
                     "expected at most the bandwidth measured, %.4g GB/s, found %.4g",
                     v->in.read_gbps, gbps);
}

static void check_prefill(struct record_view *v)
{
    const double gflops = recorded(v, "prefill_gflops"), peak = v->in.peak_gflops;

    if (gflops > peak * MARGIN)
        record_fault(v, "summary/prefill_gflops",
                     "expected at most the peak measured, %.4g GFLOP/s, found %.4g", peak,
                     gflops);
    for (size_t i = 0; i < v->in.n_rows && !isnan(gflops); i++) {
        const struct metrics_row *r = &v->in.rows[i];
        const double least_ms = r->prefill_flop / peak / 1e6;

        if (r->status == METRICS_OK &&
            metrics_ttft_service_ms(r) * REQUEST_MARGIN < least_ms)
            record_fault_row(
                v, "prefill_flop", i,
                "expected at least %.4g ms to the first token, by arithmetic / "
                "peak, found %.4g ms",
                least_ms, metrics_ttft_service_ms(r));
    }
}

static void of_cell(struct record_view *v)
{
    check_bound(v);
    check_decode(v);
    check_prefill(v);
}

const struct record_rule record_rule_bounds = {
    .name = "bounds",
    .text = "No rate is above the bandwidth or peak measured, no token or prompt faster.",
    .of_cell = of_cell,
};
