"""Prompts that are scored: echo with log probabilities, as evaluation harnesses ask for it."""
from serving import Server, Tap, arguments, text_of

sandwich, tiny = arguments()
tap = Tap()
COMPLETIONS = "/v1/completions"
PROMPT = [1, 70, 105, 33]


def on_one(check):
    s = Server(sandwich, tiny, "--deterministic")
    try:
        check(s)
    finally:
        assert s.stop()[0] == 0


def scores(s):
    """What the model wrote itself has the log probabilities that it had when it was written."""
    body = {"temperature": 0, "ignore_eos": True, "return_token_ids": True}
    wrote = s.complete(prompt=PROMPT, max_tokens=9, logprobs=2, **body)["choices"][0]
    whole = PROMPT + wrote["token_ids"]
    for n_new in (0, 3):
        j = s.complete(prompt=whole, max_tokens=n_new, logprobs=2, echo=True, **body)
        c, usage = j["choices"][0], j["usage"]
        logprobs = c["logprobs"]
        n = len(whole) + n_new
        assert c["token_ids"][:len(whole)] == whole and len(c["token_ids"]) == n, c
        assert [len(logprobs[k]) for k in sorted(logprobs)] == [n] * 4, logprobs
        assert logprobs["token_logprobs"][0] is None and logprobs["top_logprobs"][0] is None
        assert logprobs["token_logprobs"][4:13] == wrote["logprobs"]["token_logprobs"]
        assert logprobs["top_logprobs"][4:13] == wrote["logprobs"]["top_logprobs"]
        assert all(v < 0 for v in logprobs["token_logprobs"][1:])
        assert (usage["prompt_tokens"], usage["completion_tokens"]) == (len(whole), n_new), usage
        assert c["finish_reason"] == "length"
        for token, at in zip(logprobs["tokens"], logprobs["text_offset"]):
            assert token.startswith(("bytes:", "<")) or c["text"][at:at + len(token)] == token
    # The new tokens are those that come without a score, also where they are drawn.
    hot = dict(body, temperature=1, seed=5, max_tokens=6)
    want = s.complete(prompt=whole, **hot)["choices"][0]["token_ids"]
    assert s.complete(prompt=whole, echo=True, logprobs=0, **hot)["choices"][0]["token_ids"][-6:] == want


def text_comes_first(s):
    body = {"prompt": "hello there", "max_tokens": 5, "temperature": 0, "ignore_eos": True}
    new = s.complete(**body)["choices"][0]["text"]
    for more in ({}, {"logprobs": 1}):
        c = s.complete(echo=True, **body, **more)["choices"][0]
        assert c["text"] == "hello there" + new, c
        events = s.events(COMPLETIONS, dict(body, echo=True, stream_options={"include_usage": True}, **more))
        assert text_of(events) == c["text"], events
        assert events[-1]["usage"]["completion_tokens"] == 5, events[-1]
    # The end of a text in a prompt ends nothing.
    c = s.complete(prompt=[1, 2, 70], max_tokens=1, echo=True, logprobs=0, ignore_eos=True)["choices"][0]
    assert len(c["logprobs"]["tokens"]) == 4, c


def refused(s):
    for more, param, word in (({"max_tokens": 0}, "max_tokens", "at least 1"),
                              ({"max_tokens": 0, "echo": True}, "echo", "logprobs"),
                              ({"echo": True, "stop": "x"}, "echo", "stop"),
                              ({"echo": 3}, "echo", "echo"),
                              ({"prompt": [1], "max_tokens": 0, "echo": True, "logprobs": 0}, None, "request")):
        status, _, j = s.post(COMPLETIONS, dict({"prompt": "a"}, **more))
        assert status == 400 and word in j["error"]["message"] and j["error"]["param"] == param, j


def text_of_users(s):
    """With special false no text becomes a control token."""
    ids = [s.complete(prompt="a</s>b", max_tokens=1, echo=True, return_token_ids=True, **more)["choices"][0]["token_ids"][:-1]
           for more in ({}, {"special": True}, {"special": False})]
    assert ids[0] == ids[1] and 2 in ids[0] and 2 not in ids[2], ids
    assert s.complete(prompt="<s>a", max_tokens=1, special=False)["usage"]["prompt_tokens"] > \
        s.complete(prompt="<s>a", max_tokens=1)["usage"]["prompt_tokens"]


tap.check("a prompt's log probabilities", on_one, scores)
tap.check("the prompt's text", on_one, text_comes_first)
tap.check("control tokens in a text of users", on_one, text_of_users)
tap.check("what is not offered", on_one, refused)
tap.finish()
