"""Prefill and decode by what the hardware counts, and by what arithmetic, the engine's own
account and a cache simulation say where it counts nothing."""

import math
import textwrap

from lib import read, study, style

STEM = "fig01_characterization"
HARDWARE = [("ipc", "IPC"), ("l3lpki", "L3LPKI"), ("dtlb_miss", "DTLBMiss"), ("rar", "RAR"),
            ("mclpki", "MCLPKI"), ("mcipki", "MCIPKI"), ("buspki", "BUSPKI")]
BARS = [("estimated_flop_per_byte", "FLOP/byte (estimated)", True), ("estimated_gbps", "GB/s (estimated)", False),
        ("estimated_gflops", "GFLOP/s (estimated)", False),
        ("estimated_cycles_per_tok", "Ticks of the constant clock\na token (estimated)", True)]
OTHERS = ["sde_steps", "sde_tok", "sde_weight_bytes", "sde_kv_bytes", "sde_flop", "sde_wait_s",
          "estimated_bytes_per_tok", "estimated_tick_ghz", "page_faults",
          "context_switches", "task_clock_s", "callgrind_instructions_per_tok", "callgrind_ll_mpki"]


def name(c):
    return "%s, batch %s" % (study.setting(c, "phase"), study.setting(c, "batch"))


def bars(ax, cells, metric, title, log=False):
    """One bar a cell, both phases in their colours; what is missing is n/a."""
    if log and study.finite([c.value(metric) for c in cells]):
        ax.set_yscale("log")
    phases = study.settings(cells, "phase")
    for i, c in enumerate(cells):
        v = c.value(metric)
        style.bar(ax, i, v, style.short(v) if v < 1e5 else "%.3g" % v, width=0.7,
                  color=style.COLORS[phases.index(study.setting(c, "phase"))])
    ax.set_xticks(range(len(cells)), ["%s\n%s" % (study.setting(c, "phase"), study.setting(c, "batch"))
                                      for c in cells], fontsize=8)
    ax.set_xlabel("phase, batch")
    ax.set_title(title)
    ax.margins(y=0.15)


def simulated(ax, cells):
    """Misses of the simulated last level compared with the cache lines of the weights."""
    bars(ax, cells, "callgrind_ll_misses_per_tok", "Lines from memory a token\n(simulated; small model)")
    for i, c in enumerate(cells):
        lines = c.value("callgrind_lines_per_tok")
        if not math.isnan(lines):
            ax.plot([i - 0.42, i + 0.42], [lines, lines], color=style.GREY, lw=1.4,
                    label="its weights (arithmetic)" if i == 0 else None)
    style.legend_below(ax, drop=0.7)


def reasons(cells):
    """Why hardware metrics are missing, each reason once."""
    found = [c.why[m] for c in cells for m, _ in HARDWARE
             if math.isnan(c.value(m)) and c.why.get(m)]
    return list(dict.fromkeys(found))


result = read.latest(STEM)
cells = sorted(result.cells, key=lambda c: (study.setting(c, "phase") != "prefill",
                                            study.setting(c, "batch")))
singles = study.where(cells, batch=1)
table = [[label] + [style.short(c.value(m)) for c in cells] for m, label in HARDWARE]
fig, axes = style.plt.subplots(2, 3, figsize=(15.5, 8.6))
study.draw_table(axes[0][0], ["hardware"] + [name(c).replace(", batch ", "\n") for c in cells], table)
for cell in axes[0][0].tables[0].get_celld().values() if axes[0][0].tables else []:
    cell.set_height(0.085)
why = reasons(cells)
if why:
    axes[0][0].text(0.5, 0.02, textwrap.fill("n/a: " + why[0], 70), transform=axes[0][0].transAxes, ha="center",
                    fontsize=7.5, color=style.GREY)
for ax, (metric, title, log) in zip([axes[0][1], axes[0][2], axes[1][0], axes[1][1]], BARS):
    bars(ax, cells, metric, title, log)
simulated(axes[1][2], singles)
style.save(fig, result, STEM, "Prefill computes, decode reads: counted, estimated and simulated")
rows = [[m] + [style.short(c.value(m)) for c in cells] + ["; ".join(
    dict.fromkeys(c.why[m] for c in cells if c.why.get(m)))]
    for m in [b[0] for b in HARDWARE + BARS] + OTHERS + ["callgrind_ll_misses_per_tok"]]
study.write_table(STEM, ["metric"] + [name(c) for c in cells] + ["n/a because"], rows)
