"""Draws a figure by its script and reports what a reader of a printed page could not read: a page
that is too wide, text that leaves it, that overlaps other text or is too small, a scale without a
label, a number of seven digits, an axis that shows nothing, a legend on data. One line for each
fault; exit status 3 if there is one. usage: check_layout.py SCRIPT RESULT FOLDER"""

import itertools
import math
import re
import runpy
import sys

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.text import Text  # noqa: E402

WIDTH = 7.0  # inches
SIZES = 7, 9  # points
SLACK = 2  # points by which boxes of text may overlap: they have room for letters such as g and A
NUMBER = re.compile(r"[-\u2212]?[\d.]+( ?%)?$|\$.*\d.*\$$")

drawn = []  # texts, as they are drawn
faults = []


def fault(form, *values):
    line = form % values
    if line not in faults:
        faults.append(line)


def words(text):
    return '"%s"' % " ".join(text.get_text().split())


class Box:
    """The rectangle round a text, which may be turned; in points."""

    def __init__(self, text, fig):
        renderer, point = fig.canvas.get_renderer(), fig.dpi / 72
        self.text, self.turned = text, math.radians(text.get_rotation())
        around = text.get_window_extent(renderer)
        self.x, self.y = (around.x0 + around.x1) / 2 / point, (around.y0 + around.y1) / 2 / point
        self.sides = around.x0 / point, around.y0 / point, around.x1 / point, around.y1 / point
        angle = text.get_rotation()
        text.set_rotation(0)
        flat = text.get_window_extent(renderer)
        text.set_rotation(angle)
        self.half = max(0.1, flat.width / point - SLACK) / 2, max(0.1, flat.height / point - SLACK) / 2

    def reach(self, along):
        """Half of its extent in this direction."""
        return sum(h * abs(math.cos(self.turned + quarter - along))
                   for h, quarter in zip(self.half, (0, math.pi / 2)))

    def overlaps(self, other):
        """Two rectangles do unless a line along one of their sides separates them."""
        for along in (self.turned, self.turned + math.pi / 2, other.turned, other.turned + math.pi / 2):
            apart = abs((other.x - self.x) * math.cos(along) + (other.y - self.y) * math.sin(along))
            if apart >= self.reach(along) + other.reach(along):
                return False
        return True


def check_texts(fig):
    boxes = [Box(t, fig) for t in drawn if t.get_text().strip()]
    wide, high = fig.get_size_inches() * 72
    for b in boxes:
        left, low, right, top = b.sides
        if min(left, low, wide - right, high - top) < -1:
            fault("%s leaves the page", words(b.text))
        if not SIZES[0] <= b.text.get_fontsize() <= SIZES[1]:
            fault("%s has %g points", words(b.text), b.text.get_fontsize())
        if re.search(r"(?<![.\d])\d{7}", b.text.get_text()) and b.text not in fig.texts:
            fault("%s has seven digits", words(b.text))
    for a, b in itertools.combinations(boxes, 2):
        if a.overlaps(b):
            fault("%s overlaps %s", words(a.text), words(b.text))


def shows(ax):
    """Data, a picture or words; lines across the whole axis are none."""
    lines = [line.get_xydata() for line in ax.lines if line.get_transform() is ax.transData]
    words = [t for t in ax.texts if t.get_text() != "n/a"]  # which gives no reason
    return ax.patches or ax.images or ax.collections or words or any(
        np.isfinite(points).all(axis=1).any() for points in lines)


def check_axes(fig):
    for ax in fig.axes:
        if not shows(ax):
            fault("the axis %s shows nothing and gives no reason", ax.get_title("left") or "without a title")
        for axis in (ax.xaxis, ax.yaxis) if ax.axison else ():
            numbers = [t for t in axis.get_ticklabels() if t in drawn and NUMBER.match(t.get_text())]
            if numbers and not axis.label.get_text():
                fault("the axis with %s has no label", words(numbers[0]))
    for legend in fig.legends + [ax.get_legend() for ax in fig.axes if ax.get_legend()]:
        box = legend.get_window_extent(fig.canvas.get_renderer()).padded(-2)
        if any(box.overlaps(ax.bbox) for ax in fig.axes if ax.axison):
            fault("the legend with %s is on data", words(legend.get_texts()[0]))


def check(fig):
    drawn.clear()
    fig.canvas.draw()
    if fig.get_figwidth() > WIDTH:
        fault("the page is %g inches wide", fig.get_figwidth())
    check_texts(fig)
    check_axes(fig)


def main(script, *arguments):
    draw_text, save = Text.draw, Figure.savefig

    def record(text, renderer):
        if text.get_visible():
            drawn.append(text)
        draw_text(text, renderer)

    def check_and_save(fig, path, **options):
        if str(path).endswith(".png"):
            check(fig)
        save(fig, path, **options)

    Text.draw, Figure.savefig = record, check_and_save
    sys.path.insert(0, "paper-figs")
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")
    print("\n".join(faults))
    return 3 if faults else 0


sys.exit(main(*sys.argv[1:]))
