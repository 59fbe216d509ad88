"""Calls of tools, of a model that knows nothing: where a call is required, it always is one, and its arguments
are held to their schema by python3-jsonschema; what is streamed says the same."""
import json
import os

from serving import Server, Tap, arguments

try:
    import jsonschema
except ImportError:
    jsonschema = None

sandwich, tiny = arguments()
tap = Tap()
H = "/v1/chat/completions"
USER = [{"role": "user", "content": "hello"}]
TEMPLATE = ("{% for m in messages %}{{ m.role ~ ': ' ~ m.content }}{% for c in m.tool_calls or [] %}"
            "{{ c.id ~ c.type ~ c.function.name ~ (c.function.arguments | tojson) }}{% endfor %}"
            "{% endfor %}{% if tools %}{{ tools | length }} MARK{% endif %}")
MARKS = {"hermes": "<tool_call></tool_call>",
         "llama-3": '{"name": function name, "parameters": dictionary}', "other": "[TOOL_CALLS]"}
NODE = {"type": "object", "properties": {"v": {"type": "integer"}, "next": {
    "anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]}}, "required": ["v"]}
SCHEMAS = {
    "weather": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 8}, "unit": {
        "enum": ["C", "F"]}, "days": {"type": "integer", "minimum": 1, "maximum": 14}}, "required": ["city", "days"]},
    "walk": {"type": "object", "properties": {"from": {"$ref": "#/$defs/n"}}, "required": ["from"], "$defs": {"n": NODE}},
    "now": None,
}


def tool(name):
    f = {"name": name, "description": "d"}
    if SCHEMAS[name]:
        f["parameters"] = SCHEMAS[name]
    return {"type": "function", "function": f}


TOOLS = [tool(name) for name in SCHEMAS]


def served(kind):
    path = os.path.join(os.path.dirname(tiny), kind + ".jinja")
    with open(path, "w") as f:
        f.write(TEMPLATE.replace("MARK", "{{ '%s' }}" % MARKS[kind]))
    return Server(sandwich, tiny, "--deterministic", "--max-seqs", "4", "--chat-template", path)


def closers(s):
    bias = {}
    for text, b in (('"', 4), ("]", 4), ("}", 4), ("[", -3), ("{", -2), (" ", -50), ("\n", -50)):
        _, _, j = s.post("/tokenize", {"content": "x" + text, "add_special": False})
        bias[str(j["tokens"][-1])] = b
    return bias


def check_call(call, names):
    assert call["type"] == "function" and call["id"], call
    f = call["function"]
    assert f["name"] in names, f
    args = json.loads(f["arguments"])
    if jsonschema:
        jsonschema.Draft202012Validator(SCHEMAS[f["name"]] or {"maxProperties": 0}).validate(args)
    return f["name"]


def streamed(s, body):
    """Content, calls and the reason of a streamed answer."""
    content, calls, reason = "", [], None
    for e in s.events(H, body):
        for c in e["choices"]:
            content += c["delta"].get("content") or ""
            for call in c["delta"].get("tool_calls", []):
                assert call.pop("index") == len(calls), call
                calls.append(call)
            reason = c["finish_reason"] or reason
    return content, calls, reason


