"""The numbers that the papers print (results/reference/*.json), next to ours: hollow diamonds that
name the paper's machine. They are for comparison by eye: other machines, models and systems."""

import functools
import json
import math
import os

import numpy as np
from matplotlib import patheffects

from lib import style, study

FITS = 4  # a number this many times beyond ours would squeeze what the figure is about
HALO = [patheffects.withStroke(linewidth=3, foreground="white")]  # to be seen on dark bars


@functools.lru_cache
def load(paper):
    with open(os.path.join(style.TOP, "results", "reference", paper + ".json")) as f:
        return json.load(f)


def place(paper, where):
    return next(p for p in load(paper)["places"] if p["where"] == where)


def values(paper, where, metric, **at):
    """[(value, its settings)] of a figure or table, in the file's order."""
    return [(v["value"], v.get("at", {})) for v in place(paper, where)["values"]
            if v["metric"] == metric and at.items() <= v.get("at", {}).items()]


def value(paper, where, metric, **at):
    """The one that there is; NaN where the paper prints none."""
    found = values(paper, where, metric, **at)
    return found[0][0] if len(found) == 1 else math.nan


def fits(ax, y, ours):
    """Whether an axis for `ours` has place for these."""
    least = min(ours, default=0) if ax.get_yscale() == "log" else max(ours, default=0)
    return bool(ours) and least / FITS <= max(y) <= FITS * max(ours)


def level(ax, y, ours, color, label):
    """One number of a text for all that an axis made for `ours` has: a line across, or its label only."""
    seen = fits(ax, [y], study.finite(ours))
    if seen:
        ax.axhline(y, color=color, ls=":", lw=1.2)
    ax.plot([], [], color=color, ls=":", lw=1.2, label=label + ("" if seen else ", off this axis"))


def mark(ax, x, y, paper, where, ours, machine=None):
    """Draw y over x, or, where they would not fit on an axis made for `ours`, name their range in
    the legend. machine: where the place names none."""
    y, (left, right) = list(y), ax.dataLim.intervalx
    seen = fits(ax, y, study.finite(ours)) and not (np.isfinite(right) and max(x) > right + FITS / 2 * (right - left))
    label = "%s, %s" % (load(paper)["short"], machine or place(paper, where)["machine"])
    if not seen:
        label += ": %s%s, off this axis" % (
            style.short(min(y)), " to %s" % style.short(max(y)) if max(y) > min(y) else "")
    ax.plot(x if seen else [], y if seen else [], "D", ms=5, mfc="none", mec="#222222", mew=1.2,
            zorder=4, label=label, path_effects=HALO)
