"""The figures of the book, one module a theme. Functions take a list of `results.Run`.

Every figure names the device in its labels, draws the bound, and reads in light and dark
and without colour vision: Okabe-Ito colours, and a marker or dash of its own for each line.
"""

from importlib import import_module

_HOME = {
    "figure": "base",
    "legend": "base",
    "LINES": "base",
    "MUTED": "base",
    "bytes_by_format": "model_size",
    "kv_against_tokens": "model_size",
    "time_against_bytes": "roofline",
}


def __getattr__(name: str):
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    if name.startswith("_"):
        raise AttributeError(name)
    try:
        return import_module(f"{__name__}.{name}")
    except ModuleNotFoundError:
        raise AttributeError(f"module {__name__!r} has no plot {name!r}") from None
