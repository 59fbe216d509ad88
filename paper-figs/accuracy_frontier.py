"""Goodput against the error of logits, by weights, precision, keys and values, build and engine: who is on the
frontier, by the errors of the model that was timed and by those of a trained one."""

import math

from lib import read, study, style

STEM = "accuracy_frontier"
PANELS = [("", "By errors of the timed model"), ("trained_", "By errors of a small trained model")]
PRECISIONS = {"exact": "o", "relaxed": "s", "a8": "D"}
STATES = {1: "on", 0: "undecided", -1: "dominated"}


def names(c):
    return str(c.setting("notes.variants", "")).split(", ")


def column(c, name):
    return list(c.series.get(name, [])) or [math.nan] * len(names(c))


def weights(name):
    return name.split(":")[1].split()[0] if ":" in name else name.split("/")[0]


def mark(name):
    return "X" if ":" in name else PRECISIONS.get((name + "//").split("/")[1], "o")


def ends(c, name, i):
    """Lengths of an error bar to both sides; 0 where there is no interval."""
    v, lo, hi = (column(c, name + e)[i] for e in ("", "_lo", "_hi"))
    return [[max(0, v - lo) if lo == lo else 0], [max(0, hi - v) if hi == hi else 0]]


def panel(ax, c, prefix, title):
    """A point for each variant, hollow where it is dominated, and steps through those that are not."""
    x, y, state = column(c, prefix + "error"), column(c, "goodput_rps"), column(c, prefix + "frontier")
    known = [i for i in range(len(x)) if x[i] + y[i] > 0]
    ax.set(title=title, xlabel="error of logits / their standard deviation", ylabel="requests per second, by steps")
    if not known:
        return style.na(ax)
    up = sorted((x[i], y[i]) for i in known if state[i] >= 0)
    ax.plot([e for e, _ in up], [max(v for _, v in up[:k + 1]) for k in range(len(up))], "-", lw=0.8,
            color=style.GREY, drawstyle="steps-post", label="frontier")
    for i in known:
        color = style.COLORS[kinds.index(weights(names(c)[i])) % len(style.COLORS)]
        ax.errorbar(x[i], y[i], xerr=ends(c, prefix + "error", i), yerr=ends(c, "goodput_rps", i), lw=0.8, ms=4,
                    fmt=mark(names(c)[i]), color=color, mfc="white" if state[i] < 0 else color)
    ax.set_xscale("log")
    style.plain_log(ax.xaxis, [1e-5, 1e-4, 1e-3, 0.01, 0.1, 1])
    ax.set_ylim(bottom=0)
    drawn = [names(c)[i] for i in known]
    for k, w in enumerate(kinds):
        for n in [n for n in drawn if weights(n) == w][:1]:
            ax.plot([], [], mark(n), ms=4, color=style.COLORS[k % len(style.COLORS)], label=w)
    for label, m in [*PRECISIONS.items(), ("other engine", "X")]:
        if m in [mark(n) for n in drawn]:
            ax.plot([], [], m, ms=4, color=style.GREY, mfc="none", label=label)
    style.legend_below(ax)


result = read.latest(STEM)
cells = result.cells[:1]
kinds = list(dict.fromkeys(weights(n) for c in cells for n in names(c)))
fig, axes = style.panels(2)
for ax, (prefix, title) in zip(axes, PANELS):
    for c in cells:
        panel(ax, c, prefix, title)
style.save(fig, result, STEM, "What accuracy costs in speed: 4 bits decode %s times as fast as 8; hollow: another errs no "
           "more and is faster" % ", ".join(style.short(c.value("decode_w4_over_w8")) for c in cells))


def number(c, name, i):
    v, lo, hi = (column(c, name + e)[i] for e in ("", "_lo", "_hi"))
    return style.number(v, "%.3g") + (" (%.3g to %.3g)" % (lo, hi) if lo == lo and hi == hi else "")


study.write_table(STEM, ["variant", "requests/s by steps", "prefill tok/s", "decode tok/s", "16 sequences tok/s", "error",
                         "greedy agreement", "", "error, trained", "agreement, trained", " "], [
    [n, number(c, "goodput_rps", i), number(c, "prefill_tok_s", i), number(c, "decode_tok_s", i),
     number(c, "decode16_tok_s", i), number(c, "error", i), number(c, "agree", i),
     STATES.get(column(c, "frontier")[i], "n/a"), number(c, "trained_error", i), number(c, "trained_agree", i),
     STATES.get(column(c, "trained_frontier")[i], "n/a")]
    for c in cells for i, n in enumerate(names(c))])
