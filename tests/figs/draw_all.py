"""Draws figures from made-up results, each in a process of its own that finds the libraries loaded, and
prints a line of TAP for each check. Leaves FOLDER/STEM.h5, and the figures in FOLDER/a, FOLDER/b and,
without numbers, FOLDER/amissing. usage: draw_all.py FOLDER FIRST STEM..."""

import filecmp
import gc
import os
import re
import sys

sys.path[:0] = ["paper-figs", "tests/figs"]
from lib import draw  # noqa: E402
import made_up_studies  # noqa: E402, F401

folder, n = sys.argv[1], int(sys.argv[2])
log = os.path.join(folder, "log")
# Faults of figures of records only: made-up numbers leave out most of what a figure can show.
OF_RECORDS = re.compile("is of nothing that is drawn|panels show nothing|is higher than the panel")
failed = 0


def run(script, *words, formats=draw.FORMATS, lint=None):
    """Its exit status; what it prints is in log, what cannot be read in its figure in lint."""
    return os.waitstatus_to_exitcode(os.waitpid(draw.start(script, words, log, formats, lint), 0)[1])


def path(kind, stem, ending):
    return os.path.join(folder, kind, stem + ending)


def has_files(kind, stem, formats):
    files = [path(kind, stem, "." + f) for f in formats]
    return all(os.path.exists(f) and os.path.getsize(f) for f in files)


def printable(pdf):
    """What a publisher asks of a PDF: no Type 3 fonts, at most 7 inches (504 points) wide."""
    with open(pdf, "rb") as f:
        text = f.read()
    width = re.search(rb"MediaBox \[ *0 0 ([0-9]+)", text)
    return b"/Type3" not in text and b"/FontFile2" in text and width and int(width[1]) <= 504


def check(good, what, says=None):
    global n, failed
    n += 1
    print("%s %d - %s" % ("ok" if good else "not ok", n, what))
    if not good:
        failed = 1
        if says is None:
            with open(log) as f:
                says = f.read()
        print("".join("# %s\n" % line for line in says.splitlines()), end="")


def same(a, b):
    return filecmp.cmp(a, b, shallow=False)


def draw_both(stem):
    """With all numbers and with none. Whether files of both are there."""
    there = True
    for kind, formats in ("", ("svg", "png", "pdf")), ("missing", ("svg",)):
        what = stem + (" with every number missing" if kind else "")
        h5, lint = (os.path.join(folder, stem + kind + end) for end in (".h5", ".faults"))
        drawn = (run("tests/figs/make_result.py", h5, stem, *[kind][:bool(kind)]) == 0 and
                 run("paper-figs/%s.py" % stem, h5, os.path.join(folder, "a" + kind), formats=formats, lint=lint) == 0 and
                 has_files("a" + kind, stem, formats))
        check(drawn, what + " is drawn")
        there = there and drawn
        if drawn:
            with open(lint) as f:
                faults = "".join(line for line in f if not OF_RECORDS.search(line))
            check(not faults and (kind or printable(path("a", stem, ".pdf"))), what + " can be read on a printed page",
                  faults)
    return there


gc.freeze()  # or each process would copy what it never changes
for i, stem in enumerate(sys.argv[3:]):
    there = draw_both(stem)
    if i % 4 == 0:  # dates and the order of elements come from lib/style.py for all
        formats = ("svg", "pdf")
        again = run("paper-figs/%s.py" % stem, os.path.join(folder, stem + ".h5"), os.path.join(folder, "b"),
                    formats=formats) == 0
        check(there and again and all(same(path("a", stem, "." + f), path("b", stem, "." + f)) for f in formats),
              stem + " is the same SVG and PDF twice")
    # The numbers must reach the picture: without them it is another one.
    check(there and not same(path("a", stem, ".svg"), path("amissing", stem, ".svg")), stem + " shows its numbers",
          "drawn alike with and without numbers")
sys.exit(failed)
