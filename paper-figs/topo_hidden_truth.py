"""The search on machines whose parameters are known, by what they hide: how often a plan is within
2 % of the best known, by how much the search misses it, and where it claims a hidden level; and the
paper's search by what the paper leaves open of it."""

from lib import page, read, study, style, table

STEM = "topo_hidden_truth"
WAYS = [("", "search"), ("_trees", "trees alone"), ("_no_group", "trees without groups"),
        ("_random", "random trees"), ("_paper", "the paper's search"), ("_all_cores", "all cores, one rank"),
        ("_one_rank_per_node", "one rank per memory node")]
PATIENCES = [("_patience_1", "1"), ("_patience_3", "3"), ("_patience_10", "10"), ("_patience_30", "30"),
             ("", "never stops")]
PAPER = [("_paper", "any improvement counts"), ("_paper_margin_2", "an improvement of twice the noise")]
NAMES = {"untiled": "clusters do not tile", "unequal": "clusters of two sizes",
         "nested": "clusters in clusters", "crossed": "crossed clusters",
         "slow_node": "one slow node", "links": "unequal links", "noisy": "clusters, much noise"}


def name(machine):
    kind, _, strength = machine.partition(":")
    if kind == "tiled" and float(strength) == 0:
        return "nothing hidden"
    if kind == "tiled":
        return "tiled clusters, -%.0f %%" % (100 * float(strength))
    return NAMES.get(kind, kind)


def share(ax, y, values, **kw):
    """The share of ones with Wilson's 95 % interval."""
    v = study.finite(values)
    if v:
        (lo, hi), p = study.wilson95(sum(v), len(v)), sum(v) / len(v)
        ax.errorbar(p, y, xerr=[[max(0, p - lo)], [max(0, hi - p)]], ls="", ms=4, lw=1, **kw)


def text(values):
    v = study.finite(values)
    return "%.0f %% [%.0f, %.0f]" % (100 * sum(v) / len(v), *(
        100 * end for end in study.wilson95(sum(v), len(v)))) if v else "n/a"


result = read.latest(STEM)
machines = study.settings(result.cells, "machine")
rows = []
fig, axes = style.rows(3, 1)
for y, machine in enumerate(machines):
    cells = study.where(result.cells, machine=machine)
    of = {m: [c.value(m) for c in cells] for m in
          ["within_2pct" + way for way, _ in WAYS] + ["gap_frac", "gap_of_trees_frac", "latent"]}
    pays = [float(gain > 0.02) for gain in study.finite([c.value("gain_of_groups") for c in cells])]
    for k, (way, label) in enumerate(WAYS):
        share(axes[0], y + 0.11 * (k - 3), of["within_2pct" + way], marker="osv^D*P"[k],
              color=style.COLORS[k % 6], label=label if y == 0 else None)
    gaps, lost = study.finite(of["gap_frac"]), study.finite(of["gap_of_trees_frac"])
    axes[1].plot(gaps, [y - 0.12] * len(gaps), "o", ms=4, alpha=0.5, color=style.COLORS[0],
                 label="the plan found" if y == 0 else None)
    axes[1].plot(lost, [y + 0.12] * len(lost), "o", ms=4, alpha=0.6, mfc="none",
                 color=style.COLORS[1], label="the best that trees can express" if y == 0 else None)
    share(axes[2], y - 0.12, of["latent"], marker="o", color=style.COLORS[0],
          label="the search reports a level" if y == 0 else None)
    share(axes[2], y + 0.12, pays, marker="o", mfc="none", color=style.COLORS[1],
          label="groups gain over 2 %" if y == 0 else None)
    rows.append([name(machine), len(cells)] + [text(of["within_2pct" + way]) for way, _ in WAYS] + [
        style.percent(max(gaps, default=float("nan"))), style.percent(max(lost, default=float("nan"))),
        text(of["latent"]), text(pays), style.percent(study.mean([c.value("kept_frac") for c in cells])),
        style.percent(study.mean([c.value("best_kept_frac") for c in cells]))])
for ax in axes[:3]:
    page.height(ax, 0.3 + 0.25 * len(machines))
    ax.set_ylim(len(machines) - 0.5, -0.5)
    ax.set_yticks(range(len(machines)), [name(m) for m in machines] if ax is axes[0] else [])
    style.percent_axis(ax.xaxis)
    style.legend_below(ax)
axes[1].axvline(0.02, color=style.GREY, lw=1, ls="--")
axes[1].set_xscale("symlog", linthresh=0.02)
axes[1].set_xlim(-0.002, 2)
axes[1].set_xticks([0, 0.01, 0.02, 0.1, 0.5], ["0", "1 %", "2 %", "10 %", "50 %"])
for ax, title, label in zip(axes, ["Within 2 % of the best", "Slower than the best plan known by",
                                   "A hidden level"],
                            ["share of machines, 95 % interval", "time of a step, each dot a machine",
                             "share of machines, 95 % interval"]):
    ax.set_title(title)
    ax.set_xlabel(label)

random_machines = [m for m in machines if ":" in m]
for k, (tiled, of) in enumerate([(True, "tiled"), (False, "other")]):
    cells = [c for m in random_machines if m.startswith("tiled") == tiled
             for c in study.where(result.cells, machine=m)]
    for n, (way, label) in enumerate(PAPER):
        xs = [x + 0.04 * (2 * k + n - 1.5) for x in range(len(PATIENCES))]
        of_way = [study.finite([c.value("within_2pct" + way + end) for c in cells]) for end, _ in PATIENCES]
        points = [sum(v) / len(v) if v else float("nan") for v in of_way]
        ends = [study.wilson95(sum(v), len(v)) if v else (p, p) for v, p in zip(of_way, points)]
        axes[3].errorbar(xs, points, yerr=[[max(0, p - lo) for p, (lo, _) in zip(points, ends)],
                                           [max(0, hi - p) for p, (_, hi) in zip(points, ends)]],
                         marker="os"[n], ls=style.LINES[k], color=style.COLORS[n], lw=1, ms=4,
                         mfc=None if tiled else "none", label="%s, %s machines" % (label, of))
axes[3].set_xticks(range(len(PATIENCES)), [word for _, word in PATIENCES])
axes[3].set_title("The paper's search, within 2 % of the best")
axes[3].set_xlabel("patience: configurations in a row that are not the fastest, then their group is discarded")
axes[3].set(ylabel="share of machines", ylim=(0, 1.05))
style.percent_axis(axes[3].yaxis)
style.legend_below(axes[3])
style.save(fig, result, STEM, "Searching machines whose parameters are known, by what they hide")
HEADER = ["hidden", "n"] + [label for _, label in WAYS] + [
    "largest gap", "largest gap of trees", "level reported", "groups gain over 2 %", "kept", "best kept"]
table.write(STEM, HEADER, rows)
