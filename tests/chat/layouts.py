#!/usr/bin/python3
"""layouts.py SEED N: N random templates, as a JSON list, of tags between spaces and newlines."""
import json
import random
import sys

rng = random.Random(int(sys.argv[1]))
SPACES = ["\n", " ", "  ", "a", "b\n", "\n\n", "\t", "\r\n", "x y", "\u00a0"]


def text():
    return "".join(rng.choice(SPACES) for _ in range(rng.randrange(4)))


def block(words):
    return "{%%%s %s %s%%}" % (rng.choice(["", "", "", "-", "+"]), words, rng.choice(["", "", "-", "+"]))


def body(depth):
    return text() + (tag(depth) + text() if depth < 2 and rng.random() < 0.5 else "")


def tag(depth):
    kind = rng.randrange(9)
    if kind == 0:
        return "{{%s 1 %s}}" % (rng.choice(["", "-", "+"]), rng.choice(["", "-"]))
    if kind == 1:
        return block("c").replace("%", "#")
    if kind == 2:
        return block("raw").replace("+%}", "%}") + text() + "{{ q }}{#" + text() + block("endraw")
    if kind == 3:
        return block("set v = 1")
    if kind == 4:
        return block("set v") + body(depth + 1) + block("endset") + "{{ v }}"
    if kind == 5:
        return block("for i in [1, 2]") + body(depth + 1) + block("endfor")
    if kind == 6:
        return block("if 0") + body(depth + 1) + block("else") + body(depth + 1) + block("endif")
    if kind == 7:
        return block("macro m()") + body(depth + 1) + block("endmacro") + "{{ m() }}"
    return "{{ '%s' }}" % rng.choice(["}}", "{%", "\\n", "{#"])


print(json.dumps(["".join(text() + tag(0) for _ in range(rng.randrange(1, 4))) + text()
                  for _ in range(int(sys.argv[2]))]))
