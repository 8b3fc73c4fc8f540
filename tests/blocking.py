"""A Python in which some packages are not installed, as far as anyone can tell."""

import os
from pathlib import Path

_SITE = """
import sys
from importlib import metadata
from importlib.machinery import PathFinder

BLOCKED = {blocked!r}
find, version = PathFinder.find_spec, metadata.version


def find_spec(name, path=None, target=None):
    return None if name.split(".")[0] in BLOCKED else find(name, path, target)


def no_version(name):
    if name.replace("-", "_") in BLOCKED:
        raise metadata.PackageNotFoundError(name)
    return version(name)


PathFinder.find_spec, metadata.version = find_spec, no_version
"""


def without(folder: Path, *packages: str) -> dict[str, str]:
    """The environment of a process that finds none of `packages`; `folder` is scratch."""
    (folder / "sitecustomize.py").write_text(_SITE.format(blocked=packages))
    path = [str(folder), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, path))}
