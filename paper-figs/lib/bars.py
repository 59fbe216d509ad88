"""Bars of one number: a panel for each model, a group for each data set, a bar for each weight
type. Next to each bar is the share of the physical bound that it reaches."""

import math

from lib import read, style


def draw(result, stem, title, value, ylabel, share, note, spread=None, bound=None):
    """value, share: names of summary metrics. note: says in words what is drawn. spread: names
    of a low and a high metric, drawn as a whisker. bound: function of a cell, drawn as a line
    above its bar."""
    models = read.unique(c.model() for c in result.cells) or ["no cell was measured"]
    fig, axes = style.panels(len(models), width=4.9, height=4.3)
    for ax, model in zip(axes, models):
        panel(ax, [c for c in result.cells if c.model() == model],
              read.unique(c.weights() for c in result.cells),
              value, share, spread, bound)
        ax.set(title=model, ylabel=ylabel)
        ax.set_xlabel(note, fontsize=8.5, color=style.GREY)
    style.save(fig, result, stem, title)


def panel(ax, cells, types, value, share, spread, bound):
    groups = read.unique(c.dataset() for c in cells)
    width = 0.78 / max(1, len(types))
    if not cells:
        return style.na(ax)
    for c in cells:
        i = types.index(c.weights())
        x = groups.index(c.dataset()) + (i - (len(types) - 1) / 2) * width
        top = [whisker(ax, x, c, spread), limit(ax, x, c, bound, 0.45 * width, c is cells[0])]
        label = "%s\n%s" % (style.short(c.value(value)), style.percent(c.value(share)))
        style.bar(ax, x, c.value(value), label, top=top, width=0.9 * width,
                  color=style.COLORS[i], hatch=style.HATCHES[i], edgecolor="white",
                  label=c.weights() if c.dataset() == groups[0] else None)
    if all(math.isnan(c.value(value)) for c in cells):
        ax.set_yticks([])
    ax.set_xticks(range(len(groups)), ["%s lengths" % g for g in groups])
    ax.grid(axis="x", visible=False)
    ax.set_xlim(-0.6, len(groups) - 0.4)
    ax.margins(y=0.22)
    ax.set_ylim(bottom=0)
    style.legend_below(ax, drop=0.65, ncol=3)


def whisker(ax, x, cell, spread):
    """Draw it; the height above which a label is free, NaN without one."""
    low, high = (cell.value(name) for name in spread) if spread else (math.nan, math.nan)
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
