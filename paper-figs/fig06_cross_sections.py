"""Sandwich Fig. 6: the service configurations that the cross-sections of one tree give, and
which of them a model's operators allow."""

from lib import read, study, style, trees

STEM = "fig06_cross_sections"
HEADER = ["model", "cross-section", "ranks", "threads", "attention", "FFN", "ranks divide heads"]


def rows(cell):
    s, names = cell.series, [name for name, _, _ in trees.levels(cell)]
    out = [] if names else [[study.setting(cell, "model")] + ["n/a"] * 6]
    for i, name in enumerate(names):
        allowed = s["attention_imbalance"][i] > 0
        out.append([study.setting(cell, "model"), name, style.number(s["section_ranks"][i]),
                    style.number(s["section_threads"][i])] +
                   ["%.2f" % s[k][i] if allowed else "not possible"
                    for k in ("attention_imbalance", "ffn_imbalance")] +
                   ["yes" if s["allowed_strictly"][i] else "no"])
    return out


result = read.latest(STEM)
table = [row for c in result.cells for row in rows(c)]
fig, axes = style.panels(2, columns=1)
if result.cells:
    axes[0].set_title({"": "fundamental tree", "found": "the tree that the search finds"}.get(
        study.setting(result.cells[0], "steps"), study.setting(result.cells[0], "steps")))
    trees.draw(axes[0], result.cells[0])
else:
    style.na(axes[0])
study.draw_table(axes[1], HEADER, table)
style.save(fig, result, STEM, "Cross-sections of one tree; shares of the largest rank x ranks "
           "(Sandwich Fig. 6)")
study.write_table(STEM, HEADER, table)
