#!/usr/bin/env python3
"""Writes TINY, a Mixture-of-Experts model small enough to commit that still answers sensibly, and its variants.

    make_tiny_model.py OUT.gguf                            a copy of the committed tests/data/tiny.gguf (Q8_0)
    make_tiny_model.py OUT.gguf --type F16                 its weights in another format
    make_tiny_model.py OUT.gguf --separate-experts         one tensor an expert, as files of 2023 have it
    make_tiny_model.py OUT.gguf --dense                    every FFN is expert 0 alone, no router
    make_tiny_model.py OUT.gguf --vocab-only               metadata and tokenizer, no tensors
    make_tiny_model.py OUT.gguf --train                    trained anew: about a minute of one core (how tiny.gguf was made)
    make_tiny_model.py OUT.gguf --random 7                 random weights, seed 7

Architecture `llama` as Mixtral uses it: softmax router, the best 2 of 8 experts renormalised, interleaved RoPE pairs.
Needs numpy. The K formats need rows of 256 and do not fit.
"""
import argparse
import math
import pathlib

import numpy as np

import gguf_file
import tiny_blocks
import tiny_shape
import tiny_training
from tiny_corpus import SENTENCES
from tiny_tokenizer import Tokenizer

COMMITTED = pathlib.Path(__file__).resolve().parent.parent / "data" / "tiny.gguf"
FILE_TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "BF16": 32, "MXFP4": 38}  # general.file_type


def random_weights(seed):
    rng = np.random.default_rng(seed)
    weights = {}
    for name, shape in tiny_shape.shapes().items():
        if name.endswith("norm"):
            weights[name] = np.ones(shape, np.float32)
        else:
            sigma = 1.0 if name == "token_embd" else 1 / math.sqrt(shape[-1])
            weights[name] = (sigma * rng.standard_normal(shape)).astype(np.float32)
    return weights


def stored_weights(path):
    reader = gguf_file.Reader(path)
    weights = {}
    for name, shape in tiny_shape.shapes().items():
        _, kind, offset = reader.tensors[name + ".weight"]
        weights[name] = tiny_blocks.decode(kind, reader.data[offset:], math.prod(shape)).reshape(shape)
    return weights


def variant(weights, separate_experts, dense):
    """The tensors of the file: those of merged experts replaced where that is asked for."""
    out = {}
    for name, value in weights.items():
        if "_exps" in name and dense:
            out[name.replace("_exps", "")] = value[0]
        elif "_exps" in name and separate_experts:
            out.update({f"{name.replace('_exps', '')}.{e}": value[e] for e in range(tiny_shape.EXPERTS)})
        elif "gate_inp" not in name or not dense:
            out[name] = value
    return out


def metadata(file_type, dense):
    llama = [("block_count", "u32", tiny_shape.LAYERS), ("context_length", "u32", tiny_shape.CONTEXT), ("embedding_length", "u32", tiny_shape.MODEL_DIM),
             ("feed_forward_length", "u32", tiny_shape.EXPERT_DIM), ("attention.head_count", "u32", tiny_shape.HEADS),
             ("attention.head_count_kv", "u32", tiny_shape.KV_HEADS), ("attention.key_length", "u32", tiny_shape.HEAD_DIM),
             ("attention.value_length", "u32", tiny_shape.HEAD_DIM), ("attention.layer_norm_rms_epsilon", "f32", tiny_shape.EPS),
             ("rope.dimension_count", "u32", tiny_shape.HEAD_DIM), ("rope.freq_base", "f32", tiny_shape.ROPE_BASE),
             ("vocab_size", "u32", tiny_shape.VOCABULARY)]
    if not dense:
        llama += [("expert_count", "u32", tiny_shape.EXPERTS), ("expert_used_count", "u32", tiny_shape.EXPERTS_PER_TOKEN)]
    return [("general.architecture", "str", "llama"), ("general.name", "str", "TINY"),
            ("general.file_type", "u32", FILE_TYPES[file_type])] + \
        [("llama." + key, kind, value) for key, kind, value in llama] + Tokenizer(SENTENCES).metadata()


def tensors(weights, file_type):
    for name, value in weights.items():
        kind = "F32" if tiny_shape.stays_f32(name) else file_type
        yield name + ".weight", value.shape[::-1], tiny_blocks.FORMATS[kind][0], tiny_blocks.encode(kind, value)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--train", action="store_true")
    source.add_argument("--random", type=int, metavar="SEED")
    parser.add_argument("--type", choices=list(tiny_blocks.FORMATS), default="Q8_0")
    parser.add_argument("--separate-experts", action="store_true")
    parser.add_argument("--dense", action="store_true")
    parser.add_argument("--vocab-only", action="store_true")
    options = parser.parse_args()
    if options.train:
        weights = tiny_training.train(random_weights(1), Tokenizer(SENTENCES), SENTENCES)
    elif options.random is not None:
        weights = random_weights(options.random)
    else:
        weights = stored_weights(COMMITTED)
    chosen = {} if options.vocab_only else variant(weights, options.separate_experts, options.dense)
    data = gguf_file.file_bytes(metadata(options.type, options.dense), list(tensors(chosen, options.type)))
    pathlib.Path(options.output).write_bytes(data)
    print(f"{options.output}: {len(data)} bytes, {len(chosen)} tensors, {options.type}")


if __name__ == "__main__":
    main()
