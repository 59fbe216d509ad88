"""Requests as users of other servers send them: OpenAI's clients, vLLM, llama-server. Each row says
what it is, how it is sent, and the status with a word of the answer. What is refused is refused by
its name."""
import json

from serving import Server, Tap, arguments, ids_of, text_of

sandwich, tiny = arguments()
tap = Tap()
C, H = "/v1/completions", "/v1/chat/completions"
P = {"prompt": "hello there", "max_tokens": 4, "temperature": 0, "ignore_eos": True}
USER = [{"role": "user", "content": "hello"}]
M = {"messages": USER, "max_tokens": 4, "temperature": 0, "ignore_eos": True}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}

# what, path, body (None: GET), status, a text that the answer has
ROWS = [
    ("a completion", C, P, 200, "text_completion"),
    ("without /v1", "/completions", P, 200, "text_completion"),
    ("a prompt of ids", C, dict(P, prompt=[1, 2, 3]), 200, "text_completion"),
    ("ids in an array", C, dict(P, prompt=[[1, 2, 3]]), 200, "text_completion"),
    ("two prompts", C, dict(P, prompt=["a", "b"]), 200, '"index":1'),
    ("two prompts of ids", C, dict(P, prompt=[[1, 2], [3]]), 200, '"index":1'),
    ("n", C, dict(P, n=3), 200, '"index":2'),
    ("n 1", C, dict(P, n=1), 200, '"index":0'),
    ("n of two prompts", C, dict(P, prompt=["a", "b"], n=2), 200, '"index":3'),
    ("best_of 1", C, dict(P, best_of=1), 200, "choices"),
    ("echo", C, dict(P, echo=True), 200, "hello there"),
    ("logprobs", C, dict(P, logprobs=2), 200, "token_logprobs"),
    ("echo with logprobs and no new token", C, dict(P, echo=True, logprobs=0, max_tokens=0), 200, "token_logprobs"),
    ("stop", C, dict(P, stop=["zzzz"]), 200, "choices"),
    ("seed", C, dict(P, temperature=1, seed=7), 200, "choices"),
    ("top_k and min_p", C, dict(P, temperature=1, top_k=5, min_p=0.1), 200, "choices"),
    ("penalties", C, dict(P, frequency_penalty=1, presence_penalty=-1, repetition_penalty=1.1), 200, "choices"),
    ("a bias", C, dict(P, logit_bias={"5": 100}, return_token_ids=True, max_tokens=2), 200, '"token_ids":[5,5]'),
    ("stop_token_ids", C, dict(P, logit_bias={"5": 100}, stop_token_ids=[5]), 200, '"finish_reason":"stop"'),
    ("min_tokens", C, dict(P, logit_bias={"5": 100}, stop_token_ids=[5], min_tokens=2), 200, "choices"),
    ("typical_p", C, dict(P, temperature=1, typical_p=0.9), 200, "choices"),
    ("penalties of 0", C, dict(P, frequency_penalty=0, presence_penalty=0), 200, "choices"),
    ("repetition_penalty 1", C, dict(P, repetition_penalty=1.0), 200, "choices"),
    ("an empty logit_bias", C, dict(P, logit_bias={}), 200, "choices"),
    ("a suffix of null", C, dict(P, suffix=None), 200, "choices"),
    ("user", C, dict(P, user="u"), 200, "choices"),
    ("cache_prompt", C, dict(P, cache_prompt=True), 200, "choices"),
    ("return_token_ids", C, dict(P, return_token_ids=True), 200, "token_ids"),
    ("a chat", H, M, 200, "chat.completion"),
    ("a chat without /v1", "/chat/completions", M, 200, "chat.completion"),
    ("a chat with n", H, dict(M, n=2), 200, '"index":1'),
    ("max_completion_tokens", H, {"messages": USER, "max_completion_tokens": 3}, 200, "usage"),
    ("a system message", H, dict(M, messages=[{"role": "system", "content": "s"}] + USER), 200, "usage"),
    ("content in parts", H, dict(M, messages=[{"role": "user", "content": [{"type": "text", "text": "a"}]}]), 200, "usage"),
    ("several turns", H, dict(M, messages=USER + [{"role": "assistant", "content": "b"}] + USER), 200, "usage"),
    ("logprobs of a chat", H, dict(M, logprobs=True, top_logprobs=2), 200, "top_logprobs"),
    ("metadata and store", H, dict(M, metadata={"a": "b"}, store=True), 200, "usage"),
    ("store of a completion", C, dict(P, store=False), 200, "usage"),
    ("reasoning_effort", H, dict(M, reasoning_effort="low"), 200, "usage"),
    ("safety_identifier", H, dict(M, safety_identifier="x"), 200, "usage"),
    ("prompt_cache_key", H, dict(M, prompt_cache_key="x"), 200, "usage"),
    ("service_tier", H, dict(M, service_tier="auto"), 200, "usage"),
    ("parallel_tool_calls", H, dict(M, parallel_tool_calls=True), 200, "usage"),
    ("response_format text", H, dict(M, response_format={"type": "text"}), 200, "usage"),
    ("tool_choice none", H, dict(M, tools=[TOOL], tool_choice="none"), 200, "usage"),
    ("no tools", H, dict(M, tools=[]), 200, "usage"),
    ("top_p 0", H, dict(M, temperature=1, top_p=0), 200, "usage"),
    ("the model's name", H, dict(M, model="tiny"), 200, "usage"),
    ("tokenize for llama-server", "/tokenize", {"content": "hello"}, 200, '"tokens":['),
    ("with pieces", "/tokenize", {"content": "hello", "with_pieces": True, "add_special": True}, 200, '"piece":'),
    ("tokenize for vLLM", "/tokenize", {"model": "tiny", "prompt": "hello", "return_token_strs": True}, 200, "token_strs"),
    ("tokenize a chat", "/tokenize", {"messages": USER}, 200, '"max_model_len":256'),
    ("detokenize", "/detokenize", {"tokens": [5, 6]}, 200, '"content":'),
    ("apply-template", "/apply-template", {"messages": USER}, 200, "[INST] hello [/INST]"),
    ("models", "/v1/models", None, 200, "tiny"),
    ("one model", "/v1/models/tiny", None, 200, "tiny"),
    ("props", "/props", None, 200, '"total_slots":4'),
    ("slots", "/slots", None, 200, '"is_processing":false'),
    ("health", "/health", None, 200, "ok"),
    ("version", "/version", None, 200, "version"),
    ("metrics", "/metrics", None, 200, "sandwich_build_info"),
    ("embeddings", "/v1/embeddings", {"input": "a"}, 404, "/v1/embeddings: this server generates"),
    ("responses", "/v1/responses", {"input": "a"}, 404, "/v1/responses: "),
    ("messages", "/v1/messages", {"messages": USER}, 404, "/v1/messages: "),
    ("a penalty out of range", C, dict(P, frequency_penalty=3), 400, "frequency_penalty"),
    ("a suffix", C, dict(P, suffix="x"), 400, "suffix"),
    ("a bias of a token that is none", C, dict(P, logit_bias={"99999": 1}), 400, "logit_bias"),
    ("more tokens at least than at most", C, dict(P, max_tokens=2, min_tokens=3), 400, "min_tokens"),
    ("a schema", H, {"messages": USER, "max_tokens": 40, "response_format": SCHEMA}, 200, '"content":"{'),
    ("any object", H, {"messages": USER, "max_tokens": 9, "response_format": {"type": "json_object"}}, 200, '"content":"{'),
    ("a schema for llama-server", C, {"prompt": "a", "max_tokens": 9, "json_schema": {"const": 5}}, 200, '"text":"5"'),
    ("a grammar", C, {"prompt": "a", "max_tokens": 9, "grammar": 'root ::= "xyz"'}, 200, '"text":"xyz"'),
    ("a grammar that is none", C, {"prompt": "a", "grammar": "root"}, 400, "grammar: offset 4: expected ::= after"),
    ("a keyword that is not followed", C, {"prompt": "a", "json_schema": {"not": {}}}, 400, "schema: #: not: "),
    ("a required tool", H, dict(M, tools=[TOOL], tool_choice="required"), 400, "tools"),
    ("n of 0", C, dict(P, n=0), 400, "n: "),
    ("too many choices", C, dict(P, prompt=["a", "b"], n=65), 400, "at most 128"),
    ("a key with a slip", C, dict(P, max_token=3), 400, '\\"max_tokens\\"'),
    ("an unknown id", "/detokenize", {"tokens": [99999]}, 400, "99999"),
    ("no text", "/tokenize", {}, 400, "content"),
]


