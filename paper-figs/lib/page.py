"""The page that figures are made for, both columns of a paper: its width, its text, and where
everything is placed. A script says what is drawn; titles, legends, labels and margins are measured
and placed here, so that no text covers another or leaves the page."""

import functools
import itertools
import os
import re
import textwrap

import numpy as np
from matplotlib.colors import to_rgba_array
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from matplotlib.ticker import FixedLocator, LogLocator, MaxNLocator, NullLocator
from matplotlib.transforms import ScaledTranslation

WIDTH = 7.0  # inches
TITLE, TEXT, SMALL = 9, 8, 7  # points: title; all text; numbers on data, tables, provenance
HEIGHT, TALL = 1.75, 7.0  # inches: of an axis whose height is not set; of all rows of such axes
HIGH = 9.7  # inches: A4 without its margins; rows of axes whose height is not set get lower to fit
EDGE, GAP = 0.06, 0.16  # inches, round the page and between axes
INNER = WIDTH - 2 * EDGE
GREY = "#6e6e6e"
NA = "n/a"  # in place of one number
PASSES = 3  # what fits depends on widths, which depend on what fits

FONTS = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so every machine draws the same
    "font.size": TEXT,
    "axes.titlesize": TEXT,
    "axes.labelsize": TEXT,
    "xtick.labelsize": TEXT,
    "ytick.labelsize": TEXT,
    "legend.fontsize": TEXT,
    "text.hinting": "none",  # the same widths at every resolution
    "pdf.fonttype": 42,  # publishers refuse Type 3
    "ps.fonttype": 42,
    "svg.fonttype": "path",
}

# What scripts ask of an axis (or a figure, for its legend).
HEIGHTS, LEGENDS, MISSING, VALUES = {}, {}, {}, {}
CUT = {}  # the highest y of an axis that says where it leaves values out
LOW = {}  # the reason that stands in an axis without data, in a row of such axes
LOWER = {}  # inches by which rows of a figure are lower
WHOLE = {}  # a text before its lines were broken
UNIT = re.compile(r"(?<=\d) (?=(?:%|x|[mun]?s|[kMG]?B(?:/s)?|tok/s)(?:\W|$))")  # a blank that no line ends with


def height(ax, inches):
    """The height of the frame of an axis."""
    HEIGHTS[ax] = inches


def legend(at, handles, labels):
    """A legend below an axis and its labels, or at the foot of a figure."""
    LEGENDS[at] = handles, labels


def missing(ax, why):
    """The axis shows why it has no data; None: the reason that arrange() is given."""
    MISSING[ax] = why


def cut(ax, top):
    """The axis ends at `top`: an arrow at its edge stands for each value of a line above that, or for several
    with one x."""
    CUT[ax] = top
    ax.set_ylim(top=top)
    for line in list(ax.lines):
        x, y = line.get_xydata().T if line.get_transform() is ax.transData else ((), ())
        above = [a for a, b in zip(x, y) if b > top]
        if above:
            ax.plot(above, [1] * len(above), "^", ms=4, color=line.get_color(), transform=ax.get_xaxis_transform(), clip_on=False)


def value(ax, text):
    """A number above a bar: turned where it would touch its neighbour."""
    VALUES.setdefault(ax, []).append(text)


def renderer(fig):
    return fig.canvas.get_renderer()


def extent(artist):
    """The width and height of an artist, in inches."""
    fig = artist.figure
    box = artist.get_window_extent(renderer(fig))
    return box.width / fig.dpi, box.height / fig.dpi


def fit(text, inches, side=0):
    """Break the lines of a text so that its width (side 0) or height (1) is at most this, where
    its words allow it."""
    whole = WHOLE.setdefault(text, text.get_text()).split("\n")
    text.set_text("\n".join(whole))
    chars = max(map(len, whole))
    while chars > 8 and extent(text)[side] > inches:
        chars -= 1 + chars // 20
        lines = [textwrap.fill(UNIT.sub("\xa0", w), chars, break_long_words=False) for w in whole]
        text.set_text("\n".join(lines).replace("\xa0", " "))


