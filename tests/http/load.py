"""Many requests at once: too many are refused politely, and all that are accepted end.
Arguments: [REQUESTS] of the soak."""
import json
import queue
import random
import sys
import threading
import http.client

from serving import WAIT_S, Server, Tap, arguments, parallel

sandwich, tiny = arguments()
tap = Tap()
N_CONNECTIONS = 64
n_requests = int(sys.argv[1]) if len(sys.argv) > 1 else 200


def overload():
    s = Server(sandwich, tiny, "--max-seqs", "1", "--max-queue", "1")
    body = {"prompt": [1], "max_tokens": 250, "ignore_eos": True}
    try:
        for _ in range(10):  # a burst that the server takes one by one is possible, not likely
            got = parallel(32, lambda i: s.post("/v1/completions", body))
            busy = [(head, j) for status, head, j in got if status == 429]
            assert {status for status, _, _ in got} <= {200, 429}
            if busy:
                break
        assert busy and all(int(head["Retry-After"]) >= 1 for head, _ in busy)
        assert all(j["error"]["code"] == "rate_limit_exceeded" for _, j in busy)
        assert s.complete(**body)["usage"]["completion_tokens"] == 250
        # What is refused costs nothing later.
        assert s.metrics()["sandwich_requests_waiting"] == 0
    finally:
        assert s.stop()[0] == 0


class Worker:
    """One connection that is kept open."""

    def __init__(self, s, todo, done):
        self.s, self.todo, self.done = s, todo, done
        self.c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=WAIT_S)
        self.n_busy = 0

    def run(self):
        while True:
            try:
                i = self.todo.get_nowait()
            except queue.Empty:
                self.c.close()
                return
            while not self.one(i):
                self.n_busy += 1

    def one(self, i):
        rng = random.Random(i)
        n = rng.randrange(1, 40)
        body = {"prompt": [rng.randrange(3, 1000) for _ in range(rng.randrange(1, 100))], "max_tokens": n,
                "ignore_eos": True, "stream": i % 2 == 0, "return_token_ids": True, "seed": i}
        self.c.request("POST", "/v1/completions", json.dumps(body))
        r = self.c.getresponse()
        text = r.read().decode()
        if r.status == 429:
            return False
        assert r.status == 200, (r.status, text)
        if i % 2 == 0:
            assert text.endswith("data: [DONE]\n\n")
            events = [json.loads(e[6:]) for e in text.split("\n\n")[:-2]]
        else:
            events = [json.loads(text)]
        ids = [t for e in events for t in e["choices"][0]["token_ids"]]
        assert len(ids) == n, (len(ids), n)
        self.done.append(n)
        return True


def slope(points):
    n = len(points)
    mx, my = sum(x for x, _ in points) / n, sum(y for _, y in points) / n
    return sum((x - mx) * (y - my) for x, y in points) / max(1e-9, sum((x - mx) ** 2 for x, _ in points))


def soak():
    """More requests than the server computes and queues at a time: the rest is told to come again."""
    s = Server(sandwich, tiny, "--max-seqs", "8", "--max-queue", "40")
    todo, done, wrong, rss = queue.Queue(), [], [], []
    for i in range(n_requests):
        todo.put(i)
    workers = [Worker(s, todo, done) for _ in range(N_CONNECTIONS)]

    def run(w):
        try:
            w.run()
        except Exception as e:
            wrong.append(repr(e))
    threads = [threading.Thread(target=run, args=(w,)) for w in workers]
    try:
        for t in threads:
            t.start()
        while any(t.is_alive() for t in threads):
            rss.append((len(done), s.metrics()["process_resident_memory_bytes"]))
            threading.Event().wait(0.05)
        assert not wrong, wrong[:3]
        assert len(done) == n_requests, len(done)
        m = s.metrics()
        assert m["sandwich_generated_tokens_total"] == sum(done)
        assert m["sandwich_request_seconds_count"] == n_requests
        assert m["sandwich_requests_running"] == m["sandwich_requests_canceled_total"] == 0
        later = rss[len(rss) // 2:]
        print("# %d requests, %d tokens, %d answers \"busy\"; resident memory %.1f MB at the end, "
              "%+.0f bytes per request in the second half" % (
                  n_requests, sum(done), sum(w.n_busy for w in workers), rss[-1][1] / 1e6, slope(later)))
    finally:
        assert s.stop()[0] == 0


tap.check("a full queue is answered with 429", overload)
tap.check("every accepted request ends, %d on %d connections" % (n_requests, N_CONNECTIONS), soak)
tap.finish()
