"""How our figures look: one size per number of panels, one palette that colour-blind readers
can tell apart, and an SVG that is the same bytes whenever it is drawn from the same result."""

import math
import os
import sys

import matplotlib
import matplotlib.transforms

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402 (the backend comes first)
from matplotlib.ticker import FuncFormatter  # noqa: E402

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Installed scripts are shared: what they draw goes to the working directory.
OUT = os.environ.get("FIGURES") or os.path.join(
    TOP if os.path.exists(os.path.join(TOP, "Makefile")) else "", "paper-figs", "out")

# Okabe and Ito's palette, in the order we use it; grey is for bounds and remarks.
COLORS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"]
HATCHES = ["", "///", "...", "xxx"]
LINES = ["-", "--", ":"]
GREY = "#6e6e6e"

FOOTER_SIZE = 7.5
FOOTER_CHARS_PER_INCH = 14  # of this font at that size, as long lines come out

plt.rcParams.update({
    "font.family": "DejaVu Sans",  # comes with matplotlib, so every machine draws the same
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.prop_cycle": matplotlib.cycler(color=COLORS),
    "grid.color": "#e3e3e3",
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.9,
    "svg.fonttype": "path",
    "svg.hashsalt": "sandwich",
    "figure.dpi": 100,
    "savefig.dpi": 160,
})


def panels(n, width=4.3, height=3.9):
    """A figure of n panels in a row. Returns figure and list of axes."""
    size = (max(width * n, 6.6), height)  # narrower, and the title would not fit
    fig, axes = plt.subplots(1, n, figsize=size, squeeze=False)
    return fig, list(axes[0])


def save(fig, result, stem, title):
    """Title above, provenance below; one SVG and one PNG into paper-figs/out, or argv[2]."""
    out = sys.argv[2] if len(sys.argv) > 2 else OUT
    os.makedirs(out, exist_ok=True)
    inch = 1 / fig.get_figheight()
    footer = result.footer(int(FOOTER_CHARS_PER_INCH * fig.get_figwidth()))
    bottom = 0.18 + 0.13 * footer.count("\n")
    fig.text(0.012, 1 - 0.07 * inch, title, ha="left", va="top", fontsize=12)
    fig.text(0.012, 0.05 * inch, footer, fontsize=FOOTER_SIZE, color=GREY, ha="left",
             va="bottom")
    fig.tight_layout(rect=(0, bottom * inch, 1, 1 - 0.3 * inch), w_pad=2.2)
    for ext, metadata in (("svg", {"Date": None, "Creator": None}), ("png", {"Software": None})):
        path = os.path.join(out, "%s.%s" % (stem, ext))
        fig.savefig(path, metadata=metadata)
        print(os.path.relpath(path))
    plt.close(fig)


def legend_below(ax, drop=0.5, **kw):
    """The legend `drop` inches under the axis, where no data can lie; bounds last."""
    handles, labels = ax.get_legend_handles_labels()
    order = sorted(range(len(labels)), key=lambda i: "bound" in labels[i])
    if not labels:
        return
    shift = matplotlib.transforms.ScaledTranslation(0, -drop, ax.figure.dpi_scale_trans)
    ax.legend([handles[i] for i in order], [labels[i] for i in order], loc="upper center",
              bbox_to_anchor=(0.5, 0), borderaxespad=0,
              bbox_transform=ax.transAxes + shift, **kw)


def cdf(ax, values, **kw):
    """The share of values at or below x, as steps; nothing is smoothed."""
    x = sorted(v for v in values if not math.isnan(v))
    if not x:
        return na(ax)
    y = [i / len(x) for i in range(len(x) + 1)]
    ax.plot([x[0]] + x, y, drawstyle="steps-post", **kw)
    ax.set_ylim(0, 1.02)
    percent_axis(ax.yaxis)


def percent_axis(axis):
    axis.set_major_formatter(FuncFormatter(lambda v, _: "%.0f %%" % (100 * v)))


def plain_log(axis, ticks):
    """Logarithmic ticks written as numbers."""
    axis.set_ticks(ticks)
    axis.set_minor_locator(matplotlib.ticker.NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda v, _: "%g" % v))


def ticks_1_2_5(low, high):
    """1, 2, 5, 10 ... that cover [low, high]."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    every = [m * 10.0 ** d for d in decades for m in (1, 2, 5)]
    inside = [t for t in every if low / 1.02 <= t <= high * 1.02]
    return inside if len(inside) < 8 else [t for t in inside if math.log10(t) % 1 < 1e-9]


def number(v, form="%.0f", unit=""):
    """A number for a label; a missing one is n/a, never 0."""
    return "n/a" if math.isnan(v) else (form % v) + unit


def short(v):
    """Three digits, never an exponent."""
    digits = 2 - math.floor(math.log10(abs(v))) if v and not math.isnan(v) else 0
    return number(v, "%%.%df" % max(0, digits))


def na(ax, text="n/a: not measured here"):
    ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center", va="center", color=GREY)


def bar(ax, x, value, text, top=(), **kw):
    """One bar with its text above (above what else stands there: `top`); a missing value is an
    n/a at the foot, not a bar."""
    if math.isnan(value):
        ax.text(x, 0, "n/a", ha="center", va="bottom", fontsize=8, color=GREY,
                transform=ax.get_xaxis_transform())
        return
    ax.bar(x, value, **kw)
    ax.annotate(text, (x, max([value] + [t for t in top if not math.isnan(t)])), xytext=(0, 3),
                textcoords="offset points", ha="center", va="bottom", fontsize=8)


def percent(share):
    """A share for a label."""
    return number(100 * share, "%.0f", " %")
