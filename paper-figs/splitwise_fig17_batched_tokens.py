"""The distribution of busy time over the tokens of a batch, at each load, by kind of machine."""

import numpy as np

from lib import cluster, read, study, style

STEM = "splitwise_fig17_batched_tokens"


def cdf(ax, cells, name, **kw):
    curves = [c.series[name] for c in cells if name in c.series and not np.isnan(c.series[name]).all()]
    if curves:
        ax.plot(cells[0].series["batch_tok"], np.mean(curves, axis=0), lw=1.2, **kw)


result = read.latest(STEM)
panels = [(r, rate) for r in study.settings(result.cells, "rules") for rate in sorted(study.settings(result.cells, "rate"))]
fig, axes = style.panels(len(panels), 2)
for ax, (rules, rate) in zip(axes, panels):
    cells = study.where(result.cells, rules=rules, rate=rate)
    one = study.where(cells, design=cluster.designs(cells)[0])
    ax.set_title("%g req/s, %s" % (rate, cluster.RULES[rules]))
    for d in cluster.designs(cells):
        of = study.where(cells, design=d)
        if d.startswith("Baseline"):
            cdf(ax, of, "time_frac_prompt", color=cluster.COLOR[d], label=d)
        else:
            cdf(ax, of, "time_frac_prompt", color=cluster.COLOR[d], label=d + ", prompt machines")
            cdf(ax, of, "time_frac_token", color=cluster.COLOR[d], ls="--", label=d + ", token machines")
    ax.axvline(15, color=style.GREY, lw=0.8, ls=":", label="15 tokens")
    ax.set_xscale("log")
    style.plain_log(ax.xaxis, [1, 10, 100, 1000])
    ax.set_ylim(0, 1.02)
    style.percent_axis(ax.yaxis)
    ax.set_xlabel("tokens of a batch, at most\n%s: %s within 15, %s within 30" % (
        cluster.designs(cells)[0], style.percent(cluster.mean(one, "few_tok_frac")),
        style.percent(cluster.mean(one, "tok_30_frac"))))
    ax.set_ylabel("busy time")
cluster.legend(fig, axes)
style.save(fig, result, STEM, "Busy time by the tokens of a batch, conversation (Splitwise Fig. 17)")
METRICS = ["few_tok_frac", "few_tok_frac_prompt", "few_tok_frac_token", "mean_batch_tok_prompt",
           "mean_batch_tok_token", "busy_frac_prompt", "busy_frac_token", "mixed_frac"]
study.write_table(
    STEM, ["rules", "req/s", "design"] + [m.replace("_", " ") for m in METRICS],
    [[r, "%g" % rate, d] + [style.number(cluster.mean(cells, m), "%.3g") for m in METRICS]
     for r, rate in panels for d in cluster.designs(result.cells)
     for cells in [study.where(result.cells, rules=r, rate=rate, design=d)]])
