"""Renew the numbers in the pages of docs/ from the published records.

A table that begins with "| what | value | evidence | `experiment` |" has a headline's name at the end of
each row, which gets its value and evidence, from the newest published record of the experiment, as
`testbed check` chooses it. "`claim` is **verdict**" gets the verdict that claims.md, next to the page, has.
    python3 tests/support/docs_values.py PUBLISHED PAGE..."""
import json
import pathlib
import re
import sys

HEAD = re.compile(r"^\| what \| value \| evidence \| `([a-z0-9_]+)` \|$")
ROW = re.compile(r"^(\| .* )\|[^|]*\|[^|]*\| `([^`]+)` \|$")
VERDICT = re.compile(r"`([a-z0-9_]+)`(\s+)is(\s+)\*\*([^*]*)\*\*")
LISTED = re.compile(r"- (?:\*\*|_)([a-z: ]+)(?:\*\*|_) (?:\([^)]*\) )?`([a-z0-9_]+)`, sec[.] ")


def newest(published, experiment):
    heads = [json.loads(p.read_text()) for p in published.glob("*/%s/latest.json" % experiment)]
    return max(heads, key=lambda head: head["run"]["utc"], default=None)


def shown(headline):
    if headline["value"] is None:
        return "n/a"
    text = "%.4g" % headline["value"]
    if headline.get("lo") is not None:
        text += " (%.4g to %.4g)" % (headline["lo"], headline["hi"])
    unit = headline.get("unit", "")
    return text + (" " + unit if unit not in ("", "x") else "")


def renewed(lines, published, page):
    head = None
    for n, line in enumerate(lines):
        where = "%s:%d" % (page, n + 1)
        begin, row = HEAD.match(line), ROW.match(line)
        if begin:
            experiment = begin.group(1)
            head = newest(published, experiment)
            if not head:
                sys.exit("%s: expected a published record of %s, found none" % (where, experiment))
        elif not line.startswith("|"):
            head = None
        elif head and row:
            what, name = row.groups()
            headline = head["headline"].get(name)
            if not headline:
                sys.exit("%s: the record of %s has no headline %s" % (where, experiment, name))
            evidence = headline.get("evidence") or head["evidence"]
            line = "%s| %s | %s | `%s` |" % (what, shown(headline), evidence, name)
        yield line


def judged(text, page):
    listed = " ".join((page.parent / "claims.md").read_text().split())
    verdicts = {name: verdict for verdict, name in LISTED.findall(listed)}

    def verdict(match):
        name, before, after, said = match.groups()
        if name not in verdicts:
            sys.exit("%s: no claim %s" % (page, name))
        if " ".join(said.split()) == verdicts[name]:  # perhaps on two lines
            return match.group()
        return "`%s`%sis%s**%s**" % (name, before, after, verdicts[name])

    return VERDICT.sub(verdict, text)


def main(published, *pages):
    for page in map(pathlib.Path, pages):
        old = page.read_text()
        new = "\n".join(renewed(old.split("\n"), pathlib.Path(published), page))
        new = judged(new, page)
        if new != old:
            page.write_text(new)


main(*sys.argv[1:])
