"""Writes and reads GGUF files with the standard library alone, record by record, so that a test can also write wrong ones.

A metadata entry is (key, type, value): type is a name of TYPES, or "[name" for an array. A tensor is
(name, ne with the fastest dimension first, type number, bytes).
"""
import struct

TYPES = {"u8": (0, "<B"), "i8": (1, "<b"), "u16": (2, "<H"), "i16": (3, "<h"), "u32": (4, "<I"), "i32": (5, "<i"),
         "f32": (6, "<f"), "bool": (7, "<?"), "str": (8, None), "u64": (10, "<Q"), "i64": (11, "<q"), "f64": (12, "<d")}
ARRAY = 9
NAMES = {number: name for name, (number, _) in TYPES.items()}


def text(value):
    data = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(data)) + data


def value_bytes(kind, value):
    """The value alone, without its type."""
    if kind.startswith("["):
        inner = kind[1:]
        return struct.pack("<IQ", TYPES[inner][0], len(value)) + b"".join(value_bytes(inner, v) for v in value)
    return text(value) if kind == "str" else struct.pack(TYPES[kind][1], value)


def key_record(key, kind, value):
    number = ARRAY if kind.startswith("[") else TYPES[kind][0]
    return text(key) + struct.pack("<I", number) + value_bytes(kind, value)


def tensor_record(name, ne, type_number, offset):
    return text(name) + struct.pack("<I", len(ne)) + b"".join(struct.pack("<Q", n) for n in ne) + \
        struct.pack("<IQ", type_number, offset)


def padded(data, alignment=32):
    return data + bytes(-len(data) % alignment)


def file_bytes(metadata, tensors, version=3, alignment=32):
    """A whole valid file."""
    head = struct.pack("<4sIQQ", b"GGUF", version, len(tensors), len(metadata))
    head += b"".join(key_record(*entry) for entry in metadata)
    offset = 0
    for name, ne, type_number, data in tensors:
        head += tensor_record(name, ne, type_number, offset)
        offset += len(padded(data, alignment))
    return padded(head, alignment) + b"".join(padded(data, alignment) for _, _, _, data in tensors)


class Reader:
    """The header of a well-formed v2 or v3 file: .metadata as above, .tensors: name -> (ne, type number, offset in file)."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = file.read()
        self.at = 0
        magic, _, tensor_count, key_count = struct.unpack("<4sIQQ", self._take(24))
        if magic != b"GGUF":
            raise SystemExit(f"{path}: no GGUF file")
        self.metadata = [self._entry() for _ in range(key_count)]
        found = [self._tensor() for _ in range(tensor_count)]
        alignment = next((v for k, _, v in self.metadata if k == "general.alignment"), 32)
        begin = self.at + -self.at % alignment
        self.tensors = {name: (ne, kind, begin + offset) for name, ne, kind, offset in found}

    def _take(self, count):
        self.at += count
        return self.data[self.at - count:self.at]

    def _number(self, kind):
        form = TYPES[kind][1]
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    def _value(self, kind):
        return self._take(self._number("u64")).decode() if kind == "str" else self._number(kind)

    def _entry(self):
        key, number = self._value("str"), self._number("u32")
        if number != ARRAY:
            return key, NAMES[number], self._value(NAMES[number])
        inner = NAMES[self._number("u32")]
        return key, "[" + inner, [self._value(inner) for _ in range(self._number("u64"))]

    def _tensor(self):
        name = self._value("str")
        ne = [self._number("u64") for _ in range(self._number("u32"))]
        return name, ne, self._number("u32"), self._number("u64")
