"""Sandwich Fig. 5: the fundamental tree, a group, a remove; drawn from the recorded trees."""

from lib import read, study, style, trees

STEM = "fig05_transformations"

result = read.latest(STEM)
fig, axes = style.panels(max(1, len(result.cells)), columns=1)
for ax, c in zip(axes, result.cells):
    ax.set_title({"": "fundamental tree", "found": "found by the search"}.get(
        study.setting(c, "steps"), study.setting(c, "steps")))
    trees.draw(ax, c)
style.save(fig, result, STEM, "TopoTrees; hollow: removed; wide levels are drawn in part "
           "(Sandwich Fig. 5)")
HEADER = ["steps", "levels", "PUs", "trees by group", "trees by remove"]
study.write_table(STEM, HEADER, [
    [study.setting(c, "steps") or "-"] + [style.number(c.value(m)) for m in
     ("n_levels", "n_pus", "n_grouped", "n_removes")] for c in result.cells])
