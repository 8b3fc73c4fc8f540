"""Runs of labs, each a process of its own, started before they are asked for.

As many at a time as there are cores: on two the whole takes half as long. None is timed.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest

MOST = 4  # memory: a tiny lab with its language model holds a GiB or two


def workers() -> int:
    """How many runs at a time: one a core."""
    asked = getattr(os, "sched_getaffinity", None)
    return min(MOST, len(asked(0)) if asked else os.cpu_count() or 1)


def chosen(request: pytest.FixtureRequest, test: str, name: str) -> list:
    """The values of parameter `name` that this pytest run has for `test`, each once."""
    items = [i for i in request.session.items if i.path == request.path]
    mine = [i for i in items if i.originalname == test]
    return list(dict.fromkeys(i.callspec.params[name] for i in mine))


@contextmanager
def started(run: Callable, keys: list) -> Iterator[dict[object, Future]]:
    """`run(key)` for each key; what has not begun at the end does not begin."""
    pool = ThreadPoolExecutor(workers())
    try:
        yield {key: pool.submit(run, key) for key in keys}
    finally:
        pool.shutdown(cancel_futures=True)
