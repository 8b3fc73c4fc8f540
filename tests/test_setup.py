"""The set-up: one lock, a package that pins nothing, quick imports that go one way."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from itertools import chain
from pathlib import Path
from statistics import median

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
LOCK, NODEPS = ROOT / "requirements.txt", ROOT / "requirements-nodeps.txt"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# A module may import only those that stand before it.
ORDER = [
    *["units", "tables", "cards", "configs", "models", "roofline", "fit", "plan"],
    *["device", "progress", "reveal", "timing", "process", "folders", "memory"],
    *["storages", "allocations", "alive", "standin", "load"],
    *["compiling", "small_gpt", "language", "ranks", "workers"],
    *["chase", "probes", "host", "layer_ops", "roads", "numerics", "cuda_source"],
    *["queues", "engines", "overlap", "dispatch", "batching", "jpegs"],
    *["traffic", "triton_ops"],
    *["kernels", "fourbit", "minifloats", "ggml_blocks", "normalfloat", "quant"],
    *["decoder", "oracle", "real13b"],
    *["paging", "steps", "weights_table", "kv_cache", "masks", "slimming", "distilling"],
    *["ledger", "fake_layers", "fake_training", "packing", "finetune", "training_time"],
    *["programs", "loops", "sharding"],
    *["results", "techniques", "claims", "plots"],
    *["doctor", "recorder", "listing", "cli"],
]
PYTHON = [
    *sorted(ROOT.glob("*.py")),
    *sorted(
        p
        for top in ("gpulab_utils", "labs", "tests", "book/_ext")
        for p in (ROOT / top).rglob("*.py")
    ),
]
PLATFORMS = [
    {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"},
    {"sys_platform": "darwin", "platform_system": "Darwin", "os_name": "posix"},
    {"sys_platform": "win32", "platform_system": "Windows", "os_name": "nt"},
]


def rel(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def lines(path: Path) -> list[str]:
    text = (line.split("#")[0].strip() for line in path.read_text().splitlines())
    return [line for line in text if line]


def pinned(path: Path) -> dict[str, Requirement]:
    return {canonicalize_name(r.name): r for r in map(Requirement, lines(path))}


@pytest.mark.parametrize("path", [LOCK, NODEPS], ids=rel)
def test_lock_pins_every_line_once(path):
    assert len(pinned(path)) == len(lines(path)), "a package stands there twice"
    for line in lines(path):
        assert re.fullmatch(r"[\w.-]+==[\w.]+( ; .*)?", line), line


def test_lock_is_what_is_installed():
    """Else a green run here says nothing about a fresh set-up."""
    for requirement in [*pinned(LOCK).values(), *pinned(NODEPS).values()]:
        if requirement.marker is None or requirement.marker.evaluate():
            here = metadata.version(requirement.name).split("+")[0]
            assert f"=={here}" == str(requirement.specifier), requirement


@pytest.mark.parametrize("platform", PLATFORMS, ids=lambda p: p["sys_platform"])
@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_lock_is_closed(platform, python):
    """Whatever a locked package asks for on that system is locked too."""
    where = {**platform, "python_version": python, "python_full_version": f"{python}.0"}
    lock, open_ends = pinned(LOCK), set()
    for name, requirement in lock.items():
        if requirement.marker and not requirement.marker.evaluate():
            continue  # not installed here: its own needs cannot be read
        for text in metadata.requires(name) or []:
            needs = Requirement(text)
            if needs.marker and not needs.marker.evaluate({**where, "extra": ""}):
                continue
            if canonicalize_name(needs.name) not in lock:
                open_ends.add(f"{name} needs {text}")
    assert not open_ends


def test_conda_takes_the_same_lock():
    asked = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    python, pip, from_pip = asked
    assert from_pip == {"pip": [f"-r {LOCK.name}"]}
    assert pip == "pip"
    assert python == f"python{PROJECT['requires-python']},<3.14"
    assert NODEPS.name in (ROOT / "environment.yml").read_text()


def test_package_pins_nothing():
    for requirement in map(Requirement, chain(*PROJECT["optional-dependencies"].values())):
        assert requirement.name not in ("torch", "numpy"), requirement
        assert {s.operator for s in requirement.specifier} <= {">="}, requirement
    assert PROJECT["dependencies"] == []
    assert "<" not in PROJECT["requires-python"]


def test_installing_the_package_changes_no_other():
    """On Colab it must leave torch and numpy as they are."""
    wanted = f"{ROOT}[labs,quant]"
    pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-index"]
    done = subprocess.run(
        [*pip, "--no-build-isolation", wanted], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert re.findall(r"Would install (.*)", done.stdout) == ["gpulab-utils-0.1.0"]


def test_import_is_quick_and_loads_no_torch():
    code = (
        "import sys, time; t = time.perf_counter(); import gpulab_utils;"
        "print(time.perf_counter() - t, 'torch' in sys.modules, 'numpy' in sys.modules)"
    )
    command = [sys.executable, "-c", code]
    runs = [subprocess.check_output(command, cwd=ROOT, text=True) for _ in range(7)]
    seconds = [float(run.split()[0]) for run in runs]
    assert all(run.split()[1:] == ["False", "False"] for run in runs)
    assert median(seconds) < 0.150, seconds


def test_ruff():
    ruff = Path(sys.executable).with_name("ruff")
    for command in (["check"], ["format", "--check"]):
        done = subprocess.run(
            [str(ruff), *command, "."], cwd=ROOT, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", PYTHON, ids=rel)
def test_small_pieces(path):
    text = path.read_text(encoding="utf-8")
    if path.is_relative_to(ROOT / "gpulab_utils"):
        assert len(text.splitlines()) < 200, f"{rel(path)} has 200 lines or more"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = node.end_lineno - node.lineno + 1
            assert length <= 40, f"{rel(path)}: {node.name} has {length} lines"


def imported(path: Path) -> set[str]:
    """The modules of the package that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            if node.module == "gpulab_utils":
                found |= {alias.name for alias in node.names}
            elif (node.module or "").startswith("gpulab_utils."):
                found.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            names = (alias.name.split(".") for alias in node.names)
            found |= {n[1] for n in names if n[0] == "gpulab_utils" and len(n) > 1}
    return found


def test_imports_look_one_way():
    package = ROOT / "gpulab_utils"
    modules = [p for p in package.rglob("*.py") if p != package / "__init__.py"]
    for path in modules:
        own = path.relative_to(package).parts[0].removesuffix(".py")
        if own == "__main__":
            continue
        assert own in ORDER, f"{rel(path)}: give {own} its place in ORDER"
        before = set(ORDER[: ORDER.index(own) + 1])
        later = imported(path) & set(ORDER) - before
        assert not later, f"{rel(path)} imports {later}, which stand after it"


def test_links_of_the_readmes_resolve():
    for page in ROOT.glob("*.md"):
        text = re.sub(r"(?s)```.*?```", "", page.read_text(encoding="utf-8"))
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
            if not re.match(r"[a-z]+:", target):
                assert (ROOT / target).exists(), f"{page.name}: {target}"
