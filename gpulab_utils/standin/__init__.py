"""A GPU that is not there: `cuda` looks present, and its tensors stay on the CPU.

`GPULAB_DEVICE=standin` makes `import gpulab_utils` enter it for the whole process, so that
every GPU branch of package and labs runs where there is no GPU. It proves that code runs,
never how fast: nothing is recorded under it. Other threads see no card.

It keeps what a real card insists on:

* an event has no time, and a `non_blocking` copy to the host holds NaN (the lowest integer,
  the opposite truth), until something has waited: event, stream or device;
* a tensor of the host and one of the card do not mix, and a card's is no numpy array;
* tensors on the card are counted, and above the cap there is `torch.OutOfMemoryError`.

Modules: `private` (torch's own names), `queue` (streams, events), `card` and `figures`
(memory), `places`, `moves` and `mode` (the torch function mode), `cuda` and `runtime` (what
replaces torch's functions), `imports` (modules to attend to), `stubs`, `substitutes` and
`graphs` (what no CPU can do).
"""

import os

_entered = []


def enter() -> None:
    """Make `cuda` look present in this process, once and for good; imports torch."""
    if _entered:
        return
    # transformers would put weights on the card from threads, which see none.
    os.environ.setdefault("HF_DEACTIVATE_ASYNC_LOAD", "1")
    # Triton has no compiler for this card: its interpreter runs kernels, on numpy.
    os.environ.setdefault("TRITON_INTERPRET", "1")
    from gpulab_utils.standin import cuda, imports, mode, stubs

    _entered.append(mode.MODE)
    cuda.replace()
    stubs.replace()
    imports.watch()
    mode.MODE.start()


def entered() -> bool:
    """Whether this process runs on the stand-in.

    >>> isinstance(entered(), bool)
    True
    """
    return bool(_entered)
