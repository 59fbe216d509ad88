"""What a reader of a printed page could not read in a drawn figure: text that overlaps other text or bars,
leaves the page or is too small, bars that their axis cuts off, a footer of too many lines, a page that is
too wide or too high, names at an angle that take more height than data, a scale without a label, a number
of seven digits, an axis that shows nothing, a legend on data."""

import itertools
import math
import re

import numpy as np
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from lib import page, read

SIZES = page.SMALL, page.TITLE  # points
SLACK = 2  # points by which boxes of text may overlap: they have room for letters such as g and A
NUMBER = re.compile(r"[-\u2212]?[\d.]+( ?%)?$|\$.*\d.*\$$")


def faults(fig):
    """A line for each."""
    texts = drawn_texts(fig)
    found = list(of_page(fig)) + list(of_texts(fig, texts)) + list(of_axes(fig, texts)) + list(of_bars(fig, texts))
    return list(dict.fromkeys(found))


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
    for t, b in boxes:
        left, low, right, top = b.sides
        if min(left, low, wide - right, high - top) < -1:
            yield "%s leaves the page" % words(t)
        if not SIZES[0] <= t.get_fontsize() <= SIZES[1]:
            yield "%s has %g points" % (words(t), t.get_fontsize())
        if re.search(r"(?<![.\d])\d{7}", t.get_text()) and t not in fig.texts:
            yield "%s has seven digits" % words(t)
    for (s, a), (t, b) in itertools.combinations(boxes, 2):
        if a.overlaps(b):
            yield "%s overlaps %s" % (words(s), words(t))


def shows(ax):
    """Data, a picture or words; lines across the whole axis are none."""
    lines = [line.get_xydata() for line in ax.lines if line.get_transform() is ax.transData]
    said = [t for t in ax.texts if t.get_text() != page.NA]  # which gives no reason
    return ax.patches or ax.images or ax.collections or said or any(
        np.isfinite(points).all(axis=1).any() for points in lines)


def of_axes(fig, texts):
    for ax in fig.axes:
        if not shows(ax):
            yield "the axis %s shows nothing and gives no reason" % (ax.get_title("left") or "without a title")
        for axis in (ax.xaxis, ax.yaxis) if ax.axison else ():
            labels = [t for t in axis.get_ticklabels() if t in texts]
            numbers = [t for t in labels if NUMBER.match(t.get_text())]
            if numbers and not axis.label.get_text():
                yield "the axis with %s has no label" % words(numbers[0])
            if axis is ax.xaxis:
                slanted = [t for t in labels if t.get_rotation() and 2 * page.extent(t)[1] * fig.dpi > ax.bbox.height]
                if slanted:
                    yield "%s at an angle is higher than half of its axis" % words(slanted[0])
    for legend in fig.legends + [ax.get_legend() for ax in fig.axes if ax.get_legend()]:
        box = legend.get_window_extent(page.renderer(fig)).padded(-2)
        if any(box.overlaps(ax.bbox) for ax in fig.axes if ax.axison):
            yield "the legend with %s is on data" % words(legend.get_texts()[0])


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
        name = ax.get_title("left") or ax.get_ylabel() or "without a title"
        if any(cut_off(b, ax) for b in bars):
            yield "a bar leaves the axis %s" % name
        boxes = [Box(b.get_window_extent(page.renderer(fig)), fig) for b in bars]
        for t in ax.texts if boxes else ():
            if t in texts and t.get_color() != "white" and any(box_of(t, fig).overlaps(b) for b in boxes):
                yield "%s is on a bar of %s" % (words(t), name)
