"""`python -m gpulab_utils.loops cnn` chooses the rates of a ladder as `rates` says.

Minutes of work: for the batches that were thought of for the ladder it prints a table, one
row a rate, with all changes but the compile. Nothing is written.
"""

import argparse

from gpulab_utils import loops

# Task, batches, grid, samples, held-out items that are scored.
ASKED = {
    "cnn": (loops.CNN, (4, 32, 80, 160), loops.doublings(0.001, -1, 7), 8000, None),
    "gpt": (loops.GPT, (8, 16), loops.doublings(0.001, -3, 2), 400, 96),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m gpulab_utils.loops")
    parser.add_argument("task", choices=ASKED)
    parser.add_argument("--batch", type=int, nargs="*", help="only for these")
    asked = parser.parse_args()
    task, batches, grid, samples, items = ASKED[asked.task]
    for batch in asked.batch or batches:
        rung = loops.ladder(task, batch, compiles=False)[-1]
        found = loops.choose_rate(task, rung, grid, samples=samples, items=items)
        print(
            f"{task.name}, batch {batch}: {found.rate:g}", "(at the edge)" * found.at_edge
        )
        for rate, loss in found.losses.items():
            print(f"  {rate:<8g} loss {loss:.4f} accuracy {found.accuracy(rate):.4f}")


if __name__ == "__main__":
    main()
