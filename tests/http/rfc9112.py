"""What RFC 9112 lets a conforming client send is answered, and what it forbids gets the status that it asks
for: a table of sections and behaviours. Of RFC 9110 there is what clients meet in each request."""
import http.client
import io
import json
import socket
import time

from serving import WAIT_S, Server, Tap, arguments, parallel

sandwich, tiny = arguments()
tap = Tap()
s = Server(sandwich, tiny, "--max-seqs", "4", "--idle-timeout-s", "2", "--header-timeout-s", "5", "--body-timeout-s", "20",
           "--max-body-bytes", "64KiB", "--api-key", "secret")
HOST = b"Host: localhost\r\n"
KEY = b"Authorization: Bearer secret\r\n"
CLOSE = b"Connection: close\r\n"
GET = b"GET /health HTTP/1.1\r\n" + HOST
LAST = GET + CLOSE + b"\r\n"  # behind others, it shows that the connection persists
POST = b"POST /v1/completions HTTP/1.1\r\n" + HOST + KEY
BODY = b'{"prompt": [1], "max_tokens": 1}'
STREAM = b'{"prompt": [1], "max_tokens": 2, "ignore_eos": true, "stream": true}'
TE = b"Transfer-Encoding: chunked\r\n"
CHUNKED = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
PRIVATE = b"GET /metrics HTTP/1.1\r\n" + HOST + b"\r\n"  # behind what is refused, it must get no answer


def length(body, more=b""):
    return b"Content-Length: %d\r\n" % len(body) + more + b"\r\n" + body


def pieces(body):
    return b"".join(b"1\r\n%c\r\n" % b for b in body) + b"0\r\n\r\n"


class Received(io.BytesIO):
    """What was read, in place of a socket; the end of an answer does not close it."""

    def makefile(self, _mode):
        return self

    def close(self):
        pass


def exchange(requests, half_close=False):
    """Sends all, and reads until the server closes."""
    c, got = s.connect(), b""
    try:
        c.sendall(b"".join(requests))
        if half_close:
            c.shutdown(socket.SHUT_WR)
    except ConnectionError:
        pass
    try:
        while True:
            more = c.recv(65536)
            if not more:
                break
            got += more
    except ConnectionError:
        pass
    c.close()
    return got


def answers(received, requests, n):
    """The first n answers, each by the rules of its request; what is behind them."""
    f, out = Received(received), []
    for request in requests[:n]:
        r = http.client.HTTPResponse(f, method=request.lstrip(b"\r\n").split(b" ", 1)[0].decode("latin-1"))
        r.begin()
        r.text = r.read()
        out.append(r)
    return out, f.read()


def is_events(r):
    return r.text.endswith(b"data: [DONE]\n\n") and r.getheader("Transfer-Encoding") == "chunked"


def is_events_to_the_end(r):
    return r.text.endswith(b"data: [DONE]\n\n") and not r.getheader("Transfer-Encoding") and r.will_close


