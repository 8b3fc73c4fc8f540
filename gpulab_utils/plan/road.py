"""How much crosses between device and host in one step?"""

from gpulab_utils.plan.bill import trained, trained_width
from gpulab_utils.plan.ops import Ops
from gpulab_utils.plan.phases import train_step
from gpulab_utils.plan.setting import Setting


def road(s: Setting) -> tuple[int, int]:
    """Bytes to the host and back in one step of the optimizer.

    What autograd saved goes and comes in each micro-batch. Of the optimizer's, either the
    states come and go, or gradients go and weights come back.
    """
    if s.mode == "inference":
        return 0, 0
    t = Ops(sums_in_place=s.gpu)
    train_step(s.run(t), s.checkpoint, s.autocast)
    saved = (t.sent[0] + t.alike * t.sent[1]) * s.micro_batches
    if not s.optimizer.on_host:
        return saved, saved
    fetched = s.optimizer.loop_copies > 0
    each = s.optimizer.state_bytes if fetched else trained_width(s)
    more = round(trained(s) * each)
    return saved + more, saved + more
