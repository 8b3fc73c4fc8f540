"""The Triton kernel in the interpreter, and what becomes of it without its masks."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from gpulab_utils import triton_ops
from gpulab_utils.compiling import compiled
from gpulab_utils.doctor import has_compiler

import pytest
import torch

TOLERANCE = 1e-6  # a missing mask costs 2e-3 where one value too many is read
SHAPE = (5, 1023, "float32", True)  # one value less than a block
HERE = Path(triton_ops.__file__)


needs_triton = pytest.mark.skipif(
    not triton_ops.available(), reason="no Triton for this system"
)


@pytest.fixture(scope="module")
def seen():
    cases = [(37, 781, "float32", True), SHAPE, (1, 1, "float32", True)]
    cases += [(64, 1024, "float32", True), (37, 781, "float16", True)]
    return triton_ops.in_interpreter(cases)


@needs_triton
def test_agrees_with_float64_on_awkward_shapes(seen):
    for case in (s for s in seen if s.dtype == "float32"):
        assert case.kernel < TOLERANCE, case
        assert case.inside, case


@needs_triton
def test_rounds_once_where_the_chain_rounds_each_time(seen):
    half = seen[-1]
    assert half.kernel < 0.8 * half.eager
    assert half.kernel == pytest.approx(half.library, rel=0.2)


@needs_triton
@pytest.mark.parametrize(
    ("line", "broken"),
    [
        ("x_at + row * columns + at, mask=inside, other=0.0", "error"),
        ("y_at + row * columns + at, y, mask=inside", "place"),
    ],
)
def test_a_missing_mask_is_seen(tmp_path, line, broken):
    """Each mask, taken out of a copy of the source, is missed by one of the checks."""
    text = HERE.read_text(encoding="utf-8")
    assert text.count(line) == 1
    package = tmp_path / "gpulab_utils"
    shutil.copytree(HERE.parent, package, ignore=shutil.ignore_patterns("data"))
    edited = text.replace(line, line.split(", mask")[0])
    (package / HERE.name).write_text(edited, encoding="utf-8")
    ask = "from gpulab_utils import triton_ops as t;"
    ask += f"print(t.in_interpreter([{SHAPE}])[0])"
    done = subprocess.run(
        [sys.executable, "-c", ask], cwd=tmp_path, capture_output=True, text=True
    )
    found = eval(done.stdout, {"Seen": triton_ops.Seen})
    assert (found.kernel > TOLERANCE) == (broken == "error"), done.stderr
    assert found.inside == (broken != "place")


@needs_triton
def test_eps_counts_where_the_values_are_small():
    """Beside values near one a kernel without it would pass."""
    ask = "import torch; from gpulab_utils.triton_ops import eager, rms_norm;"
    ask += "x, w = 1e-3 * torch.ones(2, 5), torch.ones(5);"
    ask += (
        "print(float((rms_norm(x, w) - eager(x, w)).abs().max()), float(eager(x, w)[0, 0]))"
    )
    env = os.environ | {"TRITON_INTERPRET": "1", "GPULAB_DEVICE": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", ask], env=env, capture_output=True, text=True
    )
    off, one = map(float, done.stdout.split())
    assert off < TOLERANCE
    assert one == pytest.approx(0.5**0.5, rel=1e-3), "half of mean plus eps is eps"


@pytest.mark.parametrize("rows", [0, 65])
def test_the_interpreter_takes_few_rows(rows):
    with pytest.raises(
        ValueError, match=f"rows must be 1 to 64 in the interpreter, got {rows}"
    ):
        triton_ops.in_interpreter([(rows, 8, "float32", True)])


def test_without_triton_it_says_so(monkeypatch):
    monkeypatch.setattr(triton_ops, "triton", None)
    assert not triton_ops.available()
    for call in (
        lambda: triton_ops.in_interpreter([SHAPE]),
        lambda: triton_ops.rms_norm(torch.ones(1, 1), torch.ones(1)),
    ):
        with pytest.raises(triton_ops.TritonMissing, match="pip install triton"):
            call()


def test_source_is_the_kernel_alone():
    lines = triton_ops.source().splitlines()
    assert lines[0].strip() == "@triton.jit"
    assert lines[-1].strip().startswith("tl.store(")


@pytest.mark.gpu
def test_compiled_on_a_gpu():
    x, w = torch.randn(1823, 781, device="cuda"), torch.rand(781, device="cuda")
    exact = triton_ops.eager(x.double(), w.double())
    assert (triton_ops.rms_norm(x, w).double() - exact).norm() < TOLERANCE * exact.norm()


@pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")
def test_compiled_code_keeps_the_number_of_threads(monkeypatch):
    """Dynamo compiles again for another number, so `compare`'s one thread is honoured."""
    monkeypatch.delenv("GPULAB_TINY", raising=False)
    made, before = [], torch.get_num_threads()

    def backend(graph, inputs):
        made.append(torch.get_num_threads())
        return graph

    fn = compiled(lambda x: x * x + 1, backend=backend)
    try:
        for threads in (1, 1, 2, 1):
            torch.set_num_threads(threads)
            fn(torch.ones(8))
    finally:
        torch.set_num_threads(before)
    assert made == [1, 2]
