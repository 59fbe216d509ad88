"""Sandwich Fig. 3b: how many ranks share an EPYC 7H12 machine of two sockets, relative to one."""

from lib import read, study, style, table

STEM = "fig03b_tp_degree"
METRICS = [("request_s", "Request", 1), ("decode_s", "One token", 1e3), ("prefill_s", "One prompt", 1e3)]

result = read.latest(STEM)
ranks = study.settings(result.cells, "ranks")
curves = [(machine, plan, study.where(result.cells, machine=machine, plan=plan))
          for machine in study.settings(result.cells, "machine")
          for plan in study.settings(result.cells, "plan")]


def of_one(cells, metric):
    """Of every cell, relative to the same machine and plan with one rank."""
    one = [c.value(metric) for c in cells if study.setting(c, "ranks") == 1]
    return [c.value(metric) / one[0] for c in cells] if one else [float("nan")] * len(cells)


def label(machine, plan):
    smt = "no SMT" if str(plan).startswith("no_smt") else "SMT"
    return "%s, %s" % (str(machine).replace("epyc7h12x2-", "").upper(), smt)


fig, axes = style.panels(len(METRICS))
for ax, (metric, title, _) in zip(axes, METRICS):
    for i, (machine, plan, cells) in enumerate(curves):
        x = [study.setting(c, "ranks") * (1 + 0.03 * (i - (len(curves) - 1) / 2)) for c in cells]
        ax.plot(x, of_one(cells, metric), ls=["-", "--", ":", "-."][i % 4], lw=1.2, marker="osv^"[i % 4],
                ms=5, mfc="none", color=style.COLORS[i % len(style.COLORS)], label=label(machine, plan))
    ax.axhline(1, color=style.GREY, lw=0.8)
    ax.set_xscale("log", base=2)
    style.plain_log(ax.xaxis, ranks)
    ax.margins(y=0.2)
    ax.yaxis.set_major_formatter(lambda v, _: "%.1f %%" % (100 * v))
    ax.set_title(title)
    ax.set_xlabel("ranks (the paper's best: 8)")
    ax.set_ylabel("time, % of one rank")
    style.legend_below(ax)
best = [min((v, study.setting(c, "ranks")) for c, v in zip(cells, of_one(cells, "request_s")))[1]
        for _, _, cells in curves if study.finite(of_one(cells, "request_s"))]
found = " and ".join("%g" % r for r in sorted(set(best))) or "n/a"
style.save(fig, result, STEM, "Ranks that share all cores of two EPYC 7H12 (Sandwich Fig. 3b): fastest "
           "here %s, in the paper 8" % found)
HEADER = ["machine", "plan", "ranks", "threads", "request s", "token ms", "prompt ms",
          "request, % of one rank"]
table.write(STEM, HEADER, [
    [machine, str(plan).split()[0], style.number(c.value("n_ranks")), style.number(c.value("n_threads"))]
    + [style.short(scale * c.value(metric)) for metric, _, scale in METRICS]
    + [style.number(100 * v, "%.2f")]
    for machine, plan, cells in curves for c, v in zip(cells, of_one(cells, "request_s"))])
