"""The highest rate of conversation on machines chosen for each trace, and of another model on them."""

from lib import cluster, read, study, style

STEM = "splitwise_fig20_robustness"

result = read.latest(STEM)
panels = [(m, z) for m in study.settings(result.cells, "model") for z in study.settings(result.cells, "sized_for")]
fig, axes = style.rows(*[1] * len(panels))
for ax, (model, trace) in zip(axes, panels):
    ax.set_title("%s, machines of Fig. 16 for %s" % (model, trace))
    ax.set_ylabel("requests per second")
    cluster.bars(ax, study.where(result.cells, model=model, sized_for=trace), "rate_rps")
cluster.bar_legend(fig)
style.save(fig, result, STEM, "Conversation: the highest rate that meets the SLOs (Splitwise Fig. 20)")
study.write_table(STEM, ["model", "machines for", "rules", "design", "rate"],
                  [[m, z, r, d, style.number(cluster.mean(study.where(result.cells, model=m, sized_for=z, rules=r,
                                                                      design=d), "rate_rps"), "%.4g")]
                   for m, z in panels for r in study.settings(result.cells, "rules")
                   for d in cluster.designs(result.cells)])
