"""A stack of layers of which some are not there: they come over a road for every step."""

from gpulab_utils import device, folders
from gpulab_utils.roads import copies, pages


class Stack:
    """`layers` weights [side, side] in fp32, each resident and away.

    Away is a safetensors file that is mapped anew for each layer, or host memory, pinned
    and pageable, of a GPU. `layer_bytes` come for a layer that is away.
    """

    def __init__(self, layers: int, side: int, seed: int = 0):
        import torch
        from safetensors.torch import save_file

        if min(layers, side) < 1:
            raise ValueError(f"layers and side must be positive, got {layers} and {side}")
        draw, self.side = torch.Generator().manual_seed(seed), side
        weights = [
            torch.randn(side, side, generator=draw) / side**0.5 for _ in range(layers)
        ]
        here = device.here()
        self.resident = [w.to(here.device) for w in weights]
        self.layer_bytes = weights[0].nbytes
        self.kept = torch.empty(side, side, device=here.device)
        self.x = torch.ones(1, side, device=here.device)
        if here.is_gpu:
            self.away = {"kept": [w.pin_memory() for w in weights], "fresh": weights}
            return
        self.file = folders.folder("stack") / "stack.safetensors"
        save_file({str(i): w for i, w in enumerate(weights)}, self.file)

    def step(self, away: int = 0, way: str = "kept"):
        """One row through all layers, the last `away` of them fetched first: [1, side].

        `way` as in `roads.ways()`. Raises `ValueError` for more layers than there are.

        >>> stack = Stack(2, 8)
        >>> bool((stack.step(2) - stack.step()).abs().max() < 1e-4)
        True
        """
        if not 0 <= away <= len(self.resident):
            raise ValueError(f"away must be 0 to {len(self.resident)}, got {away}")
        x, here = self.x, len(self.resident) - away
        for i, weight in enumerate(self.resident):
            x = x @ (weight if i < here else self.fetch(i, way)).T
        return x

    def fetch(self, i: int, way: str = "kept"):
        """Layer `i` from where it is kept: [side, side] on this device."""
        if way not in copies.ways():
            raise ValueError(f"way must be kept or fresh, got {way!r}")
        if device.here().is_gpu:
            return self._from_host(self.away[way][i], way)
        from safetensors import safe_open

        with safe_open(self.file, "pt") as tensors:
            weight = tensors.get_tensor(str(i))
        if way == "kept":
            return self.kept.copy_(weight)
        return (
            pages.fresh(weight.nbytes).view(weight.dtype).view(weight.shape).copy_(weight)
        )

    def _from_host(self, weight, way: str):
        if way == "kept":
            return self.kept.copy_(weight, non_blocking=True)
        return weight.to(self.kept.device)
