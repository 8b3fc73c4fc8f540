"""The ways a step can go: what `plan` calls them, what they change of the model."""

from dataclasses import dataclass, field
from statistics import mean

from gpulab_utils import kernels

import torch
from torch.utils.checkpoint import checkpoint


@dataclass(frozen=True)
class Way:
    """A name, and the options of `plan` that stand for it."""

    name: str
    options: dict = field(default_factory=dict)

    def __getattr__(self, name: str):
        if name in OPTIONS:
            return self.options.get(name, OPTIONS[name])
        raise AttributeError(name)


OPTIONS = {"amp": False, "checkpointing": False, "accumulation": 1, "in_backward": False}
OPTIONS |= {"optimizer": "adamw", "offload": None}
WAYS = {
    way.name: way
    for way in (
        Way("plain"),
        Way("AMP", {"amp": True}),
        Way("checkpointing", {"checkpointing": True}),
        Way("accumulation", {"accumulation": 4}),
        Way("fused backward", {"in_backward": True}),
        Way("8-bit Adam", {"optimizer": "adamw8bit"}),
        Way("activations away", {"offload": "activations"}),
        Way("states away", {"offload": "states"}),
        Way("checkpointing, fused", {"checkpointing": True, "in_backward": True}),
        Way("checkpointing, 8 bit", {"checkpointing": True, "optimizer": "adamw8bit"}),
    )
}


class Segment(torch.nn.Module):
    """Some layers as one checkpoint: only its input is kept, the rest is computed again."""

    def __init__(self, layers):
        super().__init__()
        self.layers = torch.nn.ModuleList(layers)

    def forward(self, hidden, **options):
        return checkpoint(self._run, hidden, use_reentrant=False, **options)

    def _run(self, hidden, **options):
        for layer in self.layers:
            hidden = layer(hidden, **options)
        return hidden


def cut(model, every: int) -> None:
    """Make checkpoints of `every` layers each; the last one has what is left."""
    layers = list(model.model.layers)
    parts = [layers[i : i + every] for i in range(0, len(layers), every)]
    model.model.layers = torch.nn.ModuleList(Segment(part) for part in parts)


def optimizers(model, way: Way, one_each: bool) -> list:
    """AdamW over all parameters, or one for each of them; bitsandbytes' in 8 bit."""
    params = list(model.parameters())
    if way.optimizer == "adamw8bit":
        return [kernels.bitsandbytes().optim.AdamW8bit(params, lr=1e-3)]
    if not one_each:
        return [torch.optim.AdamW(params, lr=1e-3, foreach=True)]
    return [torch.optim.AdamW([p], lr=1e-3, foreach=False) for p in params]


SAME = "the same loss; sums in another order"
#: way: (name on the page, what it is held against, effort)
ADVICE = {
    "AMP": ("mixed precision (AMP)", "fp32", "a setting"),
    "checkpointing": ("gradient checkpointing", "plain", "a setting"),
    "accumulation": ("gradient accumulation", "the batch at once", "a few lines"),
    "fused backward": ("optimizer fused into backward", "plain", "a few lines"),
    "8-bit Adam": ("8-bit Adam", "AdamW in fp32", "a setting"),
    "activations away": ("activations offloaded", "plain", "a setting"),
    "states away": ("optimizer states offloaded", "plain", "a few lines"),
    "checkpointing, fused": ("checkpointing and a fused optimizer", "plain", "a few lines"),
    "checkpointing, 8 bit": ("checkpointing and 8-bit Adam", "plain", "a setting"),
    "fused attention": ("fused attention", "scores written out", "a setting"),
}


def words(plane: list[dict], nats: dict[str, list]) -> list[dict]:
    """Arguments of `techniques.row` for rows of a plane; `nats`: losses by way."""
    found = []
    for row in (r for r in plane if r["way"] in ADVICE):
        name, base, effort = ADVICE[row["way"]]
        key = "8-bit Adam" if "8 bit" in row["way"] else row["way"]
        quality = SAME
        if key in nats:
            quality = ("nats a byte", mean(nats["plain"]), mean(nats[key]))
        found.append({
            "technique": name, "use": "training", "base": base, "of": "a whole step",
            "bytes_ratio": row["bytes_ratio"], "time_ratio": row["time_ratio"],
            "quality": quality, "effort": effort,
        })  # fmt: skip
    return found
