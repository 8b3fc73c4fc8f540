"""The data files of the package, read on first use, and names that are not in them."""

import difflib
import json
from collections.abc import Callable, Iterator, Mapping
from importlib.resources import files


class UnknownName(KeyError):
    """A name that a table does not have, with the nearest ones that it has."""

    def __init__(self, kind: str, name: object, known: list[str]):
        folded = {k.lower(): k for k in known}
        near = difflib.get_close_matches(str(name).lower(), folded, n=3, cutoff=0.4)
        near = [folded[k] for k in near] or known[:3]
        super().__init__(
            f"no {kind} {name!r}; nearest: {', '.join(near)}. "
            f"All of them: python -m gpulab_utils {kind}s"
        )

    def __str__(self) -> str:
        return self.args[0]  # KeyError would print its quoted form


def read(name: str) -> list[dict]:
    """The rows of `gpulab_utils/data/<name>`, .json or .jsonl.

    >>> read("cards.json")[0]["id"]
    'gtx-1080-ti'
    """
    text = (files("gpulab_utils") / "data" / name).read_text(encoding="utf-8")
    if name.endswith(".jsonl"):
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    return json.loads(text)


class Table(Mapping):
    """Entries by id, made from a data file when the first one is asked for."""

    def __init__(self, kind: str, file: str, make: Callable[[dict], object]):
        self._kind, self._file, self._make, self._entries = kind, file, make, None

    @property
    def entries(self) -> dict:
        if self._entries is None:
            self._entries = {row["id"]: self._make(row) for row in read(self._file)}
        return self._entries

    def __getitem__(self, name: str):
        if name not in self.entries:
            raise UnknownName(self._kind, name, list(self.entries))
        return self.entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)
