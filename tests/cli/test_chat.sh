#!/bin/sh
# `sandwich chat` on a terminal and with a pipe; the words of other programs that mean the same
# options, and a model without a flag.
set -u
. tests/support/tap.sh
"$sandwich" model make --arch tiny --type f32 --out "$dir/tiny.gguf" 2>"$dir/log" || exit 1
chat="$sandwich chat $dir/tiny.gguf --no-pin --chat-template llama-2 --max-tokens 8"
cat >"$dir/drive.py" <<'END'
import os, pty, re, select, signal, subprocess, sys, time

argv = sys.argv[1:]


class Chat:
    """A chat whose standard input and error are a terminal; answers are in a file."""
    def __init__(self, *more, model=argv[2]):
        self.ours, theirs = pty.openpty()
        self.p = subprocess.Popen(argv[:2] + [model] + argv[3:] + list(more), stdin=theirs, stdout=subprocess.PIPE, stderr=theirs,
                                  start_new_session=True)
        os.close(theirs)
        os.set_blocking(self.p.stdout.fileno(), False)
        self.out = self.err = b""
        self.until("> ")

    def pump(self):
        for f in select.select([self.ours, self.p.stdout], [], [], 0.05)[0]:
            try:
                if f is self.ours:
                    self.err += os.read(self.ours, 65536)
                else:
                    self.out += self.p.stdout.read() or b""
            except OSError:
                pass

    def until(self, end):
        limit = time.monotonic() + 120
        while not self.err.decode(errors="replace").endswith(end):
            self.pump()
            assert time.monotonic() < limit and self.p.poll() is None, (self.err, self.out)
        for _ in range(2):
            self.pump()

    def say(self, line):
        """What standard output and the terminal get for this line."""
        self.out = self.err = b""
        os.write(self.ours, line.encode() + b"\n")
        time.sleep(0.05)
        self.until("\n> ")
        return self.out.decode(), self.err.decode()

    def end(self):
        os.write(self.ours, b"\x04")
        out, _ = self.p.communicate(timeout=120)
        return self.p.returncode


def history():
    """An answer depends on what was said before, and /reset forgets it."""
    c = Chat("--temperature", "0")
    first = c.say("hello there")[0]
    again = c.say("hello there")[0]
    assert first.strip() and first.endswith("\n") and again != first, (first, again)
    assert "begins again" in c.say("/reset")[1]
    assert c.say("hello there")[0] == first
    c.say("/system be short")
    c.say("/reset")
    system = c.say("hello there")[0]
    assert system != first
    c.say("/system")
    c.say("/reset")
    assert c.say("hello there")[0] == first
    assert "/system TEXT" in c.say("/help")[1]
    assert "unknown command /nothing" in c.say("/nothing")[1]
    assert c.end() == 0
    c = Chat("--temperature", "0", "--system", "be short")
    assert c.say("hello there")[0] == system
    assert c.end() == 0


def interrupts():
    """Ctrl-C ends the answer, which stays in the conversation, and not the chat."""
    c = Chat("--temperature", "0", "--max-tokens", "1900", model=os.environ["SLOW"])
    c.out = c.err = b""
    os.write(c.ours, b"hello\n")
    limit = time.monotonic() + 120
    while not c.out and time.monotonic() < limit:
        c.pump()
    os.kill(c.p.pid, signal.SIGINT)
    c.until("> ")
    assert b"(interrupted)" in c.err and c.out, (c.err, c.out)
    os.kill(c.p.pid, signal.SIGINT)
    c.until("(/exit or Ctrl-D ends the chat)\r\n> ")
    assert "begins again" in c.say("/reset")[1]
    os.kill(c.p.pid, signal.SIGTERM)
    assert c.p.wait(timeout=120) != 0


def forgets_the_oldest():
    """A conversation that is too long goes on without its oldest messages."""
    c = Chat("--max-tok", "60")
    said = "".join(c.say("hello there, all of you")[1] for _ in range(8))
    assert "oldest messages no longer fit into 60 tokens" in said, said
    assert "leaves no room for an answer" in c.say("word " * 200)[1]
    assert c.say("hi")[0].strip()
    assert c.end() == 0