def arrange(fig, title, footer, why):
    """footer: a function of the characters that a line may have. why: the reason of what is
    missing, where the script gives none."""
    head = fig.text(0, 1, title, va="top", weight="bold")
    foot = fig.text(0, 0, "", va="bottom", color=GREY)
    one_size(fig, head, foot)
    fit(head, INNER)
    for chars in range(int(22 * INNER), 30, -2):
        foot.set_text(footer(chars))
        if extent(foot)[0] <= INNER:
            break
    axes = list(itertools.chain(*rows(fig)))
    for ax in axes:
        if not has_data(ax):
            explain(ax, MISSING.get(ax) or why)
    for at in [fig, *axes]:
        drawn_keys(at)
    share_legends(fig, axes)
    low_rows(fig)
    shown = [ax for ax in axes if ax.xaxis.get_visible()]
    for ax in shown:  # names along x are broken to fit a width that they had no part in
        ax.xaxis.set_visible(False)
    place(fig, head, foot)
    for ax in shown:
        ax.xaxis.set_visible(True)
    for _ in range(PASSES):
        one_size(fig, head, foot)
        for ax in axes:
            tidy(ax)
        place(fig, head, foot)


def one_size(fig, head, foot):
    for ax in fig.axes:
        ax.tick_params(labelsize=TEXT)
    for text in fig.findobj(Text):
        text.set_fontsize(TEXT if text.get_fontsize() >= TEXT else SMALL)
    head.set_fontsize(TITLE)
    foot.set_fontsize(SMALL)


def rows(fig):
    """The axes of each row of the grid, left to right."""
    found = {}
    for ax in fig.axes:
        if ax.get_subplotspec():
            found.setdefault(ax.get_subplotspec().rowspan.start, []).append(ax)
    return [found[r] for r in sorted(found)]


def drawn_keys(at):
    """Leaves out the keys of lines of which no value is known."""
    def known(handle):
        part = first_part(handle)
        points = part.get_xydata() if isinstance(part, Line2D) else ()
        return not len(points) or np.isfinite(points).all(axis=1).any()

    kept = [(h, label) for h, label in zip(*LEGENDS.pop(at, ((), ()))) if known(h)]
    if kept:
        legend(at, *zip(*kept))


def share_legends(fig, axes):
    """A key that several axes have, and of which none has the label or the look for another, stands once,
    at the foot of the figure, if all do that the same axes have. A line and a bar of one label and one colour
    are one key."""
    drawn = [(label, h) for ax in axes if ax in LEGENDS for h, label in zip(*LEGENDS[ax])]
    one = {label: look(first) for label, first in reversed(drawn) if len({color(h) for k, h in drawn if k == label}) == 1}
    keys = {ax: [(label, one.get(label) or look(h)) for h, label in zip(*LEGENDS[ax])] for ax in axes if ax in LEGENDS}
    every = list(itertools.chain(*map(set, keys.values())))
    have = {key: [ax for ax in keys if key in keys[ax]] for key in every}
    split = [have[key] for key in every if len({k for k in every if k[0] == key[0] or k[1] == key[1]}) > 1]
    common = {key for key in every if len(have[key]) > 1 and have[key] not in split}
    if fig in LEGENDS or not common:
        return
    shared = {}
    for ax in keys:
        handles, labels = LEGENDS.pop(ax)
        for key, handle in zip(keys[ax], handles):
            if key in common:
                shared.setdefault(key[0], handle)
        own = [(h, label) for h, label, key in zip(handles, labels, keys[ax]) if key not in common]
        if own:
            legend(ax, *zip(*own))
    legend(fig, list(shared.values()), list(shared))


def first_part(handle):
    """Of a key for several things."""
    return next(iter(getattr(handle, "patches", None) or (handle if isinstance(handle, tuple) else [handle])), None)


def color(handle):
    part = first_part(handle)
    get = getattr(part, "get_color", None) or getattr(part, "get_facecolor", None)
    return get and str(to_rgba_array(get())[:1])


def look(handle):
    """What tells a key from others with the same label."""
    part = first_part(handle)
    return str([str(getattr(part, "get_" + name)()) for name in (
        "color", "facecolor", "edgecolor", "alpha", "linestyle", "marker", "markersize", "hatch") if hasattr(part, "get_" + name)])


