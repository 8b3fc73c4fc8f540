"""Is it still running? A bar for whatever takes more than two seconds.

Silent where outputs are stored or compared: `CI` or `PYTEST_VERSION` is set.
"""

import io
import os
from collections.abc import Iterable
from contextlib import contextmanager, redirect_stderr


def silent() -> bool:
    """Whether bars and library chatter are to be kept off the output."""
    return "CI" in os.environ or "PYTEST_VERSION" in os.environ


def progress(items: Iterable, what: str) -> Iterable:
    """`items`, one by one, with a bar that says `what`.

    >>> list(progress(range(3), "counting"))
    [0, 1, 2]
    """
    if silent():
        return items
    from tqdm.auto import tqdm  # not before: it warns where Jupyter has no widgets

    return tqdm(items, desc=what, leave=False)


@contextmanager
def quiet():
    """Without what libraries write to stderr while `silent()`; exceptions pass.

    transformers draws its GGUF bar by a tqdm that no setting of its own reaches.
    """
    if silent():
        with redirect_stderr(io.StringIO()):
            yield
    else:
        yield
