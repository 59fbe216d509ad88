"""The routes of `sandwich serve` as a client meets them."""
import http.client
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import threading
import time

from serving import (CONTROL, WAIT_S, Server, Skip, Tap, arguments, control_hash, ids_of, parallel,
                     text_of)

sandwich, tiny = arguments()
tap = Tap()
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
GREEDY = {"prompt": "hello there", "temperature": 0, "ignore_eos": True,
          "return_token_ids": True}
TALK = {"messages": [{"role": "user", "content": "hello"}], "temperature": 0,
        "ignore_eos": True, "max_tokens": 12}


def reports(s):
    status, _, text = s.ask("GET", "/health")
    assert (status, json.loads(text)) == (200, {"status": "ok"})
    status, _, text = s.ask("GET", "/v1/models")
    model = json.loads(text)["data"][0]
    assert status == 200 and model["id"] == "tiny" and model["max_model_len"] == 256
    assert model["meta"]["n_vocab"] > 256


def same_as_run(s):
    out = subprocess.run([sandwich, "run", "--no-pin", "--model", tiny, "--prompt", "hello there",
                          "-n", "20", "--ignore-eos", "--ids"], capture_output=True, text=True)
    ids = [int(i) for i in out.stdout.split()]
    j = s.complete(max_tokens=20, **GREEDY)
    choice = j["choices"][0]
    assert choice["token_ids"] == ids and len(ids) == 20
    assert choice["finish_reason"] == "length" and j["object"] == "text_completion"
    assert j["usage"]["completion_tokens"] == 20
    assert j["usage"]["total_tokens"] == j["usage"]["prompt_tokens"] + 20
    by_ids = subprocess.run([sandwich, "run", "--no-pin", "--model", tiny, "--prompt-ids", "7,8",
                             "-n", "5", "--ignore-eos", "--ids"], capture_output=True, text=True)
    got = s.complete(**dict(GREEDY, prompt=[7, 8], max_tokens=5))["choices"][0]["token_ids"]
    assert got == [int(i) for i in by_ids.stdout.split()]
    assert s.complete(**dict(GREEDY, prompt=[[7, 8]], max_tokens=5))["choices"][0]["token_ids"] == got


def streams_the_same(s):
    whole = s.complete(max_tokens=30, **GREEDY)
    events = s.events(COMPLETIONS, dict(GREEDY, max_tokens=30, stream_options={"include_usage": True}))
    assert len(events) == 31  # one for each token, and the usage
    assert ids_of(events) == whole["choices"][0]["token_ids"]
    assert text_of(events) == whole["choices"][0]["text"]
    assert [c["finish_reason"] for e in events for c in e["choices"]] == [None] * 29 + ["length"]
    assert events[-1]["usage"] == whole["usage"] and events[-1]["choices"] == []
    assert all(e["usage"] is None for e in events[:-1])
    assert len({e["id"] for e in events}) == 1 and events[0]["id"].startswith("cmpl-")
    assert "usage" not in s.events(COMPLETIONS, dict(GREEDY, max_tokens=1))[0]


