"""Finds functions, types and declarations in C and C++ by their braces: enough for sizes and comments, no parser."""
import re
from dataclasses import dataclass

_SKIPPED = re.compile(
    r'R"([^\s()\\]{0,16})\((?:.|\n)*?\)\1"'  # raw string
    r"|//[^\n]*|/\*(?:.|\n)*?\*/"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-zA-Z_])'(?:\\.|[^'\\\n])+'"  # a character, not the separator of 1'000
    r"|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*",  # preprocessor, with continuation lines
    re.MULTILINE)
_ENDS_FUNCTION = re.compile(r"(\)|\b(const|noexcept|override|final|mutable|try)|&&?|->\s*[^;{}()=]+)\s*$")
_TYPE = re.compile(r"^\s*(template\s*<.*>\s*)?(typedef\s+)?(class|struct|union|enum)\b", re.DOTALL)
_NAMESPACE = re.compile(r"^\s*(inline\s+)?(namespace|extern)\b")
_NAME = re.compile(r"(operator\s*[^\s(]+|[~\w:]+)\s*\(")
_TEST = re.compile(r"^\s*TEST(_F|_P)?\s*\(\s*(\w+)\s*,\s*(\w+)")


@dataclass
class Declaration:
    kind: str  # "function": with a body; "type": a definition; "declaration": anything else that ends in ";"
    head: str  # its text up to the body or semicolon, without comments and strings
    first: int  # lines, from 1
    last: int
    in_namespace: bool  # not inside a type

    @property
    def name(self):
        test = _TEST.match(self.head)
        if test:
            return f"{test[2]}.{test[3]}"
        named = _NAME.search(self.head)
        return named[1] if named else self.head.strip()[:40]


def without_comments(text):
    """The text with comments, strings and preprocessor lines blanked; lines stay where they are."""
    return _SKIPPED.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def declarations(text):
    """All declarations outside function bodies, in order of their ends."""
    code = without_comments(text)
    found, stack, start = [], [], 0

    def line(position):
        return code.count("\n", 0, position) + 1

    def add(kind, begin, head_end, end):
        head = code[begin:head_end]
        begin += len(head) - len(head.lstrip())
        if head.strip():
            in_namespace = all(outer == "namespace" for outer, _, _ in stack)
            found.append(Declaration(kind, head.strip(), line(begin), line(end), in_namespace))

    for token in re.finditer(r"[{};]", code):
        at = token.start()
        inside = any(kind == "function" for kind, _, _ in stack)
        if token[0] == "{":
            kind = "block" if inside else _brace_kind(code[start:at])
            stack.append((kind, start, at))
            if kind in ("namespace", "type"):
                start = at + 1
        elif token[0] == "}" and stack:
            kind, begin, head_end = stack.pop()
            if kind in ("function", "type"):
                add(kind, begin, head_end, at)
            if kind in ("function", "type", "namespace"):
                start = at + 1
        elif token[0] == ";" and not inside and not (stack and stack[-1][0] == "block"):
            add("declaration", start, at, at)
            start = at + 1
    return found


def _brace_kind(head):
    if _NAMESPACE.match(head) and not _ENDS_FUNCTION.search(head):
        return "namespace"
    if _ENDS_FUNCTION.search(head) and "(" in head:
        return "function"
    return "type" if _TYPE.match(head) else "block"  # block: an initialiser
