"""What do few bits give, and take? Formats and their errors, matrix units, mixed precision.

`formats` rounds to any format and predicts the error of a product, `hardware` finds what
multiplies matrices here and switches it off, `mixed` counts what autocast does to a step.
"""

from gpulab_utils.numerics.formats import FORMATS, expected_error, rounded, scaled
from gpulab_utils.numerics.hardware import gains, tf32, unit, without_unit
from gpulab_utils.numerics.mixed import (
    autocast,
    backward_values,
    largest,
    lenet,
    products,
    saved_bytes,
    scaler,
    state_bytes,
)

__all__ = ["FORMATS", "expected_error", "rounded", "scaled"]
__all__ += ["autocast", "backward_values", "largest", "lenet", "products"]
__all__ += ["saved_bytes", "scaler", "state_bytes"]
__all__ += ["gains", "tf32", "unit", "without_unit"]
