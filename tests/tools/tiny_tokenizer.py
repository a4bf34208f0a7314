"""The vocabulary of TINY: byte-level BPE (pre-tokenizer gpt-2) learned from its own corpus. Standard library only."""
import collections
import re

from tiny_shape import VOCABULARY

END = "<|endoftext|>"
NORMAL, CONTROL, UNUSED = 1, 3, 5
# The pre-tokenizer, for the ASCII text of the corpus.
WORDS = re.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+")


def byte_symbols():
    """The printable symbol of each of the 256 bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in plain else chr(next(others)) for byte in range(256)]


class Tokenizer:
    def __init__(self, corpus):
        symbols = byte_symbols()
        self.symbol_of = dict(enumerate(symbols))
        words = collections.Counter(w for line in corpus for w in WORDS.findall(line))
        pieces = {w: [symbols[b] for b in w.encode()] for w in words}
        self.merges = []
        while len(self.merges) < VOCABULARY - 256 - 1:
            pairs = collections.Counter()
            for word, parts in pieces.items():
                for pair in zip(parts, parts[1:]):
                    pairs[pair] += words[word]
            if not pairs:
                break
            best = min(pairs, key=lambda pair: (-pairs[pair], pair))
            self.merges.append(best)
            pieces = {word: merge(parts, best) for word, parts in pieces.items()}
        self.tokens = symbols + [a + b for a, b in self.merges]
        self.types = [NORMAL] * len(self.tokens) + [CONTROL]
        self.end = len(self.tokens)
        self.tokens.append(END)
        while len(self.tokens) < VOCABULARY:
            self.tokens.append(f"<|unused_{len(self.tokens)}|>")
            self.types.append(UNUSED)
        self.id_of = {token: i for i, token in enumerate(self.tokens)}

    def encode(self, line):
        ids = []
        for word in WORDS.findall(line):
            parts = [self.symbol_of[b] for b in word.encode()]
            for pair in self.merges:
                parts = merge(parts, pair)
            ids += [self.id_of[part] for part in parts]
        return ids

    def metadata(self):
        key = "tokenizer.ggml."
        return [(key + "model", "str", "gpt2"), (key + "pre", "str", "gpt-2"), (key + "tokens", "[str", self.tokens),
                (key + "token_type", "[i32", self.types), (key + "merges", "[str", [f"{a} {b}" for a, b in self.merges]),
                (key + "bos_token_id", "u32", self.end), (key + "eos_token_id", "u32", self.end),
                (key + "add_bos_token", "bool", False)]


def merge(parts, pair):
    out = []
    for part in parts:
        if out and (out[-1], part) == pair:
            out[-1] += part
        else:
            out.append(part)
    return out
