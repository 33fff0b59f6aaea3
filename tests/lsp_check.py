"""The language server over pipes: documents, diagnostics, hovers, completion, its life, and messages that are wrong.
lsp_check.py TVM_AS SOURCE_FOLDER WORK_FOLDER"""
import json
import os
import pathlib
import random
import re
import select
import subprocess
import sys

TOOL, SOURCE, WORK = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
LIMIT = 3600  # seconds without an answer that is due: the server hangs
failures = []
passed = 0


def check(good, what):
    global passed
    if good:
        passed += 1
    else:
        failures.append(what)


def frame(message):
    body = json.dumps(message).encode() if not isinstance(message, bytes) else message
    return b"Content-Length: %d\r\n\r\n" % len(body) + body


def split(stream):
    """The messages of an output that has ended."""
    messages = []
    while stream:
        head, _, stream = stream.partition(b"\r\n\r\n")
        length = int(head.split(b":")[1])
        messages.append(json.loads(stream[:length]))
        stream = stream[length:]
    return messages


class Stuck(Exception):
    """What a part waits for does not come."""


class Client:
    def __init__(self, *options, encodings=None):
        self.process = subprocess.Popen([TOOL, "--lsp", *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.id, self.shown, self.unread = 0, {}, b""
        general = {"general": {"positionEncodings": encodings}} if encodings else {}
        self.capabilities = self.ask("initialize", capabilities=general)["result"]["capabilities"]
        self.tell("initialized")

    def send(self, data):
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def read_more(self):
        if not select.select([self.process.stdout], [], [], LIMIT)[0]:
            raise Stuck("the server does not answer")
        got = os.read(self.process.stdout.fileno(), 1 << 16)
        if not got:
            raise Stuck("the server has ended")
        self.unread += got

    def receive(self):
        while b"\r\n\r\n" not in self.unread:
            self.read_more()
        head, _, self.unread = self.unread.partition(b"\r\n\r\n")
        length = int(head.split(b":")[1])
        while len(self.unread) < length:
            self.read_more()
        message = json.loads(self.unread[:length])
        self.unread = self.unread[length:]
        if message.get("method") == "textDocument/publishDiagnostics":
            self.shown[message["params"]["uri"]] = message["params"]
        return message

    def tell(self, method, **params):
        self.send(frame({"jsonrpc": "2.0", "method": method, "params": params}))

    def ask(self, method, **params):
        self.id += 1
        self.send(frame({"jsonrpc": "2.0", "id": self.id, "method": method, "params": params}))
        while (message := self.receive()).get("id") != self.id:
            pass
        return message

    def open(self, uri, text, version=1):
        document = {"uri": uri, "languageId": "vasm", "version": version, "text": text}
        self.tell("textDocument/didOpen", textDocument=document)
        return self.await_version(uri, version)

    def change(self, uri, text, version):
        document = {"uri": uri, "version": version}
        self.tell("textDocument/didChange", textDocument=document, contentChanges=[{"text": text}])
        return self.await_version(uri, version)

    def await_version(self, uri, version):
        self.shown.pop(uri, None)
        while self.shown.get(uri, {}).get("version") != version:
            self.receive()
        return self.shown[uri]["diagnostics"]

    def at(self, what, uri, line, character):
        position = {"line": line, "character": character}
        return self.ask(f"textDocument/{what}", textDocument={"uri": uri}, position=position)

    def hover(self, uri, line, character):
        result = self.at("hover", uri, line, character)["result"]
        return result["contents"]["value"] if result else None

    def end(self):
        answer = self.ask("shutdown")
        check("result" in answer and answer["result"] is None, "shutdown has a null result")
        refused = self.ask("textDocument/hover")
        check(refused["error"]["code"] == -32600, "nothing after shutdown")
        self.tell("exit")
        check(self.process.wait(LIMIT) == 0, "exit after shutdown is success")


GOOD = """.vasm 3
.kernel k(n: i32, x: global f32[n], y: global f32[n])   ; add and load-global, in a comment
.warps 1
.grid cdiv(n, 128)
    %a = load-global x[block.x * 128], [128]
    %b = mul %a, 2.0
    store-global y[block.x * 128], %b
.end
"""


def tool_diagnostics(text):
    """What tvm-as itself says: line, column, severity, message."""
    file = WORK / "same.vasm"
    file.write_text(text)
    said = subprocess.run([TOOL, "--check", str(file)], capture_output=True, text=True).stderr
    return re.findall(r"^[^:\n]*:(\d+):(\d+): (error|warning): (.*)", said, re.MULTILINE)


def check_documents():
    client = Client()
    check(client.capabilities["positionEncoding"] == "utf-16", "columns are UTF-16")
    check(client.capabilities["textDocumentSync"]["change"] == 1, "changes are whole texts")
    uri, other = (WORK / "a b.vasm").as_uri(), (WORK / "other.vasm").as_uri()
    check("%20" in uri, "a blank in the name")
    check(client.open(uri, GOOD) == [], "no diagnostics of a good program")
    bad = GOOD.replace("mul %a", "mull %a").replace("store-global y", "store-globl y")
    diagnostics = client.change(uri, bad, 2)
    own = [(str(d["range"]["start"]["line"] + 1), str(d["range"]["start"]["character"] + 1),
            {1: "error", 2: "warning"}[d["severity"]], d["message"].split("\n")[0]) for d in diagnostics]
    check(len(own) == 2 and own == tool_diagnostics(bad), f"diagnostics are tvm-as's: {own}")
    first = diagnostics[0]["range"]
    check("\nhint: did you mean 'mul'?" in diagnostics[0]["message"], f"the hint: {diagnostics[0]}")
    check(first["start"] == {"line": 5, "character": 9} and first["end"] == {"line": 5, "character": 13}, f"{first}")
    check(len(client.open(other, "nonsense\n")) == 1, "a second document")
    check(len(client.shown[uri]["diagnostics"]) == 2, "the first keeps its diagnostics")
    check("%a: f32[128]" in client.hover(uri, 4, 5), "a layout of the last text that had one")
    check(client.change(uri, GOOD, 3) == [], "mended")
    client.tell("textDocument/didClose", textDocument={"uri": other})
    while client.shown[other]["diagnostics"]:
        client.receive()
    check(client.at("hover", other, 0, 0)["error"]["code"] == -32602, "a document that is closed")
    client.end()


def check_hovers():
    client = Client()
    uri = (WORK / "hover.vasm").as_uri()
    client.open(uri, GOOD)
    rows = (SOURCE / "isa/opcodes.def").read_text()
    semantics = re.search(r'"load-global".*?\n?.*?"([^"]*)"\)', rows[rows.index("TVM_OP(12,"):], re.DOTALL).group(1)
    lines = GOOD.split("\n")

    def over(line, word):
        return client.hover(uri, line, lines[line].index(word) + 1)

    said = over(4, "load-global")
    check(said and "register = load-global source:g[]" in said and semantics in said, f"an instruction: {said}")
    check(client.hover(uri, 4, lines[4].index("global")) == said, "the same from its second half")
    listing = subprocess.run([TOOL, "--layouts", "-"], input=GOOD, capture_output=True, text=True).stdout
    rows = [line for line in listing.split("\n") if "%b:" in line]
    check(len(rows) == 1 and rows[0] in (over(5, "%b") or "") and over(5, "b =") == over(5, "%b"),
          f"a layout: {over(5, '%b')}")
    check("%a: f32[128]" in over(5, "%a") and "%b" not in over(5, "%a"), "the layout of that variable alone")
    check("floats of 32 bits" in over(1, "f32"), "a type")
    check(over(1, "add and") is None and over(1, "load-global,") is None, "nothing of a comment")
    check(over(3, "cdiv") is None and client.hover(uri, 7, 0) is None, "nothing of other words")
    check(client.hover(uri, 4, 1000) is None, "a column past the line is its end")
    check(client.at("hover", uri, 1000, 0)["error"]["code"] == -32602, "a line past the text")
    labels = [i["label"] for i in client.at("completion", uri, 5, 10)["result"]]
    check({"load-global", "for", "u3", "cdiv", "mma.m16n8k16.A", "row_major"} <= set(labels), "completion")
    check(len(client.at("completion", uri, 5, 5)["result"]) == 0, "no completion of variables")
    directives = [i["label"] for i in client.at("completion", uri, 2, 1)["result"]]
    check("kernel" in directives and "mma" not in directives, "completion of directives")
    client.end()


def check_columns():
    wide = '.vasm 3\n.assert 1 == 1, "\U0001f600\u00e9\u20ac" nonsense\n'
    for encodings, column in ((["utf-16"], 23), (["utf-8", "utf-16"], 28)):
        client = Client(encodings=encodings)
        diagnostics = client.open("untitled:Untitled-1", wide)
        start = diagnostics[0]["range"]["start"] if diagnostics else None
        check(start == {"line": 1, "character": column}, f"{encodings}: {diagnostics}")
        client.end()


def check_includes():
    (WORK / "sub").mkdir()
    part, whole = WORK / "sub" / "part.vasminc", WORK / "whole.vasm"
    part.write_text(".const N = 1\n")
    text = '.vasm 3\n.include "sub/part.vasminc"\n.assert N == 2, "N is not 2"\n'
    client = Client()
    diagnostics = client.open(whole.as_uri(), text)
    check(len(diagnostics) == 1 and "N is not 2" in diagnostics[0]["message"], f"the file of the disk: {diagnostics}")
    client.tell("textDocument/didOpen", textDocument={"uri": part.as_uri(), "version": 1, "text": ".const N = 2\n"})
    check(client.await_version(whole.as_uri(), 1) == [], "the unsaved text of an included file")
    client.tell("textDocument/didChange", textDocument={"uri": part.as_uri(), "version": 2},
                contentChanges=[{"text": ".const N = 2\n.cons M = 3\n"}])
    wrong = client.await_version(part.as_uri(), 2)
    check(len(wrong) == 1 and wrong[0]["range"]["start"]["line"] == 1, f"shown where it is: {wrong}")
    check(client.await_version(whole.as_uri(), 1) == [] if whole.as_uri() not in client.shown
          else client.shown[whole.as_uri()]["diagnostics"] == [], "and not in the program")
    client.tell("textDocument/didClose", textDocument={"uri": part.as_uri()})
    while len(client.shown.get(whole.as_uri(), {}).get("diagnostics", [])) != 1:
        client.receive()
    check("N is not 2" in client.shown[whole.as_uri()]["diagnostics"][0]["message"], "closed: the disk's again")
    client.end()
    client = Client("-I", str(WORK / "sub"))
    check(client.open((WORK / "i.vasm").as_uri(), '.vasm 3\n.include "part.vasminc"\n.assert N == 1\n') == [], "-I")
    client.end()
    race = GOOD.replace("%b = mul %a, 2.0", "%s = alloc-shared f32[128]\n    store-shared %s[0], %a\n"
                        "    %b = load-shared %s[0], spatial(32).local(4)")
    race = race.replace("], [128]", "], local(4).spatial(32)")
    for options, severities in (((), []), (("-W", "race"), [2])):
        client = Client(*options)
        diagnostics = client.open((WORK / "r.vasm").as_uri(), race)
        check([d["severity"] for d in diagnostics] == severities, f"warnings with {options}: {diagnostics}")
        client.end()


def check_shipped():
    """Shipped programs as an editor has them open, all in one server."""
    client = Client()
    for name in ("matmul", "vector_add", "topk", "softmax", "attention"):
        file = (SOURCE / "programs" / f"{name}.vasm").resolve()
        check(client.open(file.as_uri(), file.read_text()) == [], name)
    client.end()


def run(data):
    """The answers to an input that ends, the exit status, and what is said on standard error."""
    done = subprocess.run([TOOL, "--lsp"], input=data, capture_output=True, timeout=LIMIT)
    return split(done.stdout), done.returncode, done.stderr


INITIALIZE = frame({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}})
SHUTDOWN = frame({"jsonrpc": "2.0", "id": 9, "method": "shutdown"})
EXIT = frame({"jsonrpc": "2.0", "method": "exit"})


def check_life():
    check(run(b"") == ([], 1, b""), "no message")
    check(run(EXIT)[1] == 1, "exit without shutdown")
    check(run(INITIALIZE + SHUTDOWN + EXIT)[1:] == (0, b""), "shutdown and exit")
    check(run(INITIALIZE + SHUTDOWN)[1] == 1, "the end of the input without exit")
    check(run(SHUTDOWN + EXIT)[0][0]["error"]["code"] == -32002, "before initialize")
    check(run(INITIALIZE + INITIALIZE)[0][1]["error"]["code"] == -32600, "initialize twice")
    closed = subprocess.Popen([TOOL, "--lsp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    closed.stdout.close()
    closed.communicate(INITIALIZE + SHUTDOWN, timeout=LIMIT)
    check(closed.returncode == 1, "a client that does not read")
    for arguments in (["--lsp", "a.vasm"], ["--lsp", "--check"], ["--lsp", "-o", "x"]):
        check(subprocess.run([TOOL, *arguments], capture_output=True).returncode == 2, f"usage: {arguments}")


def check_wrong_messages():
    for body, code, id in ((b"{", -32700, None), (b"", -32700, None), (b"\xff\xfe", -32700, None),
                           (b"[1]", -32600, None), (b"17", -32600, None), (b'{"id": 4}', -32600, None),
                           (b"[" * 100000, -32700, None),
                           (b'{"id": {}, "method": "shutdown"}', -32600, None),
                           (b'{"id": 4, "method": 5}', -32600, None),
                           (b'{"id": "x", "method": "no/such"}', -32601, "x"),
                           (b'{"id": 4, "method": "textDocument/hover"}', -32602, 4),
                           (b'{"id": 4, "method": "textDocument/hover", "params": [1, 2]}', -32602, 4)):
        answers, status, _ = run(INITIALIZE + frame(body) + SHUTDOWN + EXIT)
        good = len(answers) == 3 and answers[1]["error"]["code"] == code and answers[1]["id"] == id
        check(good and status == 0, f"{body[:40]}: {answers}")
    for ignored in (b'{"id": 4, "result": null}', b'{"method": "$/progress"}', b'{"method": "textDocument/didOpen"}',
                    b'{"method": "textDocument/didChange", "params": {"textDocument": {"uri": "file:///none"}}}',
                    b'{"method": "textDocument/didOpen", "params": {"textDocument": {"uri": 5, "text": "x"}}}'):
        answers, status, _ = run(INITIALIZE + frame(ignored) + SHUTDOWN + EXIT)
        check(len(answers) == 2 and status == 0, f"{ignored}: {answers}")
    for broken in (b"Content-Length: 99999999999999999999999\r\n\r\n{}", b"Content-Length: 1000000000\r\n\r\n{}",
                   b"Content-Length: -1\r\n\r\n{}", b"Content-Length: 2x\r\n\r\n{}",
                   b"Content-Length: 150000000\r\n\r\n{}",
                   b"Content-Type: x\r\n\r\n{}", b"{}\r\n\r\n", b"a: " + b"b" * 5000, b"a: b\r\n" * 100,
                   INITIALIZE[:-1], INITIALIZE[:9], b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", b"\0\r\n"):
        answers, status, said = run(broken)
        good = len(answers) == 1 and answers[0]["error"]["code"] == -32700 and answers[0]["id"] is None
        check(good and status == 1 and said.startswith(b"tvm-as: error: ") and said.count(b"\n") == 1,
              f"{broken[:40]}: {answers} {status} {said}")


def mutated(source, pieces):
    """A message with some of its bytes changed, left out, doubled, or replaced by those of another."""
    data = bytearray(source.choice(pieces))
    for _ in range(source.randint(1, 6)):
        at = source.randrange(len(data) + 1)
        kind = source.randrange(4)
        if kind == 0:
            data[at : at + 1] = bytes([source.choice(b'{}[]",:0-9eE\\u\x00\xff %.;\n' + data[at : at + 1])])
        elif kind == 1:
            del data[at : at + source.randint(1, 20)]
        elif kind == 2:
            data[at:at] = data[at : at + source.randint(1, 40)]
        else:
            other = source.choice(pieces)
            start = source.randrange(len(other))
            data[at:at] = other[start : start + source.randint(1, 60)]
    return bytes(data)


def check_fuzz():
    uri = (WORK / "fuzz.vasm").as_uri()
    document = {"uri": uri, "version": 1, "text": GOOD}
    place = {"textDocument": {"uri": uri}, "position": {"line": 4, "character": 12}}
    messages = [("textDocument/didOpen", {"textDocument": document}, None), ("textDocument/hover", place, 5),
                ("textDocument/didChange", {"textDocument": document, "contentChanges": [{"text": GOOD}]}, None),
                ("textDocument/completion", place, 6), ("textDocument/didClose", {"textDocument": document}, None)]
    bodies = [json.dumps({"jsonrpc": "2.0", "method": m, "params": p} | ({"id": i} if i else {})).encode()
              for m, p, i in messages]
    source = random.Random(7)
    # contents within right frames: the server goes on to the end
    contents = (mutated(source, bodies) if source.random() < 0.7 else source.choice(bodies) for _ in range(2000))
    answers, status, said = run(INITIALIZE + b"".join(frame(c) for c in contents) + SHUTDOWN + EXIT)
    check(status == 0 and not said and answers[-1].get("id") == 9 and len(answers) > 100, f"contents: {status} {said}")
    # frames as well: it ends, with an error or without
    frames = [INITIALIZE] + [frame(b) for b in bodies]
    for i in range(150):
        parts = (mutated(source, frames) if source.random() < 0.3 else source.choice(frames) for _ in range(8))
        data = INITIALIZE + b"".join(parts)
        _, status, _ = run(data[: source.randint(0, len(data))])
        check(status in (0, 1), f"frames, {i}: {status}")


def main():
    for part in (check_documents, check_hovers, check_columns, check_includes, check_shipped, check_life,
                 check_wrong_messages, check_fuzz):
        try:
            part()
        except (Stuck, BrokenPipeError, subprocess.TimeoutExpired) as error:
            failures.append(f"{part.__name__}: {error}")
    for failure in failures:
        print(f"not ok: {failure}")
    print(f"{passed} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
