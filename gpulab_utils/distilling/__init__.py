"""What does a student take over from a teacher's outputs? Logits, features, many seeds."""

from gpulab_utils.distilling.nets import Nets, accuracy, fit, interval, subsets
from gpulab_utils.distilling.stack import held, token_pass
from gpulab_utils.distilling.teachers import (
    Online,
    Stored,
    Subject,
    from_labels,
    from_teacher,
    soft_loss,
    store,
    subject,
    untrained,
)

__all__ = ["Nets", "Online", "Stored", "Subject", "accuracy", "fit", "from_labels"]
__all__ += ["from_teacher", "held", "interval", "soft_loss", "store", "subject"]
__all__ += ["subsets", "token_pass", "untrained"]
