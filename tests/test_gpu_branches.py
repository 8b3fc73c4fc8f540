"""Every line behind a GPU branch is executed on the stand-in, or stubbed with a reason."""

import os
from pathlib import Path

import gpu_branches
import pytest
from gpu_branches import LABS, Branches, measure, report
from gpu_syntax import gpu_lines

EXAMPLES = {
    "an arm": ("if here.is_gpu:\n    a()\nelse:\n    b()", {2}),
    "the other arm": ("if not device.here().is_gpu:\n    a()\nelse:\n    b()", {4}),
    "what follows a return": (
        "def f():\n    if not here.is_gpu:\n        return 1\n    a()\n    return 2",
        {4, 5},
    ),
    "not what follows a GPU's return": (
        "def f():\n    if here.is_gpu:\n        return 1\n    a()",
        {3},
    ),
    "a function it names": (
        'def f():\n    """Text."""\n    a()\n\nif here.is_gpu:\n    f()',
        {3, 6},
    ),
    "a function in its arm of an expression": (
        "def f():\n    a()\ndef g():\n    b()\nclock = f if here.is_gpu else g",
        {2},
    ),
    "nested blocks": ("if here.is_gpu and x:\n    with a():\n        b()", {2, 3}),
    "an alias": ("gpu = here.is_gpu\nif gpu:\n    a()", {3}),
    "no GPU": ("if here.tiny:\n    a()", set()),
}


@pytest.mark.parametrize(("source", "lines"), EXAMPLES.values(), ids=EXAMPLES)
def test_lines_behind_a_branch(source, lines):
    assert gpu_lines(source) == lines


def test_the_package_has_some():
    assert len(gpu_lines((gpu_branches.PACKAGE / "timing.py").read_text())) > 20


def test_a_stubbed_line_does_not_count_as_executed():
    path = gpu_branches.PACKAGE / "timing.py"
    told = report([Branches(path, {1, 2, 3}, {1}, {2: "torch.cuda._sleep"})])
    assert "3 lines    1 executed   1 stubbed   1 missing" in told
    assert "timing.py:2  torch.cuda._sleep: a kernel that only spins" in told
    assert "missing  gpulab_utils/timing.py:3" in told


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the stand-in is tested on POSIX")
def test_every_gpu_branch_is_executed(capsys):
    found = measure(LABS)
    with capsys.disabled():
        print(f"\n{report(found)}")
    assert [f"{Path(b.path).name}:{n}" for b in found for n in b.missing] == []
