"""A rank that may be killed: it trains over a text once, and goes on where it was saved.

Asked: `folder`, `batch`, `every` (steps between two checkpoints), and what `Run` takes
besides. Told: what `Run.found` returns. A line for each step goes to `folder`.
"""

import json
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gpulab_utils import small_gpt
from gpulab_utils.workers import joined, tell

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

CONTEXT = 8  # bytes that are seen before the one that is foretold
PARTS = ("model", "optimizer", "step", "seen")


def network(width: int = 64):
    """Bytes [batch, 8] to logits [batch, 256]: a small network, quick to import.

    Source: Bengio et al., "A neural probabilistic language model", JMLR 3, 2003.
    """
    torch.manual_seed(0)
    hidden = [nn.Flatten(), nn.Linear(CONTEXT * 16, width), nn.Tanh()]
    return nn.Sequential(nn.Embedding(256, 16), *hidden, nn.Linear(width, 256))


def windows(many: int):
    """The first pieces of the text, end to end: LongTensor [many, 9]."""
    return small_gpt.byte_tokens("train")[: many * (CONTEXT + 1)].view(many, CONTEXT + 1)


@dataclass
class Run:
    """A training over `many` windows, each once, in an order that `seed` decides.

    `keep` are the parts of the state that a checkpoint holds; `pause_s` is slept in every
    step, in place of a larger model's arithmetic.
    """

    folder: str
    batch: int = 16
    every: int = 5
    many: int = 960
    seed: int = 0
    keep: tuple[str, ...] = PARTS
    pause_s: float = 0.0
    place: str | torch.device = "cpu"

    def __post_init__(self):
        self.model = DistributedDataParallel(network().to(self.place))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.text, self.step = windows(self.many).to(self.place), 0
        draw = torch.Generator().manual_seed(self.seed)
        self.order = torch.randperm(self.many, generator=draw)
        #: How often each window went into the weights: restored with them, never apart.
        self.seen = torch.zeros(self.many, dtype=torch.int64)
        self.life = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))

    @property
    def path(self) -> Path:
        return Path(self.folder) / "checkpoint.pt"

    def state(self) -> dict:
        """All that decides how the training goes on from here."""
        model, optimizer = self.model.module.state_dict(), self.optimizer.state_dict()
        whole = {"model": model, "optimizer": optimizer}
        return whole | {"step": self.step, "seen": self.seen}

    def save(self) -> None:
        """Rank 0 writes beside the last checkpoint, then takes its place at once."""
        if dist.get_rank():
            return
        part = self.path.with_suffix(".part")
        with open(part, "wb") as file:
            torch.save({k: v for k, v in self.state().items() if k in self.keep}, file)
            file.flush()
            os.fsync(file.fileno())  # the content before the name
        part.replace(self.path)

    def resume(self) -> None:
        """Take over the last checkpoint, if there is one."""
        if not self.path.exists():
            return
        kept = torch.load(self.path, map_location="cpu")
        if "model" in kept:
            self.model.module.load_state_dict(kept["model"])
        if "optimizer" in kept:
            self.optimizer.load_state_dict(kept["optimizer"])
        self.step = kept.get("step", 0)
        self.seen = kept.get("seen", self.seen)

    def train(self, until: int | None = None) -> None:
        """Go on to the end of the text, or for a test to step `until`."""
        steps = self.many // self.batch if until is None else until
        while self.step < steps:
            chosen = self.order[self.step * self.batch :][: self.batch]
            mine = chosen.chunk(dist.get_world_size())[dist.get_rank()]
            self.note(mine)
            self.learn(mine)
            self.seen[chosen] += 1
            self.step += 1
            if self.step % self.every == 0:
                self.save()

    def learn(self, mine) -> None:
        """One step on the windows `mine` of this rank."""
        self.optimizer.zero_grad()
        self.loss(self.text[mine]).backward()  # here the ranks meet
        time.sleep(self.pause_s)
        self.optimizer.step()

    def loss(self, text):
        """Mean cross-entropy of the last byte of each window [batch, 9]."""
        return cross_entropy(self.model(text[:, :CONTEXT]), text[:, CONTEXT])

    def note(self, mine) -> None:
        """Say who is at which step: one line, written at once."""
        line = {"rank": dist.get_rank(), "life": self.life, "pid": os.getpid()}
        line |= {"step": self.step, "windows": mine.tolist()}
        with open(Path(self.folder) / f"notes{dist.get_rank()}", "a") as file:
            file.write(json.dumps(line) + "\n")

    def found(self) -> dict:
        """The loss over all windows, which life this is, and how often each was used."""
        with torch.no_grad():
            loss = self.loss(self.text).item()
        return {"loss": loss, "life": self.life, "seen": self.seen.tolist()}


def notes(folder: str | Path) -> list[dict]:
    """What the ranks have noted so far; a line still being written is left out."""
    found = []
    for path in sorted(Path(folder).glob("notes*")):
        for line in path.read_text().splitlines():
            with suppress(json.JSONDecodeError):
                found.append(json.loads(line))
    return found


if __name__ == "__main__":
    with joined() as (ask, place):
        run = Run(**ask, place=place)
        run.resume()
        run.train()
        tell(run.found())
