"""Faults of transports by fault and phase: the longest time until one is named, and how many are silent."""

from lib import read, study, style

STEM = "splitwise_faults"
PHASES = ["prefill", "transfer", "decode", "idle"]


def count(cells):
    return style.number(sum(c.value("n_silent") for c in cells), "%d") if cells else "n/a"


def worst_of(cells, name):  # of all seeds, by phase
    rows = [c.series[name] for c in cells]
    return [max((v for v in column if v == v), default=float("nan")) for column in zip(*rows)]


result = read.latest(STEM)
transports = list(dict.fromkeys(study.setting(c, "transport") for c in result.cells))
fig, axes = style.panels(max(len(transports), 1), 2)
for i, (ax, transport) in enumerate(zip(axes, transports)):
    cells = study.where(result.cells, checksums=True, transport=transport)
    faults = sorted({n[len("n_"):] for c in cells for n in c.series if n.startswith("n_")})
    worst = [worst_of(cells, "worst_ms_" + f) for f in faults]
    top = max((v for row in worst for v in row if v == v), default=1)
    ax.imshow(worst or [[float("nan")]], aspect="auto", cmap="Blues", vmin=0, vmax=1.6 * top)
    for y, f in enumerate(faults):
        silents = worst_of(cells, "silent_" + f)
        for x, silent in enumerate(silents):
            if worst[y][x] == worst[y][x] or silent:
                ax.text(x, y, "silent" if silent > 0 else style.number(worst[y][x], "%.3g"), ha="center", va="center",
                        fontsize=7, color="red" if silent > 0 else "black")
    ax.grid(False)
    ax.set_xticks(range(len(PHASES)), PHASES)
    ax.set_yticks(range(len(faults)), [f.replace("_", " ") for f in faults] if i == 0 else [""] * len(faults))
    ax.set(xlabel="phase", ylabel="fault" if i == 0 else "")
    ax.set_title("%s: %s silent, without checksums %s" % (transport, count(cells), count(
        study.where(result.cells, checksums=False, transport=transport))))
style.save(fig, result, STEM, "Faults of transports: longest time until one is named, ms (Splitwise IV-E)")
COLUMNS = ["n_faults", "n_silent", "n_lost", "named_frac", "named_p50", "named_p99", "named_max"]
study.write_table(STEM, ["seed", "transport", "checksums"] + [c.replace("_", " ") for c in COLUMNS],
                  [[study.setting(c, "seed"), study.setting(c, "transport"),
                    "yes" if study.setting(c, "checksums") else "no"] +
                   [style.number(c.value(m), "%.4g") for m in COLUMNS] for c in result.cells])