def required_is_a_call(s):
    seen, ended, bias = set(), 0, closers(s)
    for seed in range(40):
        body = {"messages": USER, "tools": TOOLS, "tool_choice": "required", "seed": seed, "temperature": seed % 3,
                "max_tokens": 160, "logit_bias": bias}
        names = set(SCHEMAS)
        if seed % 4 == 3:
            names = {list(SCHEMAS)[seed // 4 % 3]}
            body["tool_choice"] = {"type": "function", "function": {"name": min(names)}}
        status, _, j = s.post(H, body)
        assert status == 200, j
        c = j["choices"][0]
        if c["finish_reason"] == "length":
            continue
        ended += 1
        m = c["message"]
        assert c["finish_reason"] == "tool_calls" and m["content"] is None and len(m["tool_calls"]) == 1, c
        seen.add(check_call(m["tool_calls"][0], names))
        content, calls, reason = streamed(s, body)
        assert content == "" and reason == "tool_calls", (content, reason)
        assert [k["function"] for k in calls] == [m["tool_calls"][0]["function"]], (calls, m)
    assert ended >= 36 and seen == set(SCHEMAS), (ended, seen)


def calls_of_a_free_answer_are_found(s, kind):
    """A grammar stands for a model that was trained on calls."""
    key = "arguments" if kind == "hermes" else "parameters"
    call = json.dumps({"name": "now", key: {"z": 1.50}})
    marked = "<tool_call>\n%s\n</tool_call>" % call
    text = "Well. %s\n%s" % (marked, marked) if kind == "hermes" else call + ";" + call
    for answer, n in ((text, 2), ("plain", 0)):
        body = {"messages": USER, "tools": TOOLS, "n": 2,
                "grammar": "root ::= " + json.dumps(answer)}
        for c in s.post(H, body)[2]["choices"]:
            m = c["message"]
            assert [k["function"] for k in m.get("tool_calls", [])] == n * [{"name": "now", "arguments": '{"z": 1.5}'}], m
            assert c["finish_reason"] == ("tool_calls" if n else "stop"), c
            assert m["content"] == ("plain" if n == 0 else "Well." if kind == "hermes" else None), m
        content, calls, reason = streamed(s, dict(body, n=1))
        assert (content or None, len(calls), reason) == (m["content"], n, c["finish_reason"]), (content, calls)
        assert len({k["id"] for k in calls}) == n
        body["tool_choice"] = "none"
        c = s.post(H, body)[2]["choices"][0]
        assert c["message"]["content"] == answer and c["finish_reason"] == "stop", c


def results_of_calls_may_follow(s):
    call = {"id": "1", "type": "function", "function": {"name": "now", "arguments": "{}"}}
    talk = USER + [{"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "content": "9", "tool_call_id": "1"}]
    status, _, j = s.post(H, {"messages": talk, "tools": TOOLS, "max_tokens": 2})
    assert status == 200, j


BAD = [
    ({"tool_choice": "must"}, "tool_choice", 'tool_choice: expected "auto"'),
    ({"tool_choice": {"type": "function"}}, "tool_choice", 'tool_choice: expected "auto"'),
    ({"tool_choice": {"type": "function", "function": {"name": "nothing"}}}, "tool_choice", 'no tool has the name "nothing"'),
    ({"tool_choice": "required", "tools": []}, "tool_choice", "expected tools together with it"),
    ({"tool_choice": "required", "grammar": 'root ::= "a"'}, "tool_choice", "not possible together with"),
    ({"tool_choice": "required", "tools": [{"type": "function"}]}, "tools", "element 0: function: expected"),
    ({"tool_choice": "required", "tools": [{"type": "function", "function": {"name": "f", "parameters": {"not": {}}}}]},
     "tools", "not: this keyword is not supported"),
    ({"tool_choice": "required", "ignore_eos": True}, None, "ignore_eos: not together"),
]


def bad_ones_are_refused(s):
    for body, param, words in BAD:
        status, _, j = s.post(H, dict({"messages": USER, "tools": TOOLS, "max_tokens": 4}, **body))
        message = j["error"]["message"]
        assert status == 400 and words in message and "\n" not in message, (body, status, j)
        assert param is None or j["error"]["param"] == param, j
    assert s.settled()["sandwich_kv_reserved_tokens"] == 0


def no_form_is_known(s):
    for choice in ("auto", "required"):
        status, _, j = s.post(H, {"messages": USER, "tools": TOOLS, "tool_choice": choice})
        assert status == 400 and j["error"]["param"] == "tools" and "other.jinja" in j["error"]["message"] \
            and "hermes" in j["error"]["message"], j
    assert s.post(H, {"messages": USER, "tools": TOOLS, "tool_choice": "none", "max_tokens": 2})[0] == 200


if not jsonschema:
    tap.skip("arguments by python3-jsonschema", "python3-jsonschema is not installed")
for kind in ("hermes", "llama-3"):
    server = served(kind)
    tap.check(kind + ": a required call is one", required_is_a_call, server)
    tap.check(kind + ": calls of a free answer are found", calls_of_a_free_answer_are_found, server, kind)
    tap.check(kind + ": results may follow", results_of_calls_may_follow, server)
    tap.check(kind + ": bad requests are refused in one line", bad_ones_are_refused, server)
    tap.check(kind + ": the server ends well", lambda: None if server.stop()[0] == 0 else 1 / 0)
server = served("other")
tap.check("a template without a known form is refused by name", no_form_is_known, server)
tap.check("the server ends well", lambda: None if server.stop()[0] == 0 else 1 / 0)
tap.finish()
