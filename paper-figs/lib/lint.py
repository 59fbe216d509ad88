"""What a reader of a printed page could not read in a drawn figure: text that overlaps other text or bars,
leaves the page, is cut off, is too small or is not drawn, bars and values that their axis cuts off, a footer
of too many lines, a page that is too wide or too high, names at an angle that take more height than data, a
scale without a label, a number of seven digits, an axis that shows nothing, more room for panels without data
than for those with, a legend on data, a key for what is not drawn. Each fault names its panel."""

import collections
import itertools
import math
import re

import numpy as np
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_hex, to_rgba_array
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from lib import page, read

SIZES = page.SMALL, page.TITLE  # points
SLACK = 2  # points by which boxes of text may overlap: they have room for letters such as g and A
NUMBER = re.compile(r"[-\u2212]?[\d.]+( ?%)?$|\$.*\d.*\$$")
ANY_COLOR = {"#000000", page.GREY}  # a key of these stands for its mark or its stroke, in whatever colour
Look = collections.namedtuple("Look", "colors marker stroke hatch")


def faults(fig):
    """A line for each."""
    texts = drawn_texts(fig)
    found = [of_page(fig), of_texts(fig, texts), of_axes(fig, texts), of_bars(fig, texts), of_values(fig), of_keys(fig)]
    return list(dict.fromkeys(itertools.chain(*found)))


def name(ax):
    """A panel in words."""
    return " ".join((ax.get_title("left") or ax.get_title() or ax.get_ylabel() or "without a title").split())


def drawn_texts(fig):
    """Those that are drawn: of the labels of a scale, those within the axis only."""
    found, draw = [], Text.draw

    def record(text, renderer):
        if text.get_visible() and text.get_text().strip():
            found.append(text)
        draw(text, renderer)

    Text.draw = record
    try:
        fig.draw_without_rendering()
    finally:
        Text.draw = draw
    return found


def words(text):
    return '"%s"' % " ".join(text.get_text().split())


class Box:
    """A rectangle, which may be turned; in points."""

    def __init__(self, around, fig, angle=0, flat=None):
        point = fig.dpi / 72
        flat = flat or around
        self.turned = math.radians(angle)
        self.x, self.y = (around.x0 + around.x1) / 2 / point, (around.y0 + around.y1) / 2 / point
        self.sides = around.x0 / point, around.y0 / point, around.x1 / point, around.y1 / point
        self.half = max(0.1, flat.width / point - SLACK) / 2, max(0.1, flat.height / point - SLACK) / 2

    def reach(self, along):
        """Half of its extent in this direction."""
        return sum(h * abs(math.cos(self.turned + quarter - along))
                   for h, quarter in zip(self.half, (0, math.pi / 2)))

    def overlaps(self, other):
        """Two rectangles do unless a line along one of their sides separates them."""
        left, low, right, top = self.sides
        if left > other.sides[2] or other.sides[0] > right or low > other.sides[3] or other.sides[1] > top:
            return False
        for along in (self.turned, self.turned + math.pi / 2, other.turned, other.turned + math.pi / 2):
            apart = abs((other.x - self.x) * math.cos(along) + (other.y - self.y) * math.sin(along))
            if apart >= self.reach(along) + other.reach(along):
                return False
        return True


def box_of(text, fig):
    renderer, angle = page.renderer(fig), text.get_rotation()
    around = text.get_window_extent(renderer)
    text.set_rotation(0)
    flat = text.get_window_extent(renderer)
    text.set_rotation(angle)
    return Box(around, fig, angle, flat)


def of_page(fig):
    wide, high = fig.get_size_inches()
    if wide > page.WIDTH:
        yield "the page is %g inches wide" % wide
    if round(high, 1) > page.HIGH:
        yield "the page is %.1f inches high" % high
    for text in fig.texts:
        n = text.get_text().count("\n") + 1
        if n > read.FOOTER_LINES:
            yield "%s ... has %d lines, more than %d" % (words(text)[:40], n, read.FOOTER_LINES)


