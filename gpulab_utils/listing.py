"""What the command line prints of a table: one entry in full, all in columns, or JSON."""

import json
from dataclasses import asdict

from gpulab_utils.cards import CARDS, Card
from gpulab_utils.units import GIB, gib


def cards(args) -> int:
    def about(card: Card) -> dict:
        usable = {"desktop": card.usable_bytes(), "headless": card.usable_bytes(False)}
        return {**card.row, "usable_bytes": usable}

    def columns(card: Card) -> dict:
        fp16 = card.flop_per_s.get("fp16")
        return {
            "card": card.id,
            "GiB": f"{card.mem_bytes / GIB:.0f}",
            "usable": f"{gib(card.usable_bytes()):.2f}",
            "GB/s": f"{card.mem_bytes_per_s / 1e9:.0f}",
            "TFLOP/s fp16": f"{fp16 / 1e12:.0f}" if fp16 else "-",
            "chip": ".".join(map(str, card.compute_capability or ()))
            or card.row["gfx_target"],
            "W": card.tdp_w,
            "from": card.launch_date[:4],
        }

    if args.name and not args.json:
        print(_card_text(CARDS[args.name]))
        return 0
    return _show(CARDS, args, about, columns)


def _card_text(card: Card) -> str:
    """One card in full: memory, what is left of it, rates, and who says so."""
    usable, headless = gib(card.usable_bytes()), gib(card.usable_bytes(desktop=False))
    capability = ".".join(map(str, card.compute_capability or ())) or card.row["gfx_target"]
    rates = ", ".join(f"{k} {v / 1e12:.1f}" for k, v in card.flop_per_s.items())
    lines = [
        f"{card.name} ({card.vendor} {card.architecture}, {capability or 'no target'})",
        f"memory     {gib(card.mem_bytes):.2f} GiB {card.mem_type}, {card.bus_bits} bit",
        f"usable     {usable:.2f} GiB beside a desktop, {headless:.2f} GiB headless",
        f"bandwidth  {card.mem_bytes_per_s / 1e9:.0f} GB/s",
        f"TFLOP/s    {rates} (dense; fp32 accumulates unless it says otherwise)",
        f"slot       PCIe {card.pcie_gen} x{card.pcie_lanes}, {card.tdp_w} W",
        f"launched   {card.launch_date}"
        + (f", {card.msrp_usd} USD" if card.msrp_usd else ", no list price"),
        f"trust      {card.confidence}",
        *(f"note       {note}" for note in card.row.get("notes", [])),
        *(f"source     {source['address']}" for source in card.row["sources"]),
    ]
    return "\n".join(lines)


def models(args) -> int:
    from gpulab_utils.models import MODELS

    def columns(shape) -> dict:
        return {
            "model": shape.name,
            "parameters": f"{shape.params:,}",
            "layers": shape.layers,
            "hidden": shape.hidden,
            "KV bytes/token": f"{shape.kv_bytes_per_token():,}",
        }

    return _show(MODELS, args, asdict, columns)


def claims(args) -> int:
    from gpulab_utils.claims import CLAIMS

    def columns(claim) -> dict:
        return {"claim": claim.id, "verdict": claim.verdict, "chapter": claim.chapter}

    return _show(CLAIMS, args, asdict, columns)


def _show(table, args, about, columns) -> int:
    """One entry in full, or all of them: as JSON or as columns."""
    if args.name:
        entry = about(table[args.name])
        print(as_json(entry) if args.json else _fields(entry))
    elif args.json:
        print(as_json([about(entry) for entry in table.values()]))
    else:
        print(_columns([columns(entry) for entry in table.values()]))
    return 0


def _fields(entry: dict) -> str:
    told = {k: v for k, v in entry.items() if v not in (None, "", [], {})}
    width = max(map(len, told))
    return "\n".join(f"{name:<{width}}  {value}" for name, value in told.items())


def _columns(rows: list[dict]) -> str:
    """Aligned columns: words to the left, numbers to the right."""
    cells = [list(rows[0]), *([str(v or "-") for v in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    right = [all(map(_is_number, column)) for column in zip(*cells[1:], strict=True)]
    sides = [">" if r else "<" for r in right]
    lines = [
        "  ".join(f"{c:{side}{w}}" for c, side, w in zip(row, sides, widths, strict=True))
        for row in cells
    ]
    return "\n".join(line.rstrip() for line in lines)


def _is_number(cell: str) -> bool:
    return cell == "-" or cell.replace(",", "").replace(".", "").isdigit()


def as_json(value: object) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False)
