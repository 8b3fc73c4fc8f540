"""The data of "Will it fit?": the planner's coefficients, so that the page has no formula.

A polynomial is a flat list [p, c, p, c, ...]: c bytes times the p-th of `powers`, which are
(i, j, k) of B^i S^j min(S, window)^k. Equal polynomials and equal phases are stored once.
"""

from dataclasses import replace
from functools import cache
from math import comb

from gpulab_book.calculator_choices import MODES
from gpulab_utils.cards import CARDS, Card
from gpulab_utils.models import MODELS, Shape
from gpulab_utils.plan import coefficients, decode, format_of
from gpulab_utils.plan.decode import bytes_per_step
from gpulab_utils.plan.table import TERMS

MOVING = ("activations", "logits", "gradients", "workspace")  # differ between phases


class Store:
    """Everything that the page ships, each polynomial and list of phases once."""

    def __init__(self):
        self.powers, self.polys, self.phases = {}, {}, {}

    def poly(self, monomials: list) -> int:
        flat = []
        for i, j, k, c in monomials:
            flat += [self.powers.setdefault((i, j, k), len(self.powers)), c]
        return self.polys.setdefault(tuple(flat), len(self.polys))

    def table(self, found: dict) -> list:
        """[conditions, phases, base]: `base` is what every phase has, a polynomial a
        term.
        """
        phases = undominated(found)
        base = {t: phases[0]["terms"].get(t, []) for t in TERMS if t not in MOVING}
        for term in MOVING:
            least = min(_constant(p["terms"].get(term, [])) for p in phases)
            base[term] = [[0, 0, 0, least]] if least else []
        moving = tuple(
            (p["name"], *(self._rest(p, t, base) for t in MOVING)) for p in phases
        )
        where = self.phases.setdefault(moving, len(self.phases))
        return [found["conditions"], where, [self.poly(base[t]) for t in TERMS]]

    def _rest(self, phase: dict, term: str, base: dict) -> int:
        """What the phase has of a term beyond the base."""
        given = {tuple(p): c for *p, c in phase["terms"].get(term, [])}
        if base[term]:
            given[0, 0, 0] -= _constant(base[term])
        return self.poly([[*p, c] for p, c in given.items() if c])


def _constant(monomials: list) -> int:
    return next((c for *power, c in monomials if power == [0, 0, 0]), 0)


def _moved(phase: dict, batch: int, seq: int) -> dict:
    """Coefficients of the phase's sum after B -> batch + B and S -> seq + S."""
    out: dict = {}
    for i, j, k, c in (m for t in MOVING for m in phase["terms"].get(t, [])):
        if k:
            raise ValueError("a phase depends on min(S, window): not pruned")
        for a in range(i + 1):
            for b in range(j + 1):
                here = c * comb(i, a) * batch ** (i - a) * comb(j, b) * seq ** (j - b)
                out[a, b] = out.get((a, b), 0) + here
    return out


def undominated(found: dict) -> list[dict]:
    """The phases that can be the peak from the least batch and length on.

    Left out is a phase that another exceeds everywhere: no coefficient of the difference
    is negative there and its constant is positive. So the peak and its phase stay.
    """
    when = found["conditions"]
    least = when.get("batch", [1])[0], max(1, when.get("seq", [1])[0])
    moved = [_moved(p, *least) for p in found["phases"]]

    def exceeds(a: dict, b: dict) -> bool:
        return a.get((0, 0), 0) > b.get((0, 0), 0) and all(
            a.get(p, 0) >= c for p, c in b.items()
        )

    return [
        p
        for p, mine in zip(found["phases"], moved, strict=True)
        if not any(exceeds(other, mine) for other in moved)
    ]


def tables(store: Store, name: str) -> dict[str, list]:
    """Its tables by "mode format", with "+" behind it where activations are recomputed."""
    made = {}
    for mode, recipes in MODES.items():
        for key, recipe in recipes.items():
            for again in (False, True)[: 1 + (mode != "inference")]:
                options = dict(recipe.options, checkpointing=again)
                found = coefficients(name, mode, recipe.weights, **options)
                made[f"{mode} {key}{'+' * again}"] = merged([store.table(t) for t in found])
    return made


def merged(found: list) -> list:
    """Tables that differ in their condition on the batch alone are one table."""
    made: list = []
    for when, *rest in found:
        other = {k: v for k, v in when.items() if k != "batch"}
        same = [t for t in made if t[1:] == rest and other.items() <= t[0].items()]
        if same and len(same[0][0]) == len(when):
            same[0][0] = other
        else:
            made.append([when, *rest])
    return made


def reads(store: Store, shape: Shape, weights: str) -> list:
    """[least batch, polynomial] of the weights that one step reads.

    A step of a mixture of experts meets more of them with each sequence, until it meets
    them all: a line up to there, and a line from there on.
    """
    full = -(-shape.experts // shape.experts_per_token) if shape.experts else 1
    made = []
    for start in sorted({1, full}):
        a, b, c = (bytes_per_step(shape, format_of(weights), start + n) for n in range(3))
        if start + 2 <= full or start == full:
            assert abs((c - b) - (b - a)) < 1e-6 * a, f"{shape.name}: no line in the batch"
        made.append([start, store.poly([[0, 0, 0, a - start * (b - a)], [1, 0, 0, b - a]])])
    return made


def launches(store: Store, shape: Shape) -> dict[str, int]:
    """Maker -> polynomial of the seconds of a step that no bandwidth shortens."""
    made = {}
    for vendor, card in _one_each().items():
        rate = _rates(card)[1]
        at_0, far = (decode(shape, card, context=n) for n in (0, 1 << 20))
        fixed, more = (d.estimate_s - d.bytes_read * rate for d in (at_0, far))
        looks = (more - fixed) / (1 << 20)
        made[vendor] = store.poly([[0, 0, 0, fixed], [1, 1, 0, looks]])
    return made


@cache
def _one_each() -> dict[str, Card]:
    return {card.vendor: card for card in CARDS.values()}


def _rates(card: Card) -> tuple[float, float]:
    """Seconds per byte: of the bound, and what of a step's bytes is to be expected."""
    bare = decode(replace(MODELS["llama-2-7b"], layers=0), card, context=0)
    return bare.bound_s / bare.bytes_read, bare.estimate_s / bare.bytes_read


def card_row(card: Card) -> dict:
    bound, expected = _rates(card)
    return {
        "name": card.name,
        "vendor": card.vendor,
        "usable": [card.usable_bytes(desktop=d) for d in (False, True)],
        "bytes_per_s": card.mem_bytes_per_s,
        "s_per_byte": bound,
        "expected_s_per_byte": expected,
    }


def model_row(store: Store, shape: Shape) -> dict:
    weights = {k: reads(store, shape, r.weights) for k, r in MODES["inference"].items()}
    return {
        "params": shape.params,
        "longest": shape.max_positions,
        "window": shape.window if shape.window_layers else None,
        "tables": tables(store, shape.name),
        "reads": weights,
        "launches": launches(store, shape),
    }