def has_data(ax):
    """Anything but lines across the whole axis, keys of the legend, and n/a."""
    lines = [line.get_xydata() for line in ax.lines if line.get_transform() is ax.transData]
    texts = [t for t in ax.texts if t.get_text() != NA]
    return bool(ax.patches or ax.images or texts or
                (ax.collections and np.isfinite(ax.dataLim.get_points()).all()) or
                any(np.isfinite(points).all(axis=1).any() for points in lines))


def explain(ax, why):
    """An axis without data says so, and shows no scale."""
    for text in [t for t in ax.texts if t.get_text() == NA]:
        text.remove()
    VALUES.pop(ax, None)
    LEGENDS.pop(ax, None)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(NullLocator())
        axis.set_minor_locator(NullLocator())
    why = why if why.startswith(NA) else "%s: %s" % (NA, why)
    ax.text(0.5, 0.5, textwrap.shorten(why, 160, placeholder=" ..."), transform=ax.transAxes, ha="center",
            va="center", color=GREY, fontsize=TEXT)


def low_rows(fig):
    """A row in which no axis has data is as high as its reasons, where others have some."""
    grid = rows(fig)
    empty = [row for row in grid if all(reason(ax) for ax in row)]
    for ax in itertools.chain(*empty) if len(empty) < len(grid) else ():
        ax.set(xlabel="", ylabel="")
        LOW[ax] = reason(ax)


def reason(ax):
    """The text that says why an axis has no data, if it has none."""
    return next((t for t in ax.texts if t.get_text().startswith(NA + ":") and t.get_transform() is ax.transAxes), None)


def note(ax, text):
    """A paragraph in place of an axis."""
    ax.axis("off")
    drawn = ax.text(0, 1, text, transform=ax.transAxes, va="top", fontsize=SMALL)
    fit(drawn, INNER)
    height(ax, extent(drawn)[1])


def tidy(ax):
    """Break, turn, thin out and place the texts of an axis by the width that it has now."""
    wide, high = ax.bbox.width / ax.figure.dpi, ax.bbox.height / ax.figure.dpi
    aside = max([0] + [t.get_window_extent(renderer(ax.figure)).x1 - ax.bbox.x1 for t in ax.texts])
    for loc in ("left", "center", "right"):
        if ax.get_title(loc):
            fit(ax.set_title(ax.get_title(loc), loc=loc), wide + GAP / 2 + aside / ax.figure.dpi)
    fit(ax.xaxis.label, wide + GAP)
    fit(ax.yaxis.label, high + GAP, side=1)
    for text in ax.texts:
        if text.get_transform() is ax.transAxes:
            fit(text, wide)
    if ax in LOW:
        HEIGHTS[ax] = extent(LOW[ax])[1] + GAP
    for axis in (ax.xaxis, ax.yaxis):
        log_ticks(axis)
    tick_labels(ax, wide)
    turn_values(ax)
    thin_missing(ax)
    headroom(ax)
    if ax in LEGENDS:
        legend_of(ax, wide + GAP)


def touch(texts, apart=3):
    """Whether two stand closer than `apart` pixels."""
    boxes = [t.get_window_extent(renderer(t.figure)) for t in texts]
    return any(a.x1 + apart > b.x0 and b.x1 + apart > a.x0 and a.y1 > b.y0 + 1 and b.y1 > a.y0 + 1
               for a, b in itertools.combinations(boxes, 2))


def log_ticks(axis):
    """Plain numbers on a logarithmic scale, where powers of ten would be few."""
    low, high = sorted(axis.get_view_interval())
    if not isinstance(axis.get_major_locator(), LogLocator) or not 0 < low < high < min(1e6, 1e5 * low):
        return
    decades = np.floor(np.log10([low, high])).astype(int)
    ticks = [m * 10.0 ** d for d in range(decades[0], decades[1] + 1) for m in (1, 2, 5)
             if low <= m * 10.0 ** d <= high]
    if len(ticks) < 3:
        ticks = [t for t in MaxNLocator(4).tick_values(low, high) if low <= t <= high]
    few = [t for t in ticks if np.log10(t) % 1 < 1e-9] if len(ticks) > 8 else ticks
    axis.set_ticks(few)
    axis.set_major_formatter("{x:g}")
    axis.set_minor_locator(NullLocator())


