"""Slowdowns of the median TTFT, TBT and E2E by load, for each design, both traces and both sets of rules."""

from lib import cluster, page, read, study, style

STEM = "splitwise_fig16_latency_load"
LATENCIES = {"ttft": 2, "tbt": 1.25, "e2e": 1.25}  # Table VI: SLO of the median

result = read.latest(STEM)
rows = [(t, r) for t in study.settings(result.cells, "trace") for r in study.settings(result.cells, "rules")]
fig, axes = style.rows(*[3] * len(rows))
for i, (trace, rules) in enumerate(rows):
    for ax, (latency, slo) in zip(axes[3 * i:], LATENCIES.items()):
        cells = study.where(result.cells, trace=trace, rules=rules)
        ax.set_title("%s, median %s,\n%s" % (trace.capitalize(), latency.upper(), cluster.RULES[rules]))
        for d in cluster.designs(cells):
            cluster.line(ax, study.where(cells, design=d), "rate", latency + "_p50_slowdown",
                         color=cluster.COLOR[d], label=d)
        ax.axhline(slo, color="red", ls="--", lw=0.8, label="SLO")
        ax.set_ylim(bottom=0)
        page.cut(ax, 2.5 * slo)
        ax.set_ylabel("slowdown")
        ax.set_xlabel("requests per second")
cluster.legend(fig, axes)
style.save(fig, result, STEM, "Latency over that alone on a DGX-A100, by load, at the power of 40 DGX-H100; arrows: above the axis")
METRICS = ["slo_use", "ttft_p50_ms", "ttft_p90_ms", "tbt_p50_ms", "tbt_p90_ms", "e2e_p50_ms", "e2e_p90_ms",
           "mixed_frac", "stuck_frac"]
study.write_table(
    STEM, ["trace", "rules", "design", "req/s"] + [m.replace("_", " ") for m in METRICS],
    [[t, r, d, "%g" % rate] + [style.number(cluster.mean(cells, m), "%.3g") for m in METRICS]
     for t, r in rows for d in cluster.designs(result.cells) for rate in sorted(study.settings(result.cells, "rate"))
     for cells in [study.where(result.cells, trace=t, rules=r, design=d, rate=rate)]])
