"""Which weights of a linear matter least, and what does a format take that leaves them out?

Scores (magnitude, activation-aware), masks (a share of each row, 2 of 4), and what is left
in a format without the zeros: CSR, 2:4. A mask alone saves nothing.
"""

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass


def magnitude(weight, norms=None):
    """|w| of weight [out, in]."""
    return weight.abs()


def activation_aware(weight, norms):
    """|w| x norm of the input that it meets: weight [out, in], norms [in].

    Source: Wanda, arXiv:2306.11695, equation 1.

    >>> import torch
    >>> activation_aware(torch.tensor([[2.0, -1.0]]), torch.tensor([1.0, 4.0])).tolist()
    [[2.0, 4.0]]
    """
    return weight.abs() * norms


def best_of_row(scores, share: float):
    """True for the best `share` of each row of scores [out, in], rounded to whole values.

    Raises `ValueError` for a share outside 0 to 1.

    >>> import torch
    >>> best_of_row(torch.tensor([[3.0, 1.0, 2.0, 5.0]]), 0.5).tolist()
    [[True, False, False, True]]
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share must be 0 to 1, got {share}")
    return _best(scores, round(share * scores.shape[1]))


def two_of_four(scores):
    """True for the best two of every four values in a row of scores [out, in].

    Raises `ValueError` where a row is no multiple of four.

    >>> import torch
    >>> two_of_four(torch.tensor([[3.0, 1.0, 2.0, 5.0]])).tolist()
    [[True, False, False, True]]
    """
    if scores.shape[1] % 4:
        raise ValueError(f"a row must be a multiple of 4, got {scores.shape[1]}")
    return _best(scores.unflatten(1, (-1, 4)), 2).flatten(1)


def _best(scores, n: int):
    import torch

    best = scores.topk(n, dim=-1, sorted=False).indices
    return torch.zeros_like(scores, dtype=torch.bool).scatter_(-1, best, True)


def linears(model) -> dict:
    """The linears of a Llama's decoder layers by name, without embedding and head."""
    import torch

    named = model.model.layers.named_modules()
    return {name: part for name, part in named if isinstance(part, torch.nn.Linear)}


def watch(model, ids) -> tuple[dict, list[float]]:
    """(norm of the input [in] of each linear, influence of each layer) over ids [n, time].

    A layer's influence is one less the mean cosine of what goes in and what comes out:
    near 0 it hardly turns the residual stream. Source: ShortGPT, arXiv:2403.03853.
    """
    import torch

    squares, turns, hooks = {}, {}, []

    def linear(name, inputs):
        told = inputs[0].float().flatten(0, -2).square().sum(0)
        squares[name] = squares.get(name, 0) + told

    def layer(place, inputs, output):
        out = output[0] if isinstance(output, tuple) else output
        near = torch.cosine_similarity(inputs[0].float(), out.float(), dim=-1)
        turns.setdefault(place, []).append(1 - float(near.mean()))

    for name, part in linears(model).items():
        hooks.append(part.register_forward_pre_hook(lambda _, x, n=name: linear(n, x)))
    for place, part in enumerate(model.model.layers):
        hooks.append(part.register_forward_hook(lambda _, x, y, i=place: layer(i, x, y)))
    try:
        with torch.inference_mode():
            for window in ids.split(1):
                model(window, use_cache=False)
    finally:
        for hook in hooks:
            hook.remove()
    norms = {name: told.sqrt() for name, told in squares.items()}
    return norms, [sum(turns[i]) / len(turns[i]) for i in sorted(turns)]


def zeroed(model, norms: dict, score: Callable, rule: Callable):
    """A copy whose layers' linears keep what `rule(score(weight, norms))` says, else 0.

    The copy has the shapes and the bytes of `model`: it is for asking about quality.
    """
    import torch

    small = copy.deepcopy(model)
    with torch.no_grad():
        for name, part in linears(small).items():
            scores = score(part.weight.float(), norms[name])
            part.weight.mul_(rule(scores).to(part.weight.dtype))
    return small


@dataclass(frozen=True)
class TwoOfFour:
    """values [out, in / 2] in the weight's dtype; places uint8 [out, in / 8], 2 bits each.

    A group of eight values in a row has four places in its byte, the first one lowest.
    """

    values: object
    places: object

    @property
    def nbytes(self) -> int:
        """Bytes of values and places: 9/16 of dense in 16 bits."""
        return self.values.nbytes + self.places.nbytes

    def dense(self):
        """The weight [out, in], zeros back in their places."""
        import torch

        shifts = torch.arange(0, 8, 2, device=self.places.device)
        at = (self.places.unsqueeze(-1) >> shifts & 3).view(len(self.values), -1, 2).long()
        out = self.values.new_zeros(*at.shape[:2], 4)
        return out.scatter_(-1, at, self.values.unflatten(1, (-1, 2))).flatten(1)


def pack(weight, mask) -> TwoOfFour:
    """`weight` [out, in] where `mask` says two of four, without the zeros.

    Raises `ValueError` for a mask that is not two of four, or rows no multiple of eight.

    >>> import torch
    >>> w = torch.tensor([[3.0, 0, 0, 5, 0, 7, 9, 0]], dtype=torch.float16)
    >>> packed = pack(w, w != 0)
    >>> packed.values.tolist(), packed.places.tolist(), packed.nbytes
    ([[3.0, 5.0, 7.0, 9.0]], [[156]], 9)
    """
    import torch

    if weight.shape[1] % 8:
        raise ValueError(f"a row must be a multiple of 8, got {weight.shape[1]}")
    groups = mask.unflatten(1, (-1, 4))
    if not bool((groups.sum(-1) == 2).all()):
        raise ValueError("mask must be true for two of every four values in a row")
    at = groups.nonzero()[:, -1].view(len(weight), -1, 2)  # the two places, in order
    values = weight.unflatten(1, (-1, 4)).gather(-1, at).flatten(1)
    shifts = torch.arange(0, 8, 2, device=weight.device)
    places = (at.view(len(weight), -1, 4) << shifts).sum(-1).to(torch.uint8)
    return TwoOfFour(values, places)


def csr_bytes(rows: int, kept: int, value_bytes: int, index_bytes: int) -> int:
    """Bytes of CSR: a value and a column for each that is kept, a pointer a row and one.

    >>> csr_bytes(4, 10, 2, 4)
    80
    """
    return kept * (value_bytes + index_bytes) + (rows + 1) * index_bytes


def csr(weight, index_dtype):
    """`weight` [out, in] as torch's CSR tensor with indices of `index_dtype`."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "in beta state"
        found = weight.to_sparse_csr()
        pointers, columns = (
            t.to(index_dtype) for t in (found.crow_indices(), found.col_indices())
        )
        return torch.sparse_csr_tensor(
            pointers, columns, found.values(), weight.shape, check_invariants=True
        )


def nbytes(found) -> int:
    """Bytes of the three parts of a tensor in CSR."""
    parts = found.crow_indices(), found.col_indices(), found.values()
    return sum(part.nbytes for part in parts)
