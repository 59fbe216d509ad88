"""Transports between two processes: rate, processor time, and what a neighbour's decode loses at a set rate."""

from lib import read, study, style

STEM = "splitwise_transport"
PANELS = [("gb_per_s", "GB/s", "as fast as it goes"), ("cpu_per_gb", "s/GB", "processor time of both ends"),
          ("neighbour_slowdown", "%", "neighbour's time per token, added")]

result = read.latest(STEM)
ways = study.settings(result.cells, "way")
fig, axes = style.panels(len(PANELS), 1)
for ax, (metric, unit, title) in zip(axes, PANELS):
    top = max(study.finite([c.value(metric) for c in result.cells if study.setting(c, "way") != "map"]), default=1)
    for i, checked in enumerate((True, False)):
        for c in study.where(result.cells, checksums=checked):
            v, x = c.value(metric), ways.index(study.setting(c, "way"))
            style.bar(ax, x + 0.4 * (i - 0.5), v, style.number(v, "%.3g"), width=0.38, color=style.COLORS[i],
                      limit=1.3 * top,
                      label=("with checksums", "without")[i] if x == 0 else None)
    ax.set_xticks(range(len(ways)), [w.replace(":", "\n").replace("mpi_", "") for w in ways])
    ax.set_title(title)
    ax.set_ylabel(unit)
    ax.margins(y=0.15)
style.legend_below(axes[0])
style.save(fig, result, STEM, "Transports of keys and values on this host; map copies nothing (Splitwise IV-C)")
COLUMNS = ["gb_per_s", "sender_cpu_per_gb", "receiver_cpu_per_gb", "checksum_per_gb", "pieces_per_gb", "paced_reached",
           "paced_cpu_frac", "neighbour_alone", "neighbour_with", "neighbour_slowdown"]
study.write_table(STEM, ["transport", "checksums"] + [c.replace("_", " ") for c in COLUMNS],
                  [[study.setting(c, "way"), "yes" if study.setting(c, "checksums") else "no"] +
                   [style.number(c.value(m), "%.3g") for m in COLUMNS] for c in result.cells])
