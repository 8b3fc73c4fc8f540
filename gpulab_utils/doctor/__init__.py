"""What is here, what is missing, and what mends it? Facts, then advice made of facts alone.

`examine()` looks at this machine; `advise(facts)` is a pure function, so that a machine
that nobody here owns can be described and advised too.
"""

from dataclasses import asdict, dataclass

from gpulab_utils.doctor import gather, screen
from gpulab_utils.doctor.advice import Finding, advise
from gpulab_utils.doctor.compiler import has_compiler
from gpulab_utils.doctor.facts import Facts, Gpu, Trial

__all__ = [
    "Facts",
    "Finding",
    "Gpu",
    "Report",
    "Trial",
    "advise",
    "examine",
    "has_compiler",
]


@dataclass(frozen=True)
class Report:
    """What was found on a machine, and what to do about it; `str` is one screen."""

    facts: Facts
    findings: tuple[Finding, ...]

    def __str__(self) -> str:
        return screen.text(self.facts, self.findings)

    @property
    def broken(self) -> bool:
        """Whether labs cannot run here as it is."""
        return any(f.level == "broken" for f in self.findings)

    def as_dict(self) -> dict:
        """The report as JSON can hold it; bytes, watts, seconds."""
        return asdict(self)


def examine() -> Report:
    """Look at this machine: a few seconds, most of them importing torch.

    >>> examine().facts.threads >= 1
    True
    """
    facts = gather.gather()
    return Report(facts, tuple(advise(facts)))
