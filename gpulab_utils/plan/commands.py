"""`python -m gpulab_utils models | plan | validate`."""

import argparse
import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

from gpulab_utils.cards import CARDS
from gpulab_utils.models import MODELS, Shape, shape_from_config
from gpulab_utils.plan import MODES, Plan, cheapest_change, decode, plan
from gpulab_utils.plan.options import ALLOWED, OFFLOADS, OPTIMIZERS
from gpulab_utils.plan.validate import validate
from gpulab_utils.units import GIB

TRAINING = ("checkpointing", "accumulation", "optimizer", "in_backward", "offload", "amp")
TRAINING += ("device",)
SHAPE_FLAGS = ("hidden", "layers", "heads", "kv_heads", "head_dim", "intermediate", "vocab")


def add_commands(subparsers) -> None:
    """Register the planner's commands; each sets `run`."""
    models = _add(subparsers, "models", show_models, "model shapes: parameters, KV bytes")
    models.add_argument("names", nargs="*", metavar="NAME", help="some of them; all")
    _add_plan(subparsers)
    check = _add(
        subparsers, "validate", show_validation, "predict the rows of a JSONL file"
    )
    check.add_argument("rows", metavar="ROWS.jsonl", help="in the format of published/")


def _add(subparsers, name: str, run, about: str) -> argparse.ArgumentParser:
    command = subparsers.add_parser(name, help=about, description=f"{name}: {about}.")
    command.add_argument("--json", action="store_true", help="machine-readable")
    command.set_defaults(run=run)
    return command


def _add_plan(subparsers) -> None:
    p = _add(subparsers, "plan", show_plan, "will it fit, and how fast can it be?")
    p.add_argument("model", nargs="?", help="a name, or a path to a config.json")
    p.add_argument("--mode", default="inference", choices=MODES, help="(inference)")
    p.add_argument("--weights", default="bf16", help="bf16, int8, nf4, int4-g128, … (bf16)")
    p.add_argument("--batch", type=int, default=1, help="sequences at once (1)")
    p.add_argument("--seq", type=int, default=2048, help="tokens of each sequence (2048)")
    p.add_argument("--card", action="append", help="a card's id; again for more")
    p.add_argument("--headless", action="store_true", help="no desktop on the card")
    _add_training(p)
    p.add_argument("--eager", action="store_true", help="attention as tensors")
    for flag in SHAPE_FLAGS:
        p.add_argument("--" + flag.replace("_", "-"), type=int, help="of a free shape")


def _add_training(p: argparse.ArgumentParser) -> None:
    """How a step trains; without a flag the planner's own default stands."""
    add = partial(p.add_argument, default=argparse.SUPPRESS)
    add("--checkpointing", type=int, nargs="?", const=1, metavar="LAYERS",
        help="recompute activations, in segments of LAYERS (1)")  # fmt: skip
    add("--accumulation", type=int, metavar="N", help="micro-batches a step (1)")
    add("--optimizer", metavar="NAME", help=f"{', '.join(OPTIMIZERS)}, adamw8bit (adamw)")
    add("--in-backward", action="store_true", help="step each parameter in backward")
    add("--offload", choices=OFFLOADS, help="what waits in host memory")
    add("--amp", action="store_true", help="16-bit products of fp32 weights")
    add("--device", choices=ALLOWED["device"], help="cpu: no block rounding (gpu)")


def show_models(args) -> int:
    """One line a model, or JSON."""
    shapes = [MODELS[name] for name in args.names or MODELS]
    rows = [
        {"name": s.name, "params": s.params, "layers": s.layers, "hidden": s.hidden,
         "kv_bytes_per_token": s.kv_bytes_per_token(), "source": s.source}
        for s in shapes
    ]  # fmt: skip
    if args.json:
        print(json.dumps(rows, indent=1))
        return 0
    print(f"{'model':20} {'params':>16} {'layers':>6} {'hidden':>6} {'KV B/token':>10}")
    for r in rows:
        print(
            f"{r['name']:20} {r['params']:16,} {r['layers']:6} {r['hidden']:6} "
            f"{r['kv_bytes_per_token']:10,}"
        )
        if args.names:
            print(f"  source: {r['source']}")
    return 0


