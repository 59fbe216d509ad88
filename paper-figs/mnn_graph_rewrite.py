"""MNN-LLM III: nodes of an exported decoder, and the bytes that its operators move, after each pass."""

from lib import read, study, style

STEM = "mnn_graph_rewrite"
PANELS = [("n_nodes", "Nodes", "nodes"), ("activation_mb", "Activations read and written", "MB"),
          ("n_copies", "Operators that only move elements", "operators")]

result = read.latest(STEM)
norms, steps = (study.settings(result.cells, n) for n in ("norm", "passes"))
names = {p: "file" if p == "none" else p if p == "all" else "+ " + p.split(",")[-1] for p in steps}
fig, axes = style.rows(1, 2)
for ax, (metric, title, unit) in zip(axes, PANELS):
    for i, n in enumerate(norms):
        v = [study.mean([c.value(metric) for c in study.where(result.cells, norm=n, passes=p)]) for p in steps]
        ax.plot(range(len(steps)), v, "o-", color=style.COLORS[i], label=n.replace("_", " "))
    ours = study.finite([c.value(metric) for c in result.cells])
    if not ours:
        style.na(ax, read.why(result.cells, metric))
    ax.set_xticks(range(len(steps)), [names[p].replace("_", "\n") for p in steps])
    ax.set(title=title, ylabel=unit, ylim=(0, 1.1 * max(ours + [1])))
    style.legend_below(ax)
style.save(fig, result, STEM, "What passes leave of an exported decoder, by the spelling of its normalisation")
study.write_table(STEM, ["spelling", "passes", "nodes", "operators", "copies", "MB", "MB copied"], [
    [study.setting(c, "norm"), names[study.setting(c, "passes")]] +
    [style.number(c.value(m)) for m in ("n_nodes", "n_operators", "n_copies", "activation_mb", "copied_mb")]
    for c in result.cells])
