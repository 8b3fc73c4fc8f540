"""Will it fit? The bytes of a model at work, term by term, by arithmetic alone.

Nothing here imports torch or reads a measurement. All sizes are bytes.
"""

import sys
import types

from gpulab_utils.plan.advice import cheapest_change
from gpulab_utils.plan.decode import Decode, decode, prefill_s
from gpulab_utils.plan.formats import Format, format_of
from gpulab_utils.plan.planner import MODES, Plan, coefficients, plan

__all__ = [
    "MODES",
    "Decode",
    "Format",
    "Plan",
    "cheapest_change",
    "coefficients",
    "decode",
    "format_of",
    "plan",
    "prefill_s",
]


class _Callable(types.ModuleType):
    """`gpulab_utils.plan` names the function too: the package must not hide it."""

    def __call__(self, *args, **options) -> Plan:
        return plan(*args, **options)


sys.modules[__name__].__class__ = _Callable