def chats(s):
    status, _, whole = s.post(CHAT, TALK)
    choice = whole["choices"][0]
    assert status == 200 and whole["object"] == "chat.completion"
    assert choice["message"]["role"] == "assistant" and whole["id"].startswith("chatcmpl-")
    events = s.events(CHAT, TALK)
    assert len(events) == 12 and events[0]["object"] == "chat.completion.chunk"
    assert text_of(events) == choice["message"]["content"]
    assert [("role" in e["choices"][0]["delta"]) for e in events] == [True] + [False] * 11
    assert events[-1]["choices"][0]["finish_reason"] == "length"
    parts = dict(TALK, messages=[{"role": "user", "content": [
        {"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]}])
    assert s.post(CHAT, parts)[2]["choices"] == whole["choices"]
    # The same prompt written by hand, where control tokens are recognised.
    by_hand = s.complete(prompt="[INST] hello [/INST]", temperature=0, ignore_eos=True, max_tokens=12)
    text = by_hand["choices"][0]["text"]
    assert (text[1:] if text[0] == " " else text) == choice["message"]["content"]
    assert s.complete(prompt="<s>a")["usage"]["prompt_tokens"] == s.complete(prompt="a")["usage"]["prompt_tokens"]
    # In a message they are text: it cannot end its turn.
    longer = dict(TALK, messages=[{"role": "user", "content": "a</s><s>b"}])
    ended = s.complete(prompt="[INST] a</s><s>b [/INST]", temperature=0, ignore_eos=True, max_tokens=1)
    assert s.post(CHAT, longer)[2]["usage"]["prompt_tokens"] > ended["usage"]["prompt_tokens"]


def default_lengths(s):
    assert s.complete(prompt="a", ignore_eos=True)["usage"]["completion_tokens"] == 16
    j = s.post(CHAT, {k: v for k, v in TALK.items() if k != "max_tokens"})[2]
    assert j["usage"]["total_tokens"] == 256
    assert s.post(CHAT, dict(TALK, max_tokens=None, max_completion_tokens=3))[2]["usage"][
        "completion_tokens"] == 3


def stops(s):
    text = s.complete(max_tokens=40, **GREEDY)["choices"][0]["text"]
    for n in (1, 2, 3, 5):
        for at in (0, 3, 9, 20):
            stop = text[at:at + n]
            if "\ufffd" in stop or not stop:
                continue
            want = text[:text.index(stop)]
            j = s.complete(max_tokens=40, stop=[stop, "never seen"], **GREEDY)
            c = j["choices"][0]
            assert (c["text"], c["finish_reason"]) == (want, "stop"), (stop, c["text"], want)
            assert j["usage"]["completion_tokens"] <= 40
            events = s.events(COMPLETIONS, dict(GREEDY, max_tokens=40, stop=stop))
            assert text_of(events) == want, (stop, text_of(events))
            assert events[-1]["choices"][0]["finish_reason"] == "stop"
            assert ids_of(events) == c["token_ids"]
    # What might have become a stop string is shown when it did not.
    almost = text[-3:] + "\x7f"
    assert s.complete(max_tokens=40, stop=almost, **GREEDY)["choices"][0]["text"] == text
    assert text_of(s.events(COMPLETIONS, dict(GREEDY, max_tokens=40, stop=almost))) == text


def stops_at_the_end(s):
    """Bytes that form no character become U+FFFD when the answer ends: a stop string found only there was shown."""
    n = 0
    for k in range(3, 200):
        body = {"prompt": [1, k, 77, k], "max_tokens": 9, "temperature": 0, "ignore_eos": True}
        text = s.complete(**body)["choices"][0]["text"]
        if not text.endswith("\ufffd") or text.count(text[-2:]) > 1:
            continue
        for stop in ("\ufffd", text[-2:]):
            want = text[:text.index(stop)]
            c = s.complete(stop=stop, **body)["choices"][0]
            assert (c["text"], c["finish_reason"]) == (want, "stop"), (text, stop, c)
            assert text_of(s.events(COMPLETIONS, dict(body, stop=stop))) == want
        n += 1
    assert n >= 3, n


def offsets(s):
    """Each token's text begins at its offset, also behind bytes that form no character."""
    n = 0
    for k in range(3, 120):
        c = s.complete(prompt=[1, k, 77, k], max_tokens=12, temperature=1, seed=k, ignore_eos=True, logprobs=0)["choices"][0]
        pairs = list(zip(c["logprobs"]["tokens"], c["logprobs"]["text_offset"]))
        for i, (token, at) in enumerate(pairs):
            if token.startswith("bytes:") or token.startswith("<") or token == "\ufffd":
                continue
            assert c["text"][at:at + len(token)] == token, (token, at, c)
            n += i > 0 and pairs[i - 1][0].startswith("bytes:")
    assert n >= 3, n


def one_model(s):
    listed = json.loads(s.ask("GET", "/v1/models")[2])["data"][0]
    status, _, text = s.ask("GET", "/v1/models/" + listed["id"])
    assert status == 200 and json.loads(text) == listed, text
    status, _, text = s.ask("GET", "/v1/models/other")
    assert status == 404 and json.loads(text)["error"]["code"] == "model_not_found", text
    assert s.ask("POST", "/v1/models/" + listed["id"], "{}")[0] == 405


def usage_in_every_event(s):
    events = s.events(COMPLETIONS, dict(GREEDY, max_tokens=3, stream_options={
        "include_usage": True, "continuous_usage_stats": True}))
    assert [e["usage"]["completion_tokens"] for e in events] == [1, 2, 3, 3], events
    assert all(sum(list(e["usage"].values())[:2]) == e["usage"]["total_tokens"] for e in events)
    only = dict(GREEDY, max_tokens=1, stream_options={"continuous_usage_stats": True})
    assert "usage" not in s.events(COMPLETIONS, only)[0]


def ends_of_text(s):
    for seed in range(200):  # a hot sampler meets </s> sooner or later
        body = {"prompt": "a", "max_tokens": 200, "temperature": 3, "seed": seed, "return_token_ids": True}
        c = s.complete(**body)["choices"][0]
        if c["finish_reason"] == "stop":
            break
    assert c["finish_reason"] == "stop" and c["token_ids"][-1] == 2
    assert "</s>" not in c["text"]
    on = s.complete(ignore_eos=True, **body)["choices"][0]
    assert on["finish_reason"] == "length" and on["token_ids"][:len(c["token_ids"])] == c["token_ids"]
    events = s.events(COMPLETIONS, body)
    assert text_of(events) == c["text"] and ids_of(events) == c["token_ids"]


def samples(s):
    hot = {"prompt": "a", "max_tokens": 20, "ignore_eos": True, "temperature": 1, "return_token_ids": True}

    def ids(**more):
        return s.complete(**dict(hot, **more))["choices"][0]["token_ids"]
    assert ids(seed=1) == ids(seed=1) != ids(seed=2)
    assert ids() != ids()  # without a seed each request has its own
    greedy = ids(temperature=0)
    for one in ({"top_k": 1}, {"top_p": 0}, {"top_p": 1e-9}, {"min_p": 1}):
        assert ids(seed=3, **one) == greedy, one
    assert ids(seed=1, top_k=-1) == ids(seed=1)


def log_probabilities(s):
    j = s.complete(max_tokens=6, logprobs=3, **GREEDY)
    c = j["choices"][0]
    p = c["logprobs"]
    assert [len(p[k]) for k in ("tokens", "token_logprobs", "top_logprobs", "text_offset")] == [6] * 4
    for prob, top in zip(p["token_logprobs"], p["top_logprobs"]):
        values = list(top.values())
        assert len(top) == 3 and values == sorted(values, reverse=True)
        assert prob == values[0] < 0  # greedy
    assert p["text_offset"][0] == 0 and p["text_offset"] == sorted(p["text_offset"])
    events = s.events(COMPLETIONS, dict(GREEDY, max_tokens=6, logprobs=3))
    for key, values in p.items():
        assert [v for e in events for v in e["choices"][0]["logprobs"][key]] == values, key
    talk = dict(TALK, logprobs=True, top_logprobs=2)
    content = s.post(CHAT, talk)[2]["choices"][0]["logprobs"]["content"]
    assert len(content) == 12
    for one in content:
        assert one["logprob"] == one["top_logprobs"][0]["logprob"] and len(one["top_logprobs"]) == 2
        assert bytes(one["bytes"]).decode(errors="replace") == one["token"] or \
            one["token"].startswith("bytes:")
    streamed = s.events(CHAT, talk)
    assert [l for e in streamed for l in e["choices"][0]["logprobs"]["content"]] == content
    # All together they are a distribution: e^l over the whole vocabulary sums to 1.
    assert sum(2.718281828459045 ** v for v in p["top_logprobs"][0].values()) < 1


def refused(s):
    cases = [
        (COMPLETIONS, "{", 400, None, "offset"),
        (COMPLETIONS, "[]", 400, None, "object"),
        (COMPLETIONS, {}, 400, "prompt", "missing"),
        (COMPLETIONS, {"prompt": 5}, 400, "prompt", "token ids"),
        (COMPLETIONS, {"prompt": ["a", 5]}, 400, "prompt", "token ids"),
        (COMPLETIONS, {"prompt": [1, -1]}, 400, "prompt", "element 1"),
        (COMPLETIONS, {"prompt": [5000]}, 400, None, "outside"),
        (COMPLETIONS, {"prompt": "a", "max_token": 1}, 400, None, '"max_tokens"'),
        (COMPLETIONS, {"prompt": "a", "max_tokens": 0}, 400, "max_tokens", "max_tokens"),
        (COMPLETIONS, {"prompt": "a", "max_tokens": 256}, 400, None, "at most 256"),
        (COMPLETIONS, {"prompt": "a" * 100000}, 400, None, "longer than"),
        (COMPLETIONS, {"prompt": "a", "temperature": -1}, 400, "temperature", "0 to"),
        (COMPLETIONS, {"prompt": "a", "temperature": "hot"}, 400, "temperature", "number"),
        (COMPLETIONS, {"prompt": "a", "n": 129}, 400, "n", "128"),
        (COMPLETIONS, {"prompt": "a", "echo": True, "stop": "x"}, 400, "echo", "not offer"),
        (COMPLETIONS, {"prompt": "a", "stop": ""}, 400, "stop", "bytes"),
        (COMPLETIONS, {"prompt": "a", "model": "gpt-9"}, 404, "model", '"tiny"'),
        (COMPLETIONS, {"prompt": "a", "stream_options": {}}, 400, "stream_options", "stream"),
        (CHAT, {"messages": []}, 400, "messages", "at least one"),
        (CHAT, {"messages": [{"role": "tool", "content": "x"}]}, 400, "messages", "in turn"),
        (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "messages", "text"),
        (CHAT, {"messages": [{"role": "user", "content": "x"}], "top_logprobs": 2}, 400, "top_logprobs", "logprobs"),
        (CHAT, {"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function"}]}, 400, "tools", "not read"),
    ]
    for path, body, status, param, part in cases:
        got, _, j = s.post(path, body)
        e = j["error"]
        assert got == status and part in e["message"] and e["param"] == param, (body, got, j)
        assert set(e) == {"message", "type", "code", "param"} and e["type"] == "invalid_request_error"
    assert s.post(COMPLETIONS, {"prompt": "a", "max_tokens": 256})[2]["error"]["code"] == "context_length_exceeded"
    assert s.post(COMPLETIONS, {"prompt": [1] * 300})[2]["error"]["code"] == "context_length_exceeded"
    assert s.post(COMPLETIONS, {"prompt": "a" * 500000})[2]["error"]["code"] == "context_length_exceeded"
    for limits in ({"prompt": "a", "stop": ["x"] * 17}, {"prompt": "a", "logit_bias": eval("[" * 70 + "]" * 70)}):
        status, _, j = s.post(COMPLETIONS, limits)
        assert status == 400 and j["error"]["code"] is None, j
    assert s.post(COMPLETIONS, {"prompt": "a", "model": "x"})[2]["error"]["code"] == "model_not_found"
    for method, path, status in (("GET", "/nothing", 404), ("GET", COMPLETIONS, 405), ("POST", "/health", 405),
                                 ("PUT", COMPLETIONS, 405)):
        got, _, text = s.ask(method, path, "" if method != "GET" else None)
        assert got == status and json.loads(text)["error"]["message"], (method, path, got)
    harmless = {"prompt": "a", "n": 1, "best_of": 1, "echo": False, "user": "me", "stop": None,
                "frequency_penalty": 0, "logit_bias": {}, "logprobs": None}
    assert s.post(COMPLETIONS, harmless)[0] == 200


def one_client_with_many_connections():
    """It gets an answer on each of them: at worst status 429 with a reason."""
    s = Server(sandwich, tiny)
    body = json.dumps(dict(GREEDY, max_tokens=4))
    request = "POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (
        COMPLETIONS, len(body), body)
    answered = {}
    try:
        connections = [s.connect() for _ in range(320)]
        for c in connections:
            c.sendall(request.encode())
        for c in connections:
            r = http.client.HTTPResponse(c)
            r.begin()
            j = json.loads(r.read())
            assert r.status == 200 or r.status == 429 and j["error"]["message"], (r.status, j)
            answered[r.status] = answered.get(r.status, 0) + 1
            c.close()
        assert answered[200] >= 256, answered  # those that wait by default
    finally:
        assert s.stop()[0] == 0


def metrics_are_sound(s):
    before = s.settled()
    s.complete(max_tokens=7, **GREEDY)
    s.post(COMPLETIONS, {})

    def grew(name):
        return after[name] - before.get(name, 0)
    for _ in range(1000):
        after = s.metrics()
        if after["sandwich_requests_running"] == after["sandwich_kv_reserved_tokens"] == 0 and \
                grew("sandwich_request_seconds_count") > 0:
            break
        time.sleep(0.01)
    assert grew("sandwich_generated_tokens_total") == 7
    assert grew("sandwich_time_to_first_token_seconds_count") == 1
    assert grew("sandwich_inter_token_seconds_count") == 6
    assert grew("sandwich_request_seconds_count") == 1
    assert grew('sandwich_http_responses_total{code="400"}') == 1
    assert after["sandwich_kv_reserved_tokens"] == 0 and after["sandwich_kv_budget_tokens"] > 0
    assert after["sandwich_kv_preempt_total"] == after["sandwich_recomputed_tokens_total"] == 0
    assert after["sandwich_requests_running"] == after["sandwich_requests_waiting"] == 0
    assert grew('sandwich_step_seconds_total{phase="decode"}') > 0
    assert after['sandwich_request_seconds_bucket{le="+Inf"}'] == after["sandwich_request_seconds_count"]
    names = set()
    for line in s.ask("GET", "/metrics")[2].decode().splitlines():
        if line.startswith("# TYPE "):
            assert line.split()[2] not in names
            names.add(line.split()[2])
        elif line[0] != "#":
            family = line.split("{")[0].split(" ")[0]
            assert any(family == n or family.startswith(n + "_") for n in names), line


def promtool_agrees(s):
    text = s.ask("GET", "/metrics")[2]
    out = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True)
    assert out.returncode == 0, out.stderr


def same_tokens_in_any_company():
    """With --deterministic a request's tokens do not depend on what else is computed."""
    s = Server(sandwich, tiny, "--deterministic", "--max-seqs", "6", "--max-step-tok", "32")
    try:
        def body(i):
            return {"prompt": [(7 * i + k * k) % 1000 for k in range(1 + 11 * i)], "max_tokens": 10 + 9 * i,
                    "temperature": i % 3, "seed": i, "ignore_eos": True, "return_token_ids": True}

        def ids(i):
            if i % 2:
                return ids_of(s.events(COMPLETIONS, body(i)))
            return s.complete(**body(i))["choices"][0]["token_ids"]
        alone = [ids(i) for i in range(12)]
        for _ in range(3):
            assert parallel(12, ids) == alone
    finally:
        assert s.stop()[0] == 0


def drains(sig):
    s = Server(sandwich, tiny, "--deterministic", "--max-seqs", "2")
    want = control_hash(s)
    began, go = threading.Barrier(5), []

    def one(i):
        began.wait()
        return control_hash(s)

    def end():
        began.wait()
        while s.metrics()["sandwich_requests_running"] == 0:
            pass
        go.append(s.stop(sig))
    t = threading.Thread(target=end)
    t.start()
    try:
        got = parallel(4, lambda i: _or_refused(one, i))
    finally:
        t.join()
    assert want in got and set(got) <= {want, None}, got  # those that had begun went on to the end
    status, err = go[0]
    assert status == 0 and "shutting down" in err, (status, err)


def _or_refused(fn, i):
    try:
        return fn(i)
    except (ConnectionError, AssertionError):
        return None


def drain_has_a_limit():
    s = Server(sandwich, tiny, "--drain-timeout-s", "0")
    c = s.connect()
    body = json.dumps(dict(CONTROL, stream=True, max_tokens=240))
    c.sendall(("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)).encode())
    assert c.recv(1)
    status, _ = s.stop(signal.SIGINT)
    assert status == 0
    c.close()


def a_lost_rank_is_told():
    try:
        s = Server(sandwich, tiny, "--ranks", "2", "--threads", "2", "--rank-mode", "processes", "--max-seqs", "2")
    except RuntimeError as e:
        if "threads: 2 asked for" not in str(e):
            raise
        raise Skip("two ranks need two CPUs")
    pid, seen = s.process.pid, []

    def ask():
        try:
            while True:
                seen.append(s.post(COMPLETIONS, dict(GREEDY, max_tokens=200)))
        except (OSError, ValueError, http.client.HTTPException):
            pass  # it has ended
    t = threading.Thread(target=ask)
    t.start()
    while not seen:
        time.sleep(0.01)
    with open("/proc/%d/task/%d/children" % (pid, pid)) as f:
        os.kill(int(f.read().split()[0]), signal.SIGKILL)
    _, err = s.process.communicate(timeout=WAIT_S)
    t.join()
    assert s.process.returncode == 1 and "killed by SIGKILL" in err.splitlines()[-1], err
    assert all(status == 200 or status in (500, 503) and j["error"]["type"] == "server_error"
               for status, _, j in seen), seen[-1]


def ids_without_a_tokenizer():
    dim, hidden, layers, heads, vocab, length = 32, 40, 2, 4, 50, 64
    n = vocab * dim + layers * (2 * dim + 4 * dim * dim + 3 * dim * hidden) + dim + length * dim // heads
    rng = random.Random(1)
    path = os.path.join(os.path.dirname(tiny), "ids.bin")
    with open(path, "wb") as f:
        f.write(struct.pack("7i", dim, hidden, layers, heads, heads, vocab, length))
        f.write(struct.pack("%df" % n, *(rng.gauss(0, 0.5) for _ in range(n))))
    s = Server(sandwich, path)
    try:
        body = {"model": "ids", "prompt": [1, 2], "max_tokens": 5, "ignore_eos": True, "return_token_ids": True,
                "logprobs": 1, "temperature": 0}
        c = s.complete(**body)["choices"][0]
        assert len(c["token_ids"]) == 5 and c["text"] == ""
        assert c["logprobs"]["tokens"] == ["token_id:%d" % i for i in c["token_ids"]]
        assert ids_of(s.events(COMPLETIONS, body)) == c["token_ids"]
        for path, wrong in ((COMPLETIONS, {"prompt": "a"}), (COMPLETIONS, {"prompt": [1], "stop": "a"}), (CHAT, TALK)):
            status, _, j = s.post(path, wrong)
            assert status == 400 and "no tokenizer" in j["error"]["message"], (status, j)
    finally:
        assert s.stop()[0] == 0


def with_template(template):
    """The tiny model with this chat template, before its other keys. 32 divides what is added, so
    that tensors stay aligned."""
    def key(name, text):
        return struct.pack("<Q", len(name)) + name + struct.pack("<IQ", 8, len(text)) + text
    added = key(b"tokenizer.chat_template", template.encode())
    added += key(b"test.pad", b" " * (-(len(added) + len(key(b"test.pad", b""))) % 32))
    path = os.path.join(os.path.dirname(tiny), "template.gguf")
    with open(tiny, "rb") as f, open(path, "wb") as out:
        head = f.read(24)
        out.write(head[:16] + struct.pack("<Q", struct.unpack("<Q", head[16:])[0] + 2) + added + f.read())
    return path


def same_prompt(s, text, **chat):
    """The chat has the tokens of this text, and the model continues it in the same way."""
    status, _, a = s.post(CHAT, dict(max_tokens=3, temperature=0, logprobs=True, **chat))
    assert status == 200, a
    b = s.complete(prompt=text, max_tokens=3, temperature=0, logprobs=0)
    assert a["usage"]["prompt_tokens"] == b["usage"]["prompt_tokens"], (a["usage"], b["usage"])
    assert [t["logprob"] for t in a["choices"][0]["logprobs"]["content"]] == \
        b["choices"][0]["logprobs"]["token_logprobs"]


def the_models_own_template():
    # Regressions: templates were guessed. Earlier reasoning stayed in the prompt, and a template's BOS was lost.
    user, bye = ({"role": "user", "content": c} for c in ("Hi", "Bye"))
    said = {"role": "assistant", "content": "<think>\nhmm\n</think>\n\nYo"}
    s = Server(sandwich, with_template(
        "{{ bos_token }}{% for m in messages %}{% set c = m.content %}{% if m.role == 'assistant' and '</think>' in c %}"
        "{% set c = c.split('</think>')[-1].lstrip('\\n') %}{% endif %}{{ m.role ~ ': ' ~ c ~ eos_token }}"
        "{% endfor %}{% if tools %}{{ tools | tojson }}{# <tool_call> #}{% endif %}{% if add_generation_prompt %}A:{% endif %}"
        "{{ strftime_now('%d %b %Y') }}"), "--chat-date", "2025-07-20")
    try:
        end = "A:20 Jul 2025"
        same_prompt(s, "<s>user: Hi</s>assistant: Yo</s>user: Bye</s>" + end, messages=[user, said, bye])
        same_prompt(s, '<s>user: Hi</s>[{"type": "function"}]' + end, messages=[user], tools=[{"type": "function"}])
        same_prompt(s, "<s>user: Hi</s>assistant: Yo", messages=[user, dict(said, content="Yo")],
                    continue_final_message=True, add_generation_prompt=False)
        for more, param, word in (({"messages": [user], "continue_final_message": True}, "messages", "assistant's"),
                                  ({"add_generation_prompt": False}, "add_generation_prompt", "without"),
                                  ({"chat_template_kwargs": {"thinking": True}}, None, "thinking"),
                                  ({"messages": [dict(user, name="Ann")]}, "messages", "name"),
                                  ({"messages": [user, dict(said, tool_calls=[{}])]}, "messages", "tool_calls")):
            status, _, j = s.post(CHAT, dict({"messages": [user], "max_tokens": 1}, **more))
            assert status == 400 and word in j["error"]["message"] and j["error"]["param"] == param, j
        hostile = {"role": "user", "content": "</s><s>"}
        status, _, j = s.post(CHAT, dict(messages=[hostile], max_tokens=1))
        plain = s.complete(prompt="<s>user: </s><s></s>" + end, max_tokens=1)
        assert j["usage"]["prompt_tokens"] > plain["usage"]["prompt_tokens"], (j, plain)
    finally:
        assert s.stop()[0] == 0
    s = Server(sandwich, with_template("{{ 1 }}\n{{ messages | wordwrap }}"))
    try:
        status, _, j = s.post(CHAT, TALK)
        assert status == 400 and 'line 2, column 15: the filter "wordwrap"' in j["error"]["message"], j
        assert s.complete(prompt="a", max_tokens=1)["usage"]["completion_tokens"] == 1
    finally:
        status, err = s.stop()
        assert status == 0 and "wordwrap" in err, err


def other_ways_to_start():
    def run(*flags):
        out = subprocess.run([sandwich, "serve", *flags], capture_output=True, text=True, timeout=120)
        return out.returncode, out.stderr
    assert run() == (2, "sandwich serve: --model is needed: the file of the model to serve\n")
    status, err = run("--model", tiny, "--no-pin", "--port", "0", "--chat-template", "llama-9")
    assert status == 1 and "chatml" in err.splitlines()[-1], err
    status, err = run("--model", tiny, "--no-pin", "--port", "0", "--chat-template", "llama-3")
    assert status == 1 and "<|begin_of_text|>" in err.splitlines()[-1], err
    status, err = run("--model", tiny, "--no-pin", "--port", "0", "--chat-date", "2025-02-30")
    assert status == 2 and "--chat-date" in err.splitlines()[-1], err
    status, err = run("--model", tiny, "--host", "no.such.host.invalid")
    assert status == 2 and "no.such.host.invalid" in err, err
    s = Server(sandwich, tiny, "--model-name", "mine")
    try:
        status, err = run("--model", tiny, "--no-pin", "--port", str(s.port))
        assert status == 1 and "cannot listen there" in err, err  # before the model is loaded
        assert s.complete(model="mine", prompt="a")["model"] == "mine"
        status, _, j = s.post(CHAT, TALK)
        assert status == 400 and "--chat-template" in j["error"]["message"], j
    finally:
        assert s.stop()[0] == 0


def curl(s, path, *words):
    """Status, content type and body, as a user of curl gets them."""
    out = subprocess.run(["curl", "-sN", "-w", "\n%{http_code} %{content_type}",
                          "http://127.0.0.1:%d%s" % (s.port, path), *words], capture_output=True, text=True)
    assert out.returncode == 0, out
    body, last = out.stdout.rsplit("\n", 1)
    return int(last.split(" ", 1)[0]), last.split(" ", 1)[1], body


def curl_talks_to_it(s):
    for path, body in ((COMPLETIONS, dict(GREEDY, max_tokens=3)), (CHAT, dict(TALK, max_tokens=3))):
        status, kind, text = curl(s, path, "-d", json.dumps(body))
        whole = json.loads(text)
        assert status == 200 and kind.startswith("application/json"), (status, kind)
        assert whole["usage"]["completion_tokens"] == 3 and len(whole["choices"]) == 1
        status, kind, text = curl(s, path, "-d", json.dumps(dict(body, stream=True)))
        assert status == 200 and kind.startswith("text/event-stream"), (status, kind)
        assert text.count("data: ") == 4 and text.endswith("data: [DONE]\n\n"), text
        events = [json.loads(l[len("data: "):]) for l in text.splitlines() if l.startswith("data: {")]
        choice = whole["choices"][0]
        assert text_of(events) == choice.get("text", choice.get("message", {}).get("content"))


def curl_is_refused(s):
    long = ",".join(["1"] * 300)
    for words, status in (((COMPLETIONS, "-d", "{"), 400), ((COMPLETIONS, "-d", "{}"), 400),
                          ((COMPLETIONS, "-d", '{"prompt": [%s]}' % long), 400),
                          ((COMPLETIONS, "-d", '{"prompt": "a", "model": "x"}'), 404),
                          ((CHAT, "-d", '{"messages": 1, "stream": true}'), 400),
                          ((COMPLETIONS,), 405), (("/v1/nothing",), 404),
                          (("/v1/models", "-X", "DELETE"), 405)):
        got, kind, text = curl(s, *words)
        error = json.loads(text)["error"]
        assert got == status and kind.startswith("application/json"), (words, got, kind)
        assert set(error) == {"message", "type", "code", "param"} and error["message"], error
        assert error["type"] == "invalid_request_error", error


def ends_well(s):
    status, err = s.stop()
    assert status == 0, (status, err)


shared = Server(sandwich, tiny, "--chat-template", "llama-2", "--max-seqs", "4")
for name, fn in (("health and models", reports), ("the tokens of `sandwich run`", same_as_run),
                 ("a stream tells the same", streams_the_same), ("chats", chats),
                 ("default lengths", default_lengths), ("stop strings", stops),
                 ("stop strings that the end completes", stops_at_the_end), ("offsets of tokens", offsets),
                 ("one model", one_model), ("usage in every event", usage_in_every_event),
                 ("the end of a text", ends_of_text), ("sampling options", samples),
                 ("log probabilities", log_probabilities), ("refusals in OpenAI's shape", refused),
                 ("metrics", metrics_are_sound)):
    tap.check(name, fn, shared)
if shutil.which("curl"):
    tap.check("curl: whole and streamed, completion and chat", curl_talks_to_it, shared)
    tap.check("curl: errors in OpenAI's shape", curl_is_refused, shared)
else:
    tap.skip("curl", "curl is not installed")
if shutil.which("promtool"):
    tap.check("promtool", promtool_agrees, shared)
else:
    tap.skip("promtool", "promtool is not installed")
tap.check("SIGTERM ends it when it is idle", ends_well, shared)
tap.check("one client with many connections", one_client_with_many_connections)
tap.check("the same tokens in any company", same_tokens_in_any_company)
tap.check("SIGTERM lets requests end", drains, signal.SIGTERM)
tap.check("SIGINT lets requests end", drains, signal.SIGINT)
tap.check("requests end at the drain's limit", drain_has_a_limit)
tap.check("the death of a rank ends requests and server", a_lost_rank_is_told)
tap.check("ids without a tokenizer", ids_without_a_tokenizer)
tap.check("names, templates and addresses", other_ways_to_start)
tap.check("the model's own template", the_models_own_template)
tap.finish()
