"""The lint of drawn figures reports each fault of a list of bad figures, with panel and texts, and nothing of
a good one. One line for each that it does not; exit status 1 if there is one."""

import re
import sys

sys.path.insert(0, "paper-figs")
from lib import lint, page, style  # noqa: E402


def good():
    """A figure of two panels without a fault: bars, one of them broken, and marks with an interval."""
    fig, (left, right) = style.plt.subplots(1, 2, figsize=(7, 4))
    fig.subplots_adjust(bottom=0.45, wspace=0.4)
    style.bar(left, 0, 2, "above", color=style.COLORS[0], label="ours")
    style.bar(left, 1, 300, "broken", limit=3, color=style.COLORS[0])
    style.bar(left, 2, -1, "below", color=style.COLORS[0])
    left.set(title="Left", ylim=(-2, 4), ylabel="s", xlabel="n")
    right.errorbar([1, 2], [3, 4], yerr=0.2, fmt="o", color=style.COLORS[1], label="marks")
    right.plot([], [], "o", color=page.GREY, label="of any colour")
    right.plot([], [], " ", label="a remark without a mark")
    right.axhline(3.5, color=page.GREY, ls="--", label="bound")
    right.set(title="Right", ylabel="s", xlabel="n")
    for ax in left, right:
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.25))
    fig.text(0.01, 0.01, "1\n2\n3\n4", fontsize=7)
    return fig, left, right


def legend(ax, *handles):
    ax.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, -0.25))


def names_at_an_angle(fig, left, right):
    left.set_xticks([0, 1], ["a very very long name " * 3, "short"], rotation=60)


def empty_panels(fig, left, right):
    for i in (1, 2):
        page.explain(fig.add_axes((0, i, 0.9, 0.9)), "no value")


def shows_nothing(fig, left, right):
    fig.add_axes((0.5, 0, 0.1, 0.1)).axis("off")


# What spoils the good figure, and the report.
BAD = [
    (lambda f, a, b: f.set_size_inches(7.5, 4), "the page is 7.5 inches wide"),
    (lambda f, a, b: f.set_size_inches(7, 11), "the page is 11.0 inches high"),
    (lambda f, a, b: [b.text(1.5, 3, w) for w in ("one text", "another text")],
     '"one text" overlaps "another text" in the panel Right'),
    (lambda f, a, b: a.text(2.2, 3.9, "a text that reaches over\nto the other scale"),
     '"a text that reaches over to the other scale" overlaps ".*" in the panel Left and Right'),
    (lambda f, a, b: b.text(2, 3, "cut off", clip_on=True), '"cut off" is cut off in the panel Right'),
    (lambda f, a, b: b.annotate("gone", (1, 9)), '"gone" is not drawn, its point is outside the panel Right'),
    (lambda f, a, b: f.text(0.95, 0.5, "too far to the right"), '"too far to the right" leaves the page$'),
    (lambda f, a, b: b.set_title("x" * 80), '"x*" leaves the page in the panel x*$'),
    (lambda f, a, b: b.text(1.5, 3.2, "small", fontsize=5), '"small" has 5 points'),
    (lambda f, a, b: b.text(1.5, 3.2, "13407971 ns"), '"13407971 ns" has seven digits'),
    (lambda f, a, b: f.texts[0].set_text("1\n2\n3\n4\n5"), '"1 2 3 4 5" .* has 5 lines, more than 4'),
    (lambda f, a, b: a.set_ylim(-2, 2.5), "a bar leaves the axis Left"),
    (lambda f, a, b: a.text(0, 1, "inside", ha="center"), '"inside" is on a bar of Left'),
    (lambda f, a, b: b.set_ylim(3.5, 5), "a value of .* leaves the panel Right"),
    (lambda f, a, b: b.set_ylim(2.9, 4.1), "a value of .* leaves the panel Right"),  # the end of an interval
    (lambda f, a, b: b.set(xscale="log") and b.plot(0, 3, "o"), "a value of .* leaves the panel Right"),
    (names_at_an_angle, 'very long name" at an angle is higher than half of its axis Left'),
    (lambda f, a, b: b.set_ylabel(""), "the axis with .* has no label in the panel Right"),
    (shows_nothing, "the axis without a title shows nothing and gives no reason"),
    (empty_panels, "2 of 4 panels show nothing, on more than half of the figure"),
    (lambda f, a, b: b.legend(loc="center"), 'the legend with ".*" is on data'),
    (lambda f, a, b: legend(b, *[style.plt.Line2D([], [], ls="", label="remark %d" % i) for i in range(20)]),
     'the legend with "remark 0" is higher than the panel Right'),
    (lambda f, a, b: legend(b, style.plt.Line2D([], [], marker="D", ls="", color="#222222", label="theirs")),
     'the key "theirs" is of nothing that is drawn in the panel Right'),
    (lambda f, a, b: legend(b, style.plt.Line2D([], [], color=page.GREY, ls=":", label="dotted")),
     'the key "dotted" is of nothing that is drawn in the panel Right'),
    (lambda f, a, b: legend(a, style.plt.Rectangle((0, 0), 1, 1, color=style.COLORS[3], label="others")),
     'the key "others" is of nothing that is drawn in the panel Left'),
    (lambda f, a, b: legend(a, style.plt.Rectangle((0, 0), 1, 1, fc=style.COLORS[0], hatch="///", label="hatched")),
     'the key "hatched" is of nothing that is drawn in the panel Left'),
    (lambda f, a, b: f.legend(handles=[style.plt.Line2D([], [], color="#123456", label="of all")], loc="lower right"),
     'the key "of all" is of nothing that is drawn in the figure'),
]
wrong = ["a good figure: %s" % fault for fault in lint.faults(good()[0])]
for spoil, report in BAD:
    fig, left, right = good()
    spoil(fig, left, right)
    found = lint.faults(fig)
    if not any(re.search(report, fault) for fault in found):
        wrong.append("%s: expected, found %s" % (report, found))
    style.plt.close(fig)
print("\n".join(wrong))
sys.exit(bool(wrong))
