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
    """One number of a text for all that an axis made for `ours` has: a line across, or words in the legend."""
    if fits(ax, [y], study.finite(ours)):
        ax.axhline(y, color=color, ls=":", lw=1.2, label=label)
    else:
        ax.plot([], [], " ", label=label + ", off this axis")


def mark(ax, x, y, paper, where, ours, machine=None):
    """Draw y over x; those that would not fit on an axis made for `ours` are arrows at its edge, and the legend
    has their range. machine: where the place names none."""
    ours, (left, right) = study.finite(ours), ax.dataLim.intervalx
    label = "%s, %s" % (load(paper)["short"], machine or place(paper, where)["machine"])
    points = [(a, b) for a, b in zip(x, y) if not math.isnan(b)]
    top = max(ours, default=0)
    near = [b for _, b in points if b <= FITS * top]
    beyond = not ours or np.isfinite(right) and max(x) > right + FITS / 2 * (right - left)
    seen = [(a, b) for a, b in points if not beyond and b in near and
            fits(ax, [b] if ax.get_yscale() == "log" else near, ours)]
    off = [p for p in points if p not in seen]
    arrows = () if beyond else [("^", 1, [a for a, b in off if b > top]), ("v", 0, [a for a, b in off if b <= top])]
    if off:
        values = [b for _, b in off]
        label += ": %s%s, off this axis" % (
            style.short(min(values)), " to %s" % style.short(max(values)) if max(values) > min(values) else "")
    look = {"ms": 5, "ls": "", "mfc": "none", "mec": "#222222", "mew": 1.2, "zorder": 4, "path_effects": HALO}
    shown = [ax.plot(*zip(*seen), "D", **look)] if seen else []
    shown += [ax.plot(at, [edge] * len(at), marker, transform=ax.get_xaxis_transform(), clip_on=False, **look)
              for marker, edge, at in arrows if at]
    (shown[0][0] if shown else ax.plot([], [], " ")[0]).set_label(label)
