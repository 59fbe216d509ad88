"""The variance of published numbers by where it comes from; the rounds, runs and hosts of an effect."""

from lib import read, study, style

STEM = "host_variance"
LEVELS = ["kind", "machine", "time", "order", "rest"]
LABELS = {"card": "machine\ncards", "times": "times", "ratios": "ratios"}
EFFECTS = ["2", "5", "10", "27"]
COUNTS = ["rounds", "runs", "hosts"]

result = read.latest(STEM)
names = study.settings(result.cells, "numbers")


def value(metric, **where):
    here = study.where(result.cells, **where)
    return here[0].value(metric) if here else float("nan")


fig, axes = style.rows(1, 1)
ax = axes[0]
groups = [(n, "published") for n in names] + [("ratios", v) for v in ("planted", "shuffled")]
below = [0.0] * len(groups)
for k, level in enumerate(LEVELS):
    shares = [value("share_" + level, numbers=n, values=v) for n, v in groups]
    shares = [s if s == s else 0.0 for s in shares]  # what a level cannot tell is in the one above
    ax.bar(range(len(groups)), shares, bottom=below, width=0.6, color=style.COLORS[k], label=level)
    below = [b + s for b, s in zip(below, shares)]
ax.set_xticks(range(len(groups)), [LABELS[n] + ("" if v == "published" else ",\n" + v) for n, v in groups])
ax.set(title="Shares of the variance", xlabel="numbers", ylabel="share")
style.legend_below(ax)
ax = axes[1]
for i, count in enumerate(COUNTS):
    for k, effect in enumerate(EFFECTS):
        v = value("%s_%s" % (count, effect), numbers="ratios", values="published")
        style.bar(ax, k + 0.28 * (i - 1), v, style.number(v, "%.0f"), width=0.26, color=style.COLORS[i],
                  label=count if k == 0 else None)
ax.set_xticks(range(len(EFFECTS)), [e + " %" for e in EFFECTS])
ax.set(title="What shows an effect on a ratio: rounds there and then, runs for a kind, hosts for any",
       xlabel="effect", ylabel="number", yscale="log")
style.legend_below(ax)
style.save(fig, result, STEM, "Where published numbers differ, and what a claim needs")
METRICS = ["sd_%s_frac" % n for n in LEVELS] + ["%s_%s" % (c, e) for c in COUNTS for e in EFFECTS] + [
    "planted_error_frac", "n_series", "n_values"]
study.write_table(STEM, ["numbers", "values"] + [m.replace("_", " ") for m in METRICS],
                  [[n, v] + [style.number(value(m, numbers=n, values=v), "%.3g") for m in METRICS]
                   for n in names for v in study.settings(result.cells, "values")])
