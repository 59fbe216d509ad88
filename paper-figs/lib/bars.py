"""Bars of one number: a panel for each model, a group for each data set, a bar for each variant
of what serves it (or weight type). Next to each bar is the share of the physical bound that it
reaches. Where the job has variants, a last panel holds their ratios to one of them."""

import math

from lib import read, style

MANY = 3  # bars of a group: with more, their names stand in the legend and labels are short


def draw(result, stem, title, value, ylabel, share, note, spread=None, bound=None, ratio=None):
    """value, share: names of summary metrics. note: says in words what is drawn. spread: names
    of a low and a high metric, drawn as a whisker. bound: function of a cell, drawn as a line
    above its bar. ratio: (headline, words), see ratios()."""
    models = read.unique(c.model() for c in result.cells) or ["no cell was measured"]
    names = read.unique(c.variant() for c in result.cells)
    wide = 4.9 if len(names) <= MANY else 6.2
    fig, axes = style.panels(len(models) + bool(ratio), width=wide, height=4.5)
    for ax, model in zip(axes, models):
        panel(ax, [c for c in result.cells if c.model() == model], names, value, share, spread,
              bound)
        ax.set(title=model, ylabel=ylabel)
        ax.set_xlabel(note, fontsize=8.5, color=style.GREY)
    if ratio:
        ratios(axes[-1], result, {ratio[0]: ""}, ratio[1])
    style.save(fig, result, stem, title)


def panel(ax, cells, names, value, share, spread, bound):
    groups = read.unique(c.dataset() for c in cells)
    width = 0.84 / max(1, len(names))
    if not cells:
        return style.na(ax)
    first = True
    for g, group in enumerate(groups):
        for i, name in enumerate(names):
            repeats = [c for c in cells if (c.dataset(), c.variant()) == (group, name)]
            if not repeats:
                continue
            x = g + (i - (len(names) - 1) / 2) * width
            y, part = read.median(repeats, value), read.median(repeats, share)
            top = [whisker(ax, x, repeats, spread),
                   limit(ax, x, repeats[0], bound, 0.45 * width, first)]
            first = False
            label = style.short(y) if math.isnan(part) else "%s\n%s" % (
                style.short(y), style.percent(part))
            style.bar(ax, x, y, label, top=top, width=0.9 * width,
                      color=style.COLORS[i % len(style.COLORS)],
                      hatch=style.HATCHES[i % len(style.HATCHES)], edgecolor="white",
                      label=name if g == 0 else None)
    if all(math.isnan(c.value(value)) for c in cells):
        ax.set_yticks([])
    ax.set_xticks(range(len(groups)), ["%s lengths" % g for g in groups])
    ax.grid(axis="x", visible=False)
    ax.set_xlim(-0.6, len(groups) - 0.4)
    ax.margins(y=0.22)
    ax.set_ylim(bottom=0)
    style.legend_below(ax, drop=0.65, ncol=3)


def whisker(ax, x, repeats, spread):
    """Draw it; the height above which a label is free, NaN without one."""
    low, high = (read.median(repeats, name) for name in spread) if spread else (math.nan, math.nan)
    if math.isnan(low) or math.isnan(high):
        return math.nan
    ax.vlines(x, low, high, color="#222222", lw=1.2, zorder=3)
    return high


def limit(ax, x, cell, bound, half, first):
    """The bound of a bar as a line; its height, NaN without one."""
    y = bound(cell) if bound else math.nan
    if not math.isnan(y):
        ax.hlines(y, x - half, x + half, color="#222222", lw=1.6, ls="--",
                  zorder=3, label="physical bound" if first else None)
    return y


def ratios(ax, result, headlines, words):
    """Ratios with their intervals, a row for each, a colour for each variant. headlines: {name:
    what stands before its rows} of the job's headlines "NAME case=C variant=V"."""
    names = read.unique(c.variant() for c in result.cells)
    rows = [(before, where, h) for name, before in headlines.items()
            for where, h in result.ratios(name) if variant_of(where) in names]
    ax.axvline(1, color=style.GREY, ls="--", lw=1.3)
    ax.set(title=words, xlabel="ratio and its 95 % interval")
    if all(math.isnan(h.value) for _, _, h in rows):
        ax.set_yticks([])
        return style.na(ax)
    for y, (_, where, h) in enumerate(rows):
        color = style.COLORS[names.index(variant_of(where)) % len(style.COLORS)]
        if math.isnan(h.value):
            continue
        ax.plot(h.value, y, "o", color=color, ms=5)
        if not math.isnan(h.lo + h.hi):
            ax.hlines(y, h.lo, h.hi, color=color, lw=2)
        ax.annotate("%.3f" % h.value, (h.value, y), xytext=(0, 4), textcoords="offset points",
                    ha="center", va="bottom", fontsize=8)
    ax.set_yticks(range(len(rows)), [before + where.replace("case=", "").replace("variant=", "")
                                     for before, where, _ in rows], fontsize=8.5)
    ax.set_ylim(len(rows) - 0.4, -0.8)
    ax.grid(axis="y", visible=False)
    ax.margins(x=0.1)


def variant_of(where):
    return dict(w.split("=", 1) for w in where.split(" ")).get("variant")
