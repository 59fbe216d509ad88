"""Which sizes of Splitwise-HH meet the SLOs, with the search's optimum and the paper's."""

import numpy as np

from lib import cluster, read, reference, study, style

STEM = "splitwise_fig12_provisioning"


def grid(ax, cells):
    """The share of seeds for which a size meets the SLOs."""
    found = [c for c in cells if "tried_prompt" in c.series]
    if not found:
        return style.na(ax)
    p, t = (found[0].series[n] for n in ("tried_prompt", "tried_token"))
    met = np.mean([c.series["tried_value"] for c in found], axis=0)
    ax.scatter(p, t, c=met, cmap="Blues", vmin=0, vmax=1, s=9, marker="s", lw=0.2, edgecolors=style.GREY,
               label="meets the SLOs, dark: with every seed")
    return None


result = read.latest(STEM)
rules = study.settings(result.cells, "rules")
fig, axes = style.panels(len(rules), 2)
for ax, r in zip(axes, rules):
    cells = study.where(result.cells, rules=r)
    grid(ax, cells)
    best = [cluster.mean(cells, n) for n in ("n_prompt", "n_token", "cost_per_hour")]
    ax.set_title("%s: %s P, %s T,\n%s $/h" % ((cluster.RULES[r].capitalize(),) + tuple(style.short(v) for v in best)))
    ax.plot(best[:1], best[1:2], "*", ms=10, color=style.COLORS[1], label="the cheapest found")
    reference.mark(ax, [reference.value("splitwise", "Fig. 12", "prompt machines of the optimum")],
                   [reference.value("splitwise", "Fig. 12", "token machines of the optimum")],
                   "splitwise", "Fig. 12", best[1:2], "DGX-H100")
    ax.set_xlabel("prompt machines")
    ax.set_ylabel("token machines")
cluster.legend(fig, axes)
style.save(fig, result, STEM, "Splitwise-HH for %g requests per second of coding (Splitwise Fig. 12)"
           % study.settings(result.cells, "target_rate")[0])
METRICS = ["n_prompt", "n_token", "n_machines", "cost_per_hour", "power", "n_evaluated", "cost_over_grid"]
study.write_table(STEM, ["rules", "seed"] + [m.replace("_", " ") for m in METRICS],
                  [[c.setting("study.rules"), "%g" % c.setting("study.seed")] +
                   [style.number(c.value(m), "%.4g") for m in METRICS] for c in result.cells])
