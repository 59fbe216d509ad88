"""Sandwich Table 3: the tuner's window and the run of like choices that freezes it, what they cost
and give, with the spread of chance."""

from lib import read, reference, study, style

STEM = "tab03_window"
# metric, title, unit, as the paper's table has it, the same with the default schedules
PANELS = [("tuning_s", "Tuning time", "s", "tuning time", None),
          ("n_measurements", "Measurements", "schedules measured", None, None),
          ("n_frozen", "Frozen", "shapes without a search", None, None),
          ("ttft_ms", "TTFT, tuned schedules loaded", "ms", "TTFT", "ttft_ms_default"),
          ("ttft_gain", "TTFT, default / tuned", "x", None, None),
          ("tok_s", "Output, tuned schedules loaded", "tok/s", "throughput", "tok_s_default")]
PRINTED = ("tuning time", "TTFT", "throughput")


def panel(ax, cells, metric, printed, default):
    sigmas, freezes = (study.settings(cells, n) for n in ("sigma", "freeze"))
    for k, freeze in enumerate(freezes):
        shift = 0.6 * ((k + 0.5) / len(freezes) - 0.5)
        for x, sigma in enumerate(sigmas):
            v = study.finite([c.value(metric) for c in study.where(cells, sigma=sigma, freeze=freeze)])
            ax.plot([x + shift] * len(v), v, "o", ms=3, alpha=0.6, color=style.COLORS[k])
            ax.plot([x + shift], [study.mean(v)], "_", ms=9, mew=2, color=style.COLORS[k],
                    label="freeze after %s" % freeze if x == 0 else None)
    ours = study.finite([c.value(metric) for c in cells])
    base = study.mean([c.value(default) for c in cells]) if default else float("nan")
    if study.finite([base]):
        ax.axhline(base, color=style.GREY, ls="--", lw=1, label="default schedules")
    if metric == "ttft_gain":
        ax.axhline(1, color=style.GREY, lw=0.8)
    elif ours:
        ax.set_ylim(0, 1.12 * max(ours + study.finite([base])))
    marks = [(sigmas.index(at["rho"]), v) for v, at in
             reference.values("sandwich", "Table 3", printed) if at["rho"] in sigmas] if printed else []
    if marks and ours:
        reference.mark(ax, *zip(*marks), "sandwich", "Table 3", ours)
    ax.set_xticks(range(len(sigmas)), sigmas)
    ax.set_xlim(-0.6, len(sigmas) - 0.4)


result = read.latest(STEM)
fig, axes = style.panels(len(PANELS), columns=2)
for ax, (metric, title, unit, printed, default) in zip(axes, PANELS):
    panel(ax, result.cells, metric, printed, default)
    ax.set(title=title, ylabel=unit, xlabel="window (shapes)")
    style.legend_below(ax)
style.save(fig, result, STEM, "The tuner's window and its freezing; dots: draws of M, bar: mean "
           "(Sandwich Table 3)")
rows = []
for sigma in study.settings(result.cells, "sigma"):
    for freeze in study.settings(result.cells, "freeze"):
        cells = study.where(result.cells, sigma=sigma, freeze=freeze)
        row = [sigma, freeze, len(cells)]
        for metric, *_ in PANELS:
            v = study.finite([c.value(metric) for c in cells])
            row.append("%s (%s to %s)" % tuple(map(style.short, (study.mean(v), min(v), max(v))))
                       if v else "n/a")
        rows.append(row + [style.number(reference.value("sandwich", "Table 3", m, rho=sigma), "%.2f")
                           for m in PRINTED])
study.write_table(STEM, ["window", "freeze", "draws", "tuning s", "measurements", "frozen", "TTFT ms",
                         "TTFT default / tuned", "tok/s", "paper: tuning s", "paper: TTFT ms",
                         "paper: tok/s"], rows)
