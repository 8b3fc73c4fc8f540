"""Attention as transformers 5.24 runs it: heads, rotary positions, cache, kernel."""

from gpulab_utils.plan.layers import project, rms_norm
from gpulab_utils.plan.run import Run
from gpulab_utils.plan.tape import KV, Tensor


def rotate_half(run: Run, x: Tensor, n: int) -> Tensor:
    t = run.tape
    x1 = t.view(x, n // 2)
    x2 = t.view(x, n // 2)
    return t.join([t.scale(x2), x1], n)


def rope(run: Run, x: Tensor, cos: Tensor) -> Tensor:
    """x cos + rotate_half(x) sin on the share of each head that rotates, joined to the
    rest.
    """
    t, share = run.tape, run.shape.rotary
    if share == 1:
        return t.add(t.mul(x, cos), t.mul(rotate_half(run, x, x.n), cos))
    turned = int(run.shape.head_dim * share)
    n = x.n // run.shape.head_dim * turned
    part, rest = t.view(x, n), t.view(x, x.n - n)
    out = t.add(t.mul(part, cos), t.mul(rotate_half(run, part, n), cos))
    return t.join([out, rest], x.n)


def heads(run: Run, p: dict, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values, normed where the family norms them."""
    s, t = run.shape, run.tape
    nq, nk = s.heads * s.head_dim, s.kv_heads * s.head_dim
    if "qkv" in p:
        whole = project(run, p, "qkv", x, nq + 2 * nk)
        return tuple(t.split(whole, [run.tokens * k for k in (nq, nk, nk)]))
    q = project(run, p, "q", x, nq)
    if s.family in ("qwen3", "qwen3_moe"):
        q = rms_norm(run, p["q_norm"], q, run.tokens * s.heads)
    k = project(run, p, "k", x, nk)
    if s.family in ("qwen3", "qwen3_moe"):
        k = rms_norm(run, p["k_norm"], k, run.tokens * s.kv_heads)
    if s.family == "olmo2":
        q = rms_norm(run, p["q_norm"], q, run.tokens)
        k = rms_norm(run, p["k_norm"], k, run.tokens)
    v = project(run, p, "v", x, nk)
    if s.family == "gemma3_text":
        q = rms_norm(run, p["q_norm"], q, run.tokens * s.heads)
        k = rms_norm(run, p["k_norm"], k, run.tokens * s.kv_heads)
    return q, k, v


def repeated(run: Run, x: Tensor) -> tuple[Tensor, bool]:
    """repeat_kv, and whether the result is contiguous: one head alone is only expanded."""
    s, t = run.shape, run.tape
    wide = run.batch * run.keys * s.heads * s.head_dim
    if s.heads == s.kv_heads:
        return x, run.kv is not None
    if s.kv_heads > 1:
        return t.repeat(x, wide), True
    n, w = x.n, x.w
    return t.op(Tensor(wide, w, x.store), [x], [], lambda g: [t.new(n, w)]), False


def operand(run: Run, x: Tensor, contiguous: bool) -> Tensor:
    """One side of matmul: cast under autocast; of several sequences a strided one is
    copied.
    """
    t = run.tape
    if t.autocast and t.autocast != x.w:
        return t.cast(x, t.autocast)
    return x if contiguous or not run.many else t.copy(x)


def eager(run: Run, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None):
    """Scores and softmax as tensors; softmax in fp32, kept, and a copy in the heads'
    type.
    """
    s, t = run.shape, run.tape
    keys, k_whole = repeated(run, k)
    values, v_whole = repeated(run, v)
    rows = run.tokens * s.heads
    scores = t.bmm(operand(run, q, False), operand(run, keys, k_whole), rows * run.keys)
    weights = t.scale(scores)
    del scores
    if s.attn_softcap:
        weights = t.scale(weights)
        weights = t.keep_result(weights)
        weights = t.scale(weights)
    if mask is not None:
        weights = t.widen(weights, mask.w)
    if s.family == "gpt2":
        weights = t.keep_result(weights)
        weights = t.cast(weights, v.w)
    else:
        weights = t.cast(t.keep_result(t.cast(weights, 4)), q.w)
    out = t.bmm(weights, operand(run, values, v_whole), q.n)
    return t.copy(out), weights


def attend(run: Run, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None):
    """The kernel: fused, fused with a mask that repeats keys and is kept in 16 bit, or
    eager.
    """
    s, t = run.shape, run.tape
    if not run.fused or s.attn_softcap:
        return eager(run, q, k, v, mask)
    low = t.autocast
    if low:
        q, k, v = t.cast(q, low), t.cast(k, low), t.cast(v, low)
    rows, bias = run.tokens * s.heads, None
    if run.expands and s.heads > s.kv_heads:
        wide = run.batch * run.keys * s.heads * s.head_dim
        k, v = t.repeat(k, wide), t.repeat(v, wide)
    if mask is not None:
        k, v = repeated(run, k)[0], repeated(run, v)[0]
        bias = t.new(run.tokens * run.keys, q.w)
    return t.fused_attention(q, k, v, rows, bias), None


def attention(run: Run, p: dict, x: Tensor, cos: Tensor | None, mask: Tensor | None):
    q, k, v = heads(run, p, x)
    if cos is not None:
        q, k = rope_both(run, q, k, cos)
    if run.kv is not None:
        k, v = cache(run, k), cache(run, v)
    out, weights = attend(run, q, k, v, mask)
    return project(run, p, "o", out, run.shape.hidden), weights


def rope_both(run: Run, q: Tensor, k: Tensor, cos: Tensor):
    turned = rope(run, q, cos)
    return turned, rope(run, k, cos)


def cache(run: Run, x: Tensor) -> Tensor:
    """DynamicCache: the old and the new tokens are copied into a new tensor."""
    t, s = run.tape, run.shape
    per_token = run.batch * s.kv_heads * s.head_dim
    old = t.new(per_token * run.past, x.w, KV) if run.past else None
    out = t.new(per_token * run.keys, x.w, KV)
    run.kv.append(out)
    del old
    return out
