"""`sandwich serve --kv-reuse` as a client meets it: what is taken is told, and tokens stay the same."""
from serving import Server, Tap, arguments

sandwich, tiny = arguments()
tap = Tap()
SYSTEM = "You are told what to do, at length, and you do it. "
BODY = {"temperature": 0, "ignore_eos": True, "max_tokens": 6, "return_token_ids": True}


def ask(s, prompt):
    j = s.complete(prompt=prompt, **BODY)
    usage = j["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] < usage["prompt_tokens"], usage
    return j["choices"][0]["token_ids"], usage["prompt_tokens_details"]["cached_tokens"]


def counted(s, name):
    text = s.ask("GET", "/metrics")[2].decode()
    return int([l for l in text.splitlines() if l.startswith("sandwich_%s " % name)][0].split()[1])


def cached_tokens_are_told(s, plain):
    prompts = [SYSTEM + "Then rest.", SYSTEM + "Then work.", SYSTEM + "Then rest."]
    got = [ask(s, p) for p in prompts]
    cached = [n for _, n in got]
    assert cached[0] == 0 and 16 <= cached[1] < cached[2], cached
    for p, (ids, _) in zip(prompts, got):
        assert ask(plain, p) == (ids, 0)
    assert counted(s, "kv_reused_requests_total") == 2
    assert counted(s, "kv_reused_tokens_total") == sum(cached)
    assert counted(plain, "kv_reused_requests_total") == 0


servers = [Server(sandwich, tiny, "--deterministic", "--max-seqs", "4", *flags)
           for flags in (("--kv-reuse",), ())]
tap.check("cached tokens are told", cached_tokens_are_told, *servers)
tap.finish()
