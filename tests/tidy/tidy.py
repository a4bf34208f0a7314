#!/usr/bin/env python3
"""House rules as a test: floors, heavy headers, sizes, comments, leftovers.

    tidy.py [--root FOLDER]            checks the tree; exit 1 and a line a violation, file:line first
    tidy.py [--root FOLDER] --update   tightens ratchet.json to what has shrunk since

What was over a limit when the rule was made is listed with its size in ratchet.json: it may shrink, never grow, and
nothing may join it. Loosening it is an edit by hand, for a reviewer to see.
"""
import argparse
import ast
import json
import re
import sys
from pathlib import Path

import cpp_scan

# docs/architecture.md: what each floor may include beside itself.
FLOORS = {
    "sdk": [],
    "core/base": [],
    "core/format": ["core/base", "sdk"],
    "core/text": ["core/base"],
    "core/config": ["core/base"],
    "core/model": ["core/format", "core/base", "sdk"],
    "core/backend": ["core/base", "sdk"],
    "core/placement": ["core/model", "core/backend", "core/config", "core/format", "core/base", "sdk"],
    "core/engine": ["core/placement", "core/model", "core/backend", "core/config", "core/format", "core/text",
                    "core/base", "sdk"],
    "apps": ["core/engine", "core/placement", "core/model", "core/backend", "core/config", "core/format", "core/text",
             "core/base", "sdk"],
    "plugins": ["sdk"],
}
HEAVY = re.compile(r"^(boost/(asio|beast|dll)|nlohmann/|spdlog/|yaml-cpp/|cuda|nvml|dnnl|oneapi/|hwloc)")
NEVER_BELOW_APPS = re.compile(r"^(boost/(asio|beast)|cuda|nvml|dnnl|oneapi/)")
LIMITS = {"header_lines": 200, "source_lines": 600, "function_lines": 70,
          "undocumented": 0, "no_opening_comment": 0, "heavy_includes": 0}
FOLDERS = ["core", "sdk", "plugins", "apps", "tests"]
TEXT_FOLDERS = FOLDERS + ["cmake", "configs", "docs"]
HEADERS, SOURCES = {".h", ".hpp"}, {".c", ".cpp", ".cu"}
TEXTS = HEADERS | SOURCES | {".py", ".txt", ".cmake", ".md", ".yaml", ".json", ".sh", ".map"}
LEFTOVER = re.compile(r"\b(TODO|FIXME|XXX)\b")
MACHINE_PATH = re.compile(r"(?<![\w.$}/-])/(work|root|tmp|home/\w+|Users/\w+)/\w")
OPENING_COMMENT = re.compile(r'(//|/\*|#!|"""|# )\s*\S')
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)


class Tree:
    """Violations, and what is measured against the ratchet: {metric: {what: number}}."""

    def __init__(self, root):
        self.root = root
        self.violations = []
        self.measured = {metric: {} for metric in LIMITS}

    def files(self, folders, suffixes):
        for folder in folders:
            for path in sorted((self.root / folder).rglob("*")):
                if path.suffix in suffixes and path.is_file() and "__pycache__" not in path.parts:
                    yield path.relative_to(self.root), path.read_text(encoding="utf-8", errors="replace")

    def violation(self, path, line, text):
        self.violations.append(f"{path}:{line}: {text}")

    def measure(self, metric, what, number):
        if number > LIMITS[metric]:
            self.measured[metric][str(what)] = max(number, self.measured[metric].get(str(what), 0))


def floor_of(path):
    """The floor a path of the tree or of an include belongs to; None for system headers."""
    parts = Path(path).parts
    if parts[0] == "moehost":
        return "sdk"
    name = "/".join(parts[:2]) if parts[0] == "core" else parts[0]
    return name if name in FLOORS else None


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def check_includes(tree):
    for path, text in tree.files(["core", "sdk", "plugins", "apps"], HEADERS | SOURCES):
        floor, heavy = floor_of(path), 0
        for include in INCLUDE.finditer(text):
            name, line = include[1], line_of(text, include.start())
            target = floor_of(name)
            if target and target != floor and target not in FLOORS[floor]:
                tree.violation(path, line, f"{floor} may not include {name}: that is {target}")
            if floor == "plugins" and target == floor and Path(name).parts[:2] != path.parts[:2]:
                tree.violation(path, line, f"a plugin may not include another's {name}")
            if floor not in ("plugins", "apps") and NEVER_BELOW_APPS.match(name):
                tree.violation(path, line, f"{name} does not belong in {floor}")
            heavy += path.suffix in HEADERS and floor != "plugins" and bool(HEAVY.match(name))
        tree.measure("heavy_includes", path, heavy)


