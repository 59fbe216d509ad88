"""The search on machines whose parameters are known: gaps to the best, groups claimed, cores kept."""

from lib import read, study, style

STEM = "topo_hidden_truth"


def name(machine):
    if machine.startswith("random:"):
        return "hidden\n%.0f %%" % (100 * float(machine[len("random:"):]))
    return machine.replace("x2", "\nx2").replace("x4", "\nx4")


result = read.latest(STEM)
machines = study.settings(result.cells, "machine")
of = {m: study.where(result.cells, machine=m) for m in machines}
fig, axes = style.panels(3, width=5.4)
for ax in axes:
    ax.set_ylabel("share")
for i, machine in enumerate(machines):
    gaps = study.finite([c.value("gap_frac") for c in of[machine]])
    axes[0].plot([i] * len(gaps), gaps, "o", ms=4, alpha=0.6, color=style.COLORS[0])
    latent = study.mean([c.value("latent") for c in of[machine]])
    gain = study.mean([c.value("gain_of_groups") for c in of[machine]])
    style.bar(axes[1], i - 0.2, latent, style.percent(latent), width=0.38, color=style.COLORS[0],
              label="claimed to pay" if i == 0 else None)
    paying = [float(c.value("gain_of_groups") > 0.02) for c in of[machine]
              if c.value("gain_of_groups") == c.value("gain_of_groups")]
    style.bar(axes[1], i + 0.2, study.mean(paying), style.percent(study.mean(paying)), width=0.38,
              color=style.COLORS[1], label="gains over 2 % without noise" if i == 0 else None)
    for k, (metric, label) in enumerate([("kept_frac", "found"), ("best_kept_frac", "best")]):
        v = study.finite([c.value(metric) for c in of[machine]])
        axes[2].plot([i + 0.2 * (k - 0.5)] * len(v), v, "os"[k], ms=4, alpha=0.6,
                     color=style.COLORS[k], label=label if i == 1 else None)
axes[0].axhline(0.02, color=style.GREY, lw=1, ls="--")
axes[0].set_title("Slower than the best there is")
axes[1].set_title("Machines where a group is claimed to pay")
axes[2].set_title("Cores kept of a hidden cluster")
for ax in axes:
    ax.set_xticks(range(len(machines)), [name(m) for m in machines], fontsize=6.5)
    style.percent_axis(ax.yaxis)
    ax.margins(y=0.15)
axes[0].yaxis.set_major_formatter(lambda v, _: "%.1f %%" % (100 * v))
for ax in axes[1:]:
    style.legend_below(ax, ncols=2)
style.save(fig, result, STEM, "Searching machines whose parameters are known; dots: seeds")
HEADER = ["machine", "n", "within 2 %", "largest gap", "latent", "groups gain", "kept", "best kept"]
study.write_table(STEM, HEADER, [
    [machine, len(of[machine]), style.percent(study.mean([c.value("within_2pct") for c in of[machine]])),
     "%.2f %%" % (100 * max(study.finite([c.value("gap_frac") for c in of[machine]]), default=float("nan")))]
    + [style.percent(study.mean([c.value(m) for c in of[machine]]))
       for m in ("latent", "gain_of_groups", "kept_frac", "best_kept_frac")] for machine in machines])
