"""The blocks of transformers 5.24, operation by operation.

Names and their lifetimes are those of transformers' own functions: what a local variable
still holds there is alive here. Shapes: hidden [batch, seq, hidden], heads [batch, heads,
seq, dim].
"""

from gpulab_utils.plan.run import Run
from gpulab_utils.plan.tape import Tensor


def project(run: Run, p: dict, name: str, x: Tensor, width: int) -> Tensor:
    """A linear to `width` columns, and PEFT's adapter on it.

    peft.tuners.lora: Linear adds in the wider type and casts back; Linear4bit clones the
    base's result and casts the adapter's.
    """
    t, n = run.tape, run.tokens * width
    result = t.linear(x, p[name], n)
    if name + ".A" not in p:
        return result
    a, w = run.adapter, result.w
    if run.packed:
        result = t.copy(result)
    if not t.autocast or not run.packed:
        x = t.cast(x, a.compute or a.width)
    dropped = t.dropout(x) if a.dropout else x
    low = t.linear(dropped, p[name + ".A"], run.tokens * a.rank)
    del dropped
    delta = t.linear(low, p[name + ".B"], n)
    del low
    delta = t.scale(delta)
    if run.packed:
        return t.add(result, t.cast(delta, w))
    result = t.add(result, delta)
    del delta
    return t.cast(result, w)


def rms_norm(run: Run, p, x: Tensor, rows: int) -> Tensor:
    """LlamaRMSNorm: in fp32, cast back, then times the weight. Gemma's multiplies in
    fp32.
    """
    t, w, gemma = run.tape, x.w, run.shape.family.startswith("gemma")
    if run.compiled:
        return t.fused_norm(x, p, rows)
    h = t.cast(x, 4)
    variance = t.mean(t.power(h), rows)
    h = t.mul(h, t.keep_result(t.shift(variance)))
    if gemma:
        del variance
        h = t.weigh(h, p)
        return t.cast(h, w)
    if run.shape.family == "olmo2":
        return t.cast(t.weigh(h, p), w)
    return t.weigh(t.cast(h, w), p)


def norm(run: Run, p, x: Tensor) -> Tensor:
    if run.shape.norm == "layer":
        return run.tape.layer_norm(x, p, run.tokens)
    return rms_norm(run, p, x, run.tokens)


def activation(run: Run, x: Tensor) -> Tensor:
    """silu and gelu are one operation; NewGELU is eight, four of which keep something."""
    t = run.tape
    if run.shape.act not in ("gelu_new", "gelu_fast"):
        return t.keep_input(x)
    half = t.scale(x)
    return t.mul(half, t.shift(t.keep_result(t.scale(t.add(x, t.scale(t.power(x)))))))


def mlp(run: Run, p: dict, x: Tensor) -> Tensor:
    s, t = run.shape, run.tape
    if s.gated and run.compiled:
        gate = project(run, p, "gate", x, s.intermediate)
        hidden = t.fused_gate(gate, project(run, p, "up", x, s.intermediate))
        del gate
    elif s.gated:
        gate = activation(run, project(run, p, "gate", x, s.intermediate))
        hidden = t.mul(gate, project(run, p, "up", x, s.intermediate))
        del gate
    else:
        hidden = project(run, p, "up", x, s.intermediate)
        hidden = activation(run, hidden)
    return project(run, p, "down", hidden, s.hidden)
