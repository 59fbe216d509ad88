"""What the figures of Splitwise's simulated clusters share: designs, rules, and means over seeds."""

import math

import numpy as np

from lib import page, study, style

DESIGNS = ["Baseline-A100", "Baseline-H100", "Splitwise-AA", "Splitwise-HH", "Splitwise-HA", "Splitwise-HHcap"]
COLOR = dict(zip(DESIGNS, style.COLORS))
RULES = {"paper": "the paper's rules", "splitwise_sim": "splitwise-sim's"}


def designs(cells):
    return [d for d in DESIGNS if d in study.settings(cells, "design")]


def mean(cells, metric):
    return study.mean([c.value(metric) for c in cells])


def line(ax, cells, x, metric, **kw):
    """The mean over seeds at each value of a setting, with the range of the seeds."""
    at = sorted(study.settings(cells, x))
    groups = [study.finite([c.value(metric) for c in study.where(cells, **{x: v})]) for v in at]
    if not any(groups):
        return
    ax.plot(at, [np.mean(g) if g else math.nan for g in groups], marker="o", ms=2.5, lw=1.1, **kw)
    ax.fill_between(at, [min(g, default=math.nan) for g in groups], [max(g, default=math.nan) for g in groups],
                    color=kw.get("color"), alpha=0.2, lw=0)


def bars(ax, cells, metric, base=None):
    """A bar for each design and both sets of rules; over that of the design `base`, where it is given."""
    shown = designs(cells)
    for i, rules in enumerate(r for r in RULES if r in study.settings(cells, "rules")):
        below = mean(study.where(cells, design=base, rules=rules), metric) if base else 1
        for x, d in enumerate(shown):
            v = mean(study.where(cells, design=d, rules=rules), metric) / below
            style.bar(ax, x + 0.4 * (i - 0.5), v, style.short(v), width=0.37, color=COLOR[d],
                      alpha=1 if i == 0 else 0.55, hatch=style.HATCHES[i])
    ax.set_xticks(range(len(shown)), [d.replace("-", "\n") for d in shown], fontsize=page.SMALL)
    ax.margins(y=0.25)


def bar_legend(fig):
    """What `bars` shows: full bars and hatched ones."""
    page.legend(fig, [style.plt.Rectangle((0, 0), 1, 1, fc=style.GREY, alpha=a, hatch=h)
                      for a, h in ((1, style.HATCHES[0]), (0.55, style.HATCHES[1]))], list(RULES.values()))


def legend(fig, axes):
    """One legend of all axes at the foot of the figure."""
    found = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels()):
            found.setdefault(label, handle)
    if found:
        page.legend(fig, list(found.values()), list(found))
