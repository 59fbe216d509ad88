"""What the tests of `sandwich serve` share: starting the server on a free port, talking to it
over sockets of the standard library, and a report of checks in TAP."""
import atexit
import hashlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback

WAIT_S = 120  # for what must come; a sanitizer's build may be fifty times slower


class Server:
    def __init__(self, sandwich, model, *flags, launcher=()):
        self.process = subprocess.Popen(
            [*launcher, sandwich, "serve", "--model", model, "--port", "0", "--no-pin", *flags],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        atexit.register(self.process.terminate)  # no server outlives its test
        line = self.process.stdout.readline()
        if not line.strip().isdigit():
            raise RuntimeError("no port: %r, %s" % (line, self.process.stderr.read()))
        self.port = int(line)

    def connect(self, source="127.0.0.1"):
        s = socket.create_connection(("127.0.0.1", self.port), WAIT_S, (source, 0))
        return s

    def ask(self, method, path, body=None, headers=None):
        """One request: status, headers, body as bytes."""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        try:
            if body is not None and not isinstance(body, (bytes, str)):
                body = json.dumps(body)
            c.request(method, path, body, headers or {})
            r = c.getresponse()
            return r.status, dict(r.getheaders()), r.read()
        finally:
            c.close()

    def post(self, path, body, headers=None):
        status, head, text = self.ask("POST", path, body, headers)
        return status, head, json.loads(text)

    def complete(self, **body):
        status, _, j = self.post("/v1/completions", body)
        assert status == 200, (status, j)
        return j

    def events(self, path, body):
        """The events of a streamed request, decoded; without the closing [DONE]."""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        try:
            c.request("POST", path, json.dumps(dict(body, stream=True)))
            r = c.getresponse()
            assert r.status == 200, (r.status, r.read())
            assert r.getheader("Content-Type").startswith("text/event-stream")
            text = r.read().decode()
        finally:
            c.close()
        events = text.split("\n\n")
        assert events[-1] == "" and events[-2] == "data: [DONE]", events[-2:]
        return [json.loads(e[len("data: "):]) for e in events[:-2]]

    def metrics(self):
        status, _, text = self.ask("GET", "/metrics")
        assert status == 200
        rows = (l.rsplit(" ", 1) for l in text.decode().splitlines() if l[0] != "#")
        return {k: float(v) for k, v in rows}

    def settled(self):
        """The metrics when every request is counted, which may be after its answer."""
        last = None
        for _ in range(1000):
            m = self.metrics()
            now = m["sandwich_requests_running"] + m["sandwich_requests_waiting"], \
                m["sandwich_request_seconds_count"], m["sandwich_kv_reserved_tokens"]
            if now == last and now[0] == 0:
                return m
            last = now
            time.sleep(0.05)
        raise AssertionError("requests go on: %r" % (now,))

    def stop(self, sig=signal.SIGTERM):
        """Exit status, and standard error."""
        if self.process.poll() is None:
            self.process.send_signal(sig)
        _, err = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, err


def ids_of(events):
    return [i for e in events for c in e["choices"] for i in c.get("token_ids", [])]


def text_of(events):
    return "".join(c.get("text", c.get("delta", {}).get("content", ""))
                   for e in events for c in e["choices"])


CONTROL = {"prompt": [1, 2, 3, 4, 5], "max_tokens": 200, "temperature": 1, "seed": 77,
           "ignore_eos": True, "return_token_ids": True}


def control_hash(server):
    ids = ids_of(server.events("/v1/completions", CONTROL))
    assert len(ids) == 200, len(ids)
    return hashlib.sha256(repr(ids).encode()).hexdigest()


class Control:
    """Runs the control stream again and again while something else goes on, and compares."""

    def __init__(self, server):
        self.server = server
        self.want = control_hash(server)
        self.n = 0

    def __enter__(self):
        self.end, self.wrong = threading.Event(), []
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while True:
            last = self.end.is_set()  # one more that began after the attack did
            try:
                got = control_hash(self.server)
                if got != self.want:
                    self.wrong.append(got)
            except Exception as e:
                self.wrong.append(repr(e))
            self.n += 1
            if last:
                return
            self.end.wait(0.05)

    def __exit__(self, *exc):
        self.end.set()
        self.thread.join()
        assert not self.wrong, self.wrong[:3]


class Skip(Exception):
    """The check needs what this machine lacks."""


class Tap:
    def __init__(self):
        self.n = self.failed = 0

    def check(self, name, fn, *args):
        self.n += 1
        try:
            fn(*args)
            print("ok %d - %s" % (self.n, name), flush=True)
        except Skip as why:
            print("# skip: %s\nok %d - %s # SKIP" % (why, self.n, name), flush=True)
        except Exception:
            self.failed += 1
            for line in traceback.format_exc().splitlines():
                print("# " + line)
            print("not ok %d - %s" % (self.n, name), flush=True)

    def skip(self, name, why):
        self.n += 1
        print("# skip: %s\nok %d - %s # SKIP" % (why, self.n, name), flush=True)

    def finish(self):
        print("1..%d" % self.n)
        sys.exit(self.failed != 0)


def parallel(n, fn):
    """fn(0) ... fn(n - 1) at the same time; their results."""
    got, wrong = [None] * n, []

    def one(i):
        try:
            got[i] = fn(i)
        except Exception as e:
            wrong.append(e)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if wrong:
        raise wrong[0]
    return got


def arguments():
    """The program and the tiny model that the script was given."""
    return os.environ["SANDWICH"], os.environ["TINY"]
