#!/usr/bin/env python3
"""tidy.py finds what is planted, and nothing in a clean tree."""
import tempfile
import unittest
from pathlib import Path

import cpp_scan
import tidy

CLEAN = {
    "core/base/status.h": "// Status. Floor 1.\n#include <string>\n\n// What went wrong.\nclass Status {\n};\n",
    "core/engine/engine.cpp": '// The engine.\n#include "core/base/status.h"\n#include "moehost/device.h"\n',
    "plugins/cpu/cpu.cpp": '/* A backend. */\n#include <dnnl.hpp>\n#include "plugins/cpu/cpu.h"\n',
    "apps/moehost/main.cpp": '// The program.\n#include <boost/beast/http.hpp>\n#include "core/engine/engine.h"\n',
    "tests/base/status_test.cpp": '// Tests.\nconst char* text = "no } brace { here";\n',
    "docs/page.md": "A page on ${HOME}/work/x and build/tmp/y.\n",
}


def lines_of_function(count):
    return "// F.\nint f() {\n" + "  g();\n" * (count - 2) + "}\n"


class Tidy(unittest.TestCase):
    def check(self, files, ratchet=None):
        """Violations and remarks of the clean tree with these files over it."""
        with tempfile.TemporaryDirectory() as folder:
            for name, text in {**CLEAN, **files}.items():
                path = Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            tree = tidy.measured_tree(Path(folder))
            remarks = tidy.check_ratchet(tree, ratchet or {})
            return tree.violations, remarks

    def finds(self, name, text, expected):
        violations, _ = self.check({name: text})
        self.assertEqual(len(violations), 1, violations)
        self.assertIn(expected, violations[0])

    def test_a_clean_tree_has_no_violation(self):
        self.assertEqual(self.check({}), ([], []))

    def test_includes_go_downward_only(self):
        self.finds("core/base/x.cpp", '// X.\n#include "core/engine/engine.h"\n',
                   "core/base/x.cpp:2: core/base may not include")
        self.finds("core/text/x.cpp", '// X.\n#include "core/config/config.h"\n', "core/text may not include")
        self.finds("core/model/x.cpp", '// X.\n#include "core/backend/backend.h"\n', "core/model may not include")
        self.finds("core/engine/x.cpp", '// X.\n#include "apps/moehost/http.h"\n', "that is apps")
        self.finds("core/engine/x.cpp", '// X.\n#include "plugins/cpu/cpu.h"\n', "that is plugins")
        self.finds("sdk/include/moehost/x.h", '// X.\n#include "core/base/status.h"\n', "sdk may not include")

    def test_plugins_know_the_sdk_and_themselves(self):
        self.finds("plugins/cpu/x.cpp", '// X.\n#include "core/base/status.h"\n', "plugins may not include")
        self.finds("plugins/cpu/x.cpp", '// X.\n#include "plugins/cuda/x.h"\n', "may not include another's")

    def test_heavy_headers_stay_in_sources_and_vendors_out_of_core(self):
        self.finds("core/config/x.h", "// X.\n#include <yaml-cpp/yaml.h>\n", "heavy_includes 1, at most 0")
        self.finds("apps/moehost/x.h", "// X.\n#include <boost/beast.hpp>\n", "heavy_includes 1, at most 0")
        self.finds("core/engine/x.cpp", "// X.\n#include <cuda_runtime.h>\n", "does not belong in core/engine")
        self.finds("core/engine/x.cpp", "// X.\n#include <boost/asio.hpp>\n", "does not belong in core/engine")

    def test_sizes_have_limits(self):
        self.finds("core/base/x.h", "// X.\n" + "\n" * 200, "core/base/x.h: header_lines 201, at most 200")
        self.finds("core/base/x.cpp", "// X.\n" + "\n" * 600, "source_lines 601, at most 600")
        self.finds("plugins/cpu/x.cpp", lines_of_function(71), "plugins/cpu/x.cpp:f: function_lines 71, at most 70")
        self.assertEqual(self.check({"core/base/x.cpp": lines_of_function(70)}), ([], []))
        self.finds("tests/x/x.py", '"""X."""\ndef f():\n' + "    g()\n" * 70, "tests/x/x.py:f: function_lines 71")

    def test_the_ratchet_lets_nothing_grow_and_says_what_shrank(self):
        ratchet = {"function_lines": {"core/base/x.cpp:f": 75}}
        self.assertEqual(self.check({"core/base/x.cpp": lines_of_function(75)}, ratchet), ([], []))
        violations, _ = self.check({"core/base/x.cpp": lines_of_function(76)}, ratchet)
        self.assertEqual(violations, ["core/base/x.cpp:f: function_lines 76, at most 70, was 75"])
        for lines, now in ((74, "now 74"), (60, "now within the limit")):
            violations, remarks = self.check({"core/base/x.cpp": lines_of_function(lines)}, ratchet)
            self.assertEqual(violations, [])
            self.assertIn(now, remarks[0])

    def test_tightening_lowers_and_drops_but_never_raises_or_adds(self):
        ratchet = {"source_lines": {"shrank": 700, "grew": 700, "gone": 700}}
        measured = {metric: {} for metric in tidy.LIMITS}
        measured["source_lines"] = {"shrank": 650, "grew": 750, "new": 999}
        self.assertEqual(tidy.tightened(ratchet, measured)["source_lines"], {"shrank": 650, "grew": 700})

    def test_files_begin_with_a_comment(self):
        self.finds("core/base/x.h", "#pragma once\n", "core/base/x.h: no_opening_comment 1, at most 0")
        self.finds("plugins/cpu/x.cpp", "#include <string>\n// Late.\n", "no_opening_comment")
        self.finds("core/base/x.cpp", "//\n", "no_opening_comment")

    def test_public_declarations_have_a_comment(self):
        def header(text):
            return f"// X.\n#pragma once\n\nnamespace m {{\n\n{text}\n\n}}\n"

        for bare in ("int f(int x);", "class X {\n  int y;\n};", "template <class T>\nT f(T x) { return x; }",
                     "enum class E { kA };"):
            self.finds("core/base/x.h", header(bare), "undocumented 1, at most 0")
            for text in (f"// Does it.\n{bare}", f"// Two of a kind.\nint g();\n{bare}", f"{bare}  // Does it."):
                self.assertEqual(self.check({"core/base/x.h": header(text)}), ([], []), text)

    def test_nothing_is_left_over(self):
        self.finds("core/base/x.cpp", "// X.\n\n// TO" + "DO: later\n", "core/base/x.cpp:3: unfinished: TO" + "DO")
        self.finds("docs/x.md", "See /wo" + "rk/main/x.\n", "docs/x.md:1: a path of one machine: /wo" + "rk/m")
        self.finds("cmake/x.cmake", "set(x /home/some" + "one/y)\n", "a path of one machine")

    def test_the_scanner_knows_functions_from_types_and_initialisers(self):
        text = """
            namespace a::b {
            struct Point { int x = '{'; int get() const { return x; } };
            const char* const kText[] = {"}", R"x({)x"};
            Thing::Thing(int a) : a_(a), b_{1}, c_(2) {
              if (a) { auto f = [&] { return 1'000; }; }
            }
            auto pair() -> std::pair<int, int> { return {1, 2}; }  // }
            #define OPEN { \\
                {
            TEST(Suite, Promise) { EXPECT_TRUE(true); }
            bool operator==(const Point& a, const Point& b) { return a.x == b.x; }
            void declared(Point p = {});
            }
        """
        found = [(d.kind, d.name) for d in cpp_scan.declarations(text) if d.kind != "declaration"]
        self.assertEqual(found, [("function", "get"), ("type", "struct Point"), ("function", "Thing::Thing"),
                                 ("function", "pair"), ("function", "Suite.Promise"), ("function", "operator==")])
        self.assertIn("declared", [d.name for d in cpp_scan.declarations(text) if d.kind == "declaration"])


if __name__ == "__main__":
    unittest.main()
