"""A teacher's outputs, as a student's loss: from the teacher itself, or stored before."""

from collections.abc import Callable
from dataclasses import dataclass

from gpulab_utils import language, slimming, small_gpt
from gpulab_utils.progress import progress

import torch
import torch.nn.functional as F


def soft_loss(logits, teacher, temperature: float = 1.0, places=None):
    """T^2 x KL(teacher at T || student at T), mean over rows; logits [..., classes].

    The gradient of a softened KL falls as 1 / T^2, so the factor keeps its size where T
    changes (Hinton et al., arXiv:1503.02531). Where only some of the teacher's logits were
    kept, `teacher` [..., k] holds them, `places` [..., k] says which they are, and their
    probabilities are scaled up to sum to one. Raises `ValueError` for a T that is not
    positive.

    >>> x = torch.tensor([[2.0, 0.0, -1.0]])
    >>> float(soft_loss(x, x + 3, 4.0)) < 1e-6  # softmax does not see a shift
    True
    """
    if temperature <= 0:
        raise ValueError(f"temperature must be positive, got {temperature}")
    told = F.log_softmax(logits.float() / temperature, -1)
    told = told if places is None else told.gather(-1, places.long())
    wanted = F.log_softmax(teacher.float() / temperature, -1)
    apart = (wanted.exp() * (wanted - told)).sum(-1)
    return temperature**2 * apart.mean()


@dataclass(frozen=True)
class Stored:
    """A teacher's logits of `windows` [n, time]: all, or the k largest of each token."""

    windows: object
    logits: object  # [n, time, k]
    places: object = None  # int32 [n, time, k], or None where all were kept

    @property
    def token_bytes(self) -> float:
        """Bytes a token."""
        kept = self.logits.nbytes + (0 if self.places is None else self.places.nbytes)
        return kept / self.windows.numel()

    def largest(self, k: int) -> "Stored":
        """Only the `k` largest of each token, and their places.

        >>> some = Stored(torch.zeros(1, 1), torch.tensor([[[3.0, 1.0, 2.0]]])).largest(2)
        >>> some.logits.tolist(), some.places.tolist(), some.token_bytes
        ([[[3.0, 2.0]]], [[[0, 2]]], 16.0)
        """
        logits, places = self.logits.topk(k)
        return Stored(self.windows, logits, places.int())

    def of(self, ids):
        """(logits, places) of `ids` [batch, time]; `ValueError` for a window not stored."""
        same = (self.windows[None] == ids[:, None].to(self.windows.device)).all(-1)
        if not bool(same.any(1).all()):
            raise ValueError("a window whose logits were not stored")
        rows = same.int().argmax(1)
        device = ids.device
        places = None if self.places is None else self.places[rows].to(device)
        return self.logits[rows].to(device), places


def store(teacher, windows, dtype=torch.bfloat16) -> Stored:
    """Run `teacher` once over `windows` [n, time] and keep all its logits in `dtype`."""
    with torch.inference_mode():
        told = [
            teacher(window, use_cache=False).logits.to(dtype)
            for window in progress(windows.split(1), "teacher")
        ]
    return Stored(windows, torch.cat(told))


@dataclass(frozen=True)
class Online:
    """A teacher that stays in memory and runs at every step."""

    teacher: object

    def of(self, ids):
        """(logits, None) of `ids` [batch, time]."""
        with torch.no_grad():
            return self.teacher(ids, use_cache=False).logits, None


def from_labels(student, ids):
    """The student's own loss: the next token of `ids` [batch, time]."""
    return student(ids, labels=ids, use_cache=False).loss


def from_teacher(source: Stored | Online, temperature: float = 1.0) -> Callable:
    """A loss for `slimming.recover`: match the logits of `source`; no label is read."""

    def loss(student, ids):
        told, places = source.of(ids)
        return soft_loss(student(ids, use_cache=False).logits, told, temperature, places)

    return loss


@dataclass(frozen=True)
class Subject:
    """A language model to be taught from, and text in its tokens."""

    teacher: object
    train: object  # [n, time]
    test: object  # [n, time]
    name: str


def subject(teacher, tokenizer, *, train: int, test: int, time: int) -> Subject:
    """`train` and `test` windows of `time` tokens for `teacher`.

    None for a teacher gets a small model of bytes that is trained here first, in seconds:
    for machines without SmolLM2 and for quick checks of the arithmetic.
    """
    if teacher is not None:
        texts = [
            language.windows(tokenizer, split, n, time)
            for split, n in (("train", train), ("test", test))
        ]
        return Subject(teacher, *texts, "SmolLM2 decoded from Q4_1")
    learnt, train_ids, test_ids = (
        small_gpt.byte_tokens(split)[: n * time].view(n, time)
        for split, n in (("train", 400), ("train", train), ("test", test))
    )
    teacher = small_gpt.make(width=64, layers=4, positions=time)
    slimming.recover(teacher, learnt, steps=40, lr=5e-3, batch=16)
    return Subject(teacher, train_ids, test_ids, "a small model of bytes")


def untrained(model, seed: int = 0):
    """A model of the same config with random weights; fp32, on the CPU."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return type(model)(model.config)
