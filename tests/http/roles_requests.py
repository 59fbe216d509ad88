"""Requests of the tests of `sandwich serve --roles`, and their answers."""
import os
import random

from serving import ids_of, parallel

WORDS = "Once upon a time there was a little girl who lived in the big red house".split()
N = int(os.environ.get("ROLES_REQUESTS", "48"))


AT_ONCE = 48  # a server bounds the connections of an address


def bodies():
    rng = random.Random(7)
    for i in range(N):
        body = {"prompt": " ".join(rng.choice(WORDS) for _ in range(1 + 7 * i % 60)),
                "max_tokens": 1 + 11 * i % 50, "temperature": 0, "return_token_ids": True,
                "ignore_eos": i % 3 != 0}
        if i % 4 == 3:
            body.update(temperature=0.8, top_p=0.9, seed=i)
        if i % 6 == 2:  # the server cancels it in the machines
            body.update(stop=[".", " little"])
        yield body


BODIES = list(bodies())


def answers(server, n=N):
    """Ids and reason of each request, all at once, half of them streamed."""
    def one(i):
        if i % 2:
            events = server.events("/v1/completions", BODIES[i])
            return ids_of(events), events[-1]["choices"][0]["finish_reason"]
        choice = server.complete(**BODIES[i])["choices"][0]
        return choice["token_ids"], choice["finish_reason"]
    got = [None] * n

    def worker(k):
        for i in range(k, n, AT_ONCE):
            got[i] = one(i)
    parallel(min(n, AT_ONCE), worker)
    return got
