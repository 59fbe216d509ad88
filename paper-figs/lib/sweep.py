"""The figure of a sweep: what a record with one or two axes shows, whatever they are. The first
swept axis runs along x, and each combination of the others is a line."""

import math
import os

from lib import page, read, style

RATES = (("achieved_rate_rps", "achieved"), ("request_throughput_rps", "completed"),
         ("request_goodput_rps", "within the objectives"))
PREFILL_BOUND = ("prefill_peak_frac", "mean_ttft_service_ms")
DECODE_BOUND = ("decode_bandwidth_frac", "mean_tpot_ms")
GREY = (PREFILL_BOUND, DECODE_BOUND, "offered_rate_rps")
OVERLOADED = {"marker": "o", "ms": 8, "mfc": "none", "mec": style.COLORS[3]}
LINES = ("-", "--", ":", "-.")
MARKERS = "osD^vP"
MANY = 8  # times: values that differ more are drawn on a logarithmic axis
PANELS = 4


def draw(result, stem):
    axes = result.axes()
    if not axes:
        fig, (ax,) = style.panels(1)
        style.na(ax, "the record has no axis")
        return style.save(fig, result, stem, stem)
    swept = [a for a in result.swept() if a in axes] or list(axes)
    name = ([a for a in swept if numeric(axes[a])] or swept)[0]
    x = Axis(name, axes[name])
    lines = group(result.cells, [a for a in axes if a != name])
    panels = served(result.cells) if result.cells and result.cells[0].requests else studied(result)
    fig, at = style.panels(len(panels))
    for ax, (title, unit, metrics) in zip(at, panels):
        panel(ax, x, lines, metrics)
        ax.set(title=title, ylabel=unit, xlabel=name)
    if len(lines) > 1:
        shown = [at[0].plot([], [], color=style.COLORS[i % len(style.COLORS)], ms=4,
                            marker=MARKERS[i % len(MARKERS)])[0] for i in range(len(lines))]
        page.legend(fig, shown, list(lines))
    style.save(fig, result, stem, "%s: %s%s" % (stem, " x ".join(swept), what(result.cells)))


def what(cells):
    """The model and the lengths, where all cells have the same."""
    words = [read.unique(getattr(c, word)() for c in cells if c.requests)
             for word in ("model", "weights", "dataset")]
    words = [w[0] for w in words if len(w) == 1]
    return " (%s)" % " ".join(words) if words else ""


def served(cells):
    """(title, label of y, ((metric, words), ...)) of each panel."""
    here = {m for c in cells for m, v in c.summary.items() if not math.isnan(v)}
    rates = [(m, words) for m, words in RATES if m in here]
    tokens = ("Output", "output tokens per second", (("output_throughput_tok_s", ""),))
    first = ("Rates", "requests per second", rates + [("offered_rate_rps", "offered")])
    last = ("SLO attainment", "share of requests", (("slo_attainment_frac", ""),))
    return [first if "offered_rate_rps" in here else tokens,
            ("Time to first token", "ms", (("p50_ttft_ms", "p50"), ("p90_ttft_ms", "p90"),
                                          (PREFILL_BOUND, "bound of the mean"))),
            ("Time per output token", "ms", (("p50_tpot_ms", "p50"), ("p90_tpot_ms", "p90"),
                                            (DECODE_BOUND, "bound of the mean"))),
            last if "slo_attainment_frac" in here else tokens]


def studied(result):
    """The metrics that the job's headlines name; without any, the first that were measured."""
    named = [h["metric"] for h in result.job.get("headline", [])]
    found = [m for c in result.cells for m, v in c.summary.items() if not math.isnan(v)]
    return [(m, m, ((m, ""),)) for m in read.unique(named or found)[:PANELS]] or [("", "", ())]


def numeric(values):
    return all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values)


