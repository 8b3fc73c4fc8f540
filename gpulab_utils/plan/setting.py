"""Everything that decides the bill of one run, in one place."""

from dataclasses import dataclass, field

from gpulab_utils.models import Shape
from gpulab_utils.plan.formats import Format
from gpulab_utils.plan.ops import Ops
from gpulab_utils.plan.run import Adapter, Run


@dataclass(frozen=True)
class Optimizer:
    """`state_bytes` per trained number; `copy_bytes` more per number during the step."""

    name: str = "adamw"
    state_bytes: float = 8
    copy_bytes: float = 0
    master_bytes: int = 0
    loop_copies: int = 0  # of one parameter at a time, `loop_width` bytes a number
    loop_width: int = 4
    in_backward: bool = False
    on_host: bool = False

    @property
    def one_parameter(self) -> int:
        """Bytes more per number while one parameter is stepped by itself."""
        return max(self.copy_bytes, self.loop_copies * self.loop_width)


@dataclass(frozen=True)
class Setting:
    """`seq` is the whole length; `prefill` the longest single forward. Widths are bytes."""

    shape: Shape
    mode: str
    fmt: Format
    batch: int = 1
    seq: int = 2048
    prefill: int | None = None
    width: int = 2
    rows: str = "all"
    wide_logits: bool = False  # the model hands on fp32
    loss: str = "whole"
    cache: str | None = None  # grown, preallocated, paged
    cache_width: float = 2
    cache_tokens: int | None = None
    fused: bool = True
    checkpoint: int = 0  # layers a segment, 0 where nothing is recomputed
    autocast: int = 0
    adapter: Adapter | None = None
    optimizer: Optimizer = Optimizer()
    packed: int = 0
    dialect: str = "hf"
    gpu: bool = True
    hopper: bool = False
    untied: bool = False  # the framework keeps a head of its own
    head_packed: bool = False
    host_layers: int = 0
    accumulates: bool = False  # gradients of earlier micro-batches are there
    micro_batches: int = 1
    flags: frozenset = frozenset()
    extra: dict = field(default_factory=dict, compare=False)
    upcast: bool = False  # peft's prepare_model_for_kbit_training: the rest in fp32
    more_params: int = 0  # what a source counts beyond the shape: positions, biases

    @property
    def forward(self) -> int:
        """Tokens of the longest forward."""
        return self.seq if self.prefill is None else self.prefill

    def run(self, tape: Ops, batch: int | None = None, seq: int | None = None) -> Run:
        """The layers' view; packed polynomials may stand for batch and length."""
        s, n = self.shape, self.forward
        masked = bool(s.window_layers and s.window and n >= s.window)
        return Run(
            tape=tape,
            shape=s,
            batch=self.batch if batch is None else batch,
            seq=n if seq is None else seq,
            many=self.batch > 1,
            width=self.width,
            train=self.mode == "full_train",
            adapter=self.adapter,
            packed=self.packed,
            fused=self.fused,
            masked=masked and self.fused,
            setting=self,
            dialect=self.dialect,
            compiled="compile" in self.flags or self.dialect == "unsloth",
            expands=self.dialect == "torchtune",
            offloads="activation_offload" in self.flags,
        )
