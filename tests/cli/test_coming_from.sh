#!/bin/sh
# What docs/coming-from.md names is there: verbs and their flags, experiments, and words of jobs.
set -u
. tests/support/tap.sh

cat >"$dir/named.py" <<'PY'
"""Prints each name that the page's right column has and this program has not; fails if there is one."""
import re, subprocess, sys
build, page = sys.argv[1:]
def out(*words):
    return subprocess.run([build + "/" + words[0], *words[1:]], capture_output=True, text=True).stdout
code = [c for line in open(page) if line.startswith("| ") for c in re.findall(r"`([^`]*)`", line.split(" | ", 1)[1])]
flags = keys = names = 0
wrong = []
described = out("testbed", "describe", "keys")
listed = out("testbed", "list")
for c in code:
    command = re.match(r"(testbed|sandwich) (\w+)", c)
    text = out(*command.groups(), "--help") if command else ""
    if command and not text:
        wrong.append(c)
    for flag in re.findall(r"(?<!\S)(--?[a-z][a-z-]*)", c) if command else []:
        flags += 1
        if not re.search(r"(?<![\w-])%s(?![\w-])" % re.escape(flag), text):
            wrong.append("%s: %s" % (c, flag))
    for key, value in re.findall(r'"(process|turns|reader)": "(\w+)"', c):
        keys += 1
        if not re.search(r"\b%s\b" % value, described):
            wrong.append('"%s": "%s"' % (key, value))
    for name in re.findall(r"NAME=(\w+)", c):
        names += 1
        if name not in listed:
            wrong.append(name)
print("\n".join(wrong), flags, keys, names)
sys.exit(bool(wrong) or flags < 20 or keys < 8 or names < 2)
PY
check "verbs, flags, words of jobs and experiments" python3 "$dir/named.py" "$build" docs/coming-from.md
sed 's/--prompt-tok 128/--prompt-toks 128/; s/"process": "gamma"/"process": "gama"/' docs/coming-from.md >"$dir/page.md"
check "a slip is found" sh -c "! python3 $dir/named.py $build $dir/page.md >$dir/slips && grep -q -e '--prompt-toks' $dir/slips && grep -q gama $dir/slips"
finish