class Axis:
    """Places of an axis's values: numbers where they are, words side by side."""

    def __init__(self, name, values):
        self.name, self.values, self.numeric = name, values, numeric(values)
        low, high = (min(values), max(values)) if self.numeric else (0, 0)
        self.log = low > 0 and len(values) > 2 and high / low >= 8

    def at(self, cell):
        v = cell.axes[self.name]
        return v if self.numeric else self.values.index(v)

    def finish(self, ax):
        places = sorted(self.values) if self.numeric else range(len(self.values))
        if self.log:
            ax.set_xscale("log")
            return style.plain_log(ax.xaxis, places if len(places) < 10 else
                                   style.ticks_1_2_5(places[0], places[-1]))
        if len(places) < 10 or not self.numeric:
            ax.set_xticks(places, [word(v) for v in (sorted(self.values) if self.numeric
                                                     else self.values)])


def word(v):
    if isinstance(v, float):
        return "%g" % v
    return os.path.basename(str(v)) or str(v)


def group(cells, others):
    """{"threads=1": [cells]} by the values of the other axes; repeats are together."""
    lines = {}
    for c in cells:
        key = ", ".join("%s=%s" % (a.split(".", 1)[-1], word(c.axes[a])) for a in others)
        lines.setdefault(key, []).append(c)
    return lines


def value(cell, metric):
    """A bound is the share of it that was reached times what was measured."""
    return math.prod(map(cell.value, metric)) if isinstance(metric, tuple) else cell.value(metric)


def panel(ax, x, lines, metrics):
    """A colour is a line, a stroke a metric."""
    drawn = []
    for i, cells in enumerate(lines.values()):
        color, marker = style.COLORS[i % len(style.COLORS)], MARKERS[i % len(MARKERS)]
        for k, (metric, words) in enumerate(metrics):
            points = medians(x, cells, metric)
            y = [p[1] for p in points if not math.isnan(p[1])]
            if not y:
                continue
            drawn += y
            place = [p[0] for p in points], [p[1] for p in points]
            if metric in GREY:
                ax.plot(*place, color=style.GREY, ls="--", lw=1.3)
                continue
            ax.plot(*place, color=color, ls=LINES[k % len(LINES)], marker=marker, ms=3)
            over = [p for p in points if p[2]]
            ax.plot([p[0] for p in over], [p[1] for p in over], ls="", **OVERLOADED)
    x.finish(ax)
    if not drawn:
        return style.na(ax)
    if min(drawn) > 0 and max(drawn) / min(drawn) > MANY:
        ax.set_yscale("log")
        style.plain_log(ax.yaxis, style.ticks_1_2_5(min(drawn), max(drawn)))
    else:
        ax.set_ylim(min(0, 1.08 * min(drawn)), 1.08 * max(drawn) or 1)
    if str(metrics[0][0]).endswith("_frac"):
        style.percent_axis(ax.yaxis)
    keys(ax, [m for m in metrics if any(not math.isnan(value(c, m[0]))
                                        for cells in lines.values() for c in cells)],
         any(overloaded(c) for cells in lines.values() for c in cells))


def overloaded(cell):
    """By the whole of its requests, or found while it ran."""
    return bool(cell.warned("overloaded") or cell.warned("saturated"))


def keys(ax, metrics, any_overloaded):
    for k, (metric, words) in enumerate(metrics):
        if words:
            ax.plot([], [], color=style.GREY if metric in GREY else "black", label=words,
                    lw=1.3, ls="--" if metric in GREY else LINES[k % len(LINES)])
    if any_overloaded:
        ax.plot([], [], ls="", label="overloaded", **OVERLOADED)
    style.legend_below(ax)


def medians(x, cells, metric):
    """(x, median over the repeats, any overloaded), ascending."""
    at = {}
    for c in cells:
        at.setdefault(x.at(c), []).append(c)
    out = []
    for place in sorted(at):
        y = sorted(v for v in (value(c, metric) for c in at[place]) if not math.isnan(v))
        middle = (y[(len(y) - 1) // 2] + y[len(y) // 2]) / 2 if y else math.nan
        out.append((place, middle, any(overloaded(c) for c in at[place])))
    return out
