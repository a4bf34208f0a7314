"""Trains TINY in numpy: the forward pass of the architecture and its gradient, written out. x is [tokens, model_dim].

Adam on windows of the corpus, which is learned as one endless text; at the end weights are rounded as Q8_0 rounds them in
the forward pass, so that the stored model is the one that was trained.
"""
import math

import numpy as np

import tiny_blocks
import tiny_shape as c

WINDOW, WINDOWS = 96, 6          # tokens a window, windows a step
STEPS, WARM_UP = 300, 40
PEAK_RATE = 4e-3
ROUNDED_STEPS = 60               # the last steps see rounded weights
BETA1, BETA2, TINY = 0.9, 0.98, 1e-8
BALANCE = 0.02                   # weight of the loss that spreads tokens over experts


def rms_norm(x, weight, eps):
    scale = 1 / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps)
    return x * scale * weight, (x, weight, scale)


def rms_norm_back(dy, saved):
    x, weight, scale = saved
    normed = x * scale
    dn = dy * weight
    dx = scale * (dn - normed * (dn * normed).mean(axis=-1, keepdims=True))
    return dx, (dy * normed).reshape(-1, weight.size).sum(axis=0)


def rotate(x, cos, sin):
    """Interleaved pairs of [windows, tokens, heads, head_dim]; the gradient is the rotation by -sin."""
    out = np.empty_like(x)
    even, odd = x[..., 0::2], x[..., 1::2]
    out[..., 0::2] = even * cos - odd * sin
    out[..., 1::2] = even * sin + odd * cos
    return out


