"""What the search finds of a known truth: gaps to the best, clusters called latent, cores kept."""

from lib import read, study, style

STEM = "topo_hidden_truth"


def name(truth):
    try:
        return "hidden\n%.0f %%" % (100 * float(truth))
    except ValueError:
        return str(truth).replace("x2", "\nx2").replace("x4", "\nx4")


result = read.latest(STEM)
truths = study.settings(result.cells, "truth")
of = {t: study.where(result.cells, truth=t) for t in truths}
fig, axes = style.panels(3, width=5.4)
for i, t in enumerate(truths):
    gaps = study.finite([c.value("gap_frac") for c in of[t]])
    axes[0].plot([i] * len(gaps), gaps, "o", ms=4, alpha=0.6, color=style.COLORS[0])
    latent = study.mean([c.value("latent") for c in of[t]])
    gain = study.mean([c.value("gain_of_groups") for c in of[t]])
    style.bar(axes[1], i - 0.2, latent, style.percent(latent), width=0.38, color=style.COLORS[0],
              label="said to pay" if i == 0 else None)
    paying = [float(c.value("gain_of_groups") > 0.02) for c in of[t]
              if c.value("gain_of_groups") == c.value("gain_of_groups")]
    style.bar(axes[1], i + 0.2, study.mean(paying), style.percent(study.mean(paying)), width=0.38,
              color=style.COLORS[1], label="gains over 2 % in truth" if i == 0 else None)
    for k, (metric, label) in enumerate([("kept_frac", "found"), ("best_kept_frac", "best")]):
        v = study.finite([c.value(metric) for c in of[t]])
        axes[2].plot([i + 0.2 * (k - 0.5)] * len(v), v, "os"[k], ms=4, alpha=0.6,
                     color=style.COLORS[k], label=label if i == 1 else None)
axes[0].axhline(0.02, color=style.GREY, lw=1, ls="--")
axes[0].set_title("Slower than the best there is")
axes[1].set_title("Machines where a group is said to pay")
axes[2].set_title("Cores kept of a hidden cluster")
for ax in axes:
    ax.set_xticks(range(len(truths)), [name(t) for t in truths], fontsize=6.5)
    style.percent_axis(ax.yaxis)
    ax.margins(y=0.15)
axes[0].yaxis.set_major_formatter(lambda v, _: "%.1f %%" % (100 * v))
for ax in axes[1:]:
    style.legend_below(ax, ncols=2)
style.save(fig, result, STEM, "Searching machines whose truth is known; dots: seeds")
HEADER = ["truth", "machines", "within 2 %", "largest gap", "latent", "groups gain", "kept", "best kept"]
study.write_table(STEM, HEADER, [
    [t, len(of[t]), style.percent(study.mean([c.value("within_2pct") for c in of[t]])),
     "%.2f %%" % (100 * max(study.finite([c.value("gap_frac") for c in of[t]]), default=float("nan")))]
    + [style.percent(study.mean([c.value(m) for c in of[t]]))
       for m in ("latent", "gain_of_groups", "kept_frac", "best_kept_frac")] for t in truths])
