"""Who may use `sandwich serve`: keys, names of the server, pages of other origins."""
import os
import socket
import subprocess

from serving import WAIT_S, Server, Tap, arguments

sandwich, tiny = arguments()
tap = Tap()
COMPLETIONS = "/v1/completions"


def key_is_asked_for():
    s = Server(sandwich, tiny, "--api-key", "secret")
    try:
        body = {"prompt": "a", "max_tokens": 1}
        for key in (None, "", "secre", "secret2", "SECRET", "Bearer"):
            status, head, j = s.post(COMPLETIONS, body, {"Authorization": "Bearer " + key} if key is not None else {})
            assert status == 401 and j["error"]["code"] == "invalid_api_key", (key, status)
            assert head["WWW-Authenticate"] == "Bearer"
        assert s.ask("GET", "/v1/models")[0] == 401
        assert s.post(COMPLETIONS, body, {"Authorization": "Bearer secret"})[0] == 200
        assert s.ask("GET", "/health")[0] == 200
        assert s.ask("GET", "/metrics")[0] == 200
    finally:
        assert s.stop()[0] == 0


def key_from_elsewhere():
    """A key on the command line can be read by every user of the machine; an empty one let all in."""
    path = os.path.join(os.path.dirname(tiny), "key")
    with open(path, "w") as f:
        f.write("from a file\n".replace(" ", "-"))
    os.environ["KEY_OF_TEST"], os.environ["EMPTY_KEY"] = "from-env", ""
    body = {"prompt": "a", "max_tokens": 1}
    for flag, value, key in (("--api-key-file", path, "from-a-file"), ("--api-key-env", "KEY_OF_TEST", "from-env")):
        s = Server(sandwich, tiny, flag, value)
        try:
            assert s.post(COMPLETIONS, body, {"Authorization": "Bearer " + key})[0] == 200
            assert s.post(COMPLETIONS, body, {"Authorization": "Bearer "})[0] == 401
        finally:
            assert s.stop()[0] == 0
    # Regression: `--api-key-file <(COMMAND)` of a shell, a pipe, was refused.
    os.mkfifo(path + ".pipe")
    writer = subprocess.Popen(["sh", "-c", 'echo from-a-pipe >"$1"', "sh", path + ".pipe"])
    s = Server(sandwich, tiny, "--api-key-file", path + ".pipe")
    try:
        assert s.post(COMPLETIONS, body, {"Authorization": "Bearer from-a-pipe"})[0] == 200
    finally:
        assert s.stop()[0] == 0 and writer.wait(WAIT_S) == 0
    with open(path, "w") as f:
        f.write("\nsecond line\n")
    for flags, says in ((["--api-key", ""], "found an empty one"), (["--api-key-env", "EMPTY_KEY"], "found an empty one"),
                        (["--api-key-env", "NO_SUCH_VARIABLE_"], "is not set"), (["--api-key-file", path], "empty one"),
                        (["--api-key-file", path + "-"], "key-"), (["--api-key", "a b"], "without spaces"),
                        (["--api-key", "a", "--api-key-file", path], "found several")):
        r = subprocess.run([sandwich, "serve", "--model", tiny, "--port", "0", *flags], capture_output=True, text=True,
                           timeout=WAIT_S)
        assert r.returncode in (1, 2) and says in r.stderr and r.stderr.count("\n") == 1, (flags, r)


def pages_of_others(s):
    """A page in a browser could use a server of the same machine, under a name that leads there."""
    host = "127.0.0.1:%d" % s.port
    body = {"prompt": "a", "max_tokens": 1}
    for name in (host, "localhost", "localhost:%d" % s.port, "LOCALHOST", "[::1]:80", "10.1.2.3", socket.gethostname()):
        assert s.post(COMPLETIONS, body, {"Host": name})[0] == 200, name
    for name in ("attacker.example", "attacker.example:%d" % s.port, "localhost.attacker.example", "127.0.0.1.nip.io",
                 "", "localhost:80x", "[::1", "[x]", "a,b"):
        status, _, j = s.post(COMPLETIONS, body, {"Host": name})
        assert status == 421 and "--allow-host" in j["error"]["message"], (name, status)
        assert s.ask("GET", "/health", headers={"Host": name})[0] == 421
    for origin in ("https://attacker.example", "null", "http://localhost:%d" % (s.port + 1), "http://attacker.example:80"):
        status, head, j = s.post(COMPLETIONS, body, {"Origin": origin})
        assert status == 403 and "--cors" in j["error"]["message"], (origin, status)
        assert "Access-Control-Allow-Origin" not in head
        assert s.ask("GET", "/metrics", headers={"Origin": origin})[0] == 403
    assert s.post(COMPLETIONS, body, {"Origin": "http://" + host})[0] == 200


