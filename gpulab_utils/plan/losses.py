"""From the last hidden state to one number: what each kind of loss keeps.

whole         logits of all positions, in fp32 for the loss; log-softmax is kept
shifted_copy  transformers before 4.46: fp32 logits, a shifted contiguous copy, log-softmax
chunked       LitGPT, torchtune: temporaries of one chunk at a time
fused         cut cross-entropy (Unsloth, Liger): no logits at all outside the kernel
"""

from gpulab_utils.plan import litgpt
from gpulab_utils.plan.blocks import head
from gpulab_utils.plan.run import Run
from gpulab_utils.plan.tape import LOGITS, Param, Tensor

LITGPT_CHUNK = 128  # lm_head_chunk_size of its finetuning scripts


def of(run: Run, hidden: Tensor, table: Param) -> tuple:
    """(loss, what stays named until backward is over)."""
    kind = run.setting.loss
    if run.dialect == "litgpt":
        chunk = run.batch * LITGPT_CHUNK if kind == "chunked" else 0
        return litgpt.head_and_loss(run, hidden, table, chunk)
    logits = head(run, hidden, table, run.tokens)
    if kind == "shifted_copy":
        return shifted(run, logits)
    return whole(run, logits), None


def whole(run: Run, logits: Tensor) -> Tensor:
    """ForCausalLMLoss: logits in fp32, log-softmax kept, and one number."""
    t = run.tape
    wide = t.cast(logits, 4)
    if wide is not logits:
        wide.store.move(LOGITS)
    logp = t.keep_result(wide)
    logp.store.move(LOGITS)
    n = logp.n
    back = lambda g: [t.new(n, 4, LOGITS)]  # noqa: E731
    return t.op(t.new(1, 4), [logp], [logp.store], back)


def shifted(run: Run, logits: Tensor) -> tuple:
    """logits[..., :-1, :].contiguous(); the model's output lives on in the Trainer's step."""
    t = run.tape
    wide = t.cast(logits, 4)
    if wide is not logits:
        wide.store.move(LOGITS)
    copy = t.copy(wide)
    copy.store.move(LOGITS)
    n, w = copy.n, wide.w
    copy = t.op(Tensor(n, w, copy.store), [copy], [], lambda g: [t.new(n, w, LOGITS)])
    return whole(run, copy), wide
