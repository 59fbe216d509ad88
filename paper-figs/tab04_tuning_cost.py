"""Sandwich Table 4: what tuning the matrices of a layer costs, by policy and model."""

from lib import read, reference, study, style

STEM = "tab04_tuning_cost"


# As the paper's Table 4 names them.
MODELS = {"llama-160m": "Llama-160M", "sheared-llama-1.3b": "Sheared-LLaMA-1.3B",
          "llama-3-8b": "Llama-3-8B"}


def printed(model, policy):
    """The paper's range over machines and traces; only Sandwich's own cost is printed."""
    v = [v for v, _ in reference.values("sandwich", "Table 4", "kernel tuning time",
                                        model=MODELS.get(model))]
    return "%.0f to %.0f" % (min(v), max(v)) if v and policy == "sandwich" else "-"


def rows(cells):
    """A row for each model and policy, sums over the model's matrices."""
    out = []
    for model in dict.fromkeys(study.matrix_name(c).split("/")[0] for c in cells):
        of = [c for c in cells if study.matrix_name(c).split("/")[0] == model]
        for policy in str(study.setting(of[0], "policies")).split():
            def values(form):
                return [c.value(form + policy) for c in of]
            out.append([model, policy,
                        style.number(study.total(values("tuning_s_")), "%.3f"),
                        style.number(study.total(values("tuning_wall_s_")), "%.2f"),
                        style.number(study.total(values("measurements_"))),
                        style.number(study.geomean(values("speedup_")), "%.3f"),
                        style.short(study.geomean(values("gflops_"))),
                        printed(model, policy)])
    return out


HEADER = ["model", "policy", "measuring (s)", "wall (s)", "measurements", "speed-up", "GFLOP/s",
          "paper: s, every M"]
result = read.latest(STEM)
table = rows(result.cells)
fig, axes = style.panels(1)
study.draw_table(axes[0], HEADER, table)
style.save(fig, result, STEM, "Tuning a layer's matrices; speed-up over the cost model's schedules "
           "(Sandwich Table 4)")
study.write_table(STEM, HEADER, table)
