"""What a transfer adds to the second token by prompt, and to requests of coding."""

from lib import cluster, read, reference, study, style

STEM = "splitwise_fig14_15_transfer"
WAYS = {1 << 30: "serial", 0: "layer by layer", 512: "as Splitwise chooses"}
BASE = {"Splitwise-AA": "Baseline-A100", "Splitwise-HH": "Baseline-H100"}

result = read.latest(STEM)
designs = [d for d in cluster.designs(result.cells) if d in BASE]
ways = [w for w in WAYS if w in study.settings(result.cells, "layer_wise_tok")]
fig, axes = style.panels(len(designs) + 2, 2)
for ax, d in zip(axes, designs):
    ax.set_title(d)
    for i, w in enumerate(ways):
        cells = [c for c in study.where(result.cells, design=d, layer_wise_tok=w) if c.setting("study.prompt_tok")]
        cluster.line(ax, cells, "prompt_tok", "second_extra_ms", color=style.COLORS[i], label=WAYS[w],
                     ls=style.LINES[i])
    machine = BASE[d][-4:]
    ours = [c.value("second_extra_ms") for c in study.where(result.cells, design=d, layer_wise_tok=0)]
    reference.mark(ax, [1500], [reference.value("splitwise", "Fig. 14", "transfer that is not overlapped, around",
                                                machine=machine)], "splitwise", "Fig. 14", ours, machine)
    ax.set_ylim(bottom=0)
    ax.set_xlabel("prompt, tokens")
    ax.set_ylabel("added to the second token, ms")
for ax, (metric, name) in zip(axes[len(designs):], (("max_gap_ms", "second token"), ("e2e_mean_ms", "E2E, mean"))):
    ax.set_title("Coding: %s" % name)
    for x, d in enumerate(designs):
        base = cluster.mean(study.where(result.cells, design=BASE[d], prompt_tok=0), metric)
        for i, w in enumerate(ways):
            v = 100 * (cluster.mean(study.where(result.cells, design=d, prompt_tok=0, layer_wise_tok=w), metric) / base - 1)
            style.bar(ax, x + 0.27 * (i - 1), v, style.number(v, "%.1f"), width=0.25,
                      color=style.COLORS[i], label=WAYS[w] if x == 0 else None)
    ax.set_xticks(range(len(designs)), designs)
    ax.margins(y=0.2)
    ax.set_ylabel("more than on one machine, %")
cluster.legend(fig, axes)
style.save(fig, result, STEM, "The transfer of keys and values, without batching (Splitwise Figs 14 and 15)")
METRICS = ["second_extra_ms", "max_gap_ms", "ttft_p50_ms", "e2e_mean_ms"]
study.write_table(STEM, ["design", "transfer", "prompt, tokens"] + [m.replace("_", " ") for m in METRICS],
                  [[study.setting(c, "design"), WAYS.get(study.setting(c, "layer_wise_tok"), "other"),
                    "%g" % study.setting(c, "prompt_tok") if study.setting(c, "prompt_tok") else "of the trace"]
                   + [style.number(c.value(m), "%.4g") for m in METRICS] for c in result.cells])
