"""Four devices: batches and the use of their memory by how requests are divided."""

from lib import read, study, style

STEM = "odma_cluster"
WORDS = {"none": "cluster manager", "route=in_turn": "each in turn", "route=fewest": "fewest requests",
         "own_bounds=true": "manager, own bounds", "alloc=static": "manager, static",
         "alloc=static;route=in_turn": "in turn, static"}


def mean(cells, metric):
    return study.mean([c.value(metric) for c in cells])


def batches(ax, cells, title):
    """A row for each way: every seed, and the mean."""
    ax.set_title(title)
    for i, ch in enumerate(reversed(changes)):
        style.seeds(ax, i, [c.value("tokens_per_step") for c in study.where(cells, change=ch)])
    ax.set_yticks(range(len(changes)), [WORDS.get(c, c) for c in reversed(changes)], fontsize=7)
    ax.set_xlim(left=0)
    ax.margins(x=0.1)
    ax.set_xlabel("tokens per step, all devices")
    style.legend_below(ax)


def spread(ax, cells, title):
    """From the least to the most reserved device."""
    ax.set_title(title)
    for i, ch in enumerate(reversed(changes)):
        of = study.where(cells, change=ch)
        ends = [mean(of, "reserved_%s_frac" % w) for w in ("least", "most")]
        ax.plot(ends, [i, i], "o-", ms=3, color=style.COLORS[1])
    ax.set_yticks(range(len(changes)), [WORDS.get(c, c) for c in reversed(changes)], fontsize=7)
    ax.set_xlim(0, 1.02)
    ax.set_xlabel("reserved share: the least and the most")
    style.percent_axis(ax.xaxis)


result = read.latest(STEM)
streams = study.settings(result.cells, "stream")
devices = study.settings(result.cells, "devices")
changes = study.settings(result.cells, "change")
fig, axes = style.panels(len(devices) * len(streams) + 1, 2)
at = [(d, s) for d in devices for s in streams]
for panel, (d, s) in zip(axes, at):
    batches(panel, study.where(result.cells, devices=d, stream=s), "%s; %s" % (d.replace(" ", " + "), s.replace("+", ", then ")))
spread(axes[len(at)], study.where(result.cells, devices=devices[0], stream=streams[0]),
       "Memory of %s" % devices[0].replace(" ", " + "))
style.save(fig, result, STEM, "Four devices, each with memory for N sequences of the longest (ODMA 3.5)")
COLUMNS = ["tokens_per_step", "over_static", "utilization_outer", "reserved_least_frac", "reserved_most_frac",
           "overflow_frac", "preempted_per_request", "waited_frac"]
study.write_table(
    STEM, ["lengths", "devices", "how"] + [c.replace("_", " ") for c in COLUMNS],
    [[s, d, WORDS.get(ch, ch)] + [style.number(mean(of, c), "%.3g") for c in COLUMNS]
     for s in streams for d in devices for ch in changes
     for of in [study.where(result.cells, stream=s, devices=d, change=ch)]])
