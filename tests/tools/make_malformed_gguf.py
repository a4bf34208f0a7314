#!/usr/bin/env python3
"""Writes malformed GGUF files, and a few good ones, into a folder. Standard library only.

    make_malformed_gguf.py FOLDER

FOLDER/manifest.txt has a line a case, "EXPECTATION FILE": refuse (must not open), open (must), either (a change that
may leave a file that happens to be well-formed: only that nothing breaks is asked).
"""
import pathlib
import struct
import sys

from gguf_file import TYPES, file_bytes, key_record, padded, tensor_record, text, value_bytes

F32, Q8_0 = 0, 8
KEYS = [("general.architecture", "str", "llama"), ("general.alignment", "u32", 32), ("flag", "bool", True),
        ("count", "u16", 7), ("ratio", "f64", 0.5), ("names", "[str", ["one", "two", "three"]),
        ("numbers", "[i32", [1, -2, 3, 4])]
# ne, type and number of data bytes
TENSORS = [("a.weight", [8], F32, 32), ("b.weight", [32, 2], Q8_0, 68), ("c.weight", [2, 2, 2], F32, 32)]
EDGES = [2 ** 31 - 1, 2 ** 31 + 1, 2 ** 32 - 1, 2 ** 32 + 1, 2 ** 61, 2 ** 63, 2 ** 64 - 64, 2 ** 64 - 1]


def u32(value):
    return struct.pack("<I", value)


def u64(value):
    return struct.pack("<Q", value)


def header(tensor_count, key_count):
    return b"GGUF" + u32(3) + u64(tensor_count) + u64(key_count)


class Pieces:
    """A well-formed file as labelled pieces, so that one can be changed, dropped or cut without touching the others."""

    def __init__(self):
        self.items = [("magic", b"GGUF"), ("version", u32(3)), ("tensor_count", u64(len(TENSORS))),
                      ("key_count", u64(len(KEYS)))]
        for key, kind, value in KEYS:
            record = key_record(key, kind, value)
            name_end = 8 + len(key)
            self.items += [(key + ".length", record[:8]), (key + ".key", record[8:name_end]),
                           (key + ".type", record[name_end:name_end + 4])]
            rest = record[name_end + 4:]
            if kind == "str":
                self.items += [(key + ".value_length", rest[:8]), (key + ".value", rest[8:])]
            elif kind.startswith("["):
                self.items += [(key + ".element_type", rest[:4]), (key + ".element_count", rest[4:12])]
                at = 12
                for i, element in enumerate(value):
                    size = len(value_bytes(kind[1:], element))
                    if kind == "[str":
                        self.items.append((f"{key}.{i}.length", rest[at:at + 8]))
                        self.items.append((f"{key}.{i}", rest[at + 8:at + size]))
                    else:
                        self.items.append((f"{key}.{i}", rest[at:at + size]))
                    at += size
            else:
                self.items.append((key + ".value", rest))
        offset = 0
        for name, ne, kind, size in TENSORS:
            self.items += [(name + ".length", u64(len(name))), (name + ".name", name.encode()),
                           (name + ".dimensions", u32(len(ne)))]
            self.items += [(f"{name}.ne{i}", u64(n)) for i, n in enumerate(ne)]
            self.items += [(name + ".type", u32(kind)), (name + ".offset", u64(offset))]
            offset += size + -size % 32
        head = sum(len(data) for _, data in self.items)
        self.items.append(("padding", bytes(-head % 32)))
        for name, _, _, size in TENSORS:
            self.items.append((name + ".data", bytes(size)))
            self.items.append((name + ".data_padding", bytes(-size % 32)))

    def bytes(self, changed=None, replacement=b""):
        """The file, one piece replaced. Padding is made anew, so that only the change itself is wrong."""
        assert changed is None or changed in dict(self.items), changed
        out = b""
        for label, data in self.items:
            out += bytes(-len(out) % 32) if label == "padding" else replacement if label == changed else data
        return out

    def boundaries(self):
        """(label, offset of the piece's end)"""
        at = 0
        for label, data in self.items:
            at += len(data)
            yield label, at


def edge_cases(pieces):
    """Every length and count at its edge values."""
    total = len(pieces.bytes())
    for label, end in pieces.boundaries():
        field = label.rsplit(".", 1)[-1]
        is_size = field in ("length", "value_length", "element_count", "offset", "tensor_count", "key_count")
        if not is_size and not field.startswith("ne"):
            continue
        real = struct.unpack("<Q", dict(pieces.items)[label])[0]
        remaining = total - end
        for value in sorted({0, 1, max(real - 1, 0), real + 1} - {real}):
            yield "either", f"edge-{label}-{value}", pieces.bytes(label, u64(value))
        for value in [remaining - 1, remaining + 1, *EDGES]:
            yield "refuse", f"edge-{label}-{value}", pieces.bytes(label, u64(value))


