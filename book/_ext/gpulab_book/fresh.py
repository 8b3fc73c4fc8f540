"""Which pages must be read again? All of them, once what their code reads has changed.

Sphinx looks at a page's own text only: a new recording or a new card would leave old
numbers in it. A build that warned is forgotten, else the next one would pass in silence.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path

READ_BY_PAGES = ("gpulab_utils", "results", "requirements.txt", "book/_ext", "book/_static")


def fingerprint(root: Path, names: tuple[str, ...] = READ_BY_PAGES) -> str:
    """One hash over the names and bytes of all files under `names`."""
    digest = hashlib.sha256()
    for path in _files(root, names):
        digest.update(f"{path.relative_to(root)}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _files(root: Path, names: tuple[str, ...]) -> Iterator[Path]:
    for name in names:
        top = root / name
        found = sorted(top.rglob("*")) if top.is_dir() else [top]
        yield from (p for p in found if p.is_file() and "__pycache__" not in p.parts)


def outdated(app, env, added, changed, removed) -> list[str]:
    now = fingerprint(Path(app.srcdir))
    before, env.gpulab_fingerprint = getattr(env, "gpulab_fingerprint", None), now
    return [] if now == before else sorted(env.found_docs)


def forget_if_bad(app, exception) -> None:
    if exception or app._warncount:
        (Path(app.doctreedir) / "environment.pickle").unlink(missing_ok=True)


def setup(app) -> None:
    app.connect("env-get-outdated", outdated)
    app.connect("build-finished", forget_if_bad)
