"""One block, and the model around it, as transformers 5.24 runs them."""

from gpulab_utils.plan import bert, litgpt
from gpulab_utils.plan.attention import attention
from gpulab_utils.plan.layers import mlp, norm, rms_norm
from gpulab_utils.plan.run import Run, layer_params
from gpulab_utils.plan.tape import ACT, LOGITS, Param, Tensor

#: Families that always build the full mask and the window's.
TWO_MASKS = ("gemma2", "gemma3_text", "qwen2_moe")


def block(
    run: Run, p: dict, hidden: Tensor, cos: Tensor | None, mask: Tensor | None
) -> Tensor:
    """One layer; its `_` keeps eager attention's weights alive to the end, as in the
    source.
    """
    s, t = run.shape, run.tape
    if s.family == "bert":
        return bert.block(run, p, hidden, cos, mask)
    if run.dialect == "litgpt":
        return litgpt.block(run, p, hidden, cos, mask)
    if s.parallel:
        return side_by_side(run, p, hidden, cos, mask)
    if s.family == "olmo2":
        return norm_after(run, p, hidden, cos, mask)
    residual = hidden
    hidden = norm(run, p["norm1"], hidden)
    hidden, _ = attention(run, p, hidden, cos, mask)
    held = hidden if s.family == "gpt2" else None  # its attn_output keeps its name
    if s.norms == 4:
        hidden = norm(run, p["norm2"], hidden)
    hidden = t.add(residual, hidden)
    residual = hidden
    hidden = norm(run, p["norm3" if s.norms == 4 else "norm2"], hidden)
    hidden = experts(run, p, hidden) if s.experts else mlp(run, p, hidden)
    del held
    if s.norms == 4:
        hidden = norm(run, p["norm4"], hidden)
    return t.add(residual, hidden)


def side_by_side(run, p, hidden, cos, mask):
    """GPT-NeoX (a norm each), Phi and Falcon-7B (one norm for both)."""
    t = run.tape
    residual = hidden
    normed = norm(run, p["norm1"], hidden)
    if run.shape.norms == 2:
        out, _ = attention(run, p, normed, cos, mask)
        del normed
        wide = mlp(run, p, norm(run, p["norm2"], hidden))
        return t.add(t.add(wide, out), hidden)
    out, _ = attention(run, p, normed, cos, mask)
    wide = mlp(run, p, normed)
    return t.add(t.add(out, wide), residual)


def norm_after(run, p, hidden, cos, mask):
    """OLMo 2: each branch is normed before it joins the residual."""
    t = run.tape
    residual = hidden
    hidden, _ = attention(run, p, hidden, cos, mask)
    hidden = rms_norm(run, p["norm1"], hidden, run.tokens)
    hidden = t.add(residual, hidden)
    residual = hidden
    hidden = mlp(run, p, hidden)
    hidden = rms_norm(run, p["norm2"], hidden, run.tokens)
    return t.add(residual, hidden)


def experts(run: Run, p: dict, x: Tensor) -> Tensor:
    """grouped_mm_experts_forward: one row per token and expert, sorted by expert.

    Mixtral hands the router's fp32 weights on, so the weighted rows are fp32; Qwen's are
    cast.
    """
    s, t, w = run.shape, run.tape, x.w
    h, rows = s.hidden, run.tokens * s.experts_per_token
    shared = None
    if s.shared_intermediate:
        act = t.keep_input(t.new(run.tokens * s.shared_intermediate, w))
        wide = t.mul(act, t.new(run.tokens * s.shared_intermediate, w))
        del act
        shared = t.new(run.tokens * h, w)
        del wide
    logits = t.new(run.tokens * s.experts, w)
    scores = t.keep_result(t.cast(logits, 4))
    top, index = t.new(rows, 4), t.new(rows, 8)
    del scores
    if s.family != "mixtral":
        top = t.cast(top, w)
    ids, order = t.new(rows, 8), t.new(rows, 8)
    chosen = t.gather(x, rows * h, t.new(rows, 8))
    sample = t.gather(top, rows, None)
    up = t.grouped(chosen, rows * 2 * s.moe_intermediate)
    gate, lift = t.split(up, [rows * s.moe_intermediate] * 2)
    up = t.mul(t.keep_input(gate), lift)
    del gate, lift
    out = t.grouped(up, rows * h)
    del up
    weighted = t.mul(out, sample)
    back = t.new(rows, 8)
    weighted = t.gather(weighted, rows * h, None)
    result = t.cast(t.gather(weighted, run.tokens * h, None), w)
    del weighted, out, chosen, back, ids, order, index, logits
    return t.add(result, t.mul(shared, t.new(run.tokens, w))) if shared else result


def embedded(run: Run, table: Param) -> Tensor:
    """The residual stream at its start."""
    s, t = run.shape, run.tape
    n = run.tokens * s.hidden
    hidden = t.embed(table, n)
    if s.family.startswith("gemma"):
        return t.scale(hidden)
    if s.family == "gpt2":
        places = t.embed(run.param(s.positions * s.hidden), run.seq * s.hidden)
        return t.add(hidden, places)
    return hidden


def surroundings(run: Run, width: int) -> tuple:
    """cos (and sin, as long); the mask of eager attention or of a window; position ids.

    The first two take the residual's width; a fused kernel's mask is boolean.
    """
    s, t = run.shape, run.tape
    cos = mask = None
    if s.rotary:
        turned = int(s.head_dim * s.rotary)
        cos = t.new(2 * run.seq * turned, width)
        cos.n = run.seq * turned
    if not run.fused or s.attn_softcap:
        many = 2 if s.family in TWO_MASKS else 1
        mask = t.new(many * run.tokens * run.keys, width)
    elif run.masked:
        mask = t.new(run.tokens * run.keys, 1)
    held = [t.new(run.seq, 8)]
    if s.family == "gpt2":
        held.append(t.new(run.seq * s.hidden, width))  # position_embeds keeps its name
    if run.fused and s.family == "qwen2_moe":
        held.append(t.new(run.tokens * run.keys, 1))  # made for a window that no layer has
    return cos, mask, held


def head(run: Run, hidden: Tensor, table: Param, rows: int) -> Tensor:
    """Final norm is done; `rows` positions to logits, softly capped in Gemma 2."""
    s, t = run.shape, run.tape
    logits = t.linear(hidden, table, rows * s.vocab, LOGITS)
    if run.setting.wide_logits and not t.grad_mode:
        logits = t.cast(logits, 4)
    if s.logit_softcap:
        logits = t.scale(logits)
        logits = t.keep_result(logits)
        logits = t.scale(logits)
    return logits


def new_layer(run: Run) -> dict[str, Param]:
    return layer_params(run)


__all__ = ["ACT", "block", "embedded", "head", "new_layer", "surroundings"]
