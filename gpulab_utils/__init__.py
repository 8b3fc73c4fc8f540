"""Large models on the card you have: the tools of the book and its labs.

Importing this package needs neither torch nor a GPU. Names are loaded on first use.
"""

import os
import warnings
from importlib import import_module

# Two OpenMP threads that spin while a core is busy make a small operation a hundred times
# slower. The variable is read once, when torch loads its OpenMP: hence here, before it.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# Below level 6 Kineto, under torch's profiler, writes to stderr that it starts and stops
# (lines with "USDT"). It reads the variable once, at the first profile of the process.
os.environ.setdefault("KINETO_LOG_LEVEL", "6")
# Without ipywidgets tqdm, which transformers loads, would write this into a stored output.
warnings.filterwarnings("ignore", "IProgress not found")

_HOME = {
    "CARDS": "cards",
    "MODELS": "models",
    "bound": "roofline",
    "ridge": "roofline",
    "plan": "plan",
    "decode": "plan",
    "pick": "device",
    "bench": "timing",
    "compare": "timing",
    "Ratio": "timing",
    "Timing": "timing",
    "reveal": "reveal",
    "compiled": "compiling",
}
_MODULES = (
    "units",
    "cards",
    "models",
    "roofline",
    "fit",
    "device",
    "host",
    "timing",
    "memory",
    "standin",
    "load",
    "small_gpt",
    "results",
    "claims",
    "plots",
    "doctor",
)

__all__ = [*_HOME, *_MODULES]
__version__ = "0.1.0"


def __getattr__(name: str):
    if name in _HOME:
        value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
        globals()[name] = value  # `plan` the function must win over `plan` the package
        return value
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if os.environ.get("GPULAB_DEVICE") == "standin":
    import_module(f"{__name__}.standin").enter()
