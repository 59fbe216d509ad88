"""The least power and the least cost of each design for one rate."""

from lib import cluster, read, study, style

STEM = "splitwise_fig19_isothroughput"
PANELS = [("power", "power, in DGX-A100"), ("cost_per_hour", "cost, $/h"), ("n_machines", "machines")]

result = read.latest(STEM)
goals = study.settings(result.cells, "goal")
fig, axes = style.rows(*[1] * (len(PANELS) * len(goals)))
for i, goal in enumerate(goals):
    for ax, (metric, label) in zip(axes[len(PANELS) * i:], PANELS):
        ax.set_title("Least %s: %s" % (goal, label.split(",")[0]))
        ax.set_ylabel(label)
        cluster.bars(ax, study.where(result.cells, goal=goal), metric)
cluster.bar_legend(fig)
style.save(fig, result, STEM, "Designs that serve %g requests per second of conversation (Splitwise Fig. 19)"
           % study.settings(result.cells, "target_rate")[0])
METRICS = ["n_prompt", "n_token", "n_machines", "cost_per_hour", "power"]
study.write_table(STEM, ["least", "rules", "design"] + [m.replace("_", " ") for m in METRICS],
                  [[g, r, d] + [style.number(cluster.mean(study.where(result.cells, goal=g, rules=r, design=d), m),
                                             "%.4g") for m in METRICS]
                   for g in goals for r in study.settings(result.cells, "rules") for d in cluster.designs(result.cells)])