def of_texts(fig, texts):
    wide, high = fig.get_size_inches() * 72
    boxes = [(t, box_of(t, fig)) for t in texts]
    panel = {t: name(ax) for ax in fig.axes for t in ax.findobj(Text)}
    for t, b in boxes:
        left, low, right, top = b.sides
        at = " in the panel %s" % panel[t] if t in panel else ""
        if min(left, low, wide - right, high - top) < -1:
            yield "%s leaves the page" % words(t) + at
        if t.get_clip_on() and t.get_clip_box() and not inside(b, Box(t.get_clip_box(), fig)):
            yield "%s is cut off" % words(t) + at
        if not SIZES[0] <= t.get_fontsize() <= SIZES[1]:
            yield "%s has %g points" % (words(t), t.get_fontsize())
        if re.search(r"(?<![.\d])\d{7}", t.get_text()) and t not in fig.texts:
            yield "%s has seven digits" % words(t)
    for (s, a), (t, b) in itertools.combinations(boxes, 2):
        if a.overlaps(b):
            yield "%s overlaps %s in the panel %s" % (words(s), words(t), " and ".join(
                dict.fromkeys(panel[x] for x in (s, t) if x in panel)) or "-")
    for ax in fig.axes:  # an annotation whose point is outside is left out without a word
        for t in [t for t in ax.texts if t.get_visible() and t.get_text().strip() and t not in texts]:
            yield "%s is not drawn, its point is outside the panel %s" % (words(t), name(ax))


def inside(a, b):
    """Whether a box is in another, with a point to spare."""
    return all(v > w - 1 for v, w in zip(a.sides[:2], b.sides)) and all(v < w + 1 for v, w in zip(a.sides[2:], b.sides[2:]))


def shows(ax):
    """Data, a picture or words; lines across the whole axis are none."""
    lines = [line.get_xydata() for line in ax.lines if line.get_transform() is ax.transData]
    said = [t for t in ax.texts if t.get_text() != page.NA]  # which gives no reason
    return ax.patches or ax.images or ax.collections or said or any(
        np.isfinite(points).all(axis=1).any() for points in lines)


def is_empty(ax):
    """Whether it shows only why it has no data."""
    return not page.has_data(ax) or ([t.get_text()[:len(page.NA)] for t in ax.texts] == [page.NA] and
                                     not (ax.patches or ax.images or ax.collections))


def of_axes(fig, texts):
    for ax in fig.axes:
        if not shows(ax):
            yield "the axis %s shows nothing and gives no reason" % name(ax)
        for axis in (ax.xaxis, ax.yaxis) if ax.axison else ():
            labels = [t for t in axis.get_ticklabels() if t in texts]
            numbers = [t for t in labels if NUMBER.match(t.get_text())]
            if numbers and not axis.label.get_text():
                yield "the axis with %s has no label in the panel %s" % (words(numbers[0]), name(ax))
            if axis is ax.xaxis:
                slanted = [t for t in labels if t.get_rotation() and 2 * page.extent(t)[1] * fig.dpi > ax.bbox.height]
                if slanted:
                    yield "%s at an angle is higher than half of its axis %s" % (words(slanted[0]), name(ax))
    empty, full = ([a.bbox.height * a.bbox.width for a in fig.axes if is_empty(a) == e] for e in (True, False))
    if full and sum(empty) > sum(full):
        yield "%d of %d panels show nothing, on more than half of the figure" % (len(empty), len(fig.axes))
    for legend in fig.legends + [ax.get_legend() for ax in fig.axes if ax.get_legend()]:
        box = legend.get_window_extent(page.renderer(fig)).padded(-2)
        if any(box.overlaps(ax.bbox) for ax in fig.axes if ax.axison):
            yield "the legend with %s is on data" % words(legend.get_texts()[0])
        if legend.axes and legend.axes.axison and box.height > legend.axes.bbox.height:
            yield "the legend with %s is higher than the panel %s" % (words(legend.get_texts()[0]), name(legend.axes))


def bars_of(ax):
    """Rectangles in the units of data."""
    return [p for p in ax.patches if isinstance(p, Rectangle) and p.get_visible() and
            p.get_transform().contains_branch(ax.transData) and p.get_width() and p.get_height() and
            np.isfinite(p.get_bbox().get_points()).all()]


def cut_off(bar, ax):
    """Whether an end is outside of the axis; 0 on a logarithmic one is no end."""
    for axis, low, size in (ax.xaxis, bar.get_x(), bar.get_width()), (ax.yaxis, bar.get_y(), bar.get_height()):
        least, most = sorted(axis.get_view_interval())
        ends = [v for v in (low, low + size) if axis.get_scale() != "log" or v > 0]
        room = 0.005 * (most - least)
        if any(v < least - room or v > most + room for v in ends):
            return True
    return False


