"""A server of OpenAI's completions whose "model" is a formula, and that can be told to have one
fault: the wrong answers, silent outcomes and hangs that `testbed conformance` must name."""
import hashlib
import http.server
import json
import random
import threading
import time

VOCAB, SHARED, LONG = 1000, 16, 100


def token_after(ids, seed):
    """The next token: of all ids so far."""
    text = "%s/%d" % (",".join(map(str, ids)), seed)
    return 3 + int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little") % (VOCAB - 3)


def word(i):
    return " w%d" % i


class State:
    """ids: prompts and answers of ids; "probs": ids only with probabilities, as of llama-server."""

    def __init__(self, fault, ids):
        self.fault, self.ids = fault, ids
        self.lock = threading.Lock()
        self.seen, self.running, self.preempted, self.n, self.left = set(), 0, 0, 0, False
        self.rng = random.Random(3)

    def begin(self, prompt, n_new, seed):
        """Faults of a request by what else there is: the index of a token that is wrong, or -1."""
        with self.lock:
            self.n += 1
            self.running += 1
            hit = tuple(prompt[:SHARED]) in self.seen and len(prompt) >= SHARED
            self.seen.add(tuple(prompt[:SHARED]))
            others = self.running > 1
            many = self.running > 1 and n_new > 100
            self.preempted += many
        f = self.fault
        if f == "noise" or f == "noise_and_prefix":
            if self.rng.random() < 0.15:
                return 2
        if f in ("sampled_noise", "sampled_noise_and_batch") and seed:
            return 0 if self.rng.random() < 0.5 else -1
        if f == "sampled_noise_and_batch":
            f = "batch"
        wrong = {"prefix": hit, "noise_and_prefix": hit and len(prompt) == 48,
                 "chunked": others and len(prompt) > LONG, "preempted": many,
                 "batch": others and len(prompt) < 48, "abandoned": self.left and hit}.get(f, False)
        if f == "split":
            return 0 if n_new == 1 else -1
        if f == "continued":  # a position that is off by one after longer prompts
            return 1 if 48 < len(prompt) < LONG else -1
        return min(3, n_new - 1) if wrong else -1

    def end(self):
        """Before its last bytes are sent, since the client's next request may come right after."""
        with self.lock:
            self.running -= 1


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each answer waits for an acknowledgement
    wbufsize = -1

    def log_message(self, *args):
        pass

    def say(self, status, body, kind="application/json"):
        text = body.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
        self.wfile.flush()

    def do_GET(self):
        s = self.server.state
        if self.path == "/v1/models":
            entry = {"id": "formula", "owned_by": "scripted", "max_model_len": 1024,
                     "meta": {"n_vocab": VOCAB}}
            self.say(200, json.dumps({"object": "list", "data": [entry]}))
        elif self.path == "/metrics":
            self.say(200, "# TYPE kv_preempt_total counter\nkv_preempt_total %d\n" % s.preempted, "text/plain")
        else:
            self.say(404, "{}")

    def do_POST(self):
        s = self.server.state
        q = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt, n_new = q["prompt"], q["max_tokens"]
        if isinstance(prompt, str):
            if s.ids:
                return self.say(400, json.dumps({"error": {"message": "prompt must be ids"}}))
            prompt = [int(hashlib.sha256(w.encode()).hexdigest()[:6], 16) for w in prompt.split()]
        elif not s.ids:
            return self.say(400, json.dumps({"error": {"message": "prompt must be a string"}}))
        wrong = s.begin(prompt, n_new, q.get("seed"))
        self.ended = False
        try:
            self.answer(s, q, prompt, n_new, wrong)
        except OSError:
            s.left = True
        self.end(s)

    def end(self, s):
        if not self.ended:
            s.end()
        self.ended = True

    def answer(self, s, q, prompt, n_new, wrong):
        if s.n > 12 and (s.fault == "hang" or s.fault == "hang_once" and s.n == 40):
            time.sleep(3600)
        if s.n > 12 and s.fault == "refuse" and s.running > 1:
            return self.say(503, json.dumps({"error": {"message": "no slot is free"}}))
        if s.fault == "long" and s.n > 12:
            n_new += 1
        if s.fault == "short" and s.n > 12 and n_new > 4:
            n_new -= 1
        ids = []
        for i in range(n_new):
            t = token_after(prompt + ids, q.get("seed", 0) if q["temperature"] else 0)
            ids.append(t if i != wrong else 3 + t % 7)
            if s.fault == "split" and n_new == 1:
                ids[0] = 3 + ids[0] % 7
        usage = {"prompt_tokens": len(prompt) + (s.fault == "usage_prompt" and s.n > 12),
                 "completion_tokens": len(ids) - (s.fault == "usage_new" and s.n > 12)}
        usage["total_tokens"] = sum(usage.values()) + (s.fault == "usage_total")
        (self.stream if q["stream"] else self.whole)(s, q, ids, usage)

    def add_ids(self, s, q, choice, ids):
        if s.ids is True and q.get("return_token_ids"):
            choice["token_ids"] = ids
        elif s.ids == "probs" and q.get("n_probs"):
            choice["logprobs"] = {"content": [{"id": i, "token": word(i)} for i in ids]}

    def whole(self, s, q, ids, usage):
        choice = {"index": 0, "text": "".join(map(word, ids)),
                  "finish_reason": None if s.fault == "no_finish" else "length"}
        self.add_ids(s, q, choice, ids)
        time.sleep(0.005)
        body = {"choices": [choice], "usage": usage}
        if s.fault == "no_usage":
            del body["usage"]
        self.end(s)
        self.say(200, "<html>fine</html>" if s.fault == "html" and s.n > 12 else json.dumps(body))

    def event(self, text):
        data = ("data: %s\n\n" % text).encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def stream(self, s, q, ids, usage):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for i, t in enumerate(ids):
            if s.n > 12 and i == 5 and s.fault == "dropped_chunk":
                continue
            if s.n > 12 and i == 5 and s.fault == "hang_in_stream":
                time.sleep(3600)
            if s.n > 12 and i == 5 and s.fault == "cut_stream":
                self.wfile.write(b"0\r\n\r\n")
                return
            choice = {"index": 0, "text": word(t), "finish_reason": None}
            self.add_ids(s, q, choice, [t])
            if i == len(ids) - 1 and s.fault != "no_finish":
                choice["finish_reason"] = "length"
            self.event(json.dumps({"choices": [choice]}))
            time.sleep(0.001)
        self.end(s)
        self.event(json.dumps({"choices": [], "usage": usage}))
        if s.fault != "no_done" or s.n <= 12:
            self.event("[DONE]")
        if s.fault == "after_done" and s.n > 12:
            self.event(json.dumps({"choices": []}))
        self.wfile.write(b"0\r\n\r\n")


class Server(http.server.ThreadingHTTPServer):
    daemon_threads, block_on_close = True, False
    request_queue_size = 64

    def handle_error(self, request, address):
        pass  # clients that leave


class Scripted:
    """A server on a free port; `url` names it."""

    def __init__(self, fault=None, ids=True):
        self.http = Server(("127.0.0.1", 0), Handler)
        self.http.state = State(fault, ids)
        self.url = "http://127.0.0.1:%d" % self.http.server_port
        self.thread = threading.Thread(target=self.http.serve_forever, daemon=True)
        self.thread.start()

    def stop(self):
        self.http.shutdown()
        self.http.server_close()
