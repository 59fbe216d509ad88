"""What the figures of step_profile share: sources by name, and curves of their points."""

import os

import numpy as np

from lib import study


def name(cell):
    """"llama2 H100 x8" of "llama2-70b:h100-80gb:8"; the model of this host."""
    source = str(study.setting(cell, "source"))
    if source == "engine":
        return os.path.basename(str(study.setting(cell, "model"))).split("-bf16")[0] + ", this host"
    words = source.split(":")
    if len(words) == 2:
        return "printed, " + words[1].upper()
    return "%s, %s x%s" % (words[0], words[1].split("-")[0].upper(), words[2]) if len(words) == 3 else source


def points(cell, x, y, keep=None):
    """Arrays of x(point) and y(point), which get a point's columns by name: ascending in x, one for
    each x, the mean where several points have it; keep(point): which."""
    n = len(cell.series.get("batch_size", []))
    columns = {k: cell.series[k] for k in ("prompt_size", "batch_size", "token_size", "prompt_time", "token_time",
                                           "average_power", "peak_power", "fitted") if k in cell.series}
    found = {}
    for i in range(n):
        p = {k: float(v[i]) for k, v in columns.items()}
        if (keep is None or keep(p)) and not np.isnan(y(p)):
            found.setdefault(x(p), []).append(y(p))
    at = sorted(found)
    return np.array(at), np.array([np.mean(found[v]) for v in at])


def prompt_tok(p):
    return p["prompt_size"] * p["batch_size"]


def prompt_ms(p):
    return p["prompt_time"]


def token_ms(p):
    return p["token_time"]


def batch(p):
    return p["batch_size"]


def single(p):
    return p["batch_size"] == 1
