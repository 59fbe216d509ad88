"""How our figures look: one palette that colour-blind readers can tell apart, axes and bars, and
files that are the same bytes whenever they are drawn from the same result. Sizes: lib/page.py."""

import math
import os
import sys

import matplotlib

matplotlib.rcdefaults()  # a matplotlibrc of the user's changes no figure
matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402 (the backend comes first)
from matplotlib.ticker import FuncFormatter  # noqa: E402

from lib import lint, page  # noqa: E402
from lib.page import GREY, NA, SMALL  # noqa: E402, F401

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Installed scripts are shared: what they draw goes to the working directory.
OUT = os.environ.get("FIGURES") or os.path.join(
    TOP if os.path.exists(os.path.join(TOP, "Makefile")) else "", "paper-figs", "out")

# Okabe and Ito's palette, in the order we use it; grey is for bounds and remarks.
COLORS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"]
HATCHES = ["", "///", "...", "xxx"]
LINES = ["-", "--", ":"]

plt.rcParams.update({
    **page.FONTS,
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
    "lines.linewidth": 1.4,
    "lines.markersize": 4,
    "hatch.linewidth": 0.5,
    "svg.hashsalt": "sandwich",
    "figure.dpi": 200,
})
LINT = None  # a file that gets what cannot be read in a figure
MARKDOWN = {}  # {stem: what is written so far}
FORMATS = (("svg", {"Date": None, "Creator": None}), ("png", {"Software": None}),
           ("pdf", {"CreationDate": None, "Creator": None, "Producer": None}))


def rows(*counts):
    """A figure with a row of axes for each count. Returns figure and list of axes."""
    fig = plt.figure(figsize=(page.WIDTH, 2.6 * len(counts)))
    parts = math.lcm(*counts)
    grid = fig.add_gridspec(len(counts), parts)
    return fig, [fig.add_subplot(grid[r, i * parts // n:(i + 1) * parts // n])
                 for r, n in enumerate(counts) for i in range(n)]


def panels(n, columns=None):
    """A figure of n axes, in rows of `columns`; those of the last row share its width."""
    columns = columns or {1: 1, 2: 2, 4: 2}.get(n, 3)
    return rows(*[min(columns, n - i) for i in range(0, n, columns)])


def folder():
    """Where figures and tables go: argv[2] or paper-figs/out."""
    out = sys.argv[2] if len(sys.argv) > 2 else OUT
    os.makedirs(out, exist_ok=True)
    return out


def write_markdown(stem, **part):
    """<stem>.md next to the picture: its table, and below it the notes that its footer sums up."""
    parts = MARKDOWN.setdefault(stem, {"table": "", "notes": ""})
    parts.update(part)
    path = os.path.join(folder(), stem + ".md")
    with open(path, "w") as f:
        f.write("\n".join(filter(None, parts.values())))
    print(os.path.relpath(path))


def save(fig, result, stem, title):
    """Title above, provenance below; as SVG, PNG and PDF."""
    out = folder()
    page.arrange(fig, title, lambda width: result.footer(width, stem + ".md"), result.why_missing())
    if result.notes():
        write_markdown(stem, notes="".join("- %s\n" % " ".join(n.split()) for n in result.notes()))
    if LINT:
        with open(LINT, "a") as f:
            f.writelines("%s: %s\n" % (stem, fault) for fault in lint.faults(fig))
    for ext, metadata in FORMATS:
        path = os.path.join(out, "%s.%s" % (stem, ext))
        fig.savefig(path, metadata=metadata)
        print(os.path.relpath(path))
    plt.close(fig)


def legend_below(ax):
    """The legend below the axis, where no data can be; bounds last."""
    handles, labels = ax.get_legend_handles_labels()
    order = sorted(range(len(labels)), key=lambda i: "bound" in labels[i])
    if labels:
        page.legend(ax, [handles[i] for i in order], [labels[i] for i in order])


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
    return NA if math.isnan(v) else (form % v) + unit


def short(v, unit=""):
    """Three digits, never an exponent."""
    digits = 2 - math.floor(math.log10(abs(v))) if v and not math.isnan(v) else 0
    return number(v, "%%.%df" % max(0, digits), unit)


def na(ax, why=None):
    """Why the axis has nothing to show, if it has nothing; without a reason, the record's."""
    page.missing(ax, why)


def bar(ax, x, value, text, top=(), limit=math.inf, **kw):
    """One bar with its text above (above what else stands there: `top`), below a negative one; a
    missing value is an n/a at the foot, not a bar. One that is higher than `limit` ends there, broken."""
    if math.isnan(value):
        ax.text(x, 0, NA, ha="center", va="bottom", fontsize=SMALL, color=GREY,
                transform=ax.get_xaxis_transform())
        return
    height = min(value, limit)
    ax.bar(x, height, **kw)
    if value > limit:
        half = 0.55 * kw.get("width", 0.8)
        for y in 0.84, 0.88:
            ax.plot([x - half, x + half], [(y - 0.02) * limit, (y + 0.02) * limit], color="white", lw=1.6)
    down, ends = value < 0, [height] + [t for t in top if not math.isnan(t)]
    page.value(ax, ax.annotate(
        text, (x, min(ends) if down else max(ends)), bbox={"fc": "white", "ec": "none", "pad": 0.3},
        xytext=(0, -2 if down else 5 if len(top) else 2), textcoords="offset points", ha="center",
        va="top" if down else "bottom", fontsize=SMALL))


def percent(share):
    """A share for a label, never -0."""
    return number(0 if abs(share) < 0.005 else 100 * share, "%.0f", " %")


def seeds(ax, y, values):
    """A row of dots, and their mean."""
    known = [v for v in values if not math.isnan(v)]
    if known:
        first = not any(line.get_label() == "mean" for line in ax.lines)
        ax.plot(known, [y] * len(known), "o", ms=2.5, color=COLORS[2], alpha=0.5, label="a seed" if first else None)
        ax.plot(sum(known) / len(known), y, "|", ms=9, mew=1.5, color=COLORS[1], label="mean" if first else None)


def size(n):
    """Bytes for a label."""
    for unit, name in (1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "kB"):
        if n >= unit:
            return "%g %s" % (n / unit, name)
    return "%g B" % n


def axis_of_sizes(ax, sizes, label):
    """A logarithmic x axis of bytes, with a label at every second power of four at most."""
    powers = [4 ** k for k in range(16) if min(sizes) <= 4 ** k <= max(sizes)]
    ax.set_xscale("log")
    ax.set_xticks(powers[::1 + len(powers) // 6], [size(t) for t in powers[::1 + len(powers) // 6]])
    ax.minorticks_off()
    ax.set_xlabel(label)
