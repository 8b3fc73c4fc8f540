"""LitGPT's blocks (lit_gpt/model.py and lora.py, 2023 and 2024), where they differ.

One fused q, k, v linear; keys and values expanded to all heads in training; a LoRA of the
fused linear whose `zero_pad` is an index_copy, and index_copy keeps its source; the fp32
RMSNorm multiplies by the weight before it casts back. Fabric hands logits on in fp32.
"""

from gpulab_utils.plan.attention import rotate_half
from gpulab_utils.plan.layers import activation
from gpulab_utils.plan.run import Run
from gpulab_utils.plan.tape import KV, LOGITS, Param, Tensor


def lora(run: Run, p: dict, name: str, x: Tensor, width: int) -> Tensor:
    """LoRALinear: result + (dropout(x) A) B, all in the model's type."""
    t, n = run.tape, run.tokens * width
    result = linear4(run, x, p[name], n)
    if name + ".A" not in p:
        return result
    dropped = t.dropout(x) if run.adapter.dropout else x
    low = t.linear(dropped, p[name + ".A"], run.tokens * run.adapter.rank)
    del dropped
    delta = t.linear(low, p[name + ".B"], n)
    del low
    return t.add(result, t.scale(delta))


def linear4(run: Run, x: Tensor, p: Param, n: int) -> Tensor:
    """bitsandbytes up to 0.43: MatMul4Bit keeps its input as an attribute of its node.

    Not being a saved variable it outlives backward, until the loop's name `loss` is
    rebound.
    """
    t = run.tape
    out = t.linear(x, p, n)
    if p.packed and out.node is not None:
        t.stale.append(x.store)
    return out


def lora_qkv(run: Run, p: dict, x: Tensor, width: int) -> Tensor:
    """LoRAQKVLinear: what is not adapted is padded with zeros by index_copy."""
    s, t = run.shape, run.tape
    result = linear4(run, x, p["qkv"], run.tokens * width)
    q, kv = s.heads * s.head_dim, s.kv_heads * s.head_dim
    sizes = {"q": q, "k": kv, "v": kv}
    on = [sizes[name] for name in "qkv" if run.adapter and name in run.adapter.targets]
    if not on:
        return result
    rank = run.adapter.rank * len(on)
    a = p.setdefault("qkv.A", Param(rank * s.hidden, run.adapter.width, True))
    b = p.setdefault("qkv.B", Param(run.adapter.rank * sum(on), run.adapter.width, True))
    dropped = t.dropout(x) if run.adapter.dropout else x
    low = t.linear(dropped, a, run.tokens * rank)
    del dropped
    delta = t.linear(low, b, run.tokens * sum(on))
    del low
    if len(on) < 3:
        small, w = delta.n, delta.w
        blank = t.new(run.tokens * width, w)
        delta = t.op(
            t.new(run.tokens * width, w),
            [delta],
            [delta.store],
            lambda g: [t.new(small, w)],
        )
        del blank
    return t.add(result, t.scale(delta))


def rms_norm(run: Run, p: Param, x: Tensor) -> Tensor:
    t, w = run.tape, x.w
    h = t.cast(x, 4)
    scale = t.keep_result(t.shift(t.mean(t.square(h), run.tokens)))
    h = t.mul(h, scale)
    return t.cast(t.weigh(h, p), w)


def norm(run: Run, p: Param, x: Tensor) -> Tensor:
    if run.shape.norm == "layer":
        return run.tape.layer_norm(x, p, run.tokens)
    return rms_norm(run, p, x)


def apply_rope(run: Run, x: Tensor, cos: Tensor, n: int) -> Tensor:
    """The share of a head that rotates, joined to the rest, in the heads' own type."""
    t = run.tape
    part = t.view(x, n) if n is not x.n else x
    turned = t.add(t.mul(part, cos), t.mul(rotate_half(run, part, n), cos))
    turned = t.cast(turned, x.w)
    return t.join([turned, t.view(x, x.n - n)], x.n)


def attention(run: Run, p: dict, x: Tensor, cos: Tensor, mask: Tensor | None) -> Tensor:
    s, t = run.shape, run.tape
    nq, nk = s.heads * s.head_dim, s.kv_heads * s.head_dim
    qkv = lora_qkv(run, p, x, nq + 2 * nk)
    q, k, v = t.split(qkv, [run.tokens * i for i in (nq, nk, nk)])
    del qkv
    if nq != nk:
        q = t.copy(q)
        if run.kv is None or s.kv_heads > 1:
            k, v = t.repeat(k, run.tokens * nq), t.repeat(v, run.tokens * nq)
    share = int(s.head_dim * s.rotary)
    q = apply_rope(run, q, cos, q.n // s.head_dim * share)
    k = apply_rope(run, k, cos, k.n // s.head_dim * share)
    if run.kv is not None:
        size = run.batch * run.setting.cache_tokens * s.kv_heads * s.head_dim
        run.kv.append(t.new(2 * size, k.w, KV))
    if t.autocast:
        q, k, v = (t.cast(y, t.autocast) for y in (q, k, v))
    y = t.fused_attention(q, k, v, run.tokens * s.heads)
    if run.packed:
        y = t.copy(y)
    return lora(run, p, "o", y, s.hidden)


def mlp(run: Run, p: dict, x: Tensor) -> Tensor:
    s, t = run.shape, run.tape
    if not s.gated:
        x = lora(run, p, "up", x, s.intermediate)
        return lora(run, p, "down", activation(run, x), s.hidden)
    one = lora(run, p, "gate", x, s.intermediate)
    two = lora(run, p, "up", x, s.intermediate)
    x = t.mul(activation(run, one), two)
    return lora(run, p, "down", x, s.hidden)


def block(run: Run, p: dict, x: Tensor, cos: Tensor, mask: Tensor | None) -> Tensor:
    s, t = run.shape, run.tape
    normed = norm(run, p["norm1"], x)
    h = attention(run, p, normed, cos, mask)
    if s.parallel:
        second = normed if s.norms == 1 else norm(run, p["norm2"], x)
        return t.add(t.add(mlp(run, p, second), h), x)
    x = t.add(h, x)
    return t.add(mlp(run, p, norm(run, p["norm2"], x)), x)


def head_and_loss(run: Run, hidden: Tensor, table: Param, chunk: int) -> tuple:
    """Logits of all positions in 16 bit, then fp32 (Fabric), and their cross-entropy.

    Chunks of `chunk` positions hold as much in all; only the temporaries of backward are
    one chunk's. The script's name for the logits lives until backward is over, so they
    are returned.
    """
    s, t = run.shape, run.tape
    n, wx = run.tokens * s.vocab, hidden.w
    piece = chunk * s.vocab if chunk else n
    low = linear4(run, hidden, table, n)
    node, low.node = low.node, None
    wide = t.cast(low, 4)
    low.store.move(LOGITS)
    if wide is not low:
        wide.store.move(LOGITS)
    del low
    kept = [t.new(n, 4, LOGITS)]

    def back(g):
        a, b = t.new(piece, 4, LOGITS), t.new(piece, 4, LOGITS)
        del a, b
        kept.clear()
        grad = t.new(n, 4, LOGITS)
        low = t.new(piece, 2, LOGITS)
        del grad, low
        return [t.new(n, wx, LOGITS)]

    wide.node = node
    loss = t.op(t.new(1, 4), [wide], [], back)
    wide.node = None
    return loss, wide
