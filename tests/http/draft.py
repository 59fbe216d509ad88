"""`sandwich serve --draft` as a client meets it: tokens stay the same, and guesses are counted."""
from serving import Server, Tap, arguments

sandwich, tiny = arguments()
tap = Tap()
BODY = {"ignore_eos": True, "max_tokens": 24, "return_token_ids": True}
PROMPTS = ["one two one two one two", "a b c d e f g", "again again again again"]


def ids(s, prompt, temperature):
    return s.complete(prompt=prompt, temperature=temperature, seed=7, **BODY)["choices"][0]["token_ids"]


def counted(s, name):
    text = s.ask("GET", "/metrics")[2].decode()
    return float([l for l in text.splitlines() if l.startswith("sandwich_%s " % name)][0].split()[1])


def tokens_are_the_same(plain, *drafting):
    for prompt in PROMPTS:
        for temperature in (0, 1):
            want = ids(plain, prompt, temperature)
            assert len(want) == 24, want
            for s in drafting:
                assert ids(s, prompt, temperature) == want, (prompt, temperature)


def guesses_are_counted(plain, lookup, model):
    assert counted(plain, "draft_guessed_tokens_total") == 0
    for s in (lookup, model):
        guessed, checked, right = (counted(s, "draft_%s_tokens_total" % what)
                                   for what in ("guessed", "checked", "right"))
        assert 0 < checked <= guessed and 0 <= right <= checked, (guessed, checked, right)
    assert right > 0  # of the model itself, at temperature 0


servers = [Server(sandwich, tiny, "--deterministic", "--max-seqs", "4", *flags)
           for flags in ((), ("--draft", "lookup"), ("--draft", tiny))]
tap.check("tokens are the same", tokens_are_the_same, *servers)
tap.check("guesses are counted", guesses_are_counted, *servers)
tap.finish()
