"""Draws figures from their newest records: each in a process of its own that finds the libraries
loaded, as many at a time as there are CPUs. What cannot be drawn is named, after all others.
usage: draw.py [--formats svg,png,pdf] [--lint FILE] [STEM...]"""

import argparse
import gc
import glob
import os
import runpy
import sys
import tempfile

FIGURES = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
if __name__ == "__main__":
    sys.path[0] = FIGURES
from lib import bars, read, reference, study, style  # noqa: E402, F401 (for all figures, as what follows)
from matplotlib.backends import backend_pdf, backend_svg  # noqa: E402, F401

FORMATS = tuple(f for f, _ in style.FORMATS)


def start(script, words, log, formats=FORMATS, lint=None):
    """Begin a process that runs a script with these words. What it prints goes to the file `log`, what
    cannot be read in its figure to the end of the file `lint`. Returns its id."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    style.FORMATS = [f for f in style.FORMATS if f[0] in formats]
    style.LINT = lint and os.path.abspath(lint)
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    sys.argv = [script, *words]
    status = 1
    try:
        runpy.run_path(script, run_name="__main__")
        status = 0
    except SystemExit as e:
        status = e.code if isinstance(e.code, int) else int(e.code is not None)
        if isinstance(e.code, str):
            print(e.code, file=sys.stderr)
    except BaseException:  # what Python would print at its end
        sys.excepthook(*sys.exc_info())
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def show(done, n):
    """How many of n have ended: on a terminal in one line that is written again."""
    if sys.stdout.isatty():
        print("\r%d of %d figures" % (done, n), end="\n" if done == n else "", flush=True)


def draw_all(stems, formats, lint, every_word):
    """Prints what a script prints when it has ended, if it fails or (every_word) always. Returns those
    that failed."""
    waiting, running, failed = list(reversed(stems)), {}, []
    gc.freeze()  # or each process would copy what it never changes
    with tempfile.TemporaryDirectory() as logs:
        while waiting or running:
            if waiting and len(running) < len(os.sched_getaffinity(0)):
                stem = waiting.pop()
                script, log = os.path.join(FIGURES, stem + ".py"), os.path.join(logs, stem)
                running[start(script, [], log, formats, lint)] = stem
                continue
            pid, status = os.wait()
            stem = running.pop(pid)
            if status:
                failed.append(stem)
            if status or every_word:
                with open(os.path.join(logs, stem)) as f:
                    print(f.read(), end="", flush=True)
            show(len(stems) - len(waiting) - len(running), len(stems))
    return sorted(failed)


def count(n, what):
    return "%d figure%s %s" % (n, "" if n == 1 else "s", what)


def main():
    options = argparse.ArgumentParser(prog="draw.py")
    options.add_argument("--formats", default=",".join(FORMATS))
    options.add_argument("--lint", metavar="FILE", help="append what cannot be read in the figures to it")
    options.add_argument("stems", nargs="*", metavar="STEM")
    chosen = options.parse_args()
    known = sorted(os.path.basename(f)[:-3] for f in glob.glob(os.path.join(FIGURES, "*.py")))
    for name in chosen.stems:
        if name not in known:
            sys.exit("%s: expected the name of a figure in %s" % (name, os.path.relpath(FIGURES)))
    formats = chosen.formats.split(",")
    for name in formats:
        if name not in FORMATS:
            sys.exit("--formats: expected some of %s, found \"%s\"" % (",".join(FORMATS), name))
    stems = chosen.stems or [s for s in known if s != "sweep"]  # which draws no experiment
    records = {s: read.find(s) for s in stems}
    drawn = [s for s in stems if records[s][0]]
    without = [s for s in stems if s not in drawn]
    failed = draw_all(drawn, formats, chosen.lint, every_word=bool(chosen.stems))
    if without:
        print("no record yet; make experiment NAME=... makes one: " + ", ".join(without))
    n_published = sum(records[s][1] for s in drawn if s not in failed)
    print("%s: %d from your own records, %d from published ones; %d without a record" % (
        count(len(drawn) - len(failed), "drawn"), len(drawn) - len(failed) - n_published, n_published,
        len(without)))
    if failed:
        sys.exit("%s: %s" % (count(len(failed), "failed"), ", ".join(failed)))


if __name__ == "__main__":
    main()
