"""The hyper-parameters of TINY and the shapes of its weights."""
LAYERS, MODEL_DIM, HEADS, KV_HEADS, HEAD_DIM, EXPERTS, EXPERTS_PER_TOKEN, EXPERT_DIM = 4, 64, 4, 2, 16, 8, 2, 96
VOCABULARY, CONTEXT = 512, 2048
EPS, ROPE_BASE = 1e-5, 10000.0


def shapes():
    """name -> shape with rows before columns, in file order."""
    out = {"token_embd": (VOCABULARY, MODEL_DIM), "output_norm": (MODEL_DIM,), "output": (VOCABULARY, MODEL_DIM)}
    for i in range(LAYERS):
        out.update({
            f"blk.{i}.attn_norm": (MODEL_DIM,), f"blk.{i}.attn_q": (HEADS * HEAD_DIM, MODEL_DIM),
            f"blk.{i}.attn_k": (KV_HEADS * HEAD_DIM, MODEL_DIM), f"blk.{i}.attn_v": (KV_HEADS * HEAD_DIM, MODEL_DIM),
            f"blk.{i}.attn_output": (MODEL_DIM, HEADS * HEAD_DIM), f"blk.{i}.ffn_norm": (MODEL_DIM,),
            f"blk.{i}.ffn_gate_inp": (EXPERTS, MODEL_DIM), f"blk.{i}.ffn_gate_exps": (EXPERTS, EXPERT_DIM, MODEL_DIM),
            f"blk.{i}.ffn_up_exps": (EXPERTS, EXPERT_DIM, MODEL_DIM),
            f"blk.{i}.ffn_down_exps": (EXPERTS, MODEL_DIM, EXPERT_DIM)})
    return out


def stays_f32(name):
    return "norm" in name or "gate_inp" in name
