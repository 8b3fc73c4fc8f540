"""`python -m gpulab_utils.loops cnn` chooses the rates of a ladder as `rates` says.

Minutes of work: it prints a table, one row a rate, for the rungs with the batches that the
ladder has. Nothing is written.
"""

import argparse
from dataclasses import replace

from gpulab_utils import loops

# Task, batches, grid about the base's rate, samples, held-out items that are scored.
ASKED = {
    "cnn": (loops.CNN, (4, 32, 80, 160), (-1, 7), 8000, None),
    "gpt": (loops.GPT, (8, 16), (-2, 2), 400, 96),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m gpulab_utils.loops")
    parser.add_argument("task", choices=ASKED)
    parser.add_argument("--batch", type=int, nargs="*", help="only for these")
    asked = parser.parse_args()
    task, batches, powers, samples, items = ASKED[asked.task]
    grid = loops.doublings(task.base.lr, *powers)
    for batch in asked.batch or batches:
        at = {"batch": batch, "lr": task.base.lr}
        plain = batch == task.base.batch  # the base is chosen for as it is
        rung = task.base if plain else replace(loops.ladder(task, compiles=False)[-1], **at)
        found = loops.choose_rate(task, rung, grid, samples=samples, items=items)
        print(
            f"{task.name}, batch {batch}: {found.rate:g}", "(at the edge)" * found.at_edge
        )
        for rate, loss in found.losses.items():
            print(f"  {rate:<8g} loss {loss:.4f} accuracy {found.accuracy(rate):.4f}")


if __name__ == "__main__":
    main()
