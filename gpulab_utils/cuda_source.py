"""What does a CUDA source say, and does it compile? Text first, then compilers.

`nvrtc` compiles kernels alone and needs a package (cuda-bindings); `nvcc` builds a whole
program and needs NVIDIA's toolkit. Where one is missing its result says so: both return
(what was made or None, what the compiler or we have to say).
"""

import re
import shutil
import subprocess
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

#: The article's sample, a main around it, and the repaired program.
FOLDER = Path(str(files("gpulab_utils"))) / "data" / "cuda"
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_LAUNCH = re.compile(r"(\w+)\s*<<<(.*?)>>>\s*\((.*)\)\Z", re.DOTALL)
_CALL = re.compile(r"(cuda\w+)\s*\((.*)\)\Z", re.DOTALL)
_DECLARED = re.compile(r"\b(?:cudaStream_t|cudaEvent_t|int|float|size_t|dim3)\s+([^;=(]+)")
_KERNEL = re.compile(r"__global__.*?\n}\n", re.DOTALL)


def text(name: str) -> str:
    """The source that the package ships as `data/cuda/NAME.cu`.

    >>> text("article_sample").splitlines()[0]
    'cudaStream_t stream1, stream2;'
    """
    path = FOLDER / f"{name}.cu"
    if not path.exists():
        there = ", ".join(sorted(p.stem for p in FOLDER.glob("*.cu")))
        raise FileNotFoundError(f"no source {name!r}; there are {there}")
    return path.read_text(encoding="utf-8")


@dataclass(frozen=True)
class Call:
    """One statement: a function of the runtime, or the launch of a kernel."""

    what: str  # cudaMemcpyAsync, ..., or the kernel's name
    args: tuple[str, ...]
    stream: str | None  # None: no stream is named
    is_launch: bool = False
    is_checked: bool = False  # somebody looks at what it returns


def calls(source: str) -> list[Call]:
    """The runtime calls and launches of `source`, in order; it has no blocks nor loops.

    >>> [c.what for c in calls("cudaMemcpyAsync(d, h, 4, kind, s);  k<<<1, 2, 0, s>>>(d);")]
    ['cudaMemcpyAsync', 'k']
    """
    statements = [s.strip() for s in _COMMENT.sub("", source).split(";")]
    return [call for call in map(_call, statements) if call]


def _call(statement: str) -> Call | None:
    if launch := _LAUNCH.search(statement):
        shape = _split(launch[2])
        stream = shape[3] if len(shape) > 3 else None
        return Call(launch[1], _split(launch[3]), stream, is_launch=True)
    found = _CALL.search(statement)
    if not found:
        return None
    args = _split(found[2])
    takes = args and (found[1].endswith("Async") or found[1].startswith("cudaStream"))
    stream = args[-1 if found[1].endswith("Async") else 0].lstrip("&") if takes else None
    return Call(found[1], args, stream, is_checked=found.start() > 0)


def _split(arguments: str) -> tuple[str, ...]:
    return tuple(a.strip() for a in arguments.split(",")) if arguments.strip() else ()


def undeclared(source: str) -> list[str]:
    """Names that `source` uses and does not declare; those of CUDA are known to nvcc.

    >>> undeclared("cudaStream_t s; cudaStreamCreate(&s); k<<<grid, 2, 0, s>>>(x);")
    ['grid', 'k', 'x']
    """
    plain = _COMMENT.sub("", source)
    declared = set(re.findall(r"\w+", " ".join(_DECLARED.findall(plain))))
    used = set(re.findall(r"\b[A-Za-z_]\w*", plain)) - declared
    return sorted(name for name in used if not name.startswith("cuda"))


def kernels(source: str) -> str:
    """The `__global__` functions of `source`, whose bodies end in a line of `}`.

    >>> kernels(text("repaired")).splitlines()[0]
    '__global__ void kernel(const float *input, float *output, int n) {'
    """
    return "".join(_KERNEL.findall(source))


def nvrtc(source: str, arch: str = "compute_80") -> tuple[str | None, str]:
    """(PTX or None, log) of kernels; None too where no cuda-bindings is installed.

    Source: NVIDIA, NVRTC user guide, "Basic Usage".

    >>> ptx, log = nvrtc(kernels(text("repaired")))
    >>> ptx is None or ".entry" in ptx
    True
    """
    try:
        from cuda.bindings import nvrtc as api

        api.nvrtcVersion()
    except (ImportError, RuntimeError) as error:
        return None, f"NVRTC is not here ({error}): pip install cuda-bindings[all]"
    _, program = api.nvrtcCreateProgram(source.encode(), b"lab.cu", 0, [], [])
    (status,) = api.nvrtcCompileProgram(program, 1, [f"--gpu-architecture={arch}".encode()])
    log = _read(api.nvrtcGetProgramLogSize, api.nvrtcGetProgramLog, program)
    made = status == api.nvrtcResult.NVRTC_SUCCESS
    ptx = _read(api.nvrtcGetPTXSize, api.nvrtcGetPTX, program) if made else None
    api.nvrtcDestroyProgram(program)
    return ptx, log


def _read(size_of, get, program) -> str:
    _, size = size_of(program)
    room = b" " * size
    get(program, room)
    return room.rstrip(b"\0 ").decode()


def has_nvcc() -> bool:
    """Whether NVIDIA's compiler is on the path.

    >>> has_nvcc() in (True, False)
    True
    """
    return shutil.which("nvcc") is not None


def nvcc(source: Path, out: Path, *options: str) -> tuple[Path | None, str]:
    """(`out` or None, what nvcc said); None too where nvcc is not on the path."""
    if not has_nvcc():
        return None, "nvcc is not here: it comes with NVIDIA's CUDA toolkit"
    command = ["nvcc", *options, "-o", str(out.resolve()), source.name]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, cwd=source.parent
    )
    return (None if done.returncode else out), done.stdout + done.stderr


def run(program: Path) -> tuple[int, str]:
    """(exit status, what it printed) of a compiled program."""
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=120)
    return done.returncode, (done.stdout + done.stderr).strip()
