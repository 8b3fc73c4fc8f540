"""How well does a model foretell real text? Nats a token, and perplexity, its exponential.

Windows are scored each for itself, from its second token on. A lower value is better, and
only values over the same windows and the same tokenizer can be compared.
"""

from math import exp

from gpulab_utils import load
from gpulab_utils.progress import progress


def windows(tokenizer, split: str, n: int, time: int):
    """The first `n` x `time` tokens of `load.text(split)`, in order: LongTensor [n, time].

    Raises `ValueError` where the text is shorter.

    >>> windows(lambda text: type("", (), {"input_ids": list(range(99))}), "test", 2, 3)
    tensor([[0, 1, 2],
            [3, 4, 5]])
    """
    return load.tokens(tokenizer, split, n * time).view(n, time)


def nats(model, ids) -> list[float]:
    """Mean loss a token of each window of `ids` [n, time], in eval mode, without gradients.

    `model` is called as transformers' causal models are: `model(window, labels=window)`.
    A window at a time, so that the logits of one are alive. A progress bar is shown.
    """
    import torch

    was_training = model.training
    model.eval()
    with torch.inference_mode():
        told = [
            float(model(window, labels=window).loss)
            for window in progress(ids.split(1), "scoring")
        ]
    model.train(was_training)
    return told


def perplexity(model, ids) -> float:
    """exp of the mean loss a token over `ids` [n, time].

    >>> import torch
    >>> class Even(torch.nn.Module):  # every one of 256 tokens is as likely
    ...     def forward(self, ids, labels):
    ...         return type("", (), {"loss": torch.tensor(256.0).log()})
    >>> round(perplexity(Even(), torch.zeros(2, 8, dtype=torch.long)), 2)
    256.0
    """
    told = nats(model, ids)
    return exp(sum(told) / len(told))
