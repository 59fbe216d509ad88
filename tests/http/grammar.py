"""Answers that obey a schema or grammar, of a model that knows nothing: JSON is held to its schema by
python3-jsonschema, texts of grammars to expressions of Python."""
import json
import os
import random
import re
import string

from serving import Server, Skip, Tap, arguments, text_of

try:
    import jsonschema
except ImportError:
    jsonschema = None

sandwich, tiny = arguments()
tap = Tap()
C, H = "/v1/completions", "/v1/chat/completions"
N_SCHEMAS = 300
USER = [{"role": "user", "content": "hello"}]
DEFS = {"n": {"type": "object", "properties": {"v": {"type": "integer"}, "next": {
    "anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]}}, "required": ["v"]}}
ODD = [
    {}, {"type": "object"}, {"type": "array"}, {"type": ["string", "null", "boolean"]},
    {"enum": [1, "x", None, {"a": [1]}, "\u00e9\"\\"]}, {"const": {"a": {"b": []}}},
    {"type": "string", "minLength": 2, "maxLength": 4}, {"minLength": 1},
    {"type": "string", "pattern": r"^[a-z]{2,3}-\d+$"}, {"pattern": "ab|c$"},
    {"pattern": r"^(foo|ba[rz])\.\w{1,4}$"}, {"pattern": r"^[^\"\\/]{1,3}/?$"}, {"pattern": r"\S\s\W"},
    {"format": "date-time"}, {"format": "date"}, {"format": "time"}, {"format": "uuid"},
    {"format": "ipv4"}, {"type": "integer", "minimum": -37, "maximum": 1234},
    {"type": "integer", "exclusiveMinimum": 9, "maximum": 100}, {"minimum": 0, "maximum": 1},
    {"type": "number", "exclusiveMinimum": -3, "exclusiveMaximum": 2}, {"maximum": -5},
    {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 4},
    {"items": {"const": 1}, "maxItems": 0}, {"items": False},
    {"anyOf": [{"type": "integer"}, {"type": "boolean"}]},
    {"allOf": [{"$ref": "#/$defs/n"}], "$defs": DEFS}, {"$ref": "#/$defs/n", "$defs": DEFS},
    {"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"const": 1}}},
    {"type": "object", "properties": {"a": {"type": "string", "maxLength": 2}}, "required": ["a", "z"]},
    {"type": "object", "additionalProperties": {"type": "integer", "minimum": 5}},
    {"type": "object", "properties": {"\u00e9\"": {"const": "\n"}}, "required": ["\u00e9\""],
     "additionalProperties": False},
    {"type": "object", "properties": {k: {"type": "boolean"} for k in "abcdef"}, "required": ["c", "e"]},
    {"title": "t", "description": "d", "type": "null", "default": None, "examples": [None]},
]


def schema_of(r, depth):
    """A schema at random, of answers that are not long."""
    kind = r.choice(["object", "array", "anyOf", "ref"] * (depth > 0) + ["string", "integer", "number",
                    "boolean", "null", "enum", "const", "pattern", "format"])
    if kind == "object":
        keys = ["".join(r.choice(string.ascii_lowercase + "_ \"\u00e9") for _ in range(r.randint(1, 3)))
                for _ in range(r.randint(0, 4))]
        s = {"type": "object", "properties": {k: schema_of(r, depth - 1) for k in keys},
             "required": [k for k in dict.fromkeys(keys) if r.random() < 0.5]}
        if r.random() < 0.3:
            s["additionalProperties"] = r.choice([True, False, {"type": "null"}])
        return s
    if kind == "array":
        s = {"type": "array", "items": schema_of(r, depth - 1)}
        if r.random() < 0.5:
            s["minItems"] = r.randint(0, 2)
        if r.random() < 0.5:
            s["maxItems"] = s.get("minItems", 0) + r.randint(0, 2)
        return s
    if kind == "anyOf":
        return {"anyOf": [schema_of(r, depth - 1) for _ in range(r.randint(1, 3))]}
    if kind == "ref":
        return {"$ref": "#/$defs/n"}
    if kind == "string":
        low = r.randint(0, 3)
        return r.choice([{"type": "string"}, {"type": "string", "minLength": low, "maxLength": low + 2}])
    if kind in ("integer", "number"):
        s, low = {"type": kind}, r.randint(-1000, 1000)
        if r.random() < 0.5:
            s[r.choice(["minimum", "exclusiveMinimum"])] = low
        if r.random() < 0.5:
            s[r.choice(["maximum", "exclusiveMaximum"])] = low + r.randint(2, 3000)
        return s
    if kind == "enum":
        return {"enum": r.sample([1, -2.5, "a", "\u00e9", None, True, {"k": [1, "x"]}, [], "\\\"\n"], 3)}
    if kind == "const":
        return {"const": r.choice(["c", 7, [1, {"a": None}]])}
    if kind == "pattern":
        return {"type": "string", "pattern": r.choice(
            [r"^\d{3}-[A-F]+$", "^(yes|no)$", "x{2}", r"^a.b?$", r"^[\w.]+@[a-z]{2}$"])}
    if kind == "format":
        return {"type": "string", "format": r.choice(["date", "ipv4"])}
    return {"type": kind}


def schemas():
    r = random.Random(int(os.environ.get("TEST_SEED", "1")))
    made = [dict(schema_of(r, 3), **{"$defs": DEFS}) for _ in range(N_SCHEMAS - len(ODD))]
    return ODD + made


def valid(value, schema):
    checker = jsonschema.FormatChecker(["date", "ipv4"])
    jsonschema.Draft202012Validator(schema, format_checker=checker).validate(value)


def closers(s):
    """What lets answers end soon: a bias to what closes a part, against blanks and what opens one."""
    bias = {}
    for text, b in (('"', 4), ("]", 4), ("}", 4), ("[", -3), ("{", -2), (" ", -50), ("\n", -50)):
        _, _, j = s.post("/tokenize", {"content": "x" + text, "add_special": False})
        bias[str(j["tokens"][-1])] = b
    return bias


def answers_are_valid(s):
    if not jsonschema:
        raise Skip("python3-jsonschema is not installed")
    bias, ended, seen = closers(s), 0, set()
    for i, schema in enumerate(schemas()):
        body = {"max_tokens": 230, "temperature": (0, 1, 1.5)[i % 3], "seed": i, "logit_bias": bias}
        form = i % 4
        if form == 0:
            body["json_schema"] = schema
        else:
            body["response_format"] = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        if i % 3 == 2:
            body.update(top_p=0.9, frequency_penalty=0.3)
        if form == 1:
            choice = s.post(H, dict(body, messages=USER))[2]
        else:
            choice = s.post(C, dict(body, prompt="a"))[2]
        assert "choices" in choice, (schema, choice)
        choice = choice["choices"][0]
        text = choice.get("text", choice.get("message", {}).get("content"))
        if choice["finish_reason"] != "stop":
            continue
        ended += 1
        seen.add(text)
        try:
            valid(json.loads(text), schema)
        except Exception as e:
            raise AssertionError("schema %d %s: %r: %s" % (i, json.dumps(schema), text, e))
    assert ended >= 0.9 * N_SCHEMAS, ended
    assert len(seen) >= 0.5 * N_SCHEMAS, len(seen)


GRAMMARS = [
    (r'root ::= "yes" | "no"', r"yes|no"),
    (r'root ::= [a-c]{3} " "? [0-9]+', r"[a-c]{3} ?[0-9]+"),
    (r'root ::= item ("," item){0,3} "."' + "\n" + r'item ::= "\u00e9" [^,.\x00-\x1f]{1,2}', r"(\u00e9[^,.]{1,2},?)+\."),
    (r'root ::= /^\d+\/\w{2}$/', r"\d+/\w{2}"),
]


def texts_obey_grammars(s):
    for grammar, pattern in GRAMMARS:
        for k in range(8):
            c = s.complete(prompt="once", grammar=grammar, max_tokens=100, seed=k, n=2, min_tokens=k,
                           logit_bias=closers(s))
            for one in c["choices"]:
                assert one["finish_reason"] != "stop" or re.fullmatch(pattern, one["text"]), (grammar, one)
                ended = one["finish_reason"] == "stop"
        assert ended or "+" in pattern, grammar
    body = {"prompt": "a", "grammar": GRAMMARS[0][0], "max_tokens": 9}
    assert text_of(s.events(C, body)) in ("yes", "no")
    body = {"messages": USER, "response_format": {"type": "json_object"}, "max_tokens": 200,
            "logit_bias": closers(s)}
    assert isinstance(json.loads(text_of(s.events(H, body))), dict)


def the_likeliest_that_may_come(s):
    """Greedy: of the two that may come, the one whose logit is higher, which a bias decides."""
    ids = {}
    for text in ("p", "q"):
        ids[text] = str(s.post("/tokenize", {"content": "x" + text, "add_special": False})[2]["tokens"][-1])
    for text in ids:
        c = s.complete(prompt="a", grammar='root ::= "p" | "q"', temperature=0, max_tokens=3,
                       logit_bias={ids[text]: 50})
        assert c["choices"][0]["text"] == text and c["choices"][0]["finish_reason"] == "stop", c


BAD = [
    ({"grammar": 'root ::= "a'}, "grammar: offset 11: expected"),
    ({"grammar": ""}, "grammar: expected a text of rules"),
    ({"grammar": 7}, "grammar: expected a text of rules"),
    ({"grammar": 'root ::= "a" | root "b"'}, "left-recursive"),
    ({"json_schema": []}, "json_schema: expected a JSON schema"),
    ({"json_schema": {"type": "object", "minProperties": 1}}, "schema: #: minProperties: this keyword is not"),
    ({"response_format": {"type": "xml"}}, "response_format: expected"),
    ({"response_format": {"type": "json_schema"}}, "response_format: expected"),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": 1}}}}, "schema: #: type: expected"),
    ({"response_format": {"type": "json_object"}, "grammar": 'root ::= "a"'}, "expected one of"),
    ({"grammar": 'root ::= "a"', "ignore_eos": True}, "ignore_eos: not together"),
]


def bad_ones_are_refused(s):
    for body, words in BAD:
        status, _, j = s.post(C, dict(body, prompt="a", max_tokens=4))
        message = j["error"]["message"]
        assert status == 400 and words in message and "\n" not in message, (body, status, j)
    assert s.settled()["sandwich_kv_reserved_tokens"] == 0


def drafts_change_nothing(plain, *drafting):
    for i, schema in enumerate([{"type": "object"}, {"items": {"enum": ["aaaa", "aaab"]}, "minItems": 6}]):
        for t in (0, 1):
            body = {"prompt": "aaaa aaaa aaaa", "max_tokens": 100, "temperature": t, "seed": 5,
                    "json_schema": schema, "return_token_ids": True, "logit_bias": closers(plain)}
            want = plain.complete(**body)["choices"][0]["token_ids"]
            assert len(want) > 1
            for s in drafting:
                assert s.complete(**body)["choices"][0]["token_ids"] == want, (i, t)


servers = [Server(sandwich, tiny, "--deterministic", "--max-seqs", "4", "--chat-template", "llama-2", *flags)
           for flags in ((), ("--draft", "lookup"), ("--draft", tiny))]
tap.check("answers are valid by their schemas", answers_are_valid, servers[0])
tap.check("texts obey their grammars", texts_obey_grammars, servers[0])
tap.check("the likeliest that may come is taken", the_likeliest_that_may_come, servers[0])
tap.check("bad grammars and schemas are refused in one line", bad_ones_are_refused, servers[0])
tap.check("drafts change nothing", drafts_change_nothing, *servers)
for server in servers:
    status, err = server.stop()
    tap.check("the server ends well", lambda: None if status == 0 else 1 / 0)
tap.finish()
