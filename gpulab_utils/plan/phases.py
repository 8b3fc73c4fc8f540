"""A forward, or a training step, played on the tape: which moments could be the peak?"""

from gpulab_utils.plan import bert, litgpt, losses
from gpulab_utils.plan.blocks import block, embedded, head, surroundings
from gpulab_utils.plan.layers import norm
from gpulab_utils.plan.run import Run, layer_params
from gpulab_utils.plan.tape import KV, SCRATCH, Node, Param, Tensor


def stack(run: Run, size: int = 1) -> list[tuple[int, bool, int]]:
    """Which segments to play: (how many like it, whether its moments count, layers).

    First, second, one for the middle, last but one, last. What the middle keeps counts as
    often as there are such segments; its neighbours only pass tensors on to it and from it.
    Where the last is shorter, the one before it may be the peak.
    """
    n, rest = divmod(run.shape.layers, size)
    sizes = [size] * n + [rest] * (rest > 0)
    if run.setting.extra.get("whole"):
        return [(1, False, k) for k in sizes]
    if len(sizes) <= 5:
        return [(1, True, k) for k in sizes]
    middle = (len(sizes) - 4, False, size)
    last = [(1, rest > 0, size), (1, True, sizes[-1])]
    return [(1, True, size), (1, False, size), middle, *last]


def forward_layers(run: Run, segments: list, hidden: Tensor, cos, mask, checkpoint=False):
    t = run.tape
    for many, counts, layers in segments:
        t.layer, t.quiet = int(many > 1), not counts
        if many > 1:
            t.alike = many
        if checkpoint:
            hidden = checkpointed(run, layers, hidden, cos, mask)
        else:
            hidden = through(run, layers, hidden, cos, mask)
    t.layer, t.quiet = 0, False
    return hidden


def through(run: Run, layers: list, hidden: Tensor, cos, mask) -> Tensor:
    for p in layers:
        hidden = block(run, p, hidden, cos, mask)
    return hidden


def checkpointed(run: Run, layers: list, hidden: Tensor, cos, mask) -> Tensor:
    """torch.utils.checkpoint, non-reentrant: a segment's input is kept, the rest redone.

    Autocast is entered again for that, and its cached weights go when it is left.
    """
    t, autocast = run.tape, run.tape.autocast
    t.grad_mode = False
    out = through(run, layers, hidden, cos, mask)
    t.grad_mode = True
    parent = hidden.node
    kept = [x and (x.n, x.w, x.store) for x in (hidden, cos, mask)]
    if run.offloads:
        kept[0] = (hidden.n, hidden.w, None)
        t.send([hidden])
    inputs = [hidden, *[q for p in layers for q in p.values() if q.train][:1]]
    out = t.op(out, inputs, [], None)

    def redo() -> Node:
        if run.offloads:
            kept[0] = (*kept[0][:2], t.new(*kept[0][:2]).store)
        x, *rest = (k and Tensor(*k) for k in kept)
        stores = [k[2] for k in kept if k]
        kept.clear()
        x.node = parent
        x = t.op(Tensor(x.n, x.w, x.store), [x], stores, lambda g: [g])
        del stores  # the arguments stay until the layer's first node has run
        t.autocast = autocast
        out = through(run, layers, x, *rest)
        t.end_autocast()
        return out.node

    if out.node is not None:
        out.node.redo = redo
    return out


def tables(run: Run) -> tuple[Param, Param]:
    """The embedding and the head, one tensor where they are tied."""
    s, setting = run.shape, run.setting
    table = run.param(s.vocab * s.hidden)
    if s.tied and not setting.untied:
        table.uses = 2
        return table, table
    return table, run.param(s.vocab * (s.hidden + s.head_bias), linear=setting.head_packed)


def prefill(run: Run, rows: int) -> None:
    """One forward without gradients; the growing cache, if any, is kept.

    All layers are alike, so the last is played, and the caches of the others are there.
    """
    t, s = run.tape, run.shape
    table, last = tables(run)
    inputs_embeds = hidden = embedded(run, table)
    cos, mask, positions = surroundings(run, hidden.w)
    if run.kv is not None:
        per = run.batch * s.kv_heads * s.head_dim * hidden.w
        grown = run.setting.cache == "grown"
        kept = run.keys if grown else run.setting.cache_tokens or run.keys
        others = t.new((s.layers - 1) * 2 * per * kept, 1, KV)
        run.kv.append(others)
        del others
    if t.autocast and run.width > t.autocast:
        copies = t.new(s.linear_params // s.layers * (s.layers - 1), t.autocast, SCRATCH)
        t.cached.append(copies)
    if s.layers > 1:
        hidden = t.new(hidden.n, hidden.w)
    hidden = block(run, layer_params(run), hidden, cos, mask)
    del cos, mask, positions, inputs_embeds
    hidden = final_norm(run, run.param(s.hidden), hidden)
    logits = head(run, hidden, last, rows)
    t.snapshot()
    del logits, hidden


def generate_step(run: Run) -> None:
    """One token: the cache of the layer at work is copied to grow by one."""
    prefill(run, run.batch)


def train_step(run: Run, checkpoint: int = 0, autocast: int = 0) -> None:
    """Forward, loss, backward; the gradients are left."""
    t, s = run.tape, run.shape
    t.grad_mode, t.autocast, t.training = True, autocast, True
    t.accumulates = run.setting.accumulates
    t.consumes = run.setting.optimizer.in_backward
    t.step_bytes = run.setting.optimizer.one_parameter
    t.sends_weights = "save_on_cpu" in run.setting.flags
    t.sends = t.sends_weights or "activations" in run.setting.flags
    table, last = tables(run)
    layers = [
        (many, counts, [layer_params(run) for _ in range(k)])
        for many, counts, k in stack(run, checkpoint or 1)
    ]
    final = run.param(s.hidden)
    loss, held = forward_and_loss(run, layers, table, last, final, checkpoint)
    t.end_autocast()
    t.sends = False
    if loss.node is None:
        raise ValueError("nothing trains: no adapter target is a linear of this model")
    one = t.new(1, 4)
    t.backward(loss, one)
    del one, loss, held
    t.snapshot()


def forward_and_loss(run, layers, table: Param, last: Param, final: Param, checkpoint: int):
    """The loss, and what the caller's names still hold in backward."""
    start = bert.embedded if run.shape.family == "bert" else embedded
    inputs_embeds = start(run, table)
    cos, mask, positions = surroundings(run, inputs_embeds.w)
    hidden = forward_layers(run, layers, inputs_embeds, cos, mask, checkpoint)
    del inputs_embeds, cos, mask, positions
    if run.shape.family == "bert":
        return bert.classified(run, hidden)
    hidden = final_norm(run, final, hidden)
    return losses.of(run, hidden, last)


def final_norm(run: Run, final: Param, hidden: Tensor) -> Tensor:
    return (
        litgpt.norm(run, final, hidden)
        if run.dialect == "litgpt"
        else norm(run, final, hidden)
    )