def row(s, path, body, status, word):
    got, head, text = s.ask("GET" if body is None else "POST", path, body)
    assert got == status and word in text.decode(), (got, text)
    assert head["Server"].startswith("sandwich/"), head


def most_are_answered():
    answered = sum(r[3] == 200 for r in ROWS)
    assert answered >= 50, answered


def choices_are_requests(s):
    """Several prompts have the tokens of a request each, and so do choices with following seeds."""
    hot = {"max_tokens": 12, "temperature": 1, "ignore_eos": True, "return_token_ids": True}

    def ids(**body):
        return [c["token_ids"] for c in s.complete(**dict(hot, **body))["choices"]]
    prompts = ["a", "hello there", [5, 6, 7]]
    alone = [ids(prompt=p, seed=9)[0] for p in prompts]
    texts = [ids(prompt=p, seed=9)[0] for p in prompts[:2]]
    assert ids(prompt=prompts[:2], seed=9) == texts
    assert ids(prompt=[[5, 6, 7], [8]], seed=9)[0] == alone[2]
    assert ids(prompt="a", seed=9, n=3) == [ids(prompt="a", seed=9 + k)[0] for k in range(3)]
    both = s.complete(**dict(hot, prompt=prompts[:2], n=2, seed=9))
    assert [c["index"] for c in both["choices"]] == [0, 1, 2, 3]
    assert [both["choices"][i]["token_ids"] for i in (0, 2)] == texts
    single = [s.complete(**dict(hot, prompt=p))["usage"] for p in prompts[:2]]
    assert both["usage"]["prompt_tokens"] == sum(u["prompt_tokens"] for u in single)
    assert both["usage"]["completion_tokens"] == 48