# Section, what, the requests of one connection, the statuses of their answers, and what holds for the last. Where a
# connection persists, a further request shows it; where it must not, that request has no status here.
TABLE = [
    ("2.2", "empty lines before a request", [b"\r\n\r\n" + GET + b"\r\n", b"\r\n" + LAST], [200, 200], None),
    ("2.2", "lines that end in LF", [(GET + b"\r\n").replace(b"\r\n", b"\n"), LAST], [200, 200], None),
    ("2.2", "blanks before the first header", [b"GET /health HTTP/1.1\r\n " + HOST + b"\r\n", PRIVATE], [400], None),
    ("2.2", "CR alone in a header", [GET + b"X: a\rb\r\n\r\n", PRIVATE], [400], None),
    ("2.3", "a later minor version", [GET.replace(b"1.1", b"1.2") + b"\r\n", LAST], [200, 200], None),
    ("2.3", "chunked in a later minor version", [POST.replace(b"1.1", b"1.2") + TE + b"\r\n" + CHUNKED, LAST], [200, 200], None),
    ("2.3", "another major version", [GET.replace(b"1.1", b"2.0") + b"\r\n", PRIVATE], [505], None),
    ("3.1", "methods in small letters are others", [GET.replace(b"GET", b"get") + b"\r\n", LAST], [405, 200], None),
    ("3.1", "an unknown method", [GET.replace(b"GET", b"BREW") + b"\r\n", LAST], [405, 200], None),
    ("3.1", "a method that the path does not take", [POST.replace(b"POST", b"PUT") + length(BODY)], [405],
     lambda r: r.getheader("Allow") == "POST"),
    ("3.1", "the same of the other paths", [POST.replace(b"/v1/completions", b"/health") + length(BODY)], [405],
     lambda r: r.getheader("Allow") == "GET, HEAD"),
    ("3.2", "two Hosts", [GET + HOST + b"\r\n", PRIVATE], [400], None),
    ("3.2", "no Host", [b"GET /health HTTP/1.1\r\n\r\n", PRIVATE], [400], None),
    ("3.2", "a target with a blank", [b"GET /health x HTTP/1.1\r\n" + HOST + b"\r\n", PRIVATE], [400], None),
    ("3", "a request line of 8000 bytes", [GET.replace(b"health", b"health?" + b"a" * 8000) + b"\r\n", LAST], [200, 200], None),
    ("3", "a request line of 100,000 bytes", [GET.replace(b"health", b"health?" + b"a" * 100000) + b"\r\n", PRIVATE], [414], None),
    ("3.2.1", "origin form with a query", [GET.replace(b"health", b"health?a=%20&b=?/") + b"\r\n", LAST], [200, 200], None),
    ("3.2.1", "a path with escapes", [GET.replace(b"health", b"%68e%61lth") + b"\r\n", LAST], [200, 200], None),
    ("3.2.2", "absolute form", [b"GET http://localhost/health?a HTTP/1.1\r\nHost: other.example\r\n\r\n", LAST], [200, 200], None),
    ("3.2.2", "absolute form with a port", [GET.replace(b"/health", b"HTTP://127.0.0.1:80/health") + b"\r\n", LAST], [200, 200], None),
    ("3.2.2", "absolute form of a post", [POST.replace(b"/v1", b"http://localhost/v1") + length(BODY), LAST], [200, 200], None),
    ("3.2.2", "absolute form without a path", [GET.replace(b"/health", b"http://localhost") + KEY + b"\r\n", LAST], [404, 200], None),
    ("3.2.2", "absolute form of another name", [GET.replace(b"/health", b"http://other.example/health") + b"\r\n", LAST], [421, 200], None),
    ("3.2.2", "absolute form without a name", [GET.replace(b"/health", b"http:///health") + b"\r\n", LAST], [421, 200], None),
    ("3.2.2", "absolute form of a long name", [GET.replace(b"/health", b"http://%s/health" % (b"a" * 400)) + b"\r\n", LAST], [421, 200], None),
    ("3.2.3", "authority form", [b"CONNECT localhost:80 HTTP/1.1\r\n" + HOST + KEY + b"\r\n"], [404], None),
    ("3.2.4", "asterisk form", [b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n", LAST], [204, 200], None),
    ("5", "a hundred headers", [GET + b"".join(b"X-%d: y\r\n" % i for i in range(100)) + b"\r\n", LAST], [200, 200], None),
    ("5", "more headers than are read", [GET + b"X: y\r\n" * 50000 + b"\r\n", PRIVATE], [431], None),
    ("5", "names in any case", [GET.replace(b"Host", b"hOST") + b"cONNECTION: CLOSE\r\n\r\n", PRIVATE], [200], None),
    ("5.1", "no blank before a value", [GET.replace(b": ", b":") + b"\r\n", LAST], [200, 200], None),
    ("5.1", "blanks round a value", [GET.replace(b": localhost", b":\t localhost \t") + b"Connection: close \r\n\r\n", PRIVATE], [200], None),
    ("5.1", "an empty value", [GET + b"X:\r\nY: \r\n\r\n", LAST], [200, 200], None),
    ("5.1", "a blank before the colon", [GET + b"X : y\r\n\r\n", PRIVATE], [400], None),
    ("5.2", "a folded line", [GET + b"X: y\r\n z\r\n\r\n", PRIVATE], [400], None),
    ("5.5 of 9110", "bytes above 127 in a value", [GET + b"X: \xe9\xff\r\n\r\n", LAST], [200, 200], None),
    ("6.1", "chunked", [POST + TE + b"\r\n" + CHUNKED, LAST], [200, 200], None),
    ("6.1", "chunked in capitals", [POST + TE.upper() + b"\r\n" + CHUNKED, LAST], [200, 200], None),
    ("6.1", "an unknown coding before chunked", [POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + CHUNKED, PRIVATE], [501], None),
    ("6.1", "chunked twice", [POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n" + CHUNKED, PRIVATE], [400], None),
    ("6.1", "chunked before another", [POST + b"Transfer-Encoding: chunked, gzip\r\n\r\n" + CHUNKED, PRIVATE], [400], None),
    ("6.1", "chunked in HTTP/1.0", [POST.replace(b"1.1", b"1.0") + TE + b"\r\n" + CHUNKED, PRIVATE], [400], None),
    ("6.1", "chunked and a length", [POST + TE + length(CHUNKED), PRIVATE], [400], None),
    ("6.2", "a length", [POST + length(BODY), LAST], [200, 200], None),
    ("6.2", "a length with zeros", [POST + b"Content-Length: 000%d\r\n\r\n" % len(BODY) + BODY, LAST], [200, 200], None),
    ("6.2", "a body of a GET is read", [GET + length(b"hello"), LAST], [200, 200], None),
    ("6.2", "no bytes", [POST + length(b""), LAST], [400, 200], None),
    ("6.3", "two lengths", [POST + b"Content-Length: 3\r\n" + length(BODY), PRIVATE], [400], None),
    ("6.3", "neither a length nor chunked: no body", [POST + b"\r\n", LAST], [400, 200], None),
    ("6.3", "a body of a refused request is read", [POST.replace(b"completions", b"none") + length(BODY), LAST], [404, 200], None),
    ("6.3", "a body that is announced as too large", [POST + b"Content-Length: 200000\r\n\r\n", PRIVATE], [413], None),
    # Regression: the connection ended without an answer.
    ("6.3", "a chunked body that grows too large", [POST + TE + b"\r\n" + b"8000\r\n%s\r\n" % (b" " * 0x8000) * 9 + b"0\r\n\r\n", LAST],
     [413, 200], None),
    ("7.1", "chunks of one byte", [POST + TE + b"\r\n" + pieces(BODY), LAST], [200, 200], None),
    ("7.1", "sizes with zeros and capitals", [POST + TE + b"\r\n1F\r\n" + BODY[:31] + b"\r\n0000%x\r\n" % (len(BODY) - 31) + BODY[31:] +
     b"\r\n000\r\n\r\n", LAST], [200, 200], None),
    ("7.1.1", "extensions", [POST + TE + b"\r\n" + CHUNKED.replace(b"\r\n", b';a=b;c="d;e"\r\n', 1).replace(b"\r\n0\r", b"\r\n0;last\r"),
     LAST], [200, 200], None),
    ("7.1.2", "trailers", [POST + TE + b"Trailer: X-A\r\n\r\n" + CHUNKED[:-2] + b"X-A: b\r\nX-B: c\r\n\r\n", LAST], [200, 200], None),
    ("7.1.2", "trailers that frame nothing", [POST + TE + b"\r\n" + CHUNKED[:-2] + b"Content-Length: 500\r\nHost: x\r\n\r\n", LAST], [200, 200],
     None),
    ("7.1.3", "a chunk that is longer than its size", [POST + TE + b"\r\n5\r\nhello!!!\r\n0\r\n\r\n", PRIVATE], [], None),
    ("7.4", "TE of a client that knows trailers", [GET + b"TE: trailers, deflate;q=0.5\r\nConnection: TE\r\n\r\n", LAST], [200, 200], None),
    ("8", "events of HTTP/1.1 are chunked", [POST + length(STREAM)], [200], is_events),
    ("8", "events of HTTP/1.0 end with the connection", [POST.replace(b"1.1", b"1.0") + length(STREAM), PRIVATE], [200], is_events_to_the_end),
    ("8", "the same, where it asks to keep it", [POST.replace(b"1.1", b"1.0") + length(STREAM, b"Connection: keep-alive\r\n"), PRIVATE],
     [200], is_events_to_the_end),
    ("9.3", "an HTTP/1.0 connection ends", [b"GET /health HTTP/1.0\r\n\r\n", PRIVATE], [200], lambda r: r.will_close),
    ("9.3", "HTTP/1.0 with keep-alive persists", [b"GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", LAST], [200, 200], None),
    ("9.3", "HTTP/1.1 with keep-alive, too", [GET + b"Connection: keep-alive\r\nKeep-Alive: timeout=5\r\n\r\n", LAST], [200, 200], None),
    ("9.3.2", "pipelined requests of all kinds", [GET + b"\r\n", POST + length(BODY), b"HEAD" + GET[3:] + b"\r\n", POST + length(STREAM),
     POST + TE + b"\r\n" + CHUNKED, GET.replace(b"health", b"none") + KEY + b"\r\n", POST + length(b"{"), LAST],
     [200, 200, 200, 200, 200, 404, 400, 200], None),
    ("9.6", "close", [LAST, PRIVATE], [200], lambda r: r.will_close),
    ("9.6", "close of a post", [POST + CLOSE + length(BODY), PRIVATE], [200], lambda r: r.will_close),
    ("9.6", "close among others", [GET + b"Connection: TE, close\r\nTE: trailers\r\n\r\n", PRIVATE], [200], lambda r: r.will_close),
    ("9.6", "close in a second line", [GET + b"Connection: TE\r\nConnection: close\r\n\r\n", PRIVATE], [200], lambda r: r.will_close),
    ("9.3.2 of 9110", "HEAD", [b"HEAD" + GET[3:] + b"\r\n", LAST], [200, 200], None),
    ("9.3.2 of 9110", "HEAD of a path that takes posts", [b"HEAD" + POST[4:] + b"\r\n", LAST], [405, 200], None),
    ("7.8 of 9110", "an upgrade is declined", [GET + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n", LAST], [200, 200], None),
    ("10.1.1 of 9110", "Expect, and the body comes at once", [POST + length(BODY, b"Expect: 100-Continue\r\n"), LAST], [200, 200], None),
    ("10.1.1 of 9110", "Expect in HTTP/1.0", [POST.replace(b"1.1", b"1.0") + length(BODY, b"Expect: 100-continue\r\n")], [200], None),
    ("10.1.1 of 9110", "Expect without a body", [GET + b"Expect: 100-continue\r\n\r\n"], [200], None),
    ("10.1.1 of 9110", "an unknown expectation", [GET + b"Expect: x\r\n\r\n", LAST], [200, 200], None),
    ("11.6.1 of 9110", "no key", [POST.replace(KEY, b"") + length(BODY), LAST], [401, 200], None),
    ("12.5 of 9110", "headers of negotiation", [GET + b"Accept: text/html;q=0\r\nAccept-Encoding: gzip\r\nRange: bytes=0-1\r\n"
     b'If-None-Match: "x"\r\n\r\n', LAST], [200, 200], None),
]

# What libmicrohttpd before 1.0 refuses, in spite of the section: 400, and the connection ends.
BOUNDED = [
    ("5.1", "blanks behind a length", [POST + b"Content-Length: %d \r\n\r\n" % len(BODY) + BODY, PRIVATE]),
    ("5.1", "blanks behind a coding", [POST + b"Transfer-Encoding: chunked \r\n\r\n" + CHUNKED, PRIVATE]),
    ("7.1.1", "blanks in an extension", [POST + TE + b"\r\n" + CHUNKED.replace(b"\r\n", b" ; a = b\r\n", 1), PRIVATE]),
]


def row(section, what, requests, statuses, holds):
    received = exchange(requests)
    got, rest = answers(received, requests, len(statuses))
    seen = section, what, [r.status for r in got], received[-400:]
    assert [r.status for r in got] == statuses and b"sandwich_" not in received, seen
    # What no callback of ours saw may end without an answer, or with one of the library.
    assert rest == b"" if statuses else not rest or rest.startswith(b"HTTP/1.1 400 "), seen
    for r, request in zip(got, requests):
        assert r.version == 11 and (r.getheader("Date") or r.status in (414, 431, 505)), seen
        assert (r.getheader("Allow") is not None) == (r.status == 405), seen
        assert (r.getheader("WWW-Authenticate") is not None) == (r.status == 401), seen
        assert r.text == b"" if request.startswith(b"HEAD") or r.status == 204 else r.text != b"", seen
    assert holds is None or holds(got[-1]), seen


def table():
    failed = []

    def one(i):
        try:
            row(*TABLE[i])
        except Exception as e:
            failed.append("%s: %r" % (TABLE[i][:2], e))

    for first in range(0, len(TABLE), 16):  # as many connections at a time
        parallel(min(16, len(TABLE) - first), lambda i: one(first + i))
    assert not failed, "\n" + "\n".join(sorted(failed))


def bounded():
    for section, what, requests in BOUNDED:
        received = exchange(requests)
        assert received.split(b" ", 2)[1] in (b"200", b"400") and b"sandwich_" not in received, (section, what, received[:300])


def head_is_that_of_get():
    get, head = (s.ask(method, "/health") for method in ("GET", "HEAD"))
    for h in (get[1], head[1]):
        del h["Date"]
    assert head[0] == get[0] == 200 and head[1] == get[1] and not head[2] and get[2], (get, head)


def waits_for_continue():
    """10.1.1 of 9110: the body is sent when the server asks for it, or not at all."""
    for head, body, want in ((POST, BODY, 200), (POST.replace(b"completions", b"none"), BODY, 404)):
        c = s.connect()
        c.sendall(head + CLOSE + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body))
        received = c.recv(65536)
        if received.startswith(b"HTTP/1.1 100 "):
            c.sendall(body)
            received = received.split(b"\r\n\r\n", 1)[1]
        while True:
            more = c.recv(65536)
            if not more:
                break
            received += more
        c.close()
        got, rest = answers(received, [head], 1)
        assert got[0].status == want and rest == b"", (want, received)
    c = s.connect()
    c.sendall(POST + b"Expect: 100-continue\r\nContent-Length: 2147483648\r\n\r\n")
    received = b""
    while b"error" not in received:
        more = c.recv(65536)
        assert more, received
        received += more
    c.close()
    assert received.startswith(b"HTTP/1.1 413 "), received


def one_byte_at_a_time():
    """2.2: where a message is cut on its way means nothing."""
    c = s.connect()
    c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    data = POST + TE + b"\r\n" + CHUNKED[:-2] + b"X-A: b\r\n\r\n"
    for i in range(len(data)):
        c.sendall(data[i:i + 1])
        if i % 16 == 0:
            time.sleep(0.001)
    c.sendall(LAST)
    received = b""
    while True:
        more = c.recv(65536)
        if not more:
            break
        received += more
    got, rest = answers(received, [POST, LAST], 2)
    assert [r.status for r in got] == [200, 200] and rest == b"" and json.loads(got[0].text)["choices"], received


def cut_short():
    """8: what ends before its announced end is not computed."""
    before = s.settled()["sandwich_request_seconds_count"]
    for request in (POST + length(BODY)[:-1], POST + TE + b"\r\n" + CHUNKED[:-7], POST + TE + b"\r\n" + CHUNKED[:-2], GET[:-1]):
        received = exchange([request], half_close=True)
        assert not received or received.startswith(b"HTTP/1.1 4"), (request, received)
    assert s.settled()["sandwich_request_seconds_count"] == before


tap.check("each section of RFC 9112: %d rows" % len(TABLE), table)
tap.check("what the library before 1.0 refuses ends well: %d rows" % len(BOUNDED), bounded)
tap.check("HEAD has the headers of GET", head_is_that_of_get)
tap.check("a client may wait for 100 Continue", waits_for_continue)
tap.check("a request may come byte by byte", one_byte_at_a_time)
tap.check("a request that is cut short is not computed", cut_short)


def ends_well():
    status, err = s.stop()
    assert status == 0, (status, err)


tap.check("the server ends well", ends_well)
tap.finish()
