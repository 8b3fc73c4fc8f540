"""Every example in a docstring runs. (Not by --doctest-modules: it would break --nbval.)"""

import doctest
import importlib
import pkgutil

import gpulab_utils

import pytest

MODULES = [
    m.name
    for m in pkgutil.walk_packages(gpulab_utils.__path__, "gpulab_utils.")
    if "__main__" not in m.name and ".data" not in m.name
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0
