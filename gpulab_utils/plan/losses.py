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

CHUNKS = 8  # torchtune's num_output_chunks
LITGPT_CHUNK = 128  # lm_head_chunk_size of its finetuning scripts


def of(run: Run, hidden: Tensor, table: Param) -> tuple:
    """(loss, what stays named until backward is over)."""
    kind = run.setting.loss
    if run.dialect == "litgpt":
        chunk = run.batch * LITGPT_CHUNK if kind == "chunked" else 0
        return litgpt.head_and_loss(run, hidden, table, chunk)
    if kind == "fused":
        return fused(run, hidden), None
    logits = head(run, hidden, table, run.tokens)
    if kind == "chunked":
        return chunked(run, logits), None
    if kind == "shifted_copy":
        box = [logits]
        del logits
        return shifted(run, box)
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


def shifted(run: Run, box: list) -> tuple:
    """logits[..., :-1, :].contiguous(), one position shorter, cross-entropy in fp32 on the
    copy.

    Without autocast transformers made the logits fp32 first. Under it they stay in 16
    bit, and accelerate hands them on in fp32. Each of the two slices pads with zeros in
    backward.
    """
    logits = box.pop()
    t, s, n = run.tape, run.shape, logits.n
    short = n - run.batch * s.vocab
    if not run.setting.autocast:
        logits = t.cast(logits, 4)
        logits.store.move(LOGITS)
    w = logits.w
    two = t.op(Tensor(n, w, logits.store), [logits], [], lambda g: [t.new(n, w, LOGITS)])
    one = t.op(Tensor(n, w, logits.store), [two], [], lambda g: [t.new(n, w, LOGITS)])
    two = None
    copy = t.op(t.new(short, w, LOGITS), [one], [], lambda g: [g])
    one = None
    loss = whole(run, copy)
    del copy
    if w < 4:
        outputs = t.new(n, 4, LOGITS)
        del logits, outputs
    return loss, None


def chunked(run: Run, logits: Tensor) -> Tensor:
    """torchtune's CEWithChunkedOutputLoss, 8 chunks; the recipe deletes its logits.

    Compiled, a chunk keeps its 16-bit logits; eager, its fp32 log-softmax.
    """
    t, n, w = run.tape, logits.n, logits.w
    piece = n // CHUNKS
    kept = [logits.store if run.compiled else t.new(n, 4, LOGITS).store]

    def back(g):
        wide = 1 if run.compiled else 2
        held = [t.new(piece, w if run.compiled else 4, LOGITS) for _ in range(wide)]
        del held
        kept.clear()
        return [t.new(n, w, LOGITS)]

    return t.op(t.new(1, 4), [logits], [], back)


def fused(run: Run, hidden: Tensor) -> Tensor:
    """Cut cross-entropy: logits live in the kernel's tiles; only hidden is kept."""
    t, n, w = run.tape, hidden.n, hidden.w
    return t.op(t.new(1, 4), [hidden], [hidden.store], lambda g: [t.new(n, w)])
