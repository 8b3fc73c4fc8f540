"""What is left of a language model when parts are really taken out: smaller dense tensors.

For transformers' Llama models (SmolLM2, `small_gpt`): layers, rows of the MLP, attention
heads. Every function returns a copy; its config tells the new shape, a tied head stays
tied, and it generates like any other model. `recover` trains what is left for a while.
"""

import copy
from collections import Counter
from collections.abc import Callable, Sequence

from gpulab_utils.progress import progress


def drop_layers(model, which: Sequence[int]):
    """A copy of `model` without the decoder layers `which`, counted from 0.

    Raises `ValueError` for a layer that is not there, or where none would be left.

    >>> from gpulab_utils import small_gpt
    >>> model = small_gpt.make(width=64, layers=3)
    >>> small = drop_layers(model, [1])
    >>> small.config.num_hidden_layers, len(model.model.layers)
    (2, 3)
    """
    n_layers, gone = len(model.model.layers), set(which)
    if not gone <= set(range(n_layers)) or len(gone) == n_layers:
        raise ValueError(
            f"which must be some of 0 to {n_layers - 1}, not all, got {sorted(gone)}"
        )
    left = [i for i in range(n_layers) if i not in gone]
    small = _copy(model, without=[model.model.layers[i] for i in gone])
    kept = [small.model.layers[i] for i in left]
    small.model.layers = type(small.model.layers)(kept)
    for place, layer in enumerate(kept):
        layer.self_attn.layer_idx = place  # its place in the KV cache
    small.config.num_hidden_layers = len(left)
    types = getattr(small.config, "layer_types", None)
    if types:
        small.config.layer_types = [types[i] for i in left]
    return small


def narrow(model, *, mlp: Sequence | None = None, heads: Sequence | None = None):
    """A copy of `model` with less in each layer; both lists have an entry a layer.

    mlp: the MLP's rows to keep, the same number in each layer; heads: the query heads to
    keep. Key and value heads that no kept query reads go too, and those that stay must all
    serve the same number of queries, as the config can tell no other shape (GQA). Raises
    `ValueError` for lists that break this.

    >>> from gpulab_utils import small_gpt
    >>> model = small_gpt.make(width=128, layers=2)  # 2 heads, MLP of 512 rows
    >>> small = narrow(model, mlp=[range(100), range(50, 150)], heads=[[0], [1]])
    >>> small.model.layers[1].mlp.down_proj.weight.shape
    torch.Size([128, 100])
    >>> small.config.intermediate_size, small.config.num_attention_heads
    (100, 1)
    """
    layers, config = model.model.layers, model.config
    mlp = _kept(mlp, "mlp", len(layers), config.intermediate_size)
    heads = _kept(heads, "heads", len(layers), config.num_attention_heads)
    small = _copy(model)
    if mlp is not None:
        for layer, rows in zip(small.model.layers, mlp, strict=True):
            _narrow_mlp(layer.mlp, rows)
        small.config.intermediate_size = len(mlp[0])
    if heads is not None:
        _narrow_attention(small, heads)
    return small


def recover(
    model,
    windows,
    *,
    steps: int,
    lr: float,
    batch: int = 2,
    seed: int = 0,
    loss: Callable | None = None,
) -> list[float]:
    """Train all of `model` in place on rows of `windows` [n, time]; the loss of each step.

    AdamW whose rate falls to 0 along a line. The rows are drawn by `seed` alone, so arms
    that share it see the same text in the same order. `loss(model, ids)` with ids
    [batch, time] may stand in for the model's own. The model is left in eval mode. Raises
    `ValueError` where there are fewer than `batch` windows or no step.
    """
    import torch

    if steps < 1 or not 1 <= batch <= len(windows):
        raise ValueError(f"{steps} steps of {batch} from {len(windows)} windows")
    loss = loss or _own_loss
    draw = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0)
    fall = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=steps)
    device, seen = next(model.parameters()).device, []
    model.train()
    with torch.enable_grad():
        for _ in progress(range(steps), "training"):
            chosen = torch.randperm(len(windows), generator=draw)[:batch]
            told = loss(model, windows[chosen].to(device))
            optimizer.zero_grad()
            told.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            fall.step()
            seen.append(float(told.detach()))
    model.eval().zero_grad()
    return seen


