"""Is it still running? A bar for whatever takes more than two seconds.

Silent where outputs are stored or compared: `CI` or `PYTEST_VERSION` is set.
"""

import os
from collections.abc import Iterable
from contextlib import contextmanager


def silent() -> bool:
    """Whether bars and library chatter are to be kept off the output."""
    return "CI" in os.environ or "PYTEST_VERSION" in os.environ


def progress(items: Iterable, what: str) -> Iterable:
    """`items`, one by one, with a bar that says `what`.

    >>> list(progress(range(3), "counting"))
    [0, 1, 2]
    """
    from tqdm.auto import tqdm

    return tqdm(items, desc=what, disable=silent(), leave=False)


@contextmanager
def quiet_transformers():
    """Without transformers' bars while `silent()`; as it was before, afterwards."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    if silent():
        logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