def of_bars(fig, texts):
    for ax in fig.axes:
        bars = bars_of(ax) if ax.axison else []
        if any(cut_off(b, ax) for b in bars):
            yield "a bar leaves the axis %s" % name(ax)
        boxes = [Box(b.get_window_extent(page.renderer(fig)), fig) for b in bars]
        for t in ax.texts if boxes else ():
            if t in texts and t.get_color() != "white" and any(box_of(t, fig).overlaps(b) for b in boxes):
                yield "%s is on a bar of %s" % (words(t), name(ax))


def points(artist):
    """Where its data are on the page, those that a logarithmic axis has no place for included."""
    with np.errstate(all="ignore"):
        if isinstance(artist, Line2D):
            return artist.get_transform().transform(artist.get_xydata())
        if isinstance(artist, Patch):
            box = artist.get_window_extent()
            return box.get_points() if box.width or box.height else np.empty((0, 2))
        if isinstance(artist, PathCollection):
            return artist.get_offset_transform().transform(artist.get_offsets())
        return np.concatenate([np.empty((0, 2))] + [artist.get_transform().transform(p.vertices) for p in artist.get_paths()])


def in_frame(artist, ax):
    at = points(artist)
    at = at[np.isfinite(at).all(axis=1)]
    line = isinstance(artist, Line2D) and not look(artist).marker  # of one point nothing is drawn
    return artist.get_visible() and len(at) > line and Bbox([at.min(axis=0), at.max(axis=0)]).padded(1).overlaps(ax.bbox)


def of_values(fig):
    """Marks and intervals that an axis leaves out, or ends before."""
    for ax in fig.axes:
        frame = ax.bbox.padded(0.05 * fig.dpi)
        for artist in [*ax.lines, *ax.collections] if ax.axison else ():
            moves = artist.get_offset_transform() if isinstance(artist, PathCollection) else artist.get_transform()
            if not artist.get_visible() or moves is not ax.transData or not (
                    isinstance(artist, (PathCollection, LineCollection)) or look(artist).marker):
                continue
            data = artist.get_xydata() if isinstance(artist, Line2D) else None
            for i, (x, y) in enumerate(points(artist)):
                if ax in page.CUT and y > frame.y1:
                    continue
                if not frame.contains(x, y) and (not (math.isnan(x) or math.isnan(y)) or
                                                 (data is not None and np.isfinite(data[i]).all())):
                    yield "a value of %s leaves the panel %s" % (artist.get_label(), name(ax))
                    break


def look(artist):
    """What tells drawn things apart; white is none."""
    colors = set()
    for part in "color", "facecolor", "edgecolor", "markeredgecolor", "markerfacecolor":
        if hasattr(artist, "get_" + part):
            colors |= {to_hex(c) for c in to_rgba_array(getattr(artist, "get_" + part)()) if c[3] > 0}
    line = isinstance(artist, Line2D)
    marker, stroke = (artist.get_marker(), artist.get_linestyle()) if line else (None, None)
    nothing = ("None", " ", "", None)
    return Look(colors - {"#ffffff"}, None if marker in nothing else marker,
                "" if line and stroke in nothing else stroke, getattr(artist, "get_hatch", str)() or "")


def stands_for(key, drawn):
    if key.marker and drawn.marker != key.marker or key.hatch and drawn.hatch != key.hatch:
        return False
    if key.stroke and not key.marker and drawn.stroke not in (None, key.stroke):
        return False
    any_color = key.colors <= ANY_COLOR and not (key.stroke and drawn.stroke is None)  # a stroke that is not known
    return any_color or bool(key.colors & drawn.colors)


def of_keys(fig):
    """A key without a mark is a remark."""
    shown = {ax: [look(a) for a in [*ax.lines, *ax.patches, *ax.collections] if in_frame(a, ax)] for ax in fig.axes}
    for legend, axes in [(fig_legend, fig.axes) for fig_legend in fig.legends] + [
            (ax.get_legend(), [ax]) for ax in fig.axes if ax.get_legend()]:
        handles = getattr(legend, "legend_handles", None) or legend.legendHandles
        for handle, text in zip(handles, legend.get_texts()):
            key = look(handle)
            if isinstance(handle, Line2D) and not (key.marker or key.stroke):
                continue
            if not any(stands_for(key, drawn) for ax in axes for drawn in shown[ax]):
                yield "the key %s is of nothing that is drawn in %s" % (
                    words(text), "the figure" if legend in fig.legends else "the panel " + name(axes[0]))