checks = [history, interrupts, forgets_the_oldest]
failed = 0
for i, f in enumerate(checks):
    try:
        f()
        print("ok", f.__name__)
    except Exception:
        import traceback
        traceback.print_exc()
        failed = 1
sys.exit(failed)
END
"$sandwich" model make --arch llama-68m --type bf16 --out "$dir/slow.gguf" 2>"$dir/log" || exit 1
SLOW=$dir/slow.gguf
export SLOW
check "history, commands, Ctrl-C and long conversations on a terminal" python3 "$dir/drive.py" $chat

once() { # text of the prompt, arguments...: the answer to a message that is piped in
    text=$1
    shift
    printf '%s' "$text" | $chat --temperature 0 "$@" 2>"$dir/err"
}
once 'hello there' >"$dir/piped"
check "a message that is piped in is answered" [ -s "$dir/piped" ]
check "only the answer is on standard output" sh -c "[ \$(wc -l <$dir/piped) -ge 1 ] && ! grep -q '> ' $dir/piped"
$chat --temperature 0 "hello there" </dev/null >"$dir/word" 2>"$dir/err"
check "the same as a word" cmp "$dir/piped" "$dir/word"
once 'there' 'hello' >"$dir/both"
$chat --temperature 0 --prompt 'hello

there' </dev/null >"$dir/one" 2>"$dir/err"
check "a word and what is piped in are one message" cmp "$dir/one" "$dir/both"
check "an answer that a template writes is that of the server" sh -c "! cmp -s $dir/piped $dir/one"
refuse_empty() { : | refuses 2 'the input is empty' $chat; }
check "no message" refuse_empty
check "no model" refuses 2 'a model is needed' "$sandwich" chat
check "no template" refuses 2 'chat-template FILE' "$sandwich" chat "$dir/tiny.gguf" --no-pin hello
check "the end of the context ends an answer" sh -c \
    "echo hello | $sandwich chat $dir/tiny.gguf --no-pin --chat-template llama-2 -c 24 --temp 0 >$dir/out"

run="$sandwich run --no-pin --ignore-eos --ids"
$run --model "$dir/tiny.gguf" --prompt 'a b' --n-new 5 --max-tok 64 >"$dir/ids" 2>"$dir/err"
same() { "$@" >"$dir/out" 2>"$dir/err" && cmp "$dir/ids" "$dir/out"; }
check "a model and a prompt without flags" same $run "$dir/tiny.gguf" 'a b' -n 5
check "a prompt without a flag after -m" same $run -m "$dir/tiny.gguf" 'a b' --max-tokens 5
check "a prompt by its flag before the model" same $run -p 'a b' -n 5 "$dir/tiny.gguf"
check "-c, -np, -t and -ngl" same $run "$dir/tiny.gguf" -p 'a b' -n 5 -c 64 -np 2 -t 1 -ngl 99
check "-ngl has no effect, and says so" grep -q -e '--n-gpu-layers 99 has no effect' "$dir/err"
check "-np is not -n" refuses 2 '-np: expected an integer' $run "$dir/tiny.gguf" x -np x
check "vLLM's words" same $run "$dir/tiny.gguf" 'a b' -n 5 --max-model-len 64 --max-num-seqs=2
check "the help names them" sh -c "$sandwich run --help | grep -q -x ' *Also: -np, --parallel, --max-num-seqs.'"
for verb in explain plan; do
    check "$verb takes a model without a flag" refuses 1 'none.gguf' "$sandwich" $verb "$dir/none.gguf"
done
check "bench takes one, and -ngl" sh -c "$sandwich bench $dir/tiny.gguf -p 4 -n 0 -r 1 -ngl 0 | grep -q pp4"
check "one word too many" refuses 2 'unexpected argument "c"' $run a b c
finish
