"""`sandwich serve --roles`: prompts and tokens are computed by different processes, and a client does
not notice, whatever is asked of the server and whoever goes away."""
import http.client
import json
import os
import signal
import subprocess

from roles_requests import answers
from serving import Server, Tap, ids_of

sandwich, data = os.environ["SANDWICH"], os.environ["DATA"]
MODEL = os.path.join(data, "stories260K.bin")
FLAGS = ["--tokenizer", os.path.join(data, "tok512.bin"), "--deterministic", "--max-seqs", "4"]
ROLES = ["--roles", "prompt=1,token=1"]
tap = Tap()


LONG = {"prompt": "Once", "max_tokens": 480, "ignore_eos": True, "return_token_ids": True,
        "temperature": 0.8, "seed": 5}


def one_process():
    s = Server(sandwich, MODEL, *FLAGS)
    got = answers(s)
    long = s.complete(**LONG)["choices"][0]["token_ids"]
    assert s.stop()[0] == 0
    assert {reason for _, reason in got} == {"length", "stop"}, got
    return got, long


want, want_long = one_process()


def same_ids(*flags):
    s = Server(sandwich, MODEL, *FLAGS, *ROLES, *flags)
    got = answers(s)
    m = s.settled()
    status, err = s.stop()
    assert got == want, [(a, b) for a, b in zip(got, want) if a != b][:1]
    assert m["sandwich_kv_reserved_tokens"] == 0 and m["sandwich_kv_budget_tokens"] > 0, m
    assert status == 0, (status, err)


for name, flags in {
        "shm": [],
        "socket": ["--transport", "socket"],
        "map": ["--transport", "map"],
        "map, paged": ["--transport", "map", "--kv-alloc", "paged"],
        "serial, paged": ["--transfer", "serial", "--kv-alloc", "paged", "--kv-admit", "now"],
        "little memory, a slow link": ["--kv-budget-tok", "512", "--link-gbps", "1",
                                       "--link-latency-ms", "2"],
        "options of a kind": ["--roles", "prompt=1:threads=1:kv_alloc=paged,token=1:ranks=2:threads=2"],
        "mixed": ["--roles", "mixed=2"],
        "machines that help": ["--prompt-threshold-tok", "60", "--token-threshold-seqs", "2"],
        "prompts in pieces": ["--max-step-tok", "16", "--policy", "chunked"]}.items():
    tap.check("the ids of one process: " + name, same_ids, *flags)


def refused_by_name():
    s = Server(sandwich, MODEL, *FLAGS, *ROLES)
    status, _, j = s.post("/v1/completions", {"prompt": "a", "logprobs": 1})
    assert status == 400 and j["error"]["param"] == "logprobs", (status, j)
    assert "not available with --roles" in j["error"]["message"], j
    assert s.complete(prompt="a", max_tokens=3)["usage"]["completion_tokens"] == 3
    assert s.stop()[0] == 0


def clients_go_away():
    s = Server(sandwich, MODEL, *FLAGS, *ROLES)
    body = json.dumps({"prompt": "Once upon", "max_tokens": 400, "ignore_eos": True,
                       "stream": True}).encode()
    for i in range(12):
        c = s.connect()
        c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
                  % len(body) + body)
        if i % 3:
            c.recv(300)
        c.close()
    assert s.settled()["sandwich_kv_reserved_tokens"] == 0
    assert answers(s, 6) == want[:6]
    assert s.stop()[0] == 0


def children(pid):
    with open("/proc/%d/task/%d/children" % (pid, pid)) as f:
        return [int(p) for p in f.read().split()]


def name_of(pid):
    with open("/proc/%d/comm" % pid) as f:
        return f.read().strip()


def machines(server):
    starter, = children(server.process.pid)
    return {name_of(p): p for p in children(starter)}


def is_gone(pid):
    try:
        with open("/proc/%d/stat" % pid) as f:
            return f.read().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def long_stream(server, after_first):
    """The events of a long answer; after_first() is called when the first one is there."""
    c = http.client.HTTPConnection("127.0.0.1", server.port, timeout=100)
    c.request("POST", "/v1/completions", json.dumps({**LONG, "stream": True}))
    answer = c.getresponse()
    first = answer.readline()
    after_first()
    text = first + answer.read()
    c.close()
    return text.decode()


def events_of(text):
    return [json.loads(line[6:]) for line in text.splitlines()
            if line.startswith("data: ") and line != "data: [DONE]"]


def says(name, pid, sig):
    return "%s machine 1 of 1 (process %d) was %s by %s" % (
        name, pid, "stopped" if sig == signal.SIGSTOP else "killed", sig.name)


def all_machines_go(sig):
    """Without restarts, requests end with one error, and so does the server."""
    s = Server(sandwich, MODEL, *FLAGS, *ROLES, "--restarts", "0")
    pids = machines(s)
    assert sorted(pids) == ["prompt 1", "token 1"], pids
    text = long_stream(s, lambda: [os.kill(p, sig) for p in pids.values()])
    _, err = s.process.communicate(timeout=100)
    whys = [says(name.split()[0], pid, sig) for name, pid in pids.items()]
    assert s.process.returncode == 1 and all(w in err for w in whys), (s.process.returncode, err)
    assert '"text"' in text, text[:200]
    assert sum(text.count(w) for w in whys) == 1 or text.count("data: ") > 470, text[-500:]
    assert all(is_gone(p) for p in pids.values())


def machine_is_started_again(sig, name):
    """The client's stream goes on: each token once, and those of one undisturbed process."""
    s = Server(sandwich, MODEL, *FLAGS, *ROLES)
    pid = machines(s)[name + " 1"]
    events = events_of(long_stream(s, lambda: os.kill(pid, sig)))
    assert ids_of(events) == want_long and events[-1]["choices"][0]["finish_reason"] == "length"
    assert answers(s, 12) == want[:12]
    assert s.settled()["sandwich_kv_reserved_tokens"] == 0
    status, err = s.stop()
    assert status == 0 and says(name, pid, sig) in err and "is started again" in err, err


def wrong_flags():
    for flags, says in ((["--roles", "prompt=1"], "expected prompt=N,token=N"),
                        (ROLES + ["--transport", "smh"], "shm"),
                        (ROLES + ["--kv-budget", "10"], "machine 1 of 1")):
        p = subprocess.run([sandwich, "serve", "--model", MODEL, *FLAGS, "--port", "0", *flags],
                           capture_output=True, text=True)
        assert p.returncode in (1, 2) and says in p.stderr.splitlines()[0], p


tap.check("log probabilities are refused by name", refused_by_name)
tap.check("clients that go away leave no memory behind", clients_go_away)
for sig in signal.SIGKILL, signal.SIGSTOP:
    tap.check("%s of all machines is named" % sig.name, all_machines_go, sig)
    for name in "prompt", "token":
        tap.check("%s of the %s machine: the stream goes on" % (sig.name, name),
                  machine_is_started_again, sig, name)
tap.check("wrong flags", wrong_flags)
tap.finish()
