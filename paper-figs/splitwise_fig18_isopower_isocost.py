"""The highest rate of each design at equal power and at equal cost, with its cost, power and machines."""

from lib import cluster, read, study, style

STEM = "splitwise_fig18_isopower_isocost"
PANELS = [("rate_rps", "highest rate, per second"), ("cost_per_hour", "cost, $/h"), ("power", "power, in DGX-A100"),
          ("n_machines", "machines")]
NAMES = {"printed": "The sizes that the paper prints"}

result = read.latest(STEM)
limits = study.settings(result.cells, "limit")
fig, axes = style.rows(*[2] * (2 * len(limits)))
for i, limit in enumerate(limits):
    for ax, (metric, label) in zip(axes[4 * i:], PANELS):
        ax.set_title("%s: %s" % (NAMES.get(limit, "Equal " + limit), label.split(",")[0]))
        ax.set_ylabel(label)
        cluster.bars(ax, study.where(result.cells, limit=limit), metric)
cluster.bar_legend(fig)
style.save(fig, result, STEM, "Designs at the power or cost of %g DGX-H100, conversation (Splitwise Fig. 18)"
           % study.settings(result.cells, "limit_h100")[0])
METRICS = ["rate_rps", "n_prompt", "n_token", "cost_per_hour", "power", "n_machines"]
study.write_table(STEM, ["equal", "rules", "design"] + [m.replace("_", " ") for m in METRICS],
                  [[e, r, d] + [style.number(cluster.mean(study.where(result.cells, limit=e, rules=r, design=d), m),
                                             "%.4g") for m in METRICS]
                   for e in limits for r in study.settings(result.cells, "rules") for d in cluster.designs(result.cells)])