def truncations(pieces):
    """Cut at every record boundary, and one byte before and after it."""
    whole = pieces.bytes()
    data_end = len(whole) - len(dict(pieces.items)[TENSORS[-1][0] + ".data_padding"])
    cuts = {0}
    for _, end in pieces.boundaries():
        cuts |= {end - 1, end, end + 1}
    for cut in sorted(c for c in cuts if 0 <= c < data_end):
        yield "refuse", f"cut-{cut}", whole[:cut]


def wrong_types(pieces):
    for number in (13, 255, 2 ** 31, 2 ** 32 - 1):
        yield "refuse", f"value-type-{number}", pieces.bytes("count.type", u32(number))
        yield "refuse", f"element-type-{number}", pieces.bytes("numbers.element_type", u32(number))
    yield "refuse", "array-of-arrays", pieces.bytes("numbers.element_type", u32(9))
    yield "refuse", "bool-is-2", pieces.bytes("flag.value", b"\x02")
    yield "refuse", "bool-in-array-is-255", header(0, 1) + text("k") + u32(9) + u32(7) + u64(2) + b"\x01\xff"
    yield "refuse", "array-nested-1000-deep", header(0, 1) + text("k") + u32(9) + (u32(9) + u64(1)) * 1000
    for number in (4, 5, 9, 15, 31, 33, 38, 77, 1000, 1001, 2 ** 31, 2 ** 32 - 1):
        yield "refuse", f"tensor-type-{number}", pieces.bytes("a.weight.type", u32(number))
    for number in (0, 5, 255, 2 ** 31, 2 ** 32 - 1):
        yield "refuse", f"dimensions-{number}", pieces.bytes("a.weight.dimensions", u32(number))


def header_faults(pieces):
    for name, magic in (("empty", b"\0\0\0\0"), ("swapped", b"FUGG"), ("ggml", b"lmgg"), ("lower", b"gguf")):
        yield "refuse", f"magic-{name}", pieces.bytes("magic", magic)
    for version in (0, 1, 4, 2 ** 32 - 1):
        yield "refuse", f"version-{version}", pieces.bytes("version", u32(version))
    yield "refuse", "big-endian", struct.pack(">4sIQQ", b"GGUF", 3, 0, 0)
    yield "refuse", "safetensors", u64(2) + b"{}"
    yield "refuse", "text", b"<!DOCTYPE html><html><body>404 Not Found</body></html>"
    for value in (0, 1, 2, 3, 31, 33, 2 ** 17, 2 ** 31, 2 ** 32 - 1):
        yield "refuse", f"alignment-{value}", pieces.bytes("general.alignment.value", u32(value))
    yield "refuse", "alignment-u64", file_bytes([("general.alignment", "u64", 32)], [])
    yield "refuse", "alignment-string", file_bytes([("general.alignment", "str", "32")], [])


def name_faults(pieces):
    """Keys and tensor names."""
    for name, key in (("empty", b""), ("64k", b"k" * 65536), ("nul", b"a\0b"), ("not-utf8", b"\xff\xfe"),
                      ("newline", b"a\nb"), ("accent", "é".encode())):
        yield "refuse", f"key-{name}", file_bytes([(key, "u8", 1)], [])
        yield "refuse", f"name-{name}", file_bytes([], [(key, [1], F32, bytes(4))])
    yield "refuse", "name-64", file_bytes([], [("n" * 64, [1], F32, bytes(4))])
    yield "refuse", "key-twice", file_bytes([("a", "u8", 1), ("b", "u8", 1), ("a", "u8", 1)], [])
    yield "refuse", "key-twice-other-type", file_bytes([("a", "u8", 1), ("a", "str", "x")], [])
    yield "refuse", "name-twice", pieces.bytes("c.weight.name", b"a.weight")


def geometry_faults(pieces):
    """Dimensions and places of tensors."""
    for name, ne in (("wraps-to-0", [2 ** 32, 2 ** 32]), ("wraps-to-8", [2 ** 61 + 1, 8]), ("wraps-3", [2 ** 30] * 3),
                     ("wraps-4", [2 ** 16] * 4), ("f32-bytes-wrap", [2 ** 62]), ("zero-first", [0, 4]),
                     ("zero-last", [4, 0]), ("zero-hides-wrap", [2 ** 63, 2 ** 63, 0])):
        yield "refuse", f"ne-{name}", padded(header(1, 0) + tensor_record("t", ne, F32, 0)) + bytes(64)
    for columns in (1, 16, 31, 33, 63):
        yield "refuse", f"q8-row-of-{columns}", pieces.bytes("b.weight.ne0", u64(columns))
    yield "refuse", "one-row-too-many", pieces.bytes("c.weight.ne2", u64(4))
    yield "refuse", "overlap-same-offset", pieces.bytes("b.weight.offset", u64(0))
    yield "refuse", "overlap-by-one-row", pieces.bytes("b.weight.ne1", u64(3))
    yield "refuse", "overlap-inside", pieces.bytes("c.weight.offset", u64(64))
    for offset in (1, 4, 31, 33):
        yield "refuse", f"offset-unaligned-{offset}", pieces.bytes("a.weight.offset", u64(offset))
    yield "refuse", "offset-at-the-end", pieces.bytes("c.weight.offset", u64(192))
    yield "refuse", "offset-wraps", pieces.bytes("c.weight.offset", u64(2 ** 64 - 32))
    yield "refuse", "no-data-at-all", pieces.bytes()[:pieces.bytes().rindex(b"c.weight") + 8 + 4 + 24 + 4 + 8]


