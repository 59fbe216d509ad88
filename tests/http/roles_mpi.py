"""`sandwich serve` as processes that the front did not start: machines that connect, and ranks of each
MPI library that is installed. Request by request the ids of one process."""
import os
import shutil
import signal
import subprocess

from mpirun import LAUNCHERS, front_of
from roles_requests import answers
from serving import WAIT_S, Server, Tap

sandwich, data = os.environ["SANDWICH"], os.environ["DATA"]
MODEL = os.environ.get("ROLES_MODEL", os.path.join(data, "stories260K.bin"))
FLAGS = ["--deterministic", "--max-seqs", "4"]
if "ROLES_MODEL" not in os.environ:
    FLAGS += ["--tokenizer", os.path.join(data, "tok512.bin")]
ROLES = ["--roles", "prompt=1,token=1"]
tap = Tap()
want = {}


def one_process(kv_type):
    if kv_type not in want:
        s = Server(sandwich, MODEL, *FLAGS, "--kv-type", kv_type)
        want[kv_type] = answers(s)
        assert s.stop()[0] == 0
    return want[kv_type]


def check_answers(s, kv_type):
    expected, got = one_process(kv_type), answers(s)
    assert got == expected, [(a, b) for a, b in zip(got, expected) if a != b][:1]
    assert s.settled()["sandwich_kv_reserved_tokens"] == 0


def under_mpirun(library, transport, kv_type, *flags):
    s = Server(sandwich, MODEL, *FLAGS, *ROLES, "--transport", transport, "--kv-type", kv_type, *flags,
               launcher=LAUNCHERS[library])
    check_answers(s, kv_type)
    os.kill(front_of(s.process.pid, library), signal.SIGTERM)
    _, err = s.process.communicate(timeout=WAIT_S)
    assert s.process.returncode == 0, (s.process.returncode, err[-2000:])


def refused(library, transport, says):
    p = subprocess.run([*LAUNCHERS[library], sandwich, "serve", "--model", MODEL, "--port", "0", *FLAGS, *ROLES,
                        "--transport", transport], capture_output=True, text=True, timeout=WAIT_S)
    assert p.returncode != 0 and says in p.stderr, (p.returncode, p.stderr)


def machine(kind, address, *flags):
    return subprocess.Popen([sandwich, "serve", "--model", MODEL, "--role", kind, "--front", address, "--no-pin",
                             "--transport", "socket", *FLAGS, *flags], stderr=subprocess.PIPE, text=True)


def machines_connect():
    address = "127.0.0.1:%d" % (20000 + os.getpid() % 12000)
    flags = ["--kv-type", "bf16"]
    all_machines = [machine(kind, address, *flags) for kind in ("prompt", "token", "token")]
    s = Server(sandwich, MODEL, *FLAGS, *flags, "--roles", "prompt=1,token=2", "--transport", "socket",
               "--machines", address)
    check_answers(s, "bf16")
    assert s.stop()[0] == 0
    for m in all_machines:
        assert m.wait(WAIT_S) == 0, m.stderr.read()


def a_machine_that_goes():
    address = "127.0.0.1:%d" % (20001 + os.getpid() % 12000)
    p, t = machine("prompt", address), machine("token", address)
    s = Server(sandwich, MODEL, *FLAGS, *ROLES, "--transport", "socket", "--machines", address)
    assert s.complete(prompt="a", max_tokens=3)["usage"]["completion_tokens"] == 3
    t.kill()
    t.wait(WAIT_S)
    assert s.complete(prompt="a", max_tokens=3)["usage"]["completion_tokens"] == 3  # by the prompt machine alone
    p.kill()
    _, err = s.process.communicate(timeout=WAIT_S)
    p.wait(WAIT_S)
    assert s.process.returncode == 1 and "token machine 1 of 1 closed its connection" in err, err
    assert "no machine is left: prompt machine 1 of 1 closed its connection" in err, err


def wrong_flags():
    for flags, says in (([*ROLES, "--machines", "here", "--transport", "socket"], "expected HOST:PORT"),
                        ([*ROLES, "--machines", "127.0.0.1:1", "--transport", "shm"], "transport shm: only between"),
                        ([*ROLES, "--transport", "mpi_put"], "start all processes with mpirun"),
                        (["--role", "token", "--transport", "socket"], "expected HOST:PORT")):
        p = subprocess.run([sandwich, "serve", "--model", MODEL, "--port", "0", *FLAGS, *flags],
                           capture_output=True, text=True, timeout=WAIT_S)
        assert p.returncode in (1, 2) and says in p.stderr, p


tap.check("machines that connect: the ids of one process", machines_connect)
tap.check("a machine that goes is named, and the others go on", a_machine_that_goes)
tap.check("wrong flags", wrong_flags)
for name in LAUNCHERS:
    if not shutil.which("mpirun." + name) or not os.path.exists(
            os.path.join(os.path.dirname(sandwich), "mpi", name + ".so")):
        tap.skip("MPI: " + name, "mpirun.%s, or mpi/%s.so, is not there" % (name, name))
        continue
    two = ["--ranks", "2", "--threads", "2"] if len(os.sched_getaffinity(0)) > 1 else []
    for transport, kv_type, flags in (("mpi_put", "f32", ["--kv-alloc", "paged"]), ("mpi_put", "bf16", two),
                                      ("mpi_isend", "q8", []), ("mpi_partitioned", "f32", two)):
        if name == "openmpi" and transport == "mpi_partitioned":
            tap.check("openmpi, mpi_partitioned: refused by name", refused, name, transport,
                      "no partitioned communication")
            continue
        tap.check("%s, %s, %s %s: the ids of one process" % (name, transport, kv_type, " ".join(flags)),
                  under_mpirun, name, transport, kv_type, *flags)
    tap.check(name + ": a transport of one process's children is refused", refused, name, "shm", "only between processes")
tap.finish()
