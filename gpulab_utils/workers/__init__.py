"""What a rank runs: scripts that `ranks.launch` starts, and what such a script needs.

A script joins the group, does what is asked, and tells what it found. It prints nothing:
the notebook that launched it does.
"""

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

GRACE_S = 5  # a rank whose launcher is gone lives this much longer than the limit


@contextmanager
def joined() -> Iterator[tuple[dict, object]]:
    """In a rank: its process group while the block runs; (what is asked, its device)."""
    import torch
    import torch.distributed as dist

    own = json.loads(sys.argv[1])
    if hasattr(signal, "alarm"):  # not on Windows
        signal.alarm(round(own["limit_s"] + GRACE_S))
    threading.Thread(target=_end_with_notebook, daemon=True).start()
    index = int(os.environ["LOCAL_RANK"]) if own["device"] != "cpu" else None
    if index is not None:
        torch.cuda.set_device(index)  # else every rank also opens the first card
    dist.init_process_group(own["backend"], timeout=timedelta(seconds=own["limit_s"]))
    yield own["ask"], torch.device(own["device"], index)
    dist.destroy_process_group()


def _end_with_notebook() -> None:
    """End this rank when the process that launched it is gone: nobody holds its input."""
    while os.read(0, 1):
        pass
    os._exit(1)


def tell(found: dict) -> None:
    """In a rank: hand over what it found; a second call replaces the first."""
    folder = Path(json.loads(sys.argv[1])["folder"])
    path = folder / f"rank{os.environ['RANK']}.json"
    part = path.with_suffix(".part")
    part.write_text(json.dumps(found))
    part.replace(path)
