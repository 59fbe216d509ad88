"""What noisy neighbours take from the engine under load: speed by measured dose, the slope of each
thief next to what elasticities predict, and the requests that still meet their objectives."""

import math

from lib import read, study, style

STEM = "neighbours"
THIEVES = {"cpu": ("CPU time", "CPU time (s/s)"), "bandwidth": ("Memory bandwidth", "bytes read (GB/s)"),
           "cache": ("Last-level cache", "lines read (million/s)"), "page_cache": ("Page cache", "pages dropped (1/s)")}
STRENGTHS = [0, 25, 50, 100]


def name(c):
    threads = study.setting(c, "threads")
    return "%s, %s" % (study.setting(c, "policy"), {0: "all threads", 1: "one thread"}.get(threads, "%s threads" % threads))


def color(i):
    return style.COLORS[i % len(style.COLORS)]


def point(ax, x, c, metric, i, label=None, **kw):
    """A median with its 95 % interval."""
    v = c.value(metric)
    lo, hi = c.interval(metric) or (v, v)
    ax.vlines(x, lo, hi, color=color(i), lw=0.9)
    ax.plot([x], [v], "o", ms=4, color=color(i), label=label, **kw)


def response(ax, thief):
    for i, c in enumerate(result.cells):
        at = ["%s_%d" % (thief, s) for s in STRENGTHS]
        x = [c.value("dose_" + a) for a in at]
        ax.plot(x, [c.value("left_" + a) for a in at], "-", lw=1, color=color(i), label=name(c))
        for k, a in enumerate(at):
            point(ax, x[k], c, "left_" + a, i)
    ax.axhline(1, color=style.GREY, ls="--", lw=0.8)
    ax.set(title=THIEVES[thief][0], xlabel=THIEVES[thief][1], ylabel="speed / without")
    style.legend_below(ax)


def by_thief(ax, metric, title, label):
    for k, thief in enumerate(THIEVES):
        for i, c in enumerate(result.cells):
            point(ax, k + 0.15 * (i - (len(result.cells) - 1) / 2), c, metric % thief, i, name(c) if k == 0 else None)
    ax.set_xticks(range(len(THIEVES)), [t.replace("_", "\n") for t in THIEVES])
    ax.set(title=title, ylabel=label)
    ax.grid(axis="x", visible=False)


result = read.latest(STEM)
fig, axes = style.rows(2, 2, 2)
for ax, thief in zip(axes, THIEVES):
    response(ax, thief)
by_thief(axes[4], "slope_%s", "Loss at full strength", "slope of ln speed")
for k, thief in enumerate(THIEVES):
    for i, c in enumerate(result.cells):
        predicted = c.value("predicted_" + thief)
        if predicted > 0:
            axes[4].plot([k + 0.15 * (i - (len(result.cells) - 1) / 2)], [-math.log(predicted)], "x", ms=5, color="black",
                         label="predicted by levers" if k + i == 0 else None)
by_thief(axes[5], "attained_%s_100", "Objectives met at full strength", "share of requests")
for ax in axes[4:]:
    style.legend_below(ax)
style.save(fig, result, STEM, "Noisy neighbours: the engine under load next to thieves; 95 % intervals over rounds")
METRICS = ["dose", "taken", "left", "tok_s", "itl_p95_ms", "attained", "goodput_rps"]
study.write_table(STEM, ["engine", "thief", "%"] + [m.replace("_", " ") for m in METRICS],
                  [[name(c), t, "%d" % s] + [style.short(c.value("%s_%s_%d" % (m, t, s))) for m in METRICS]
                   for c in result.cells for t in THIEVES for s in STRENGTHS])
