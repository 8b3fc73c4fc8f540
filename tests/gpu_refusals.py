"""What the package refuses or answers on a GPU alone; `gpu_branches.py` runs it there."""

import os

from gpulab_utils import device, memory, real13b
from gpulab_utils.units import GIB

import pytest

if __name__ == "__main__":
    assert device.here().is_gpu
    with pytest.raises(ValueError, match=r"a cap of 13.0 GiB on 12.0 GiB"):  # noqa: SIM117
        with memory.cap(13 * GIB):
            pass
    os.environ |= {real13b.FLAG: "1", "HF_HUB_OFFLINE": "1"}
    with pytest.raises(RuntimeError, match="unset HF_HUB_OFFLINE"):
        real13b.asked()
    del os.environ["HF_HUB_OFFLINE"]
    assert real13b.asked()
