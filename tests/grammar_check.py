"""Highlighting: the TextMate grammar's own patterns, tried as an editor does, on every word of the tables, which are
read from the sources here, and on the shipped programs. grammar_check.py GRAMMAR SOURCE_FOLDER"""
import json
import pathlib
import re
import sys

INSTRUCTION = "keyword.other.instruction.vasm"
CONTROL = "keyword.control.vasm"
STRIPPED = re.compile(r'\$\{[^}]*\}|"(?:[^"\\]|\\.)*"|;.*')
failures = []
passed = 0


def check(good, what):
    global passed
    if good:
        passed += 1
    else:
        failures.append(what)


class Grammar:
    def __init__(self, path):
        rules = json.loads(path.read_text())
        self.rules = [self.rule(rules["repository"][p["include"].lstrip("#")]) for p in rules["patterns"]]

    @staticmethod
    def rule(rule):
        captures = {int(k): v["name"] for k, v in rule.get("captures", {}).items()}
        return re.compile(rule["match"]), rule.get("name", ""), captures

    def scopes(self, line):
        """For each character of a line its innermost scope: the first match, of those at one place the first rule's."""
        of, at = [""] * len(line), 0
        while at < len(line):
            tried = ((i, rule.search(line, at)) for i, (rule, _, _) in enumerate(self.rules))
            found = [(m.start(), i, m) for i, m in tried if m and m.end() > at]
            if not found:
                break
            _, index, match = min(found, key=lambda f: f[:2])
            name, captures = self.rules[index][1:]
            of[match.start() : match.end()] = [name] * (match.end() - match.start())
            for group, scope in captures.items():
                if match.start(group) >= 0:
                    of[match.start(group) : match.end(group)] = [scope] * (match.end(group) - match.start(group))
            at = match.end()
        return of

    def has(self, line, word, scope, at=None):
        at = line.index(word) if at is None else at
        return all(s == scope for s in self.scopes(line)[at : at + len(word)])


def names(path, pattern):
    found = re.findall(pattern, path.read_text(), re.MULTILINE)
    check(len(found) > 5, f"{path} has names")
    return found


def check_words(grammar, source):
    mnemonics = names(source / "isa/opcodes.def", r'^TVM_OP(?:_ELEMENT)?\(\d+, \w+, "([^"]+)"')
    mnemonics.remove("let")  # has no word of its own: `%a = 1`
    for word in mnemonics:
        for line in (f"    {word} %x", f"    %y = {word} %x, 1", f"    {word}"):
            scope = {s for s in grammar.scopes(line)[line.index(word) : line.index(word) + len(word)]}
            check(scope in ({INSTRUCTION}, {CONTROL}), f"'{line}': {scope}")
    for word in names(source / "assembler/directive_names.def", r"^TVM_DIRECTIVE\((\w+),"):
        check(grammar.has(f".{word} 3", f".{word}", "keyword.control.directive.vasm"), f".{word}")
        check(not grammar.has(f"x.{word}", f".{word}", "keyword.control.directive.vasm"), f"x.{word}")
    types = names(source / "isa/types.c", r'^    X\("(\w+)",')
    makefile = (source / "Makefile.am").read_text().replace("\\\n", " ")
    types += re.search(r"^OTHER_TYPES = (.*)", makefile, re.MULTILINE).group(1).split() + ["u3", "u4"]
    for word in types:
        check(grammar.has(f".kernel k(x: global {word}[n])", f"{word}[", "support.type.vasm") or
              grammar.has(f".kernel k(x: global {word}[n])", word, "support.type.vasm", 20), word)
        check(not grammar.has(f"    %a = %{word}", word, "support.type.vasm", 10), f"%{word}")
    for file in ("builtins.c", "layout_builtins.c"):
        for word in names(source / "assembler" / file, r'^    \{"(\w+)", call_'):
            line = f".const A = {word}(1)"
            instruction = word in mnemonics and grammar.has(line, word, INSTRUCTION, 11)
            check(instruction or grammar.has(line, word, "support.function.vasm", 11), line)
    return set(mnemonics)


def check_line(grammar, mnemonics, where, line):
    scopes = grammar.scopes(line)
    bare = line
    kinds = {";": "comment.line.semicolon.vasm", '"': "string.quoted.double.vasm", "$": "meta.template.vasm"}
    for match in STRIPPED.finditer(line):
        kind = kinds[match.group()[0]]
        check(set(scopes[match.start() : match.end()]) == {kind}, f"{where}: {match.group()} is a {kind}")
        bare = bare[: match.start()] + " " * len(match.group()) + bare[match.end() :]
    for match in re.finditer(r"(?<![\w.%$-])[a-z][a-z0-9-]*(?![\w-])", bare):
        before, after = bare[: match.start()], bare[match.end() :]
        begins = re.fullmatch(r"\s*(?:%\w+\s*=\s*|\.(?:if|elif|else)\b.*:\s*)?", before)
        begins = begins and not re.match(r"\s*[=:.]|\s+[-+*/]\s|,", after)
        if match.group() in mnemonics and (begins or after.startswith("(")):
            scope = set(scopes[match.start() : match.end()])
            check(scope in ({INSTRUCTION}, {CONTROL}), f"{where}: {match.group()}: {scope}")
        elif re.match(r"[ ]+(?!(?:if|to|in|step|cost)\b)(?:\w|%\w)", after):
            # of two words side by side the first means something to the language
            check("" not in scopes[match.start() : match.end()], f"{where}: {match.group()} is no word of the language")


def main():
    grammar, source = Grammar(pathlib.Path(sys.argv[1])), pathlib.Path(sys.argv[2])
    mnemonics = check_words(grammar, source)
    files = sorted((source / "programs").rglob("*.vasm*"))
    check(len(files) > 30, "programs")
    for file in files:
        for number, line in enumerate(file.read_text().splitlines(), 1):
            check_line(grammar, mnemonics, f"{file.name}:{number}", line)
    for failure in failures:
        print(f"not ok: {failure}")
    print(f"{passed} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
