"""The share of published numbers inside the intervals that were predicted for them, and their width."""

from lib import read, study, style

STEM = "prediction_calibration"
LEVELS = [50, 80, 95]
CURVES = [("known", "none", "machine with records"), ("new", "none", "machine without any record"),
          ("known", "halved", "control: half the width"), ("known", "exchanged", "control: numbers exchanged")]
USUAL = {"predictor": "narrowest", "pool": "unit"}

result = read.latest(STEM)


def value(metric, **where):
    here = study.where(result.cells, **where)
    return here[0].value(metric) if here else float("nan")


fig, axes = style.rows(1, 1)
ax = axes[0]
ax.plot(LEVELS, LEVELS, color="0.6", linewidth=1, label="as they say")
for k, (machine, control, label) in enumerate(CURVES):
    shares = [100 * value("inside_%d" % n, machine=machine, control=control, numbers="seen", **USUAL) for n in LEVELS]
    ax.plot(LEVELS, shares, marker="o", color=style.COLORS[k], label=label)
ax.set_xticks(LEVELS)
ax.set(title="Numbers that another host has", xlabel="interval (%)", ylabel="numbers inside (%)", ylim=(0, 102))
style.legend_below(ax)
ax = axes[1]
for k, (machine, numbers) in enumerate([("known", "seen"), ("known", "all"), ("new", "seen"), ("new", "all")]):
    for i, n in enumerate(LEVELS):
        v = value("half_%d" % n, machine=machine, numbers=numbers, control="none", **USUAL)
        style.bar(ax, k + 0.28 * (i - 1), v, "<0.001" if v < 0.001 else style.short(v), width=0.26, color=style.COLORS[i],
                  label="%d %%" % n if k == 0 else None)
ax.set_xticks(range(4), ["known,\nseen", "known,\nall", "new,\nseen", "new,\nall"])
ax.set(title="Half of the intervals are within", xlabel="machine, numbers", ylabel="to each side (%)", yscale="log")
style.legend_below(ax)
style.save(fig, result, STEM, "Predictions from other hosts' records: a retrospective")
METRICS = ["inside_50", "inside_80", "inside_95", "narrow_frac", "half_50", "half_80", "half_95", "n_headlines",
           "n_experiments", "n_experiments_two", "n_machines"]
AXES = ["predictor", "machine", "numbers", "pool", "control"]
rows = []
for cell in result.cells:
    here = {a: study.setting(cell, a) for a in AXES}
    if here["control"] != "none" and here["predictor"] != "narrowest":
        continue
    rows.append([here[a] for a in AXES] + [style.number(cell.value(m), "%.3g") for m in METRICS])
study.write_table(STEM, AXES + [m.replace("_", " ") for m in METRICS], rows)
