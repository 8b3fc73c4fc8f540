"""`python -m gpulab_utils`: the tables, the planner, the doctor and the recorder, by name.

Exit status 0; 1 where the doctor or the recorder found something broken; 2 for a wrong
question, with one line on stderr that names it and the way out.
"""

import argparse
import os
import sys

from gpulab_utils import listing
from gpulab_utils.tables import UnknownName

_EXAMPLES = """\
examples:
  python -m gpulab_utils doctor              what is here, and the fix for what is missing
  python -m gpulab_utils cards               every card; cards rtx-3080-ti for one
  python -m gpulab_utils record 18 02        run two labs and keep what they measure
"""


def main(argv: list[str] | None = None) -> int:
    """Run one command; the exit status.

    >>> main(["cards", "rtx-9999"])
    2
    """
    args = parser().parse_args(argv)
    try:
        return args.run(args) or 0
    except BrokenPipeError:  # `… | head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (UnknownName, ValueError, OSError, RuntimeError) as error:
        print(f"gpulab: {error}", file=sys.stderr)
        return 2


def parser() -> argparse.ArgumentParser:
    """Every command and its options; a command sets `run`, called with the arguments."""
    top = argparse.ArgumentParser(
        prog="python -m gpulab_utils",
        description="Large models on the card you have: tables, planner, doctor, recorder.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    doctor = _add(commands, "doctor", _doctor, "what is here, what is missing, the fix")
    doctor.add_argument("--json", action="store_true", help="everything, machine-readable")
    _lists(commands, "cards", listing.cards, "cards: memory, bandwidth, rates, sources")
    _add_plan(commands)
    if "models" not in commands.choices:
        _lists(
            commands,
            "models",
            listing.models,
            "model shapes: parameters, KV bytes",
        )
    _lists(
        commands,
        "claims",
        listing.claims,
        "the articles' claims, the verdicts",
    )
    record = _add(commands, "record", _record, "run labs and keep what they measure")
    record.add_argument("names", nargs="*", metavar="NAME", help="18 or 18_run_13b; all")
    record.add_argument("--seconds", type=float, default=600, help="limit a lab (600)")
    record.add_argument(
        "--rehearse",
        action="store_true",
        help="tiny, on the GPU stand-in, writing nothing: does every lab run?",
    )
    return top


def _add(commands, name: str, run, about: str) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=about, description=f"{name}: {about}.")
    command.set_defaults(run=run)
    return command


def _lists(commands, name: str, run, about: str) -> None:
    command = _add(commands, name, run, about)
    command.add_argument("name", nargs="?", metavar="NAME", help="one of them, in full")
    command.add_argument("--json", action="store_true", help="machine-readable")


def _add_plan(commands) -> None:
    """The planner's own commands, which live with it."""
    try:
        from gpulab_utils.plan.commands import add_commands
    except ModuleNotFoundError as error:
        if error.name != "gpulab_utils.plan.commands":
            raise
        return
    add_commands(commands)


def _doctor(args) -> int:
    from gpulab_utils import doctor

    report = doctor.examine()
    print(listing.as_json(report.as_dict()) if args.json else report)
    return int(report.broken)


def _record(args) -> int:
    from gpulab_utils import recorder

    return recorder.record(args.names, limit_s=args.seconds, rehearse=args.rehearse)