def cors():
    page = "http://pages.example:3000"
    s = Server(sandwich, tiny, "--cors", "https://a.example," + page, "--allow-host", "one.example,two.example",
               "--api-key", "secret")
    ask = {"Origin": page, "Access-Control-Request-Method": "POST",
           "Access-Control-Request-Headers": "authorization, content-type, x-stainless-os"}
    try:
        status, head, text = s.ask("OPTIONS", COMPLETIONS, headers=ask)
        assert (status, text) == (204, b""), (status, text)
        assert head["Access-Control-Allow-Origin"] == page and head["Vary"] == "Origin"
        assert "POST" in head["Access-Control-Allow-Methods"] and "GET" in head["Access-Control-Allow-Methods"]
        assert head["Access-Control-Allow-Headers"] == ask["Access-Control-Request-Headers"]
        assert s.ask("OPTIONS", COMPLETIONS, headers=dict(ask, Origin="http://pages.example"))[0] == 403
        body, key = {"prompt": "a", "max_tokens": 1}, {"Authorization": "Bearer secret"}
        for want, headers in ((200, key), (401, {})):
            status, head, _ = s.post(COMPLETIONS, body, dict(headers, Origin=page))
            assert status == want and head["Access-Control-Allow-Origin"] == page
        status, head, _ = s.ask("GET", "/v1/models", headers=dict(key, Origin=page))
        assert status == 200 and head["Access-Control-Allow-Origin"] == page
        status, head, _ = s.post(COMPLETIONS, body, key)
        assert status == 200 and "Access-Control-Allow-Origin" not in head
        assert s.ask("GET", "/health", headers={"Host": "two.example:80"})[0] == 200
        assert s.ask("GET", "/health", headers={"Host": "three.example"})[0] == 421
        assert s.ask("OPTIONS", COMPLETIONS, headers=key)[0] == 405
    finally:
        assert s.stop()[0] == 0


def port_that_nobody_reads():
    """With --port 0 the port is the only way to the server: it served on without having told it."""
    with open("/dev/full", "w") as full:
        r = subprocess.run([sandwich, "serve", "--model", tiny, "--port", "0", "--no-pin"], stdout=full,
                           stderr=subprocess.PIPE, text=True, timeout=WAIT_S)
    assert r.returncode != 0 and "cannot write the port" in r.stderr, r


def more_connections_than_files():
    """The first that found no file descriptor was lost, and nothing had said that it would be."""
    limited = ("sh", "-c", 'ulimit -n 256; exec "$@"', "sh")
    s = Server(sandwich, tiny, "--max-connections", "500", launcher=limited)
    assert s.ask("GET", "/health")[0] == 200
    status, err = s.stop()
    assert status == 0 and err.count("warning: open_files: --max-connections 500: ") == 1, err
    assert "256 files open (ulimit -n), so 224 connections" in err, err
    s = Server(sandwich, tiny, "--max-connections", "200", launcher=limited)
    status, err = s.stop()
    assert status == 0 and "open_files" not in err, err


def on_one(check):
    s = Server(sandwich, tiny)
    try:
        check(s)
    finally:
        assert s.stop()[0] == 0


tap.check("the API key", key_is_asked_for)
tap.check("the API key from a file or a variable", key_from_elsewhere)
tap.check("pages of another origin, and names of others", on_one, pages_of_others)
tap.check("pages that are allowed", cors)
tap.check("a port that nobody reads", port_that_nobody_reads)
tap.check("more connections than the system allows files", more_connections_than_files)
tap.finish()
