"""Bars of one number: a panel for each model, in it a row for each data set and variant of what
serves it (or weight type). At the right of each row are its number and the share of the physical
bound that it reaches. Where the job has variants, a last panel has their ratios to one of them."""

import math

from lib import page, read, style

ROW = 0.17  # inches


def draw(result, stem, title, value, xlabel, share, spread=None, bound=None, ratio=None):
    """value, share: names of summary metrics. spread: names of a low and a high metric, drawn as a
    whisker. bound: function of a cell, drawn as a line. ratio: (headline, words), see ratios()."""
    models = read.unique(c.model() for c in result.cells) or ["no cell was measured"]
    names = read.unique(c.variant() for c in result.cells)
    fig, axes = style.panels(len(models) + bool(ratio), columns=2)
    for ax, model in zip(axes, models):
        panel(ax, [c for c in result.cells if c.model() == model], names, value, share, spread,
              bound)
        ax.set_xlabel(xlabel)
        if max((c.value(share) for c in result.cells), default=0) > 1:
            ax.set_xlabel(xlabel + "; above 100 %: caches served part of the weights")
        ax.set_title("%s; %s" % (model, ax.get_title("left")) if ax.get_title("left") else model)
    if ratio:
        ratios(axes[-1], result, {ratio[0]: ""}, ratio[1])
    style.save(fig, result, stem, title)


def panel(ax, cells, names, value, share, spread=None, bound=None):
    """From the top: a row for each variant; a group with a heading for each data set, where there
    are several."""
    groups = read.unique(c.dataset() for c in cells)
    y, labels, keys = 0, [], set()
    for group in groups:
        if len(groups) > 1:
            labels.append((y, "%s lengths:" % group))
            y += 1
        for i, name in enumerate(names):
            repeats = [c for c in cells if (c.dataset(), c.variant()) == (group, name)]
            if not repeats:
                continue
            labels.append((y, name))
            row(ax, y, repeats, value, share, style.COLORS[i % len(style.COLORS)])
            whisker(ax, y, repeats, spread)
            limit(ax, y, repeats[0], bound, keys)
            y += 1
    ax.set_title("%s lengths" % groups[0] if len(groups) == 1 else "")
    ax.set_yticks([at for at, _ in labels], [text for _, text in labels])
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)
    ax.set_ylim(max(y, 1) - 0.4, -0.6)
    ax.set_xlim(left=0)
    page.height(ax, ROW * max(y, 4))
    style.legend_below(ax)


def row(ax, y, repeats, value, share, color):
    v, part = read.median(repeats, value), read.median(repeats, share)
    text = style.short(v)
    if not math.isnan(v):
        ax.barh(y, v, color=color, height=0.72)
        text += "" if math.isnan(part) else " (%s)" % style.percent(part)
    ax.text(1.02, y, text, transform=ax.get_yaxis_transform(), va="center", fontsize=style.SMALL)


def whisker(ax, y, repeats, spread):
    low, high = (read.median(repeats, name) for name in spread) if spread else (math.nan, math.nan)
    if not math.isnan(low + high):
        ax.hlines(y, low, high, color="#222222", lw=1.2, zorder=3)


def limit(ax, y, cell, bound, keys):
    """The bound of a bar as a line across its row."""
    x = bound(cell) if bound else math.nan
    if not math.isnan(x):
        ax.vlines(x, y - 0.45, y + 0.45, color="#222222", lw=1.4, zorder=3,
                  label=None if "bound" in keys else "physical bound")
        keys.add("bound")


def ratios(ax, result, headlines, words):
    """Ratios with their intervals, a row for each, a colour for each variant. headlines: {name:
    what precedes its rows} of the job's headlines "NAME case=C variant=V"."""
    names = read.unique(c.variant() for c in result.cells)
    rows = [(before, where, h) for name, before in headlines.items()
            for where, h in result.ratios(name) if variant_of(where) in names]
    ax.axvline(1, color=style.GREY, ls="--", lw=1)
    ax.set(title=words, xlabel="ratio and its 95 % interval")
    if any(h.detectable > 0 for _, _, h in rows):
        ax.set_xlabel("ratio, its 95 % interval; grey: not told from 1 (A/A)")
    style.na(ax, next((h.why for _, _, h in rows if h.why), None))
    for y, (_, where, h) in enumerate(rows):
        color = style.COLORS[names.index(variant_of(where)) % len(style.COLORS)]
        text = style.number(h.value, "%.3f")
        if h.detectable > 0:
            ax.hlines(y, 1 / (1 + h.detectable), 1 + h.detectable, color=style.GREY, lw=5, alpha=0.35)
        if not math.isnan(h.value):
            ax.plot(h.value, y, "o", color=color)
        if not math.isnan(h.lo + h.hi):
            ax.hlines(y, h.lo, h.hi, color=color, lw=1.6)
            text += " [%.3f, %.3f]" % (h.lo, h.hi)
        ax.text(1.02, y, text, transform=ax.get_yaxis_transform(), va="center", fontsize=style.SMALL)
    ax.set_yticks(range(len(rows)), [before + where.replace("case=", "").replace("variant=", "")
                                     for before, where, _ in rows])
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(max(len(rows), 1) - 0.4, -0.6)
    ax.grid(axis="y", visible=False)
    page.height(ax, ROW * max(len(rows), 4))


def variant_of(where):
    return dict(w.split("=", 1) for w in where.split(" ")).get("variant")
