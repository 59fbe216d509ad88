"""Errors of performance models: rows with repeats among the fitted ones, unseen points and steps, and beyond them."""

from lib import read, reference, study, style

STEM = "splitwise_perf_models"
SEEN = [("rows", "rows, 80:20"), ("points", "points, 80:20"), ("step", "one step left out")]
BEYOND = [("batch_prompt", "prompts:\nbatches"), ("long_prompt", "prompts:\n> 2,048"),
          ("batch_token", "tokens:\nbatch > 16"), ("context_token", "tokens:\nlong context")]


def name(source):
    """"Llama A 2" of "llama2-70b:a100-80gb:2"."""
    model, hardware, n = (source.split(":") + ["", ""])[:3]
    return "%s\n%s x%s" % (model.split("-")[0], hardware.split("-")[0], n) if n else source


def unseen(ax, cells, what):
    ax.set_title("%ss, table" % what.capitalize())
    for x, c in enumerate(cells):
        for i, (stem, label) in enumerate(SEEN):
            v = c.value("%s_%s_mape" % (stem, what))
            style.bar(ax, x + 0.27 * (i - 1), v, style.number(v, "%.1f"), width=0.25, color=style.COLORS[i],
                      label=label if x == 0 else None)
    ax.axhline(reference.value("splitwise", "Sec. V-B", "MAPE of the performance model, less than"),
               color=style.GREY, ls="--", lw=1, label="3 %: the paper")
    ax.set_xticks(range(len(cells)), [name(study.setting(c, "source")) for c in cells])
    ax.set_ylabel("mean absolute error, %")
    ax.set_ylim(bottom=0)
    style.legend_below(ax)


def beyond(ax, cells):
    ax.set_title("Beyond what was fitted, mean of the configurations")
    for i, perf in enumerate(study.settings(cells, "perf")):
        of = study.where(cells, perf=perf)
        for x, (stem, _) in enumerate(BEYOND):
            v = study.mean([c.value(stem + "_mape") for c in of])
            style.bar(ax, x + 0.4 * (i - 0.5), v, style.number(v, "%.0f"), width=0.38, color=style.COLORS[i],
                      label=perf if x == 0 else None)
    ax.set_xticks(range(len(BEYOND)), [label for _, label in BEYOND])
    ax.set_ylabel("mean absolute error, %")
    ax.set_ylim(bottom=0)
    style.legend_below(ax)


def typical(ax, cells):
    ax.set_title("Unseen points, mean of the configurations")
    for i, perf in enumerate(study.settings(cells, "perf")):
        for x, what in enumerate(("prompt", "token")):
            v = study.mean([c.value("points_%s_mape" % what) for c in study.where(cells, perf=perf)])
            style.bar(ax, x + 0.4 * (i - 0.5), v, style.number(v, "%.1f"), width=0.38, color=style.COLORS[i],
                      label=perf if x == 0 else None)
    ax.set_xticks([0, 1], ["prompts", "tokens"])
    ax.set_ylabel("mean absolute error, %")
    ax.set_ylim(bottom=0)
    style.legend_below(ax)


result = read.latest(STEM)
kept = study.where(result.cells, keep="one_batch") or result.cells
fig, axes = style.rows(1, 1, 2)
unseen(axes[0], study.where(kept, perf="table"), "prompt")
unseen(axes[1], study.where(kept, perf="table"), "token")
typical(axes[2], kept)
beyond(axes[3], kept)
style.save(fig, result, STEM, "Performance models on what they were not fitted on (Splitwise V-B)")
COLUMNS = ["rows_prompt", "rows_token", "points_prompt", "points_token", "step_prompt", "step_token"] + \
    [stem for stem, _ in BEYOND]
study.write_table(
    STEM, ["points", "model", "kept"] + [c.replace("_", " ") for c in COLUMNS] + ["not one batch"],
    [[study.setting(c, "source"), study.setting(c, "perf"), study.setting(c, "keep")]
     + [style.number(c.value(m + "_mape"), "%.1f") for m in COLUMNS]
     + [style.number(c.value("n_not_one_batch"), "%.0f")] for c in result.cells])
