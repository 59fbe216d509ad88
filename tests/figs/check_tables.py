"""Tables as Markdown and LaTeX: any text comes back from what is written, and every row has its
columns. One line for each fault; exit status 1 if there is one."""

import random
import re
import sys

sys.path.insert(0, "paper-figs")
from lib import table  # noqa: E402

COMMANDS = {r"\textbackslash{}": "\\", r"\textasciicircum{}": "^", r"\textasciitilde{}": "~",
            r"\textless{}": "<", r"\textgreater{}": ">", r"\textbar{}": "|", r"\char34{}": '"',
            r"\textperiodcentered{}": "\u00b7", r"$\times$": "\u00d7", r"$\mu$": "\u00b5",
            r"$\pm$": "\u00b1", "-{}": "-", "{}": ""}
COMMANDS.update({"\\" + c: c for c in "{}$&#_%"})
TOKEN = re.compile("|".join(re.escape(c) for c in sorted(COMMANDS, key=len, reverse=True)) + "|(?s:.)")
SPECIAL = "\\{}$&#^_%~<>|\"[*-'`\u00b7\u00d7\u00b5\u00b1 \n"
faults = []


def same(what, found, expected):
    if found != expected:
        faults.append("%s: %r, expected %r" % (what, found, expected))


def typeset(latex):
    """What LaTeX shows for it; a special character that is not escaped is a fault."""
    shown = []
    for token in TOKEN.findall(latex):
        if token in list("\\{}$&#^_%~"):
            faults.append("%r leaves %r unescaped" % (latex, token))
        shown.append(COMMANDS.get(token, token))
    return "".join(shown)


def check_text(text):
    shown = " ".join(text.split())
    same("LaTeX of %r" % text, typeset(table.latex(text)), shown)
    same("%r has dashes" % text, "--" in table.latex(text), False)
    row = r"\\" + table.latex(text)
    same("%r is an argument" % text, bool(re.match(r"\\\\ *[\[*]", row)), False)
    back = re.sub(r"\\([\\|])", r"\1", table.markdown(text))
    same("Markdown of %r" % text, back, shown)


def check_tables(header, rows):
    lines = table.as_latex(header, rows).split("\n")
    body = [line for line in lines if line.endswith(r"\\")]
    same("rows", len(body), len(rows) + 1)
    for line, row in zip(body, [header] + rows):
        cells = re.split(r"(?<!\\)&", line.removesuffix(r"\\"))
        same("cells", [typeset(c.strip()) for c in cells], [" ".join(str(c).split()) for c in row])
    for line in table.as_markdown(header, rows).splitlines():
        bars = re.sub(r"\\\\|\\\|", "", line).count("|")
        same("bars of %r" % line, bars, len(header) + 1)


chance = random.Random(1)
for c in map(chr, range(32, 127)):
    check_text(c)
for _ in range(2000):
    check_text("".join(chance.choices(SPECIAL + "ab1", k=chance.randrange(8))))
for _ in range(200):
    cells = [["".join(chance.choices(SPECIAL + "x", k=3)) for _ in range(4)] for _ in range(4)]
    check_tables(cells[0], cells[1:])
NUMBERS = ["machine", "ms", "share", "95 %"], [["a", "-1.5", "12 %", "1.2 (1.1 to 1.3)"], ["b_1", "n/a", "3 %", "n/a"]]
same("columns", re.search(r"tabular}{(.*)}", table.as_latex(*NUMBERS)).group(1), "lrrr")
same("alignment", table.as_markdown(*NUMBERS).splitlines()[1], "| --- | ---: | ---: | ---: |")
same("long text", "p{" in table.as_latex(["why"], [["word " * 20]]), True)
print("\n".join(faults[:20]))
sys.exit(1 if faults else 0)
