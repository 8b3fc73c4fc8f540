"""The bill as coefficients: what the static page evaluates, and `plan` too.

A table holds for its `conditions`; each phase is a set of terms, each term a polynomial,
and the peak is the phase whose sum is the largest.
"""

from dataclasses import dataclass
from functools import lru_cache

from gpulab_utils.plan import poly
from gpulab_utils.plan.bill import moments, trained, trained_width, weight_bytes, workspace
from gpulab_utils.plan.setting import Setting
from gpulab_utils.units import BYTES

TERMS = (
    "weights",
    "kv_cache",
    "activations",
    "logits",
    "gradients",
    "optimizer",
    "workspace",
)


@dataclass(frozen=True)
class Table:
    """Phases by name, each {term: polynomial}; `window` is the one of min(S, window)."""

    phases: tuple[tuple[str, dict[str, poly.Poly]], ...]
    window: int | None
    conditions: dict

    def peak(self, batch: int, seq: int) -> tuple[str, dict[str, int]]:
        """The largest phase and its terms in bytes."""
        found = (
            (name, {t: poly.value(p, batch, seq, self.window) for t, p in terms.items()})
            for name, terms in self.phases
        )
        return max(found, key=lambda x: sum(x[1].values()))

    def as_dict(self) -> dict:
        """Plain lists for JSON: [i, j, k, c] a monomial."""
        phases = [
            {
                "name": n,
                "terms": {t: [[*p, c] for p, c in q.items()] for t, q in terms.items()},
            }
            for n, terms in self.phases
        ]
        return {"phases": phases, "window": self.window, "conditions": self.conditions}


def _number(n: float) -> poly.Poly:
    return {(0, 0, 0): round(n)} if n else {}


def cache_poly(s: Setting, dtype: str) -> poly.Poly:
    """Keys and values: 2 x kv_heads x head_dim x bytes for each layer and position it
    holds.
    """
    shape = s.shape
    each = int(2 * shape.kv_heads * shape.head_dim * BYTES[dtype])
    full, short = shape.layers - shape.window_layers, shape.window_layers
    parts = {(1, 1, 0): each * full, (1, 0, 1): each * short}
    return {power: c for power, c in parts.items() if c}


@lru_cache(maxsize=4096)
def table(s: Setting, kv_dtype: str = "bf16") -> Table:
    """Play `s` once with B and S as symbols; its own batch and length only set the
    conditions.
    """
    parts, n, width = weight_bytes(s), trained(s), trained_width(s)
    static = {t: {} for t in TERMS}
    static["weights"] = _number(sum(parts.values()) + (n * width if s.adapter else 0))
    if s.mode == "inference":
        static["kv_cache"] = cache_poly(s, kv_dtype)
    elif not s.optimizer.on_host:
        static["optimizer"] = _number(
            n * (s.optimizer.state_bytes + s.optimizer.master_bytes)
        )
    fixed = workspace(s)
    by_name: dict[str, list] = {}
    for name, alive in moments(s, n, width, symbols=(poly.B, poly.S)):
        by_name.setdefault(name, []).append(tuple(int(a) for a in alive))
    phases = []
    for name, found in by_name.items():
        for act, logits, grads, _, scratch in poly.undominated(found):
            moving = {"activations": act, "logits": logits, "gradients": grads}
            terms = static | {t: poly.unpack(p) for t, p in moving.items()}
            terms["workspace"] = poly.unpack(scratch + fixed)
            phases.append((name, terms))
    shape = s.shape
    seen = shape.window if shape.window_layers else None
    return Table(tuple(phases), seen, conditions(s))


def conditions(s: Setting) -> dict:
    """When this table speaks: one sequence or more, shorter than the window or not."""
    shape, many = s.shape, s.batch > 1
    found = {"batch": [2, None] if many else [1, 1]}
    if shape.window and shape.window_layers and s.fused and not shape.attn_softcap:
        reached = s.forward >= shape.window
        found["seq"] = [shape.window, None] if reached else [0, shape.window - 1]
    return found
