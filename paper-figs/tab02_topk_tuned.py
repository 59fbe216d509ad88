"""Sandwich Table 2 on this host: what tuning and replaying more configurations costs and gives."""

from lib import read, study, style

STEM = "tab02_topk_tuned"

result = read.latest(STEM)
cells = sorted(result.cells, key=lambda c: study.setting(c, "k"))
ks = [study.setting(c, "k") for c in cells]
fig, (spent, gain, tries) = style.panels(3)

for i, c in enumerate(cells):
    style.bar(spent, i, c.value("spent_s"), style.short(c.value("spent_s")), width=0.6,
              color=style.COLORS[0])
    style.bar(gain, i, c.value("gain_frac"), style.number(100 * c.value("gain_frac"), "%.1f", " %"), width=0.6,
              color=style.COLORS[2])
for ax, title, unit in ((spent, "Search, tuning and replay", "s"),
                        (gain, "Fastest of the k, over the first", "faster by")):
    ax.set_xticks(range(len(ks)), ks)
    ax.set_xlabel("k (configurations)")
    ax.set_title(title)
    ax.set_ylabel(unit)
    ax.margins(y=0.2)
style.percent_axis(gain.yaxis)

# What was tried with the largest k, in turn.
done = [c for c in cells if len(c.series.get("try_s", []))]
if done:
    series = done[-1].series
    for tuned, marker, label in ((0, "o", "default schedules"), (1, "D", "tuned")):
        points = [(c, 1e3 * s) for c, s, t in zip(series["try_config"], series["try_s"],
                                                  series["try_tuned"]) if t == tuned]
        tries.plot([c for c, _ in points], [ms for _, ms in points], marker, label=label,
                   color=style.COLORS[5 - 4 * tuned])
    tries.set_xticks(sorted(set(int(c) for c in series["try_config"])))
    tries.set_title("All that was tried, k = %s" % study.setting(done[-1], "k"))
    style.legend_below(tries)
else:
    style.na(tries)
tries.set_xlabel("configuration")
tries.set_ylabel("ms of a request")
tries.margins(0.2)
style.save(fig, result, STEM, "Configurations tuned and replayed (Sandwich Table 2)")
HEADER = ["k", "configurations", "spent s", "request ms", "fastest over the first", "at least",
          "tuning gains"]
study.write_table(STEM, HEADER, [
    [study.setting(c, "k"), style.number(c.value("n_configs")), style.short(c.value("spent_s")),
     style.short(1e3 * c.value("request_s"))] +
    [style.number(100 * c.value(m), "%.2f", " %") for m in ("gain_frac", "gain_lo_frac", "tuning_gain_frac")]
    for c in cells])
