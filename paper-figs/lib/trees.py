"""TopoTrees as the studies record them: arities and CPUs in tree order, drawn level by level."""

from lib import page, style

DRAWN = 2  # children of a wide node that are drawn one by one; the last one stands for the rest


def levels(cell):
    """[(what the nodes are, arity, arity before any remove)] from the machine to the PUs."""
    names = str(cell.attrs.get("notes.levels", "")).split("|")
    arity, original = cell.series.get("arity", []), cell.series.get("original_arity", [])
    return [(n, int(a), int(o)) for n, a, o in zip(names, arity, original)]


def shown(n):
    """Which of n children stand in the drawing; None is the gap."""
    return list(range(n)) if n <= 2 * DRAWN else list(range(DRAWN)) + [None, n - 1]


def draw(ax, cell):
    """The tree: of the nodes of a level the first is drawn with all that is below it, the others
    are only hinted at. Removed children are hollow and dotted; numbers at the foot are CPUs."""
    tree = levels(cell)
    ax.axis("off")
    if not tree:
        return style.na(ax, "no tree is recorded")
    cpus, spans, foot = [int(c) for c in cell.series["cpus"]], [1] * len(tree), []
    for i in reversed(range(len(tree) - 1)):
        spans[i] = spans[i + 1] * tree[i][1]

    def line(level, x, child, here):
        ax.plot([x, child], [-level, -level - 1], color="#bbbbbb", lw=0.9, zorder=1,
                ls="-" if here else ":")

    def children(level, first):
        """Draws what is below an expanded node; returns the middle."""
        _, n, full = tree[level]
        xs = []
        for k in shown(n) + list(range(n, full)):
            if k is None:
                ax.text(len(foot), -level - 1, "...", ha="center", va="center", color=style.GREY)
                foot.append(None)
            else:
                at = first + k * spans[level + 1]
                xs.append((place(level + 1, at, k < n, expand=k == 0), k < n))
        x = sum(p for p, _ in xs) / len(xs)
        for child, here in xs:
            line(level, x, child, here)
        return x

    def place(level, first, kept, expand):
        """Draws the node over cpus[first:]; returns its x."""
        last = level == len(tree) - 1
        if not last and expand and kept:
            x = children(level, first)
        else:
            x = len(foot)
            foot.append(first)
            if not last and kept:
                for d in (-0.25, 0, 0.25):
                    ax.plot([x, x + d], [-level, -level - 0.3], color="#bbbbbb", lw=0.9, zorder=1)
            if last and kept:
                ax.annotate(cpus[first], (x, -level), xytext=(0, -10), fontsize=style.SMALL,
                            textcoords="offset points", ha="center", color=style.GREY)
        color = style.COLORS[1] if "group" in tree[level][0] else style.COLORS[0]
        ax.plot(x, -level, "o" if last else "s", ms=5, zorder=2, mec=color,
                mfc=color if kept else "white")
        return x

    place(0, 0, True, expand=True)
    for level, (name, n, full) in enumerate(tree):
        of = "" if not n else (": %d each" % n if n == full else ": %d of %d each" % (n, full))
        ax.text(-0.8, -level, name + of, ha="right", va="center",
                fontsize=style.SMALL)
    ax.set_xlim(-0.8, max(6, len(foot)))
    ax.set_ylim(-len(tree) + 0.4, 0.4)
    page.height(ax, 0.36 * len(tree))
