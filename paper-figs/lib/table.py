"""A table of numbers: in a figure, and as <stem>.md and <stem>.tex next to the picture. Columns of
numbers are aligned at the right."""

import os
import re
import textwrap

from matplotlib.font_manager import FontProperties

from lib import page, style

NUMBER = re.compile(r"([-+]?\d[\d.,]*(e[-+]?\d+)?( (%|s|ms|us|x))?( \(.*\)| \+- .*)?|n/a|-|)$")
LINE, PAD = 0.125, 0.06  # inches: a line of text, between two rows
LONG = 40  # characters: a cell with more gets a column that breaks its lines
LATEX = str.maketrans({
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#",
    "_": r"\_", "%": r"\%", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\char34{}",
    "\u00b7": r"\textperiodcentered{}", "\u00d7": r"$\times$", "\u00b5": r"$\mu$",
    "\u00b1": r"$\pm$"})


def right_aligned(rows, i):
    return all(NUMBER.match(str(row[i])) for row in rows)


def latex(text):
    """Any text as LaTeX that shows it, on one line."""
    escaped = " ".join(str(text).split()).translate(LATEX)
    escaped = re.sub("-(?=-)", "-{}", escaped)  # -- is no dash
    return "{}" + escaped if escaped[:1] in ("[", "*") else escaped  # no argument of the \\ before


def markdown(text):
    return " ".join(str(text).split()).replace("\\", "\\\\").replace("|", "\\|")


def as_markdown(header, rows):
    right = [right_aligned(rows, i) for i in range(len(header))]
    return "".join("| %s |\n" % " | ".join(cells) for cells in [
        [markdown(h) for h in header], ["---:" if r else "---" for r in right],
        *[[markdown(c) for c in row] for row in rows]])


def as_latex(header, rows):
    """A tabular that needs no package."""
    columns = ["r" if right_aligned(rows, i) else
               "p{0.3\\linewidth}" if any(len(str(row[i])) > LONG for row in rows) else "l"
               for i in range(len(header))]
    lines = [" & ".join(map(latex, row)) + r" \\" for row in [header] + rows]
    return "\n".join([r"\begin{tabular}{%s}" % "".join(columns), r"\hline", lines[0], r"\hline",
                      *lines[1:], r"\hline", r"\end{tabular}", ""])


def write(stem, header, rows):
    """The numbers that the picture shows."""
    style.write_markdown(stem, table=as_markdown(header, rows))
    path = os.path.join(style.folder(), stem + ".tex")
    with open(path, "w") as f:
        f.write(as_latex(header, rows))
    print(os.path.relpath(path))


def draw(ax, header, rows, wide=page.INNER):
    """The same in the picture; the axis becomes as high as the table. wide: inches that it may
    take, of a row of axes its share."""
    ax.axis("off")
    if not rows:
        return style.na(ax)
    right = [right_aligned(rows, i) for i in range(len(header))]
    cells, inches = broken([list(map(str, row)) for row in [header] + rows], wide, ax.figure)
    gap = min(0.35, (wide - sum(inches)) / max(1, len(header) - 1))
    y = 0
    for r, row in enumerate(cells):
        x = 0
        for i, text in enumerate(row):
            at, ha = (x + inches[i], "right") if right[i] else (x, "left")
            ax.text(at, y, text or "-", ha=ha, va="top", fontsize=style.SMALL,
                    weight="bold" if r == 0 else "normal")
            x += inches[i] + gap
        y += LINE * max(text.count("\n") + 1 for text in row) + PAD
        ax.plot([0, x - gap], [y - 0.7 * PAD] * 2, lw=0.8 if r == 0 else 0.3,
                color="black" if r == 0 else "#cccccc")
    ax.set_xlim(0, wide)
    ax.set_ylim(y, 0)
    page.height(ax, y)


def broken(cells, wide, fig):
    """The cells with their lines broken so that the columns fit, and the columns' widths."""
    def width(i):
        return max(measure(line, r == 0, fig) for r, row in enumerate(now) for line in row[i].split("\n"))

    now = [list(row) for row in cells]
    body = [max(len(row[i]) for row in cells[1:]) for i in range(len(cells[0]))]
    inches = [width(i) for i in range(len(body))]
    if sum(inches) + 0.15 * len(inches) > wide:
        now[0] = [textwrap.fill(h, max(n, 4), break_long_words=False) for h, n in zip(cells[0], body)]
        inches = [width(i) for i in range(len(body))]
    while sum(inches) + 0.08 * len(inches) > wide and max(body) > 8:
        i = body.index(max(body))
        body[i] -= 1 + body[i] // 20
        for row, whole in zip(now, cells):
            row[i] = textwrap.fill(whole[i], body[i], break_long_words=False)
        inches[i] = width(i)
    return now, inches


def measure(text, bold, fig):
    font = FontProperties(size=style.SMALL, weight="bold" if bold else "normal")
    return page.renderer(fig).get_text_width_height_descent(text, font, False)[0] / fig.dpi
