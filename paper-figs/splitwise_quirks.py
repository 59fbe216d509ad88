"""Ratios of the highest rates, by the paper's rules with one difference of splitwise-sim and the other way round."""

from lib import cluster, read, study, style

STEM = "splitwise_quirks"
RATIOS = [("Splitwise-AA", "Baseline-A100"), ("Splitwise-HA", "Baseline-H100"), ("Splitwise-HHcap", "Baseline-H100")]
TITLES = {"paper": "The paper's rules and one difference of splitwise-sim", "splitwise_sim": "splitwise-sim's rules without one"}

result = read.latest(STEM)
rules, toggles = study.settings(result.cells, "rules"), study.settings(result.cells, "toggle")
ratios = [r for r in RATIOS if set(r) <= set(cluster.designs(result.cells))]


def rate(r, toggle, design):
    return cluster.mean(study.where(result.cells, rules=r, toggle=toggle, design=design), "rate_rps")


fig, axes = style.rows(*[1] * len(rules))
for ax, r in zip(axes, rules):
    ax.set_title(TITLES[r])
    for i, (design, base) in enumerate(ratios):
        for x, toggle in enumerate(toggles):
            v = rate(r, toggle, design) / rate(r, toggle, base)
            style.bar(ax, x + 0.27 * (i - 1), v, style.number(v, "%.2f"), width=0.25, color=cluster.COLOR[design],
                      label="%s / %s" % (design, base) if x == 0 else None)
    ax.axhline(1, color=style.GREY, lw=0.8)
    ax.set_xticks(range(len(toggles)), [t.replace("_", "\n", 2) for t in toggles], fontsize=style.SMALL)
    ax.margins(y=0.25)
    ax.set_ylabel("highest rate, ratio")
cluster.legend(fig, axes[:1])
style.save(fig, result, STEM, "What the throughput of Splitwise's designs rests on, machines of Fig. 16")
study.write_table(STEM, ["rules", "difference", "design", "rate"],
                  [[r, t, d, style.number(rate(r, t, d), "%.4g")]
                   for r in rules for t in toggles for d in cluster.designs(result.cells)])
