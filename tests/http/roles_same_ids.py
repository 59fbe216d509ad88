"""Prompts and tokens by different processes give, request by request, the ids of one process: by types of
keys and values, of weights, ranks and transports. LONG=1: all of them together, 500 requests each, under
mpirun as well, and 60 requests of models of a real size (LONG_MODELS: more GGUF files, by spaces)."""
import os
import re
import shutil
import signal
import subprocess

from mpirun import LAUNCHERS, front_of
from roles_requests import BODIES, answers
from serving import WAIT_S, Server, Tap

sandwich, data, dir_ = os.environ["SANDWICH"], os.environ["DATA"], os.environ["DIR"]
LONG = os.environ.get("LONG") == "1"
KV_TYPES, TRANSPORTS = ("f32", "bf16", "q8"), ("shm", "map", "socket")
ROLES = ["--roles", "prompt=1,token=1"]
FLAGS = ["--deterministic", "--max-seqs", "4", "--max-tok", "256"]
TWO = ["--ranks", "2", "--threads", "2"]
RANKS = [1, 2] if len(os.sched_getaffinity(0)) > 1 else [1]
tap = Tap()
want = {}


class Model:
    def __init__(self, name, path, n, *flags):
        self.name, self.path, self.n, self.flags = name, path, n, flags


def quantised(arch):
    path = os.path.join(dir_, arch + "-q4_0.gguf")
    subprocess.run([sandwich, "model", "make", "--arch", arch, "--type", "q4_0", "--out", path], check=True,
                   capture_output=True)
    return path


def one_process(m, kv_type):
    """Of one rank: with --deterministic more ranks give the same."""
    if (m.name, kv_type) not in want:
        s = Server(sandwich, m.path, *m.flags, *FLAGS, "--kv-type", kv_type)
        want[m.name, kv_type] = answers(s, m.n)
        assert s.stop()[0] == 0
        assert len({tuple(ids) for ids, _ in want[m.name, kv_type]}) > m.n // 2  # they say something
    return want[m.name, kv_type]


def compare(m, s, kv_type):
    expected, got = one_process(m, kv_type), answers(s, m.n)
    wrong = [(i, a, b) for i, (a, b) in enumerate(zip(got, expected)) if a != b]
    assert not wrong and len(got) == m.n, (len(wrong), wrong[:1])
    assert s.settled()["sandwich_kv_reserved_tokens"] == 0


def same_ids(m, kv_type, transport, ranks):
    s = Server(sandwich, m.path, *m.flags, *FLAGS, *ROLES, "--kv-type", kv_type, "--transport", transport,
               *(TWO if ranks == 2 else []))
    try:
        compare(m, s, kv_type)
    finally:
        status, err = s.stop()
    assert status == 0, (status, err)


def under_mpirun(m, kv_type, transport, library):
    s = Server(sandwich, m.path, *m.flags, *FLAGS, *ROLES, "--kv-type", kv_type, "--transport", transport,
               launcher=LAUNCHERS[library])
    compare(m, s, kv_type)
    os.kill(front_of(s.process.pid, library), signal.SIGTERM)
    _, err = s.process.communicate(timeout=WAIT_S)
    assert s.process.returncode == 0, (s.process.returncode, err[-2000:])


def other_types():
    """Keys and values are never converted: machines of different types are refused before they start."""
    m = models[0]
    for roles in ("prompt=1:kv_type=f32,token=1:kv_type=q8", "prompt=1,token=1:kv_type=bf16"):
        p = subprocess.run([sandwich, "serve", "--model", m.path, *m.flags, "--port", "0", "--roles", roles],
                           capture_output=True, text=True, timeout=WAIT_S)
        assert p.returncode == 2 and "kv_type is that of all machines" in p.stderr, (p.returncode, p.stderr)


def machine_of_another_type():
    """The same of a machine that connects: the front says what differs."""
    m, address = models[0], "127.0.0.1:%d" % (20002 + os.getpid() % 12000)
    front = subprocess.Popen([sandwich, "serve", "--model", m.path, *m.flags, *FLAGS, *ROLES, "--port", "0", "--no-pin",
                              "--transport", "socket", "--machines", address, "--kv-type", "f32"],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    others = [subprocess.Popen([sandwich, "serve", "--model", m.path, *m.flags, *FLAGS, "--role", role, "--no-pin",
                                "--transport", "socket", "--front", address, "--kv-type", kv_type],
                               stderr=subprocess.PIPE, text=True)
              for role, kv_type in (("prompt", "f32"), ("token", "q8"))]
    try:
        _, err = front.communicate(timeout=WAIT_S)
        assert front.returncode == 1 and "machine 1 of 1: the two ends differ" in err, (front.returncode, err)
        sizes = re.search("4 KV heads, (\\d+) bytes a key, .*, 4, (\\d+), socket there", err)
        assert sizes and set(sizes.groups()) == {"12", "32"}, err  # of f32 and q8
    finally:
        for p in [front] + others:
            p.kill()
            p.communicate()


models = [Model("stories260K", os.path.join(data, "stories260K.bin"), 500 if LONG else 24, "--tokenizer",
                os.path.join(data, "tok512.bin")),
          Model("tiny-quant-32 q4_0", quantised("tiny-quant-32"), 500 if LONG else 24)]
if LONG:
    cases = [(m, k, t, r) for m in models for k in KV_TYPES for t in TRANSPORTS for r in RANKS]
    real = [Model(os.path.basename(p), p, 60) for p in os.environ.get("LONG_MODELS", "").split()]
    real = real or [Model("llama-160m q4_0", quantised("llama-160m"), 60)]
    cases += [(m, k, t, RANKS[-1] if t == "shm" else 1) for m in real for k in KV_TYPES for t in TRANSPORTS]
else:  # each pair of values at least once
    cases = [(models[(i + j) % 2], k, t, RANKS[(i + j // 2) % len(RANKS)])
             for i, k in enumerate(KV_TYPES) for j, t in enumerate(TRANSPORTS)]
assert max(m.n for m in models) <= len(BODIES)
for case in cases:
    m, kv_type, transport, ranks = case
    tap.check("the ids of one process: %d requests of %s, KV %s, %s, %d ranks" %
              (m.n, m.name, kv_type, transport, ranks), same_ids, *case)
tap.check("KV types that differ by role are refused", other_types)
tap.check("a machine that connects with another KV type is refused", machine_of_another_type)
for name in LAUNCHERS if LONG else []:
    if not shutil.which("mpirun." + name) or not os.path.exists(
            os.path.join(os.path.dirname(sandwich), "mpi", name + ".so")):
        tap.skip("MPI: " + name, "mpirun.%s, or mpi/%s.so, is not there" % (name, name))
        continue
    for transport in ["mpi_put", "mpi_isend"] + ["mpi_partitioned"] * (name == "mpich"):
        for kv_type in KV_TYPES:
            tap.check("the ids of one process: 500 requests of stories260K, KV %s, %s, %s" %
                      (kv_type, transport, name), under_mpirun, models[0], kv_type, transport, name)
tap.finish()