def choices_are_streamed(s):
    body = {"prompt": ["a", "hello there"], "n": 2, "max_tokens": 9, "temperature": 1, "seed": 3,
            "ignore_eos": True, "return_token_ids": True, "stop": ["\x7f"]}
    whole = s.complete(**body)
    events = s.events(C, dict(body, stream_options={"include_usage": True}))
    assert events[-1]["usage"] == whole["usage"] and len(events) == 37
    for c in whole["choices"]:
        own = [e for e in events if e["choices"] and e["choices"][0]["index"] == c["index"]]
        assert text_of(own) == c["text"] and ids_of(own) == c["token_ids"], c
        assert [e["choices"][0]["finish_reason"] for e in own] == [None] * 8 + ["length"]
    chat = s.events(H, dict(M, n=2))
    assert sum("role" in e["choices"][0]["delta"] for e in chat) == 2


def ids_and_back(s):
    text = "a</s> caf\u00e9 \U0001f600"
    for more in ({}, {"parse_special": False}):
        ids = s.post("/tokenize", dict(content=text, **more))[2]["tokens"]
        back = s.post("/detokenize", {"tokens": ids})[2]["content"]
        assert " ".join(back.split()) == text, (ids, back)
    plain = s.post("/tokenize", {"content": text, "parse_special": False})[2]["count"]
    assert plain > s.post("/tokenize", {"content": text})[2]["count"]
    for body in ({"prompt": "hello"}, {"content": "hello", "add_special": True}):
        j = s.post("/tokenize", body)[2]
        assert j["tokens"][0] == 1 and j["count"] == s.complete(prompt="hello", max_tokens=1)["usage"]["prompt_tokens"]
    prompt = s.post("/apply-template", {"messages": USER})[2]["prompt"]
    by_hand = s.post("/tokenize", {"content": prompt})[2]["tokens"]
    assert s.post("/tokenize", {"messages": USER})[2]["tokens"] == by_hand


def no_effect_is_said_once():
    s = Server(sandwich, tiny, "--chat-template", "llama-2", "--access-log", "--max-seqs", "2", "--max-queue", "2")
    for _ in range(2):
        assert s.post(H, dict(M, store=True, reasoning_effort="low"))[0] == 200
    status, _, j = s.post(C, dict(P, prompt=["a"] * 5))
    assert status == 400 and "5 sequences: expected at most 4" in j["error"]["message"], j
    assert s.ask("GET", "/nothing")[0] == 404
    m = s.settled()
    assert m["sandwich_queue_seconds_count"] == m["sandwich_time_to_first_token_seconds_count"] == 2
    assert 0 <= m["sandwich_queue_seconds_sum"] <= m["sandwich_time_to_first_token_seconds_sum"]
    assert m["process_open_fds"] > 3 and m["process_cpu_seconds_total"] > 0
    assert m["sandwich_kv_usage_ratio"] == 0
    status, err = s.stop()
    assert status == 0 and err.count('"store", which has no effect') == 1, err
    assert err.count('"reasoning_effort", which has no effect') == 1, err
    assert err.count("POST /v1/chat/completions 200 ") == 2 and " 4 new tokens" in err, err
    assert "GET /nothing" in err and "\x1b" not in err, err
    for word in ("sandwich ", "family llama", "weights f32", "context 256 of", "2 slots", "threads: prefill",
                 "CPUs ", "memory: weights ", "keys and values ", "serving on http://"):
        assert word in err, (word, err)


def the_dashboard_knows_the_metrics(s):
    """Every metric that the dashboard for Grafana draws is one that the server has."""
    import re
    known = {k.split("{")[0] for k in s.metrics()}
    with open("docs/grafana-dashboard.json") as f:
        board = json.load(f)
    drawn = set()
    for panel in board["panels"]:
        for target in panel["targets"]:
            drawn |= set(re.findall(r"\b(?:sandwich|process)_[a-z_]+", target["expr"]))
    assert len(board["panels"]) >= 6 and drawn and drawn <= known, drawn - known


shared = Server(sandwich, tiny, "--chat-template", "llama-2", "--max-seqs", "4", "--deterministic")
for what, *r in ROWS:
    tap.check(what, row, shared, *r)
tap.check("most of them are answered", most_are_answered)
tap.check("several prompts and choices are requests of their own", choices_are_requests, shared)
tap.check("and are streamed", choices_are_streamed, shared)
tap.check("ids and back", ids_and_back, shared)
tap.check("the dashboard's metrics", the_dashboard_knows_the_metrics, shared)
tap.check("SIGTERM ends it", lambda: shared.stop()[0] == 0 or 1 / 0)
tap.check("keys without effect, the access log, what is served", no_effect_is_said_once)
tap.finish()
