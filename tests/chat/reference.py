#!/usr/bin/python3
"""reference.py IN OUT: what jinja2, set up as the library transformers does, makes of templates.

IN is {"time": seconds, "cases": [{"source": TEXT, "variables": {...}}]}. OUT gets a list with
{"text": ...} or {"error": ...} of each. Status 77: jinja2 is not installed."""
import datetime
import json
import sys

try:
    import jinja2
    import jinja2.ext
    from jinja2.sandbox import ImmutableSandboxedEnvironment
except ImportError:
    sys.exit(77)

given = json.load(open(sys.argv[1], encoding="utf-8"))


class Generation(jinja2.ext.Extension):
    """{% generation %} marks answers for training; its body is written as it is."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_write"), [], [], body).set_lineno(line)

    def _write(self, caller):
        return caller()


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                    extensions=[Generation, jinja2.ext.loopcontrols])
env.filters["tojson"] = tojson
env.globals["raise_exception"] = raise_exception
env.globals["strftime_now"] = lambda form: datetime.datetime.fromtimestamp(given["time"]).strftime(form)

compiled, out = {}, []
for case in given["cases"]:
    source = case["source"]
    try:
        if source not in compiled:
            compiled[source] = env.from_string(source)
        out.append({"text": compiled[source].render(**case["variables"])})
    except Exception as e:  # a rendering fails in many ways
        out.append({"error": "%s: %s" % (type(e).__name__, e)})
with open(sys.argv[2], "w", encoding="utf-8") as f:
    json.dump(out, f)
