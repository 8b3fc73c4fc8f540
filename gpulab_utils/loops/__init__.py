"""Training in a loop: one that can be stopped and resumed, scores, a ladder of speed."""

from gpulab_utils.loops.ends import Apart, apart, ends, peak_bytes, scored, some
from gpulab_utils.loops.rates import Choice, choose_rate, doublings, held_out
from gpulab_utils.loops.run import Run
from gpulab_utils.loops.rungs import CNN, GPT, Logits, Rung, Task, as_printed, ladder
from gpulab_utils.loops.scores import Score, evaluate
from gpulab_utils.loops.training import Diverged, fit, load, order, save
from gpulab_utils.loops.turns import TEXT, Turns, parts, rows, turns

__all__ = ["CNN", "GPT", "Apart", "Choice", "Diverged", "Logits", "Run", "Rung", "Score"]
__all__ += ["TEXT", "Task", "Turns", "apart", "as_printed", "choose_rate", "doublings"]
__all__ += ["ends", "evaluate", "fit", "held_out", "ladder", "load", "order", "parts"]
__all__ += ["peak_bytes", "rows", "save", "scored", "some", "turns"]