def shape_from(args) -> Shape:
    """A name, a config.json, or free shape flags."""
    flags = {k: getattr(args, k) for k in SHAPE_FLAGS if getattr(args, k)}
    if args.model and args.model.endswith(".json"):
        return shape_from_config(json.loads(Path(args.model).read_text()), args.model)
    if args.model:
        return replace(MODELS[args.model], **flags)
    missing = {"hidden", "layers", "heads", "vocab"} - set(flags)
    if missing:
        raise ValueError(
            f"give a model, or the shape: missing {', '.join(sorted(missing))}"
        )
    flags.setdefault("kv_heads", flags["heads"])
    flags.setdefault("head_dim", flags["hidden"] // flags["heads"])
    flags.setdefault("intermediate", 4 * flags["hidden"])
    return Shape(name="free shape", **flags)


def show_plan(args) -> int:
    """The bill term by term, and a verdict per card."""
    shape = shape_from(args)
    options = {name: value for name, value in vars(args).items() if name in TRAINING}
    options["attention"] = "eager" if args.eager else "fused"
    p = plan(shape, args.mode, args.weights, args.batch, args.seq, **options)
    names = args.card or ["rtx-3080-ti", "rtx-4090", "a100-pcie-80gb"]
    cards = [CARDS[n] for n in names if p.setting.gpu]
    verdicts = [_verdict(p, card, not args.headless) for card in cards]
    if args.json:
        print(json.dumps({**p.as_dict(), "cards": verdicts}, indent=1))
        return 0
    print(f"{shape.name}, {p.mode}, {p.weights}, batch {p.batch}, {p.seq} tokens\n")
    for name, n_bytes in p.terms.items():
        print(f"  {name:14} {n_bytes / GIB:9.3f} GiB")
    sums = {"allocated": p.allocated} | ({"with context": p.card} if cards else {})
    for name, n_bytes in sums.items():
        print(f"  {name:14} {n_bytes / GIB:9.3f} GiB")
    for way, n_bytes in p.road.items():
        if n_bytes:
            print(f"  {way.replace('_', ' '):14} {n_bytes / GIB:9.3f} GiB a step")
    print()
    for v in verdicts:
        print(f"  {v['card']:16} {v['verdict']}")
    return 0


def _verdict(p: Plan, card, desktop: bool) -> dict:
    fits = p.fits(card, desktop)
    out = {"card": card.id, "fits": fits, "usable_gib": card.usable_bytes(desktop) / GIB}
    text = f"{'fits' if fits else 'does not fit'} in {out['usable_gib']:.2f} GiB"
    if not fits:
        change = cheapest_change(p, card, desktop)
        out["change"] = change
        text += (
            f"; cheapest change: {change}" if change else "; no change here makes it fit"
        )
    if p.mode == "inference":
        d = decode(p.shape, card, p.weights, p.seq, batch=p.batch)
        out |= {"bound_tokens_per_s": d.bound_tokens_per_s, "tokens_per_s": d.tokens_per_s}
        text += (
            f"; at best {d.bound_tokens_per_s:.0f}, expect {d.tokens_per_s:.0f} tokens/s"
        )
    return out | {"verdict": text}


def show_validation(args) -> int:
    """Predictions for every row, as JSON or a line each."""
    result = validate(args.rows)
    if args.json:
        json.dump(result, sys.stdout)
        print()
        return 0
    for row in result["rows"]:
        figures = {
            k: v for k, v in row.items() if k.startswith(("predicted", "bound", "skip"))
        }
        told = ", ".join(f"{k} {v:.3f}" if isinstance(v, float) else f"{k} {v}"
                         for k, v in figures.items())  # fmt: skip
        print(f"{row['id'][:48]:48} {told}")
    print(result["summary"])
    return 0
