"""Prefill and decode by what the hardware counts, and by what arithmetic, the engine's own
account and a cache simulation say where it counts nothing."""

import math

from lib import page, read, study, style

STEM = "fig01_characterization"
HARDWARE = [("ipc", "IPC"), ("l3lpki", "L3LPKI"), ("dtlb_miss", "DTLBMiss"), ("rar", "RAR"),
            ("mclpki", "MCLPKI"), ("mcipki", "MCIPKI"), ("buspki", "BUSPKI")]
BARS = [("estimated_flop_per_byte", "Intensity (estimated)", "FLOP/byte", 1, True),
        ("estimated_gbps", "Bandwidth (estimated)", "GB/s", 1, False),
        ("estimated_gflops", "Arithmetic (estimated)", "GFLOP/s", 1, False),
        ("estimated_cycles_per_tok", "Ticks of the constant clock (estimated)", "millions per token", 1e-6, True)]
OTHERS = ["sde_steps", "sde_tok", "sde_weight_bytes", "sde_kv_bytes", "sde_flop", "sde_wait_s",
          "estimated_bytes_per_tok", "estimated_tick_ghz", "page_faults",
          "context_switches", "task_clock_s", "callgrind_instructions_per_tok", "callgrind_ll_mpki"]


def name(c):
    return "%s, batch %s" % (study.setting(c, "phase"), study.setting(c, "batch"))


def bars(ax, cells, metric, title, unit, factor=1, log=False):
    """One bar a cell, both phases in their colours; what is missing is n/a."""
    if log and study.finite([c.value(metric) for c in cells]):
        ax.set_yscale("log")
    phases = study.settings(cells, "phase")
    for i, c in enumerate(cells):
        v = factor * c.value(metric)
        style.bar(ax, i, v, style.short(v), width=0.7,
                  color=style.COLORS[phases.index(study.setting(c, "phase"))])
    ax.set_xticks(range(len(cells)), ["%s\n%s" % (study.setting(c, "phase"), study.setting(c, "batch"))
                                      for c in cells])
    ax.set(title=title, xlabel="phase, batch", ylabel=unit)
    ax.margins(y=0.15)


def simulated(ax, cells):
    """Misses of the simulated last level compared with the cache lines of the weights."""
    bars(ax, cells, "callgrind_ll_misses_per_tok", "Lines from memory (simulated; small model)",
         "lines per token")
    for i, c in enumerate(cells):
        lines = c.value("callgrind_lines_per_tok")
        if not math.isnan(lines):
            ax.plot([i - 0.42, i + 0.42], [lines, lines], color=style.GREY, lw=1.4,
                    label="its weights (arithmetic)" if i == 0 else None)
    style.legend_below(ax)


result = read.latest(STEM)
cells = sorted(result.cells, key=lambda c: (study.setting(c, "phase") != "prefill",
                                            study.setting(c, "batch")))
singles = study.where(cells, batch=1)
counted = {m: label for m, label in HARDWARE if study.finite([c.value(m) for c in cells])}
missing = [label for m, label in HARDWARE if m not in counted]
why = read.why(cells, *dict(HARDWARE))
fig, axes = style.rows(3, 2, *[1] * bool(counted), *[1] * bool(missing))
for ax, what in zip(axes, BARS):
    bars(ax, cells, *what)
simulated(axes[4], singles)
if counted:
    study.draw_table(axes[5], ["hardware"] + [name(c) for c in cells], [
        [label] + [style.short(c.value(m)) for c in cells] for m, label in counted.items()])
if missing:
    page.note(axes[-1], "%s: n/a: %s" % (", ".join(missing), why))
style.save(fig, result, STEM, "Prefill computes, decode reads: counted, estimated and simulated")
rows = [[m] + [style.short(c.value(m)) for c in cells] + ["; ".join(
    dict.fromkeys(c.why[m] for c in cells if c.why.get(m)))]
    for m in [b[0] for b in HARDWARE + BARS] + OTHERS + ["callgrind_ll_misses_per_tok"]]
study.write_table(STEM, ["metric"] + [name(c) for c in cells] + ["n/a because"], rows)
