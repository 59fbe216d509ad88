"""Renew the numbers in the pages of docs/ from the published records.

A table that begins with "| what | value | evidence | `experiment` |" has a headline's name at the end of
each row, which gets its value and evidence, from the newest published record of the experiment, as
`testbed check` chooses it. "`claim` is **verdict**" gets the verdict that claims.md, next to the page, has.
A sentence with "no record" or "no published record" names experiments or claims, of which none has one, and a
"published record of `experiment`" is there.
    python3 tests/support/docs_values.py PUBLISHED PAGE..."""
import json
import os
import pathlib
import re
import sys

HEAD = re.compile(r"^\| what \| value \| evidence \| `([a-z0-9_]+)` \|$")
ROW = re.compile(r"^(\| .* )\|[^|]*\|[^|]*\| `([^`]+)` \|$")
VERDICT = re.compile(r"`([a-z0-9_]+)`(\s+)is(\s+)\*\*([^*]*)\*\*")
LISTED = re.compile(r"- (?:\*\*|_)([a-z: ]+)(?:\*\*|_) (?:\([^)]*\) )?`([a-z0-9_]+)`, sec[.] ")
NO_RECORD = re.compile(r'(?<!")\bno (?:published )?record\b', re.I)
A_RECORD = re.compile(r"\bpublished record of `([a-z0-9_]+)`")
NAME = re.compile(r"`([a-z0-9_]+)`")
SENTENCE = re.compile(r"\n\s*\n|(?<=[.])\s+(?=[^a-z0-9])")
EXPERIMENTS = pathlib.Path(os.environ.get("SANDWICH_HOME", "."), "experiments")


def newest(published, experiment):
    heads = [json.loads(p.read_text()) for p in published.glob("*/%s/latest.json" % experiment)]
    return max(heads, key=lambda head: head["run"]["utc"], default=None)


def plain(x):
    """Four digits, all before the point, never an exponent: as text_number() of engine/base."""
    places = min(max(3 - int(("%.3e" % x).split("e")[1]), 0), 12)
    text = "%.*f" % (places, x)
    text = text.rstrip("0").rstrip(".") if places else text
    return "0" if text == "-0" else text


def shown(headline):
    if headline["value"] is None:
        return "n/a"
    text = plain(headline["value"])
    if headline.get("lo") is not None:
        text += " (%s to %s)" % (plain(headline["lo"]), plain(headline["hi"]))
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


def verdicts_of(page):
    listed = " ".join((page.parent / "claims.md").read_text().split())
    return {name: verdict for verdict, name in LISTED.findall(listed)}


def check_records(text, published, page):
    verdicts = verdicts_of(page)

    def has_record(name):  # None: it is no experiment and no claim
        if name in verdicts:
            return verdicts[name] != "no record yet"
        return bool(newest(published, name)) if (EXPERIMENTS / (name + ".json")).exists() else None

    for sentence in (" ".join(s.split()) for s in SENTENCE.split(text)):
        names = {name: has_record(name) for name in NAME.findall(sentence)}
        known = [name for name in names if names[name] is not None]
        if NO_RECORD.search(sentence):
            if not known:
                sys.exit("%s: which experiment has no record? expected its name in \"%s\"" %
                         (page, sentence[:70]))
            for name in known:
                if names[name]:
                    sys.exit("%s: %s has a record, found \"no record\"" % (page, name))
        for name in A_RECORD.findall(sentence):
            if not names[name]:
                sys.exit("%s: %s has no published record, found one of it named" % (page, name))


def judged(text, page):
    verdicts = verdicts_of(page)

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
        if page.name != "claims.md":  # whose records are those that were found
            check_records(new, pathlib.Path(published), page)
        if new != old:
            page.write_text(new)


main(*sys.argv[1:])
