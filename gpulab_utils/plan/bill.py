"""The bill of a `Setting`: what is there all the time, and the moments that could be the
peak.
"""

from dataclasses import dataclass, replace

from gpulab_utils.plan.ops import Ops
from gpulab_utils.plan.phases import generate_step, prefill, train_step
from gpulab_utils.plan.pool import rounding
from gpulab_utils.plan.setting import Setting
from gpulab_utils.plan.tape import ACT, GRADS, KV, LOGITS, SCRATCH
from gpulab_utils.units import BYTES

#: aten/src/ATen/cuda/CublasHandlePool.cpp: (4096 x 2 + 16 x 8) KiB a handle, 32 MiB on
#: Hopper. Autograd's thread has a handle of its own.
CUBLAS = 8_519_680


CUBLAS_HOPPER = 32 << 20


def weight_bytes(s: Setting) -> dict[str, float]:
    """Base weights by part, adapters apart."""
    parts = s.fmt.model_bytes(s.shape)
    table = s.shape.vocab * s.shape.hidden
    if s.untied and not parts["head"]:
        parts["head"] = table * BYTES.get(s.fmt.rest, 2)
    if s.head_packed and parts["head"]:
        parts["head"] = s.fmt.tensor_bytes(s.shape.vocab, s.shape.hidden)
    if s.upcast:
        for name in ("embedding", "head", "small"):
            parts[name] *= 4 / BYTES.get(s.fmt.rest, 2)
    if s.host_layers:
        parts["linears"] *= 1 - s.host_layers / s.shape.layers
    parts["small"] += s.more_params * BYTES.get(s.fmt.rest, 2)
    if "embedding_on_host" in s.flags:
        parts["embedding"] = 0
    return parts


def trained(s: Setting) -> int:
    """How many numbers the optimizer updates."""
    if s.mode == "full_train":
        return s.shape.params + (s.shape.vocab * s.shape.hidden if s.untied else 0)
    if s.adapter is None:
        return 0
    if s.adapter.count:
        return s.adapter.count
    total = 0
    for name, rows, columns in s.adapter.linears(s.shape):
        if name in s.adapter.targets:
            total += s.adapter.rank * (rows + columns)
    return total * s.shape.layers


def largest(s: Setting) -> int:
    """Numbers in the largest parameter that trains; an adapter's are few."""
    if s.adapter:
        return 0
    linears = (rows * columns for _, rows, columns, _ in s.shape.linears)
    return max(s.shape.vocab * s.shape.hidden, *linears)


def trained_width(s: Setting) -> int:
    return s.adapter.width if s.adapter else s.width


def peaks(s: Setting, symbols: tuple | None = None) -> list[tuple[str, tuple]]:
    """(phase, bytes alive by category) of every moment that could be the peak."""
    found: list[tuple[str, tuple]] = []
    if s.dialect == "llama.cpp":
        return llama_cpp(s)
    if s.mode == "inference":
        t = Ops(sums_in_place=s.gpu)
        run = s.run(t, *(symbols or ()))
        if s.cache:
            run.kv = []
        t.autocast = s.autocast
        prefill(run, run.tokens if s.rows == "all" else run.batch)
        found += [("prefill", p) for p in t.peaks]
        if s.seq > s.forward and not symbols:
            t = Ops(sums_in_place=s.gpu)
            last = replace(s, prefill=1).run(t)
            last.past, last.kv = s.seq - 1, []
            generate_step(last)
            found += [("decode", p) for p in t.peaks]
        return found
    t = Ops(sums_in_place=s.gpu)
    train_step(s.run(t, *(symbols or ())), s.checkpoint, s.autocast)
    if t.stale and "again" in s.flags:
        old, t.stale = t.stale, []
        train_step(s.run(t), s.checkpoint, s.autocast)
        del old
    return [("step", p) for p in t.peaks]