def controls(pieces):
    yield "open", "good-v3", pieces.bytes()
    yield "open", "good-v2", pieces.bytes("version", u32(2))
    yield "open", "good-empty", file_bytes([], [])
    yield "open", "good-vocabulary-only", file_bytes(KEYS, [])
    yield "open", "good-alignment-64", file_bytes([("general.alignment", "u32", 64)], [("t", [3], F32, bytes(12))], alignment=64)
    yield "open", "good-longest-name", file_bytes([], [("n" * 63, [1], F32, bytes(4))])
    samples = {"str": "x\0\xff", "bool": False}
    every = [(kind, kind, samples.get(kind, 1)) for kind in TYPES]
    every += [("array of " + kind, "[" + kind, [samples.get(kind, 1)] * n) for n, kind in enumerate(TYPES)]
    yield "open", "good-every-type", file_bytes(every, [])
    yield "open", "good-bytes-after-the-last-tensor", pieces.bytes() + bytes(100)


def shard(number, count, names, total=2, kind="u16", extra=()):
    keys = [("split.no", kind, number), ("split.count", kind, count), ("split.tensors.count", "i32", total), *extra]
    return file_bytes(keys, [(name, [1], F32, bytes(4)) for name in names])


def split_cases():
    """(expectation, stem, {suffix: bytes}); the first suffix is the file to open."""
    one, two = "-00001-of-00002.gguf", "-00002-of-00002.gguf"
    first, second = shard(0, 2, ["a"]), shard(1, 2, ["b"])
    yield "open", "split-good", {one: first, two: second}
    yield "open", "split-of-one", {".gguf": shard(0, 1, ["a"], total=1)}
    yield "refuse", "split-second-missing", {one: first}
    yield "refuse", "split-opened-by-the-second", {two: second, one: first}
    yield "refuse", "split-name-without-number", {".gguf": first, two: second}
    yield "refuse", "split-name-of-other-count", {"-00001-of-00003.gguf": first, two: second}
    yield "refuse", "split-second-is-first", {one: first, two: first}
    yield "refuse", "split-second-of-three", {one: first, two: shard(1, 3, ["b"])}
    yield "refuse", "split-second-without-keys", {one: first, two: file_bytes([], [("b", [1], F32, bytes(4))])}
    yield "refuse", "split-number-is-text", {one: first, two: file_bytes([("split.no", "str", "1")], [])}
    yield "refuse", "split-second-has-same-tensor", {one: first, two: shard(1, 2, ["a"])}
    yield "refuse", "split-too-few-tensors", {one: shard(0, 2, ["a"], total=3), two: second}
    yield "refuse", "split-too-many-tensors", {one: first, two: shard(1, 2, ["b", "c"])}
    yield "refuse", "split-negative-total", {one: shard(0, 2, ["a"], total=-1), two: second}
    yield "refuse", "split-second-cut", {one: first, two: second[:-40]}
    yield "refuse", "split-second-empty", {one: first, two: b""}
    yield "refuse", "split-count-0", {one: shard(0, 0, ["a"]), two: second}
    yield "refuse", "split-count-65535", {"-00001-of-65535.gguf": shard(0, 65535, ["a"])}
    yield "refuse", "split-count-negative", {one: shard(0, -2, ["a"], kind="i32"), two: second}
    yield "refuse", "split-count-huge", {one: shard(0, 2 ** 63, ["a"], kind="u64"), two: second}
    yield "refuse", "split-count-is-text", {one: file_bytes([("split.count", "str", "2")], []), two: second}
    yield "refuse", "split-without-number", {one: file_bytes([("split.count", "u16", 2)], []), two: second}


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    pieces = Pieces()
    lines = []
    for source in (edge_cases, truncations, wrong_types, header_faults, name_faults, geometry_faults, controls):
        for expectation, name, data in source(pieces):
            (folder / f"{name}.gguf").write_bytes(data)
            lines.append(f"{expectation} {name}.gguf")
    for expectation, stem, files in split_cases():
        for suffix, data in files.items():
            (folder / (stem + suffix)).write_bytes(data)
        lines.append(f"{expectation} {stem}{next(iter(files))}")
    assert len(lines) == len(set(lines)), "two cases have one name"
    (folder / "manifest.txt").write_text("\n".join(lines) + "\n")
    print(f"{folder}: {len(lines)} cases, {sum(line.startswith('refuse') for line in lines)} of them to be refused")


if __name__ == "__main__":
    main()
