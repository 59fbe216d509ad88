#!/bin/sh
# Ranks as processes of `sandwich run`: interrupted it ends them in order, a dead one is named on
# one line, killed it leaves none behind. A signal to the whole group, which a service manager
# sends, was the end of the ranks, and so of every request that `sandwich serve` was to finish.
set -u
. tests/support/tap.sh
"$sandwich" model make --arch tiny --type f32 --out "$dir/tiny.gguf" >/dev/null || exit 1
cat >"$dir/drive.py" <<'END'
import fcntl, http.client, json, os, re, signal, struct, subprocess, sys, termios, time

sandwich, model = sys.argv[1:]
what = {
    "interrupted": (signal.SIGINT, "group"),
    "terminated": (signal.SIGTERM, "program"),
    "terminated by a service manager": (signal.SIGTERM, "group"),
    "hung up": (signal.SIGHUP, "group"),
    "killed": (signal.SIGKILL, "program"),
    "a rank is killed": (signal.SIGKILL, "rank"),
    "a rank is stopped": (signal.SIGSTOP, "rank"),
    "a rank faults": (signal.SIGSEGV, "rank"),
}

# A fault is the rank's end here, not a sanitizer's to report.
env = dict(os.environ)
for name in ("ASAN_OPTIONS", "TSAN_OPTIONS"):
    env[name] = (env.get(name, "") + " handle_segv=0").strip()


def stat(pid):
    """State and parent; a process that is gone is as good as a zombie."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[:2]
    except OSError:
        return ["Z", "0"]


def ranks_of(pid):
    return [int(p) for p in os.listdir("/proc") if p.isdigit() and stat(p)[1] == str(pid)]


def unread(fd):
    return struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, b"\0" * 4))[0]


ABOUT_MACHINE = re.compile("warning: (machine_card_[a-z]+|noisy_machine|steal|throttled):")

# The program writes into a pipe of one page that is nearly full: it stops after a few tokens until
# somebody reads, so that the signal meets it in the middle however slow this script is.
PAGE = 4096
FILLED = PAGE - 20


def one(sig, whom):
    """The program's status, its lines on stderr, and its rank; None: it was too quick."""
    out, into = os.pipe()
    fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, PAGE)
    os.write(into, b" " * FILLED)
    p = subprocess.Popen(
        [sandwich, "run", "--model", model, "--no-pin", "--ranks", "2", "--rank-mode", "processes",
         "--prompt-ids", "1,2,3", "--ids", "--ignore-eos", "-n", "200"],
        stdout=into, stderr=subprocess.PIPE, text=True, env=env, start_new_session=True)
    os.close(into)
    while unread(out) == FILLED and p.poll() is None:
        time.sleep(0.001)
    ranks = ranks_of(p.pid)
    if len(ranks) != 1:
        os.close(out)
        p.communicate()
        return None
    if whom == "group":
        os.killpg(p.pid, sig)
    else:
        os.kill(p.pid if whom == "program" else ranks[0], sig)
    while os.read(out, PAGE):
        pass
    os.close(out)
    _, err = p.communicate()
    while any(stat(r)[0] != "Z" for r in ranks):  # a hang here is the failure
        time.sleep(0.001)
    said = [line for line in err.splitlines() if not ABOUT_MACHINE.match(line)]
    return (p.returncode, said, ranks[0]) if p.returncode != 0 else None


def check(name, sig, whom):
    for _ in range(50):
        got = one(sig, whom)
        if got:
            break
    else:
        return "it was always too quick"
    status, lines, rank = got
    if whom == "rank":
        how = "stopped" if sig == signal.SIGSTOP else "killed"
        want = f"rank 1 of 2 (process {rank}) was {how} by {signal.Signals(sig).name}"
        ok = status == 1 and len(lines) == 1 and want in lines[0]
    else:
        ok = status == (-sig if sig == signal.SIGKILL else 130) and not lines
    return None if ok else f"status {status}, said {lines}"


N_TOKENS = 250


def drained(sig):
    """A request that is answered when the signal comes is answered to its end."""
    p = subprocess.Popen(
        [sandwich, "serve", "--model", model, "--no-pin", "--ranks", "2", "--rank-mode",
         "processes", "--port", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, start_new_session=True)
    c = http.client.HTTPConnection("127.0.0.1", int(p.stdout.readline()), timeout=300)
    c.request("POST", "/v1/completions", json.dumps(
        {"prompt": [1], "max_tokens": N_TOKENS, "ignore_eos": True, "stream": True}))
    r = c.getresponse()
    first = r.readline()
    os.killpg(p.pid, sig)
    rest = (first + r.read()).decode()
    c.close()
    _, err = p.communicate()
    if p.returncode == 0 and '"finish_reason":"length"' in rest and rest.endswith("[DONE]\n\n"):
        return None
    return f"status {p.returncode}, said {err.splitlines()[-3:]}, answered {rest[-200:]!r}"


print(f"1..{len(what) + 2}")
failed = False
for n, (name, (sig, whom)) in enumerate(what.items(), 1):
    why = check(name, sig, whom)
    failed |= why is not None
    print(f"not ok {n} - {name}\n# {why}" if why else f"ok {n} - {name}")
for sig in signal.SIGTERM, signal.SIGHUP:
    n += 1
    why = drained(sig)
    failed |= why is not None
    name = f"serve drains after {sig.name} to the group"
    print(f"not ok {n} - {name}\n# {why}" if why else f"ok {n} - {name}")
sys.exit(failed)
END
nproc=$(getconf _NPROCESSORS_ONLN)
if [ "$nproc" -lt 2 ]; then
    skip "ranks as processes" "two ranks need two CPUs"
    finish
fi
python3 "$dir/drive.py" "$sandwich" "$dir/tiny.gguf"
