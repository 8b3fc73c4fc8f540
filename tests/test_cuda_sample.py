"""The article's CUDA sample and its repair: by text, by NVRTC, by nvcc, and on a card."""

import math
import re
import shutil
import subprocess

from gpulab_utils import cuda_source
from gpulab_utils.cuda_source import calls, kernels, nvcc, nvrtc, run, text, undeclared
from gpulab_utils.queues import Gpu, play

import pytest

NEEDS_NVCC = "nvcc is not here: it comes with NVIDIA's CUDA toolkit"
needs_nvcc = pytest.mark.skipif(not cuda_source.has_nvcc(), reason=NEEDS_NVCC)
SAMPLE = '-DSAMPLE="article_sample.cu"'
MISSING = ["block", "d_input1", "d_input2", "d_output1", "d_output2", "grid", "h_input1"]
MISSING += ["h_input2", "kernel", "size"]


def nvrtc_or_skip(source: str, arch: str) -> tuple[str | None, str]:
    ptx, log = nvrtc(source, arch)
    if ptx is None and "NVRTC is not here" in log:
        pytest.skip(log)
    return ptx, log


def test_the_sample_is_what_the_article_prints():
    """Eight calls in two streams; copies go to d_output, kernels read d_input."""
    found = calls(text("article_sample"))
    assert [c.what for c in found] == [
        *["cudaStreamCreate"] * 2,
        *["cudaMemcpyAsync", "kernel"] * 2,
        *["cudaStreamSynchronize"] * 2,
    ]
    streams = " ".join(c.stream[-1] for c in found)
    assert streams == "1 2 1 1 2 2 1 2"
    copies, launches = (
        [c.args[0] for c in found if c.what == name]
        for name in ("cudaMemcpyAsync", "kernel")
    )
    assert copies == ["d_output1", "d_output2"]
    assert launches == ["d_input1", "d_input2"]
    assert not any(c.is_checked for c in found)
    assert undeclared(text("article_sample")) == MISSING


def test_a_checked_call_is_seen():
    (call,) = calls("status = cudaFree(d);")
    assert call.is_checked


def test_the_harness_poisons_what_the_kernels_read():
    fills = [c.args[:2] for c in calls(text("harness")) if c.what == "cudaMemset"]
    assert fills == [("d_input1", "0xFF"), ("d_input2", "0xFF")]


def test_an_unknown_source_is_refused():
    with pytest.raises(FileNotFoundError, match="article_sample, harness, repaired"):
        text("nothing")


def test_the_repaired_loop_moves_the_right_data():
    """Its calls, without their CHECK, in the emulator: input, kernel, and the way back."""
    loop = text("repaired").partition("grid((n + 255) / 256);")[2].partition("int wrong")[0]
    loop = re.sub(r"CHECK\((.*)\);", r"\1;", loop.partition("{")[2])
    gpu = Gpu()
    gpu.host("h_input[s]", [7.0] * 4), gpu.host("h_output[s]", [math.nan] * 4)
    gpu.malloc("d_input[s]", 4), gpu.malloc("d_output[s]", 4)
    assert play(loop, gpu, lambda x: 2 * x + 1) == [0] * 4
    assert all(map(math.isnan, gpu.values("h_output[s]"))), "not before somebody waits"
    gpu.synchronize("stream[s]")
    assert gpu.values("h_output[s]") == [15.0] * 4


@pytest.mark.parametrize("arch", ["compute_75", "compute_86", "compute_90", "compute_120"])
def test_nvrtc_compiles_the_kernel_alone(arch):
    ptx, log = nvrtc_or_skip(kernels(text("repaired")), arch)
    assert ptx, log
    assert len(re.findall(r"\.visible \.entry", ptx)) == 1
    assert "fma.rn.f32" in ptx, "2x + 1 in one instruction"


def test_nvrtc_says_what_is_wrong():
    ptx, log = nvrtc_or_skip("__global__ void k(float *x) { x[0] = y; }", "compute_86")
    assert ptx is None
    assert 'identifier "y" is undefined' in log


def test_nvrtc_takes_no_host_code():
    ptx, log = nvrtc_or_skip(text("repaired"), "compute_86")
    assert ptx is None
    assert "cstdio" in log


@needs_nvcc
def test_inside_a_function_ten_names_are_missing(tmp_path):
    source = tmp_path / "bare.cu"
    source.write_text("int main() {\n" + text("article_sample") + "}\n")
    made, said = nvcc(source, tmp_path / "bare")
    assert made is None
    assert sorted(set(re.findall(r'identifier "(\w+)" is undefined', said))) == MISSING


@needs_nvcc
def test_the_printed_sample_compiles_without_a_warning(tmp_path):
    made, said = nvcc(cuda_source.FOLDER / "harness.cu", tmp_path / "sample", SAMPLE)
    assert made, said
    assert "warning" not in said
    status, printed = run(made)
    assert status == 0, "no status is looked at"
    assert printed in ("0.000000", "nan", "-nan"), "never the 15 it should be"


@needs_nvcc
def test_the_repaired_program_compiles_whole_and_checks_itself(tmp_path):
    made, said = nvcc(
        cuda_source.FOLDER / "repaired.cu", tmp_path / "whole", "-Werror=all-warnings"
    )
    assert made, said
    status, printed = run(made)
    if status:
        assert re.search(r"repaired\.cu:\d+: error (35|100), ", printed), printed
    else:
        assert printed == "0 of 2097152 outputs wrong"


@pytest.mark.gpu
@needs_nvcc
def test_on_a_card_the_sample_reads_poison_and_the_repair_does_not(tmp_path):
    sample, _ = nvcc(cuda_source.FOLDER / "harness.cu", tmp_path / "sample", SAMPLE)
    whole, _ = nvcc(cuda_source.FOLDER / "repaired.cu", tmp_path / "whole")
    assert run(sample)[1].lstrip("-") == "nan"
    assert run(whole) == (0, "0 of 2097152 outputs wrong")
    if shutil.which("compute-sanitizer"):
        check = [
            "compute-sanitizer",
            "--tool",
            "initcheck",
            "--error-exitcode",
            "9",
            str(whole),
        ]
        assert subprocess.run(check, capture_output=True, timeout=300).returncode == 0
