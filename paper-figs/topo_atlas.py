"""Many machines: their fundamental trees in numbers, what the search makes of them, and what the
search costs compared with the paper's range."""

from lib import page, read, reference, study, style, table

STEM = "topo_atlas"
HEADER = ["machine", "tree", "PUs", "by group", "by remove", "group ms", "search ms", "measuring s",
          "complete", "decode's plan", "rates"]
COSTS = [("group_s", "making the trees by group"), ("search_s", "the whole search, on this host"),
         ("measuring_s", "its measurements, on the machine itself (simulated)")]


def name(c):
    return study.setting(c, "machine").removesuffix(".xml")


def row(c):
    plan = "%s x %s" % (style.number(c.value("n_ranks")), style.number(c.value("n_threads")))
    done = c.value("complete")
    return [name(c), str(c.attrs.get("notes.shape", "?")),
            style.number(c.value("n_pus")),
            style.number(c.value("n_grouped")), style.number(c.value("n_removes")),
            style.number(1e3 * c.value("group_s"), "%.3f"), style.number(1e3 * c.value("search_s"), "%.1f"),
            style.short(c.value("measuring_s")),
            "n/a" if done != done else ("yes" if done else "no"), plan,
            str(c.attrs.get("notes.rates", "?"))]


result = read.latest(STEM)
rows = [row(c) for c in result.cells]
fig, axes = style.rows(1, 1)
SHOWN = [i for i, h in enumerate(HEADER) if h not in ("group ms", "search ms", "measuring s", "complete")]
table.draw(axes[0], [HEADER[i] for i in SHOWN], [[r[i] for i in SHOWN] for r in rows])
page.height(axes[1], 0.3 + 0.07 * len(rows))
least, most = (reference.value("sandwich", "Sec. 5.2", "time of the search by group, " + w)
               for w in ("least", "most"))
axes[1].axvspan(least, most, color="#e8e8e8", label="the paper's search by group, %g to %g s" % (least, most))
for k, (metric, label) in enumerate(COSTS):
    found = [(c.value(metric), i) for i, c in enumerate(result.cells) if c.value(metric) > 0]
    axes[1].plot([v for v, _ in found], [i for _, i in found], "os^"[k], color=style.COLORS[k],
                 label=label)
axes[1].set_xscale("log")
axes[1].set_ylim(max(1, len(result.cells)) - 0.5, -0.5)
axes[1].set_yticks(range(0, len(result.cells), 2), [name(c) for c in result.cells[::2]])
axes[1].set_title("What the search costs, machines as above")
axes[1].set_xlabel("time (s)")
style.legend_below(axes[1])
style.save(fig, result, STEM, "Fundamental trees and the search for decode's cores, %d of %d machines%s; "
           "assumed rates: the plan is an illustration"
           % (len(rows), result.n_all,
              "" if len(rows) == result.n_all else " (the files of the others are not here)"))
table.write(STEM, HEADER, rows)