def check_sizes(tree):
    for path, text in tree.files(FOLDERS, HEADERS | SOURCES | {".py"}):
        metric = "header_lines" if path.suffix in HEADERS else "source_lines"
        tree.measure(metric, path, text.count("\n"))
        for name, lines in function_sizes(path, text):
            tree.measure("function_lines", f"{path}:{name}", lines)


def function_sizes(path, text):
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield node.name, node.end_lineno - node.lineno + 1
        return
    for declaration in cpp_scan.declarations(text):
        if declaration.kind == "function":
            yield declaration.name, declaration.last - declaration.first + 1


def check_comments(tree):
    for path, text in tree.files(FOLDERS, HEADERS | SOURCES | {".py"}):
        tree.measure("no_opening_comment", path, int(not OPENING_COMMENT.match(text)))
    for path, text in tree.files(["core"], HEADERS):
        tree.measure("undocumented", path, len(undocumented(text)))


def undocumented(text):
    """Public types and functions without a comment: none above in their paragraph, none at the end of their lines."""
    lines = [""] + text.split("\n")
    found = []
    for declaration in cpp_scan.declarations(text):
        is_type = declaration.kind == "type"
        is_function = "(" in declaration.head and not re.match(r"(using|typedef|static_assert|friend)\b",
                                                               declaration.head)
        if not declaration.in_namespace or not (is_type or is_function):
            continue
        above = declaration.first - 1
        while lines[above].strip() and not lines[above].lstrip().startswith(("//", "*", "/*")):
            above -= 1
        own = lines[declaration.first:declaration.last + 1]
        if not lines[above].strip() and not any("//" in line or "/*" in line for line in own):
            found.append(declaration)
    return found


def check_leftovers(tree):
    for path, text in tree.files(TEXT_FOLDERS, TEXTS):
        if path.parts[:2] == ("tests", "tidy"):
            continue  # the words stand here because they are looked for
        for pattern, what in ((LEFTOVER, "unfinished: "), (MACHINE_PATH, "a path of one machine: ")):
            for match in pattern.finditer(text):
                tree.violation(path, line_of(text, match.start()), what + match[0])


def check_ratchet(tree, ratchet):
    """Violations for what is above the ratchet; returns remarks on what is below."""
    remarks = []
    for metric, limit in LIMITS.items():
        before, now = ratchet.get(metric, {}), tree.measured[metric]
        for what, number in now.items():
            if number > before.get(what, limit):
                kept = f", was {before[what]}" if what in before else ""
                tree.violations.append(f"{what}: {metric} {number}, at most {limit}{kept}")
        for what, number in before.items():
            if now.get(what, 0) < number:
                remarks.append(f"{what}: {metric} is now {now.get(what, 'within the limit')}, was {number}")
    return remarks


def tightened(ratchet, measured):
    """The ratchet with every number lowered to today's, and without what is within its limit now."""
    return {metric: {what: min(number, measured[metric][what])
                     for what, number in ratchet.get(metric, {}).items() if what in measured[metric]}
            for metric in LIMITS}


def measured_tree(root):
    tree = Tree(root)
    for check in (check_includes, check_sizes, check_comments, check_leftovers):
        check(tree)
    return tree


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2])
    parser.add_argument("--update", action="store_true", help="tighten ratchet.json to what has shrunk")
    options = parser.parse_args()
    ratchet_file = options.root / "tests/tidy/ratchet.json"
    ratchet = json.loads(ratchet_file.read_text())
    tree = measured_tree(options.root)
    if options.update:
        ratchet = tightened(ratchet, tree.measured)
        ratchet_file.write_text(json.dumps(ratchet, indent=2, sort_keys=True) + "\n")
    remarks = check_ratchet(tree, ratchet)
    for text in tree.violations:
        print(text)
    if remarks:
        print("The ratchet can be tightened with tests/tidy/tidy.py --update:", *remarks, sep="\n  ")
    print(f"tidy: {len(tree.violations)} violations")
    return 1 if tree.violations else 0


if __name__ == "__main__":
    sys.exit(main())