def tick_labels(ax, wide):
    """Labels along x that touch: numbers are thinned out, words are broken, then smaller, then turned."""
    def shown():
        low, high = sorted(ax.get_xlim())
        return [t for t in ax.get_xticklabels() if t.get_text() and t.get_visible() and
                low <= t.get_position()[0] <= high]

    texts = shown()
    if not ax.axison or not touch(texts) or any(t.get_rotation() for t in texts):
        return
    at, words = [t.get_position()[0] for t in texts], [t.get_text() for t in texts]
    if not named(ax.xaxis):
        if not isinstance(ax.xaxis.get_major_locator(), FixedLocator):
            ax.xaxis.set_major_locator(LogLocator(numticks=4) if ax.get_xscale() == "log"
                                       else MaxNLocator(4))
            at = [t.get_position()[0] for t in shown()]
        while len(at) > 2 and touch(shown()):
            at = at[::2]
            ax.set_xticks(at)
        return
    start = common_start(words)
    if start:
        words = [w[len(start):].lstrip() for w in words]
        WHOLE.pop(ax.xaxis.label, None)
        ax.set_xlabel(": ".join(filter(None, [ax.get_xlabel(), start.strip() + "..."])))
    room = wide / len(at)
    for size, chars in itertools.product((TEXT, SMALL), range(max(4, int(room / 0.065)), 3, -1)):  # inches of a letter
        ax.tick_params(axis="x", labelsize=size)
        ax.set_xticks(at, ["\n".join(fold(line, chars) for line in w.split("\n")) for w in words])
        if not touch(shown()):
            return
    upright = room < 0.25  # inches that a line at 30 degrees needs
    ax.tick_params(axis="x", labelsize=TEXT)
    ax.set_xticks(at, [" ".join(re.sub(r"(?<=[-_])\n", "", w).split()) for w in words], rotation=90 if upright else 30,
                  ha="right", va="center" if upright else "top", rotation_mode="anchor")


def fold(line, chars):
    """Broken after blanks, hyphens and underscores, so that lines have at most this where they can."""
    lines = [""]
    for piece in re.split("(?<=[-_ ])", line):
        if lines[-1] and len(lines[-1]) + len(piece.rstrip()) > chars:
            lines.append("")
        lines[-1] += piece
    return "\n".join(line.rstrip() for line in lines)


def common_start(words):
    """What all begin with, if it is long: a model's name without its type."""
    start = os.path.commonprefix(words)
    start = start[:1 + max(start.rfind(c) for c in "-\n ")]
    return start if len(start) > 7 and len(words) > 1 else ""


def thin_missing(ax):
    """One n/a for bars next to each other that have none."""
    last = None
    for t in sorted((t for t in ax.texts if t.get_text() == NA), key=lambda t: t.get_position()[0]):
        t.set_visible(True)
        t.set_visible(last is None or not touch([last, t]))
        last = t if t.get_visible() else last


def named(axis):
    """Whether its labels are words that a script gave, not numbers of its scale."""
    return isinstance(getattr(axis.get_major_formatter(), "func", None), functools.partial)


def turn_values(ax):
    """Where one touches another or the bar next to its own."""
    texts = VALUES.get(ax, [])
    bars = [p.get_window_extent() for p in ax.patches if isinstance(p, Rectangle)]
    boxes = [t.get_window_extent(renderer(ax.figure)).padded(-2) for t in texts]
    if touch(texts, apart=1) or any(t.overlaps(b) for t in boxes for b in bars):
        for t in texts:
            t.set(text=", ".join(t.get_text().split("\n")), rotation=90)


