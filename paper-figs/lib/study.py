"""What the figures of studies share: cells by their settings, statistics, and tables (lib/table.py)."""

import math

from lib.table import draw as draw_table  # noqa: F401
from lib.table import write as write_table  # noqa: F401


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
