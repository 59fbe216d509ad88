"""Scheduling policies under the same arrivals: time to first token, time per output token and the
share of requests within the objectives, by rate."""

from lib import read, style

STEM = "scheduling_policies"
PANELS = [("p90_ttft_ms", "Time to first token, 90 %", "ms", "slo.ttft_ms"),
          ("p90_tpot_ms", "Time per output token, 90 %", "ms", "slo.tpot_ms"),
          ("slo_attainment_frac", "Within both objectives", "share of requests", None)]


def panel(ax, result, metric, title, unit, bound):
    cells = result.cells
    rates = sorted({float(c.setting("load.rate_rps", "nan")) for c in cells})
    names = read.unique(c.system() for c in cells)
    width = 0.8 / max(len(names), 1)
    for c in cells:
        k, x = names.index(c.system()), rates.index(float(c.setting("load.rate_rps", "nan")))
        v = c.value(metric)
        style.bar(ax, x + width * (k - (len(names) - 1) / 2), v,
                  style.short(v) if bound else style.percent(v), width=0.94 * width,
                  color=style.COLORS[k], label=names[k] if x == 0 else None)
    if bound and cells:
        goal = float(cells[0].setting(bound, "nan"))
        ax.axhline(goal, color=style.GREY, ls="--", lw=1.3, label="objective: %g ms" % goal)
        ax.set_yscale("log")
    else:
        ax.set_ylim(0, 1.1)
        style.percent_axis(ax.yaxis)
    ax.set_xticks(range(len(rates)), ["%g" % r for r in rates])
    ax.set(title=title, xlabel="offered rate (requests per second)", ylabel=unit)
    style.legend_below(ax)


result = read.latest(STEM)
fig, axes = style.panels(len(PANELS), columns=2)
for ax, (metric, title, unit, bound) in zip(axes, PANELS):
    panel(ax, result, metric, title, unit, bound)
style.save(fig, result, STEM, "Scheduling policies under the same open-loop load")
