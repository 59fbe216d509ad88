"""Many machines: their fundamental trees in numbers, and what the search makes of them."""

from lib import read, study, style

STEM = "topo_atlas"
HEADER = ["machine", "tree", "PUs", "by group", "by remove", "search s", "complete",
          "decode's plan", "rates"]


def row(c):
    plan = "%s x %s" % (style.number(c.value("n_ranks")), style.number(c.value("n_threads")))
    done = c.value("complete")
    return [study.setting(c, "machine").removesuffix(".xml"), str(c.attrs.get("notes.shape", "?")),
            style.number(c.value("n_pus")),
            style.number(c.value("n_grouped")), style.number(c.value("n_removes")),
            style.number(c.value("search_s"), "%.2f"),
            "n/a" if done != done else ("yes" if done else "no"), plan,
            str(c.attrs.get("notes.rates", "?"))]


result = read.latest(STEM)
table = [row(c) for c in result.cells]
fig, axes = style.panels(1)
study.draw_table(axes[0], HEADER, table)
style.save(fig, result, STEM, "Fundamental trees and the search for decode's cores, %d of %d machines%s; "
           "assumed rates: the plan is an illustration"
           % (len(table), result.n_all,
              "" if len(table) == result.n_all else " (the files of the others are not here)"))
study.write_table(STEM, HEADER, table)
