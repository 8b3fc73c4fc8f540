"""How long does a fine-tune take on a card? Published seconds, and arithmetic between them.

A micro-batch of adapters takes three forward passes' worth of arithmetic: forward, the
same again where layers are recomputed, and the gradient of the inputs (frozen weights have
none). Beside it the weights are handled however few tokens there are:

    seconds = tokens x 3 F / (share x rate) + turns x weight bytes / bandwidth

F is `Shape.flop_per_token`, the weights count in 16 bit. `share` of the dense 16-bit rate
and `turns` (for LoRA and for QLoRA, which unpacks) are fitted to published rows, never to
our own. The rows: README of QwenLM/Qwen and of pytorch/torchtune, in `data/published`.
The fit is for 7B and more: below, launches set the pace (`SMALLER`).
"""

from dataclasses import dataclass, replace

from gpulab_utils import tables
from gpulab_utils.cards import CARDS, Card
from gpulab_utils.models import MODELS, Shape

#: Rows by the start of their id: what they are called here, shape, card.
SETS = {
    "qwen1-ft-7b-": ("Qwen-7B", "qwen-7b", "a100-sxm-80gb"),
    "qwen1-ft-14b-": ("Qwen-14B", "qwen-7b", "a100-sxm-80gb"),
    "qwen1-ft-72b-": ("Qwen-72B", "qwen-7b", "a100-sxm-80gb"),
    "tt-llama31-8b-": ("Llama-3.1-8B", "llama-3.1-8b", "rtx-4090"),
}
#: Kept out of the fit, and told: its steps take up to five times what the fit says.
SMALLER = {"qwen1-ft-1.8b-": ("Qwen-1.8B", "qwen-7b", "a100-sxm-80gb")}
MODES = ("lora", "qlora")


@dataclass(frozen=True)
class Row:
    """One published run: seconds for a micro-batch of `batch` sequences of `seq` tokens."""

    group: str  # model and card: rows of a group are not independent
    shape: Shape
    card: Card
    mode: str
    batch: int
    seq: int
    seconds: float
    source_url: str

    @property
    def tokens_per_s(self) -> float:
        return self.batch * self.seq / self.seconds


@dataclass(frozen=True)
class Pace:
    """What a card makes of its datasheet: a share of the rate, turns over the weights."""

    share: float
    turns: dict[str, float]

    def seconds(self, shape: Shape, card: Card, mode: str, seq: int, batch: int = 1):
        """Seconds of one micro-batch of `batch` x `seq` tokens, forward and backward, with
        checkpoints.

        >>> half = Pace(0.5, {"lora": 0, "qlora": 8})
        >>> shape, card = MODELS["llama-2-13b"], CARDS["rtx-3080-ti"]
        >>> told = [half.seconds(shape, card, mode, 1024) for mode in ("lora", "qlora")]
        >>> [round(s, 2) for s in told]
        [2.35, 2.58]
        """
        work, moved = _terms(shape, card, seq, batch)
        return work / self.share + self.turns[mode] * moved

    def tokens_per_s(self, shape: Shape, card: Card, mode: str, seq: int) -> float:
        return seq / self.seconds(shape, card, mode, seq)


def _terms(shape: Shape, card: Card, seq: int, batch: int) -> tuple[float, float]:
    """Seconds of the arithmetic at the full rate, and of one turn over the weights."""
    # a token looks back on half the sequence, on average
    flop = 3 * batch * seq * shape.flop_per_token(seq // 2)
    return flop / card.rate("fp16"), 2 * shape.linear_params / card.mem_bytes_per_s


def published(sets: dict[str, tuple[str, str, str]] = SETS) -> list[Row]:
    """The rows of fine-tunes with adapters on one card that recompute, batch as stated.

    Left out: more than 4,096 tokens, trained embeddings, a card not fully named, samples of
    changing length (ms-swift), runs that do not recompute or do not say so (LitGPT, an
    A6000), and Qwen-1.8B (`SMALLER`), where launches set the pace and this formula is up to
    five times too fast.

    >>> sorted({row.group for row in published()})
    ['Llama-3.1-8B, RTX 4090', 'Qwen-14B, A100', 'Qwen-72B, A100', 'Qwen-7B, A100']
    >>> {row.group for row in published(SMALLER)}
    {'Qwen-1.8B, A100'}
    """
    found = []
    for told in tables.read("published/memory.jsonl"):
        start = next((s for s in sets if told["id"].startswith(s)), None)
        right = told["mode"] in MODES and "-emb-" not in told["id"]
        if start and right and told["grad_checkpointing"] and told["seq"] <= 4096:
            found.append(_row(told, *sets[start]))
    return found


def _row(told: dict, model: str, base: str, card: str) -> Row:
    sizes = {k: told[k] for k in ("hidden", "layers", "heads", "kv_heads", "head_dim")}
    sizes |= {k: told[k] for k in ("intermediate", "vocab")}
    shape = replace(MODELS[base], name=model, **sizes)
    value, unit = told["train_speed"]["value"], told["train_speed"]["unit"]
    if unit.startswith("s/iter (8"):
        seconds = value / 8
    elif unit == "tokens/s":
        seconds = told["batch"] * told["seq"] / value
    else:
        raise ValueError(f"{told['id']}: no rule for a speed in {unit!r}")
    short = "A100" if card.startswith("a100") else card.upper().replace("-", " ")
    group = f"{model}, {short}"
    return Row(
        group, shape, CARDS[card], told["mode"], told["batch"], told["seq"], seconds,
        told["source_url"],
    )  # fmt: skip


def fit(rows: list[Row]) -> Pace:
    """The pace with the least squared relative error over `rows`; `ValueError` where they
    are not of both modes.

    >>> pace = fit(published())
    >>> 0.3 < pace.share < 0.8 and pace.turns["qlora"] > pace.turns["lora"] > 0
    True
    """
    import torch

    lines = []
    for row in rows:
        work, moved = _terms(row.shape, row.card, row.seq, row.batch)
        turns = [moved * (row.mode == mode) for mode in MODES]
        lines.append([x / row.seconds for x in (work, *turns)])
    if {row.mode for row in rows} != set(MODES):
        raise ValueError("a fit needs rows of both modes, lora and qlora")
    system = torch.tensor(lines, dtype=torch.float64)
    ones = torch.ones(len(lines), 1, dtype=torch.float64)
    slow, *turns = torch.linalg.lstsq(system, ones).solution.flatten().tolist()
    return Pace(1 / slow, dict(zip(MODES, turns, strict=True)))


def ratios(pace: Pace, rows: list[Row]) -> list[float]:
    """Predicted over published seconds, row by row.

    >>> max(ratios(fit(published()), published(SMALLER))) < 0.7  # too fast for a small one
    True
    """
    return [pace.seconds(r.shape, r.card, r.mode, r.seq, r.batch) / r.seconds for r in rows]


def left_out(rows: list[Row]) -> dict[str, list[float]]:
    """Predicted over published seconds of each group, by a fit to the *other* groups.

    >>> set(left_out(published())) == {row.group for row in published()}
    True
    """
    told = {}
    for group in dict.fromkeys(row.group for row in rows):
        pace = fit([row for row in rows if row.group != group])
        told[group] = ratios(pace, [row for row in rows if row.group == group])
    return told
