"""Every engine by its own bench program: share of the roof at each point, and the first against the rest."""

import math
import os

from lib import page, read, study, style

POINTS = ["p16", "p128", "p512", "p4096", "b1", "b4", "b8", "b16"]


def label(point):
    n = point[1:]
    return "prompt %s" % n if point[0] == "p" else "decode x %s" % n


def engines(cells):
    names = [s[len("tok_s_of_"):] for c in cells for s in sorted(c.series) if s.startswith("tok_s_of_")]
    return list(dict.fromkeys(sorted(names, key=lambda n: (n != "sandwich", n))))


def name(c):
    return os.path.basename(str(study.setting(c, "model"))).replace(".gguf", "")


def measured(c):
    """The points of the case, with their places in its series."""
    return [(i, p) for i, p in enumerate(POINTS) if c.value("roof_tok_s_" + p) == c.value("roof_tok_s_" + p)]


def speed(c, engine, i):
    return (list(c.series.get("tok_s_of_" + engine, [])) + [math.nan] * len(POINTS))[i]


def shares(c, engines):
    """Of the roof, by engine and point; nan where one exceeds it: when it was measured, memory was slow."""
    of = {n: [speed(c, n, i) / c.value("roof_tok_s_" + p) for i, p in measured(c)] for n in engines}
    wrong = {i for at in of.values() for i, v in enumerate(at) if v > read.SHARE_MAX}
    return {n: [math.nan if i in wrong else v for i, v in enumerate(of[n])] for n in engines}


def error(c, engine):
    return (list(c.series.get("error_of_" + engine, [])) or [math.nan])[0]


def errs_more(c, engine, names):
    """Than the most exact engine, by more than half."""
    known = [error(c, n) for n in names if error(c, n) == error(c, n)]
    return bool(known) and error(c, engine) > 1.5 * min(known)


def color(ratio, detectable):
    """Grey where the A/A could not have told the ratio from 1."""
    if abs(math.log(ratio)) < math.log1p(detectable):
        return style.GREY
    return "tab:red" if ratio < 1 else "black"


def panel(ax, c, names):
    """Bars of engines whose logits err more than the others' are hatched. A point where one exceeds the roof
    has none."""
    width, of_roof = 0.8 / max(1, len(names)), shares(c, names)
    for k, engine in enumerate(names):
        for i, v in enumerate(of_roof[engine]):
            if v == v:
                style.bar(ax, i + width * (k - (len(names) - 1) / 2), v, style.number(100 * v), width=0.95 * width,
                          color=style.COLORS[k], hatch="///" if errs_more(c, engine, names) else "")
    for i, (_, p) in enumerate(measured(c)):
        r = c.value("over_rival_" + p)
        if r == r and of_roof[names[0]][i] != of_roof[names[0]][i]:
            ax.text(i, 0.05, "n/a: faster\nthan the roof", ha="center", color=style.GREY, fontsize=style.SMALL)
        if r == r:
            ax.annotate("%.2f x" % r, (i, 1.2), ha="center", fontsize=style.SMALL,
                        color=color(r, c.value("detectable_frac_" + p)))
    ax.axhline(1, color="black", lw=0.8, zorder=0.5)
    ax.set_ylim(0, 1.4)
    page.height(ax, 1.1)
    ax.set_xticks(range(len(measured(c))), [label(p) for _, p in measured(c)])
    ax.set(title="%s; errors of logits: %s" % (name(c), ", ".join(
        style.number(error(c, n), "%.2g") for n in names)), ylabel="share of the roof")
    style.percent_axis(ax.yaxis)
    ax.grid(axis="x", visible=False)


def draw(stem, title):
    """Draw the figure and write the table of the newest record of the job."""
    result = read.latest(stem)
    names = engines(result.cells)
    fig, axes = style.panels(max(1, len(result.cells)), columns=1)
    for ax, c in zip(axes, result.cells):
        panel(ax, c, names)
    if not result.cells:
        style.na(axes[0])
    page.legend(fig, [style.plt.Rectangle((0, 0), 1, 1, color=c) for _, c in zip(names, style.COLORS)], names)
    style.save(fig, result, stem, title + "; above: the first / the fastest other (grey: A/A differs as much)")
    study.write_table(
        stem, ["file", "point", "roof tok/s"] + ["%s tok/s" % n for n in names] +
        ["over the fastest other"] + ["%s error" % n for n in names],
        [[name(c), p, style.short(c.value("roof_tok_s_" + p))] +
         [style.short(speed(c, n, i)) for n in names] +
         [style.number(c.value("over_rival_" + p), "%.2f")] +
         [style.number(error(c, n), "%.2g") for n in names]
         for c in result.cells for i, p in measured(c)])
