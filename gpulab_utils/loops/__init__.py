"""Training in a loop: one that can be stopped and resumed, scores, a ladder of speed."""

from gpulab_utils.loops.run import Run
from gpulab_utils.loops.rungs import CNN, GPT, Logits, Rung, Task, as_printed, ladder
from gpulab_utils.loops.scores import Score, evaluate
from gpulab_utils.loops.training import Diverged, fit, load, order, save

__all__ = ["CNN", "GPT", "Diverged", "Logits", "Run", "Rung", "Score", "Task", "as_printed"]
__all__ += ["evaluate", "fit", "ladder", "load", "order", "save"]
