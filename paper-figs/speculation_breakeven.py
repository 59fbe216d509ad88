"""Speculative decoding: speed by the acceptance of a draft, measured with a scripted one and predicted from
the times of steps."""

import os

from lib import read, study, style

STEM = "speculation_breakeven"
CHANCES = [0, 20, 40, 60, 80, 100]


def model(c):
    return os.path.basename(str(study.setting(c, "model"))).removesuffix(".gguf")


def panel(ax, cells):
    for k, c in enumerate(cells):
        a = [100 * c.value("acceptance_a%d" % p) for p in CHANCES]
        label = "%d tokens" % study.setting(c, "draft_tok")
        ax.plot(a, [c.value("predicted_a%d" % p) for p in CHANCES], "-", lw=1, color=style.COLORS[k])
        ax.plot(a, [c.value("speedup_a%d" % p) for p in CHANCES], "o", ms=4, color=style.COLORS[k], label=label)
    ax.axhline(1, color=style.GREY, lw=0.8)
    ax.set(xlabel="acceptance (%)", ylabel="speed over decoding without", ylim=(0, None))
    style.legend_below(ax)


result = read.latest(STEM)
groups = sorted({(model(c), study.setting(c, "draft_cost")) for c in result.cells})
fig, axes = style.panels(max(1, len(groups)), columns=2)
for ax, (name, cost) in zip(axes, groups):
    panel(ax, [c for c in result.cells if (model(c), study.setting(c, "draft_cost")) == (name, cost)])
    ax.set_title("%s, draft token %s of a step" % (name, style.percent(cost)))
style.save(fig, result, STEM, "From which acceptance a draft pays; points: scripted draft, lines: predicted")
METRICS = ["step_cost", "breakeven_predicted", "breakeven_measured", "breakeven_error", "prediction_error", "n_different"]
study.write_table(STEM, ["model", "draft tokens", "draft cost"] + [m.replace("_", " ") for m in METRICS],
                  [[model(c), "%d" % study.setting(c, "draft_tok"), "%g" % study.setting(c, "draft_cost")]
                   + [style.number(c.value(m), "%.3g") for m in METRICS] for c in result.cells])
