"""What runs a program and tells how it ended: asked by `programs.run_each`, on stdin."""

import io
import json
import os
import signal
import sys
import threading
from contextlib import redirect_stdout
from pathlib import Path


def end_of(source: str) -> dict:
    """Run `source` here; what it raised, where, and what its models lie on.

    >>> end_of("1 / 0")["error"], end_of("def f():\\n")["line"]
    ('ZeroDivisionError', 1)
    """
    scope, error, line = {"__name__": "__main__"}, None, None
    try:
        exec(compile(source, "<program>", "exec"), scope)
    except SyntaxError as raised:
        error, line = raised, raised.lineno
    except BaseException as raised:  # SystemExit too is an end
        error, line = raised, _line(raised)
    told = {"error": error and type(error).__name__, "line": line}
    return (
        told | {"message": getattr(error, "msg", None) or str(error or "")} | _where(scope)
    )


def _line(raised: BaseException) -> int | None:
    """The last line of the program on the way to the error."""
    frame, line = raised.__traceback__, None
    while frame:
        if frame.tb_frame.f_code.co_filename == "<program>":
            line = frame.tb_lineno
        frame = frame.tb_next
    return line


def _where(scope: dict) -> dict:
    torch = sys.modules.get("torch")
    if torch is None:
        return {"devices": [], "gpu_bytes": 0}
    models = [x for x in scope.values() if isinstance(x, torch.nn.Module)]
    devices = {p.device.type for model in models for p in model.parameters()}
    used = torch.cuda.max_memory_allocated() if torch.cuda.is_initialized() else 0
    return {"devices": sorted(devices), "gpu_bytes": used}


def tell(source: str, path: Path) -> None:
    """Run `source` and write its end, with what it printed, to `path`."""
    printed = path.with_suffix(".out")
    with open(printed, "w", encoding="utf-8", buffering=1) as out, redirect_stdout(out):
        end = end_of(source)
    end["printed"] = printed.read_text(encoding="utf-8")
    part = path.with_suffix(".part")
    part.write_text(json.dumps(end), encoding="utf-8")
    part.replace(path)


def apart(source: str, path: Path, limit_s: float) -> None:
    """`tell` in a forked process; one that is late, or killed, is told of from here."""
    pid = os.fork()
    if not pid:
        try:
            signal.setitimer(signal.ITIMER_REAL, limit_s)  # no handler: it ends the process
            tell(source, path)
        finally:
            os._exit(0)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if not path.exists():
        _not_told(path, limit_s, None if code == -signal.SIGALRM else code)


def _not_told(path: Path, limit_s: float, code: int | None) -> None:
    """Tell of a process that ended with `code`, None for one that was late."""
    end = {"line": None, "devices": [], "gpu_bytes": 0}
    if code is None:
        end |= {"error": "TimeLimit", "message": f"not through after {limit_s:g} s"}
    else:
        name = signal.Signals(-code).name if code < 0 else "Exit"
        end |= {"error": name, "message": f"the process ended with {code}"}
    printed = path.with_suffix(".out")
    end["printed"] = printed.read_text(encoding="utf-8") if printed.exists() else ""
    path.write_text(json.dumps(end), encoding="utf-8")


def warm(sources: list[str]) -> None:
    """Import once what the programs import, and read the digits if they do."""
    if any("import torch" in source for source in sources):
        import torch

        torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1)  # its late imports
    if any("load.digits" in source for source in sources):
        from gpulab_utils import load

        with redirect_stdout(io.StringIO()):
            load.digits()


def main() -> None:
    ask = json.load(sys.stdin)
    folder, limit_s = Path(ask["folder"]), ask["limit_s"]
    if sys.platform == "linux":
        warm(ask["sources"])
        for i, source in enumerate(ask["sources"]):
            apart(source, folder / f"{i}.json", limit_s)
        return
    (source,), path = ask["sources"], folder / "0.json"
    worker = threading.Thread(target=tell, args=(source, path), daemon=True)
    worker.start()
    worker.join(limit_s)
    if worker.is_alive():
        _not_told(path, limit_s, None)
        os._exit(0)


if __name__ == "__main__":
    main()