def headroom(ax):
    """Raise the scale until no text on the data crosses the frame's top, and lower it for numbers below bars."""
    texts = [t for t in ax.texts if t.get_visible() and
             (getattr(t, "xycoords", "") == "data" or t.get_transform() is ax.transData)]
    for _ in range(6 if texts and ax.axison else 0):
        top = max(t.get_window_extent(renderer(ax.figure)).y1 for t in texts)
        if top <= ax.bbox.y1 + 1:
            break
        high = ax.transData.inverted().transform((0, top))[1]
        ax.set_ylim(ax.get_ylim()[0], high)
    low = min([t.get_window_extent(renderer(ax.figure)).y0 for t in VALUES.get(ax, [])], default=ax.bbox.y1)
    if low < ax.bbox.y0 - 1:
        ax.set_ylim(bottom=ax.transData.inverted().transform((0, low))[1])


def legend_of(at, wide, **where):
    """In as many columns as fit."""
    handles, labels = LEGENDS[at]
    fig = at.figure
    if at is not fig:
        boxes = [ax_text.get_window_extent(renderer(fig)) for ax_text in at.texts]
        boxes.append(at.xaxis.get_tightbbox(renderer(fig)))
        drop = (at.bbox.y0 - min([at.bbox.y0] + [b.y0 for b in boxes if b])) / fig.dpi + 0.05
        below = ScaledTranslation(0, -drop, fig.dpi_scale_trans)
        where = {"bbox_to_anchor": (0.5, 0), "bbox_transform": at.transAxes + below}
    drawn = None
    for n in range(min(5, len(labels)), 0, -1):
        if drawn:
            drawn.remove()
        drawn = at.legend(handles, labels, ncol=n, loc="upper center", borderaxespad=0, **where)
        if extent(drawn)[0] <= wide:
            break
    for text in drawn.get_texts():
        fit(text, wide - 0.45)  # the key and its spaces
    return drawn


def margins(ax):
    """Inches that an axis needs left, below, right and above its frame."""
    box, frame, dpi = ax.get_tightbbox(renderer(ax.figure)), ax.bbox, ax.figure.dpi
    return [min(WIDTH / 2, max(0, side / dpi)) for side in (
        frame.x0 - box.x0, frame.y0 - box.y0, box.x1 - frame.x1, box.y1 - frame.y1)]


def alike(grid, row, i):
    """The axes whose margins at the sides are those of row[i]."""
    same = [other[i] for other in grid if len(other) == len(row) and other[i].axison]
    return same if row[i].axison else [row[i]]


def place(fig, head, foot):
    """Frames of a row are equally wide; the same places of equally divided rows have the same
    margins, where both have scales. The page is as high as all this needs."""
    grid = rows(fig)
    need = {ax: margins(ax) for row in grid for ax in row}
    usual = max(0.5, min(HEIGHT, TALL / len(grid)) - LOWER.get(fig, 0))
    y = EDGE + extent(head)[1] + GAP / 2
    boxes = {}
    for row in grid:
        left, right = ([max(need[a][side] for a in alike(grid, row, i)) for i in range(len(row))]
                       for side in (0, 2))
        wide = (INNER - GAP * (len(row) - 1) - sum(left) - sum(right)) / len(row)
        x, y = EDGE, y + max(need[ax][3] for ax in row)
        for i, ax in enumerate(row):
            boxes[ax] = x + left[i], y, max(0.3, wide), HEIGHTS.get(ax, usual)
            x += left[i] + wide + right[i] + GAP
        y += max(boxes[ax][3] + need[ax][1] for ax in row) + GAP
    below = None
    if fig in LEGENDS:
        while fig.legends:
            fig.legends[0].remove()
        below = legend_of(fig, INNER)
        y += extent(below)[1] + GAP
    total = y + extent(foot)[1] + EDGE
    if total > HIGH - GAP:
        LOWER[fig] = LOWER.get(fig, 0) + (total - HIGH + GAP) / len(grid)
    fig.set_size_inches(WIDTH, total)
    for ax, (x, top, wide, high) in boxes.items():
        ax.set_position([x / WIDTH, 1 - (top + high) / total, wide / WIDTH, high / total])
    head.set_position((EDGE / WIDTH, 1 - EDGE / total))
    foot.set_position((EDGE / WIDTH, EDGE / total))
    if below:
        below.set_bbox_to_anchor((0.5, (total - y + GAP + extent(below)[1]) / total))
