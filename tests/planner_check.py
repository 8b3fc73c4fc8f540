"""`make planner-check`: many random shapes a mode, and a summary with date and versions.

python tests/planner_check.py [SHAPES a mode, 200] [summary.json]
"""

import datetime
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from gpulab_utils.progress import progress

import bitsandbytes
import fake_specs
import torch
import transformers
from fake_check import LIMITS, predicted, summary
from fake_models import peak_bytes


def main(shapes: int = 200, target: str = "") -> int:
    transformers.logging.set_verbosity_error()
    found = {}
    for mode in fake_specs.MODES:
        errors = {}
        for seed in progress(range(1000, 1000 + shapes), mode):
            spec = fake_specs.spec(mode, seed, deep=True)
            errors[seed] = predicted(spec) / peak_bytes(spec) - 1
        found[mode] = summary(list(errors.values())) | {"shapes": shapes}
        worst = max(errors, key=lambda seed: abs(errors[seed]))
        told = {k: round(v, 5) for k, v in found[mode].items()}
        print(mode, told, f"worst: seed {worst}, {errors[worst]:+.2%}", flush=True)
    versions = {m.__name__: m.__version__ for m in (torch, transformers, bitsandbytes)}
    text = json.dumps({"date": str(datetime.date.today()), "versions": versions, **found})
    if target:
        Path(target).write_text(text + "\n")
    return int(any(found[m][k] > LIMITS[k] for m in found for k in LIMITS))


if __name__ == "__main__":
    sys.exit(main(*(int(a) if a.isdigit() else a for a in sys.argv[1:])))
