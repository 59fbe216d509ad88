"""Requests completed per second, and per dollar, under more load than the machines can serve."""

from lib import cluster, read, study, style

STEM = "splitwise_batch_jobs"
PANELS = [("rps_per_dollar", "requests/s / GPU-hour price, $"), ("completed_rps", "requests per second"),
          ("mixed_frac", "busy time in the mixed pool")]

result = read.latest(STEM)
fig, axes = style.rows(1, 1, 1)
for ax, (metric, label) in zip(axes, PANELS):
    ax.set_title(label.split(" /")[0].capitalize())
    ax.set_ylabel(label)
    cluster.bars(ax, result.cells, metric)
cluster.bar_legend(fig)
style.save(fig, result, STEM, "Batch jobs: %g requests per second of conversation (Splitwise VI-E)"
           % study.settings(result.cells, "rate")[0])
METRICS = ["rps_per_dollar", "completed_rps", "mixed_frac", "stuck_frac", "preempted_per_request", "cost_per_hour"]
study.write_table(STEM, ["rules", "design"] + [m.replace("_", " ") for m in METRICS],
                  [[r, d] + [style.number(cluster.mean(study.where(result.cells, rules=r, design=d), m), "%.3g")
                             for m in METRICS]
                   for r in study.settings(result.cells, "rules") for d in cluster.designs(result.cells)])
