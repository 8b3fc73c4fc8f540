"""BERT's layer (transformers, BertLayer) in training: norms after the sum, dropout
everywhere.
"""

from gpulab_utils.plan.layers import project
from gpulab_utils.plan.run import Run
from gpulab_utils.plan.tape import Tensor


def dropped(run: Run, x: Tensor) -> Tensor:
    return run.tape.dropout(x) if run.tape.training else x


def attention(run: Run, p: dict, x: Tensor, mask: Tensor | None) -> Tensor:
    """BertSelfAttention: scores, softmax and dropped softmax as tensors."""
    s, t = run.shape, run.tape
    n = run.tokens * s.hidden
    q, k, v = (project(run, p, name, x, s.hidden) for name in "qkv")
    if t.autocast:
        q, k, v = (t.cast(y, t.autocast) for y in (q, k, v))
    if run.many:
        q, k = t.copy(q), t.copy(k)
    scores = t.bmm(q, k, run.tokens * s.heads * run.keys)
    del q, k
    scores = t.scale(scores)
    scores = t.shift(scores)
    if t.autocast:
        scores = t.cast(scores, 4)
    probs = t.keep_result(scores)
    del scores
    probs = dropped(run, probs)
    out = t.bmm(probs, t.copy(v) if run.many else v, n)
    return t.copy(out)


def block(run: Run, p: dict, x: Tensor, cos, mask) -> Tensor:
    s, t = run.shape, run.tape
    out = project(run, p, "o", attention(run, p, x, mask), s.hidden)
    x = t.layer_norm(t.add(dropped(run, out), x), p["norm1"], run.tokens)
    del out
    wide = project(run, p, "up", x, s.intermediate)
    wide = t.keep_input(wide)
    out = project(run, p, "down", wide, s.hidden)
    del wide
    return t.layer_norm(t.add(dropped(run, out), x), p["norm2"], run.tokens)


def embedded(run: Run, table) -> Tensor:
    """Words, types and positions summed, normed, dropped."""
    s, t = run.shape, run.tape
    n = run.tokens * s.hidden
    words = t.embed(table, n)
    summed = t.add(words, t.embed(run.param(s.positions * s.hidden), n))
    del words
    return dropped(run, t.layer_norm(summed, run.param(2 * s.hidden), run.tokens))


def classified(run: Run, hidden: Tensor) -> tuple:
    """The pooled first position and a loss: kilobytes, not counted."""
    t, n, w = run.tape, hidden.n, hidden.w
    return t.op(t.new(1, 4), [hidden], [], lambda g: [t.new(n, w)]), None
