"""Figures of searches for goodput: of each system, by case, with the interval of its seeds, and every
trial of the searches: the share of requests within the objectives against the rate. Systems on one ladder of
rates have one search each; what fails at the lowest rate, or holds at the highest, is drawn as a bound."""

import numpy as np

from lib import read, style


def objectives(cells):
    return "TTFT %s ms, TPOT %s ms" % tuple(
        ["%g" % c.setting("slo." + k, 0) for c in cells[:1] for k in ("ttft_ms", "tpot_ms")] or ["?", "?"])


def bars(ax, case, cells, names):
    for i, name in enumerate(names):
        repeats = [c for c in cells if c.system() == name]
        if not repeats:
            continue
        v = read.median(repeats, "goodput_rps")
        bound = repeats[0].bound("goodput_rps") if len(repeats) == 1 else None
        if bound:
            sign, at = bound
            style.bar(ax, i, at, "%s %s" % (sign, style.short(at)), width=0.6, fill=False, ls="--",
                      ec=style.COLORS[i % 6])
            ax.annotate("", (i, at * (1.2 if sign == ">" else 0.4)), (i, at * (1 if sign == ">" else 0.9)),
                        arrowprops={"arrowstyle": "->", "color": style.COLORS[i % 6]})
            continue
        low, high = (find([c.value("goodput_" + k) for c in repeats])
                     for k, find in (("low_rps", np.min), ("high_rps", np.max)))
        style.bar(ax, i, v, style.short(v), top=(high,), color=style.COLORS[i % 6], width=0.6)
        if np.isfinite([v, low, high]).all():
            ax.errorbar(i, v, yerr=[[v - low], [high - v]], color="black", capsize=4, lw=1.2)
    ax.set_xticks(range(len(names)), names)
    ax.set_xlim(-0.6, max(1, len(names)) - 0.4)
    ax.set_ylim(0, None if ax.get_ylim()[1] <= 1 else 1.12 * ax.get_ylim()[1])
    seeds = [int(c.setting("search.seeds", 1)) for c in cells if c.system() == cells[0].system()]
    ax.set(ylabel="requests per second",
           title="%s: goodput%s\nline: lowest that held to highest that failed" % (
               case, "" if is_ladder(cells) else ", median over seeds (%d);" % sum(seeds)))


def is_ladder(cells):
    return any(c.attrs.get("pairing.by") == "rate" for c in cells)


def trials(ax, case, cells, names):
    for i, name in enumerate(names):
        repeats = [c for c in cells if c.system() == name]
        rate, share = (np.concatenate([np.empty(0)] + [c.series.get(k, []) for c in repeats])
                       for k in ("trial_rate_rps", "trial_slo_attainment_frac"))
        if is_ladder(repeats):  # blocks at a rung are one share
            share = np.array([np.mean(share[rate == r]) for r in np.unique(rate)])
            rate = np.unique(rate)
        if len(rate):
            ax.plot(rate, share, ls="", marker="osD^vP"[i % 6], alpha=0.8,
                    color=style.COLORS[i % 6], label=name)
    target = read.unique(c.setting("slo.target_frac", 0.9) for c in cells)
    ax.axhline(target[0] if target else 0.9, color=style.GREY, ls="--", lw=1.3, label="target")
    if ax.get_legend_handles_labels()[1] == ["target"]:
        style.na(ax)
    else:
        ax.set_xscale("log")
        style.plain_log(ax.xaxis, style.ticks_1_2_5(*ax.dataLim.intervalx))
    ax.set_ylim(0, 1.04)
    style.percent_axis(ax.yaxis)
    ax.set(xlabel="offered rate (requests per second)", ylabel="requests within both",
           title="%s: every %s\n%s" % (case, "rate" if is_ladder(cells) else "trial", objectives(cells)))
    style.legend_below(ax)


def draw(stem, title, no_case):
    """no_case: what a record without cases is called."""
    result = read.latest(stem)
    cases = read.unique(c.axes.get("case", "") for c in result.cells) or ["no cell was measured"]
    names = read.unique(c.system() for c in result.cells)
    fig, axes = style.panels(2 * len(cases), columns=2)
    for i, case in enumerate(cases):
        of_case = [c for c in result.cells if c.axes.get("case", "") == case]
        bars(axes[2 * i], case or no_case, of_case, names)
        trials(axes[2 * i + 1], case or no_case, of_case, names)
    style.save(fig, result, stem, title)
