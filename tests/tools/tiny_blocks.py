"""Quantisers of the block formats for the TINY model, in numpy: f32 values to bytes. Rows are whole blocks."""
import numpy as np

TWICE_E2M1 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.float32)


def _inverse(d):
    with np.errstate(divide="ignore"):
        return np.where(d != 0, np.float32(1) / d, np.float32(0)).astype(np.float32)


def _block_bytes(*fields):
    return np.concatenate([np.ascontiguousarray(f).view(np.uint8) for f in fields], axis=1).tobytes()


def _nibbles(codes):
    codes = codes.astype(np.uint8)
    return codes[:, :16] | codes[:, 16:] << 4


def _q8_0(x):
    d = np.abs(x).max(axis=1, keepdims=True) / np.float32(127)
    scaled = x * _inverse(d)
    codes = np.trunc(scaled + np.copysign(np.float32(0.5), scaled)).astype(np.int8)
    return _block_bytes(d.astype(np.float16), codes)


def _q4_0(x):
    extreme = np.take_along_axis(x, np.abs(x).argmax(axis=1)[:, None], axis=1)
    d = extreme / np.float32(-8)
    codes = np.minimum(15, np.trunc(x * _inverse(d) + np.float32(8.5)))
    return _block_bytes(d.astype(np.float16), _nibbles(codes))


def _q4_1(x):
    low = x.min(axis=1, keepdims=True)
    d = (x.max(axis=1, keepdims=True) - low) / np.float32(15)
    codes = np.minimum(15, np.trunc((x - low) * _inverse(d) + np.float32(0.5)))
    return _block_bytes(d.astype(np.float16), low.astype(np.float16), _nibbles(codes))


def _mxfp4(x):
    largest = np.abs(x).max(axis=1, keepdims=True)
    safe = np.where(largest > 0, largest, np.float32(1))
    exponent = np.where(largest > 0, np.clip(np.floor(np.log2(safe)) - 2 + 127, 0, 254), 0).astype(np.uint8)
    d = np.ldexp(np.float32(1), exponent.astype(np.int32) - 128)
    codes = np.abs(TWICE_E2M1 * d[:, :, None] - x[:, :, None]).argmin(axis=2)
    return _block_bytes(exponent, _nibbles(codes))


def _bf16(x):
    bits = x.view(np.uint32).astype(np.uint64)
    return (bits + 0x7FFF + (bits >> 16 & 1) >> 16).astype(np.uint16).tobytes()


# name -> type number, values a block, bytes a block, encoder of f32 [blocks, values]
FORMATS = {"F32": (0, 1, 4, lambda x: x.tobytes()), "F16": (1, 1, 2, lambda x: x.astype(np.float16).tobytes()),
           "BF16": (30, 1, 2, _bf16), "Q8_0": (8, 32, 34, _q8_0), "Q4_0": (2, 32, 18, _q4_0), "Q4_1": (3, 32, 20, _q4_1),
           "MXFP4": (39, 32, 17, _mxfp4)}


def encode(name, values):
    _, per_block, _, encoder = FORMATS[name]
    return encoder(np.ascontiguousarray(values, np.float32).reshape(-1, per_block))


def decode(type_number, data, count):
    """count values of F32 or Q8_0, the formats of the committed model."""
    if type_number == FORMATS["F32"][0]:
        return np.frombuffer(data, "<f4", count)
    if type_number != FORMATS["Q8_0"][0]:
        raise SystemExit(f"type {type_number}: only F32 and Q8_0 are read back")
    blocks = np.frombuffer(data, np.uint8, count // 32 * 34).reshape(-1, 34)
    d = np.ascontiguousarray(blocks[:, :2]).view(np.float16).astype(np.float32)
    return (d * np.ascontiguousarray(blocks[:, 2:]).view(np.int8)).reshape(-1)
