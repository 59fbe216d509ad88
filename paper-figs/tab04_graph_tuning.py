"""Sandwich Table 4, first half: what the search for cores costs."""

from lib import read, study, style

STEM = "tab04_graph_tuning"
HEADER = ["machine", "model", "trace", "phase", "measurements", "measuring s", "search s",
          "trees", "ranks x threads", "tok/s"]


def row(c):
    return [study.setting(c, n) for n in ("machine", "model", "fit", "phase")] + [
        style.number(c.value("n_measurements")), style.short(c.value("measuring_s")),
        style.number(c.value("search_s"), "%.2f"), style.number(c.value("n_trees")),
        "%s x %s" % (style.number(c.value("n_ranks")), style.number(c.value("n_threads"))),
        style.short(c.value("tokens_per_s"))]


result = read.latest(STEM)
table = [row(c) for c in result.cells]
fig, axes = style.panels(1, width=10.5, height=0.9 + 0.29 * (len(table) + 1))
study.draw_table(axes[0], HEADER, table)
style.save(fig, result, STEM, "What the search for cores costs; measuring s: on the simulated "
           "machine itself (Sandwich Table 4)")
study.write_table(STEM, HEADER, table)