def _own_loss(model, ids):
    return model(input_ids=ids, labels=ids, use_cache=False).loss


def _copy(model, without: Sequence = ()):
    """A copy that shares nothing with `model`; the modules `without` are None in it."""
    return copy.deepcopy(model, {id(part): None for part in without})


def _kept(kept, name: str, n_layers: int, n: int) -> list[list[int]] | None:
    """The lists, in order, as ints; `ValueError` where they do not fit the model."""
    if kept is None:
        return None
    kept = [sorted(map(int, rows)) for rows in kept]
    if len(kept) != n_layers:
        raise ValueError(
            f"{name} needs a list for each of {n_layers} layers, got {len(kept)}"
        )
    counts = {len(rows) for rows in kept}
    if len(counts) > 1 or 0 in counts:
        raise ValueError(f"{name} must keep as many in each layer, got {sorted(counts)}")
    if any(len(set(rows)) < len(rows) or not set(rows) <= set(range(n)) for rows in kept):
        raise ValueError(f"{name} must be different numbers of 0 to {n - 1}")
    return kept


def _narrow_mlp(mlp, rows: list[int]) -> None:
    for linear in (mlp.gate_proj, mlp.up_proj):
        _keep(linear, rows, 0)
    _keep(mlp.down_proj, rows, 1)
    mlp.intermediate_size = len(rows)


def _narrow_attention(model, heads: list[list[int]]) -> None:
    config = model.config
    group = config.num_attention_heads // config.num_key_value_heads
    wide = model.model.layers[0].self_attn.head_dim
    served = [Counter(h // group for h in kept) for kept in heads]  # queries a KV head
    counts = {n for layer in served for n in layer.values()}
    if len(counts) > 1 or len({len(layer) for layer in served}) > 1:
        raise ValueError(
            "each key-value head that stays must serve as many queries in every layer; "
            f"of groups of {group} query heads there stay {[dict(n) for n in served]}"
        )
    for layer, kept, left in zip(model.model.layers, heads, served, strict=True):
        part = layer.self_attn
        _keep(part.q_proj, _wide(kept, wide), 0)
        _keep(part.o_proj, _wide(kept, wide), 1)
        for linear in (part.k_proj, part.v_proj):
            _keep(linear, _wide(sorted(left), wide), 0)
        part.num_key_value_groups = len(heads[0]) // len(served[0])
    config.head_dim, config.num_attention_heads = wide, len(heads[0])
    config.num_key_value_heads = len(served[0])


def _wide(heads: Sequence[int], wide: int) -> list[int]:
    """The rows of `heads`, each `wide` rows."""
    return [h * wide + i for h in heads for i in range(wide)]


def _keep(linear, parts: list[int], dim: int) -> None:
    """Only rows (dim 0) or columns (1) `parts` of a linear's weight."""
    import torch

    index = torch.tensor(parts, device=linear.weight.device)
    with torch.no_grad():
        linear.weight = torch.nn.Parameter(linear.weight.index_select(dim, index).clone())
        if linear.bias is not None and dim == 0:
            linear.bias = torch.nn.Parameter(linear.bias[index].clone())
    if dim == 0:
        linear.out_features = len(parts)
    else:
        linear.in_features = len(parts)


def best_rows(model, norms: dict, share: float) -> list[list[int]]:
    """The MLP rows to keep, a list a layer: by the norm of what each adds to the stream.

    `norms` are `masks.watch`'s; with ones instead the weights alone decide.
    """
    kept = []
    for place, layer in enumerate(model.model.layers):
        worth = layer.mlp.down_proj.weight.float().norm(dim=0)  # [rows]
        worth = worth * norms[f"{place}.mlp.down_proj"]
        kept.append(worth.topk(round(share * len(worth))).indices.tolist())
    return kept