class Model:
    def __init__(self, weights):
        self.w = weights  # by name
        angles = np.arange(WINDOW)[:, None] * c.ROPE_BASE ** (-np.arange(0, c.HEAD_DIM, 2) / c.HEAD_DIM)
        self.cos, self.sin = (f(angles).astype(np.float32)[None, :, None, :] for f in (np.cos, np.sin))
        self.mask = np.triu(np.full((WINDOW, WINDOW), -1e9, np.float32), 1)
        self.grad = {}

    def linear(self, x, name):
        return x @ self.w[name].T

    def linear_back(self, dy, x, name):
        self.grad[name] = dy.T @ x
        return dy @ self.w[name]

    def attention(self, x, layer):
        name = f"blk.{layer}.attn_"
        normed, norm = rms_norm(x, self.w[name + "norm"], c.EPS)
        split = (-1, WINDOW, c.KV_HEADS, c.HEADS // c.KV_HEADS, c.HEAD_DIM)
        q = rotate(self.linear(normed, name + "q").reshape(-1, WINDOW, c.HEADS, c.HEAD_DIM), self.cos, self.sin)
        k = rotate(self.linear(normed, name + "k").reshape(-1, WINDOW, c.KV_HEADS, c.HEAD_DIM), self.cos, self.sin)
        v = self.linear(normed, name + "v").reshape(-1, WINDOW, c.KV_HEADS, c.HEAD_DIM)
        q = q.reshape(split)
        scores = np.einsum("wqghd,wkgd->wghqk", q, k, optimize=True) / math.sqrt(c.HEAD_DIM) + self.mask
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        mixed = np.einsum("wghqk,wkgd->wqghd", scores, v, optimize=True).reshape(x.shape[0], -1)
        return x + self.linear(mixed, name + "output"), (norm, normed, q, k, v, scores, mixed)

    def attention_back(self, dy, layer, saved):
        name = f"blk.{layer}.attn_"
        norm, normed, q, k, v, scores, mixed = saved
        dmixed = self.linear_back(dy, mixed, name + "output").reshape(q.shape)
        dv = np.einsum("wghqk,wqghd->wkgd", scores, dmixed, optimize=True)
        dscores = np.einsum("wqghd,wkgd->wghqk", dmixed, v, optimize=True)
        dscores = scores * (dscores - (dscores * scores).sum(axis=-1, keepdims=True)) / math.sqrt(c.HEAD_DIM)
        dq = np.einsum("wghqk,wkgd->wqghd", dscores, k, optimize=True)
        dk = np.einsum("wghqk,wqghd->wkgd", dscores, q, optimize=True)
        dq = rotate(dq.reshape(-1, WINDOW, c.HEADS, c.HEAD_DIM), self.cos, -self.sin)
        dk = rotate(dk, self.cos, -self.sin)
        dnormed = sum(self.linear_back(d.reshape(dy.shape[0], -1), normed, name + part)
                      for d, part in ((dq, "q"), (dk, "k"), (dv, "v")))
        dx, self.grad[name + "norm"] = rms_norm_back(dnormed, norm)
        return dy + dx

    def experts(self, x, layer):
        name = f"blk.{layer}.ffn_"
        normed, norm = rms_norm(x, self.w[name + "norm"], c.EPS)
        logits = self.linear(normed, name + "gate_inp")
        chosen = np.argsort(-logits, axis=1, kind="stable")[:, :c.EXPERTS_PER_TOKEN]
        chosen_logits = np.take_along_axis(logits, chosen, axis=1)
        share = np.exp(chosen_logits - chosen_logits.max(axis=1, keepdims=True))
        share /= share.sum(axis=1, keepdims=True)
        out, parts = x.copy(), []
        for e in range(c.EXPERTS):
            rows, slots = np.nonzero(chosen == e)
            inputs = normed[rows]
            gate, up = (inputs @ self.w[name + part][e].T for part in ("gate_exps", "up_exps"))
            sigmoid = 1 / (1 + np.exp(-gate))
            hidden = gate * sigmoid * up
            result = hidden @ self.w[name + "down_exps"][e].T
            out[rows] += share[rows, slots, None] * result
            parts.append((rows, slots, inputs, gate, up, sigmoid, hidden, result))
        return out, (norm, normed, logits, chosen, share, parts)

    def experts_back(self, dy, layer, saved):
        name = f"blk.{layer}.ffn_"
        norm, normed, logits, chosen, share, parts = saved
        dnormed, dshare = np.zeros_like(normed), np.zeros_like(share)
        for part in ("gate_exps", "up_exps", "down_exps"):
            self.grad[name + part] = np.zeros_like(self.w[name + part])
        for e, (rows, slots, inputs, gate, up, sigmoid, hidden, result) in enumerate(parts):
            dshare[rows, slots] = (dy[rows] * result).sum(axis=1)
            dresult = share[rows, slots, None] * dy[rows]
            self.grad[name + "down_exps"][e] = dresult.T @ hidden
            dhidden = dresult @ self.w[name + "down_exps"][e]
            dgate = dhidden * up * sigmoid * (1 + gate * (1 - sigmoid))
            dup = dhidden * gate * sigmoid
            self.grad[name + "gate_exps"][e] = dgate.T @ inputs
            self.grad[name + "up_exps"][e] = dup.T @ inputs
            dnormed[rows] += dgate @ self.w[name + "gate_exps"][e] + dup @ self.w[name + "up_exps"][e]
        dlogits = np.zeros_like(logits)
        np.put_along_axis(dlogits, chosen, share * (dshare - (dshare * share).sum(axis=1, keepdims=True)), axis=1)
        dlogits += self.balance_back(logits, chosen)
        dnormed += self.linear_back(dlogits, normed, name + "gate_inp")
        dx, self.grad[name + "norm"] = rms_norm_back(dnormed, norm)
        return dy + dx

    def balance_back(self, logits, chosen):
        """Gradient of experts * sum over experts of (share of tokens) * (mean probability), the usual balance loss."""
        probability = np.exp(logits - logits.max(axis=1, keepdims=True))
        probability /= probability.sum(axis=1, keepdims=True)
        load = np.bincount(chosen.ravel(), minlength=c.EXPERTS) / chosen.size
        pull = (load * c.EXPERTS / len(logits)).astype(np.float32)
        return BALANCE * probability * (pull - (probability * pull).sum(axis=1, keepdims=True))

    def loss(self, ids):
        """ids: [windows, WINDOW + 1]. Mean cross-entropy of every next token; fills self.grad."""
        inputs, targets = ids[:, :-1].ravel(), ids[:, 1:].ravel()
        x, tape = self.w["token_embd"][inputs], []
        for layer in range(c.LAYERS):
            for forward in (self.attention, self.experts):
                x, saved = forward(x, layer)
                tape.append(saved)
        normed, norm = rms_norm(x, self.w["output_norm"], c.EPS)
        logits = self.linear(normed, "output")
        dlogits = np.exp(logits - logits.max(axis=1, keepdims=True))
        dlogits /= dlogits.sum(axis=1, keepdims=True)
        rows = np.arange(len(targets))
        loss = -np.log(dlogits[rows, targets] + 1e-30).mean()
        dlogits[rows, targets] -= 1
        dx, self.grad["output_norm"] = rms_norm_back(self.linear_back(dlogits / len(targets), normed, "output"), norm)
        for layer in reversed(range(c.LAYERS)):
            for backward in (self.experts_back, self.attention_back):
                dx = backward(dx, layer, tape.pop())
        self.grad["token_embd"] = np.zeros_like(self.w["token_embd"])
        np.add.at(self.grad["token_embd"], inputs, dx)
        return loss


def rounded(weights):
    """The weights as the file will hold them."""
    out = {}
    for name, value in weights.items():
        if c.stays_f32(name):
            out[name] = value
        else:
            number = tiny_blocks.FORMATS["Q8_0"][0]
            out[name] = tiny_blocks.decode(number, tiny_blocks.encode("Q8_0", value), value.size).reshape(value.shape)
    return out


def rate(step):
    if step < WARM_UP:
        return PEAK_RATE * (step + 1) / WARM_UP
    return PEAK_RATE * 0.5 * (1 + math.cos(math.pi * (step - WARM_UP) / (STEPS - WARM_UP))) + 1e-5


def train(weights, tokenizer, sentences):
    """Trains the weights in place and returns them. The text repeats for ever, so every position has a next token."""
    starts, text = [], []
    for sentence in sentences:
        starts.append(len(text))
        text += tokenizer.encode(sentence) + [tokenizer.end]
    endless = np.array(text * (2 + WINDOW // len(text)))
    rng = np.random.default_rng(2)
    model = Model(weights)
    first = {name: np.zeros_like(value) for name, value in weights.items()}
    second = {name: np.zeros_like(value) for name, value in weights.items()}
    for step in range(STEPS):
        model.w = weights if step < STEPS - ROUNDED_STEPS else rounded(weights)
        begins = rng.choice(starts, WINDOWS, replace=False)
        loss = model.loss(np.stack([endless[b:b + WINDOW + 1] for b in begins]))
        for name, gradient in model.grad.items():
            first[name] += (1 - BETA1) * (gradient - first[name])
            second[name] += (1 - BETA2) * (gradient * gradient - second[name])
            corrected = first[name] / (1 - BETA1 ** (step + 1))
            weights[name] -= rate(step) * corrected / (np.sqrt(second[name] / (1 - BETA2 ** (step + 1))) + TINY)
        if step % 50 == 0 or step == STEPS - 1:
            print(f"step {step}: loss {loss:.4f}", flush=True)
    return weights
