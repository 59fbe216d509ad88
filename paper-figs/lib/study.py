"""What the figures of studies share: cells by their settings, and a table next to the picture."""

import math
import os
import sys

from lib import style


def setting(cell, name):
    return cell.setting("study." + name)


def where(cells, **wanted):
    """Cells with these settings of the study."""
    return [c for c in cells if all(setting(c, k) == v for k, v in wanted.items())]


def settings(cells, name):
    """The values of one setting, in the order of first appearance."""
    return list(dict.fromkeys(setting(c, name) for c in cells))


def matrix_name(cell):
    """"sheared-llama-1.3b/qkv" of "sheared-llama-1.3b/qkv 6144x2048"."""
    return str(setting(cell, "matrix")).split()[0]


def finite(values):
    return [v for v in values if not math.isnan(v)]


def geomean(values):
    """Of those that were measured; NaN where none was."""
    v = finite(values)
    return math.exp(sum(map(math.log, v)) / len(v)) if v and min(v) > 0 else math.nan


def mean(values):
    v = finite(values)
    return sum(v) / len(v) if v else math.nan


def wilson95(k, n):
    """Wilson's 95 % interval of a probability of which k in n trials came true."""
    z2 = 1.959963984540054 ** 2
    middle, half = k + z2 / 2, math.sqrt(z2 * (k * (n - k) / n + z2 / 4))
    return max(0, (middle - half) / (n + z2)), min(1, (middle + half) / (n + z2))


def total(values):
    """NaN where one is missing: a sum of the others would be another quantity."""
    return sum(values) if values else math.nan


def write_table(stem, header, rows):
    """<stem>.md next to the picture: the numbers it shows."""
    out = sys.argv[2] if len(sys.argv) > 2 else style.OUT
    os.makedirs(out, exist_ok=True)
    path = os.path.join(out, stem + ".md")
    with open(path, "w") as f:
        for row in [header, ["---"] * len(header)] + rows:
            f.write("| %s |\n" % " | ".join(map(str, row)))
    print(os.path.relpath(path))


def draw_table(ax, header, rows):
    """The same in the picture."""
    ax.axis("off")
    if not rows:
        return style.na(ax)
    t = ax.table(cellText=rows, colLabels=header, loc="center", cellLoc="right")
    t.auto_set_font_size(False)
    t.set_fontsize(8.5)
    t.auto_set_column_width(range(len(header)))
    t.scale(1, 1.45)
    for (row, _), cell in t.get_celld().items():
        cell.set_linewidth(0.4)
        cell.set_edgecolor("#cccccc")
        if row == 0:
            cell.set_text_props(weight="bold")