def llama_cpp(s: Setting) -> list[tuple[str, tuple]]:
    """llama.cpp's own buffers: KV cache, and a compute buffer for 512 positions in fp32.

    The buffer is as large as the worst graph: logits of all 512, or the unfused scores of
    one layer and half a dozen hidden states. Source: llama-context.cpp, graph_reserve.
    """
    shape, tokens = s.shape, s.batch * min(512, max(1, s.forward))
    scores = 0 if s.fused else shape.heads * tokens * s.seq * 4
    layer, logits = scores + 6 * tokens * shape.hidden * 4, tokens * shape.vocab * 4
    kv = int(s.batch * shape.kv_bytes(s.cache_tokens or s.seq) * s.cache_width / 2)
    act, out = (layer, 0) if layer >= logits else (0, logits)
    return [("prefill", (act, out, 0, kv, 0))]


@dataclass(frozen=True)
class Bill:
    """Terms of the peak, and which phase it belongs to."""

    terms: dict[str, int]
    phase: str

    @property
    def allocated(self) -> int:
        return sum(self.terms.values())


def bill(s: Setting) -> Bill:
    """Static bytes and the worst moment."""
    parts = weight_bytes(s)
    n, width = trained(s), trained_width(s)
    adapters = n * width if s.adapter else 0
    opt = s.optimizer
    states = 0 if opt.on_host or s.mode == "inference" else n * opt.state_bytes
    phase, alive = max(moments(s, n, width), key=lambda x: sum(x[1]))
    terms = {
        "weights": round(sum(parts.values())) + adapters,
        "kv_cache": alive[KV],
        "activations": alive[ACT],
        "logits": alive[LOGITS],
        "gradients": alive[GRADS],
        "optimizer": round(states + n * opt.master_bytes),
        "workspace": alive[SCRATCH] + workspace(s),
    }
    return Bill({k: int(v) for k, v in terms.items()}, phase)


def moments(s: Setting, n: int, width: int, symbols: tuple | None = None) -> list:
    """(phase, bytes by category) of each candidate for the peak, beside what always is
    there.

    `symbols` are packed polynomials for batch and length; all counts are then polynomials.
    """
    found = [("load", (0, 0, 0, 0, loading(s)))]
    for phase, (act, logits, grads, kv, scratch) in peaks(s, symbols):
        left = n * width if s.accumulates else grads
        if s.adapter and s.adapter.compute and not s.accumulates:
            left = grads * s.adapter.width // s.adapter.compute
        found.append((phase, (act, logits, left, kv, scratch)))
    opt = s.optimizer
    if s.mode != "inference" and not opt.in_backward:
        copies = max(n * opt.copy_bytes, largest(s) * opt.loop_copies * opt.loop_width)
        found.append(("optimizer", (0, 0, n * width, 0, copies)))
    return found


def loading(s: Setting) -> int:
    """What is alive beside all weights when loading ends.

    AutoAWQ's fuser holds the old q, k, v of every layer while their joined copies exist.
    bitsandbytes quantizes on the card: a 16-bit copy of the largest weight, for int8 its
    transpose too (double_quant).
    """
    shape, fmt = s.shape, s.fmt
    if "fused_layers" in s.flags and shape.gated:
        parts = shape.attention_linears[:3]
        return int(shape.layers * sum(fmt.tensor_bytes(r, c) for _, r, c in parts))
    most = max(r * c for _, r, c, _ in shape.linears)
    if s.head_packed:
        most = max(most, shape.vocab * shape.hidden)
    return {"llm-int8": 3, "nf4": 2, "fp4": 2}.get(fmt.name[:8].split("-dq")[0], 0) * most


def workspace(s: Setting) -> int:
    """cuBLAS, and weights that fill whole blocks of the allocator."""
    if not s.gpu or s.dialect == "llama.cpp":
        return 0
    each = CUBLAS_HOPPER if s.hopper else CUBLAS
    return each * (1 if s.mode == "inference" else 2) + rounding(s.fmt, s.shape)
