"""A rank with several jobs, one after the other: a launch takes seconds, so share it.

Asked: by job what it wants, in the order in which they run. Told: by job what it found.
"""

import warnings

from gpulab_utils.workers import joined, reshard, sharded_steps, tell, tensor_parallel

JOBS = {
    "train": sharded_steps.trained,
    "clock": sharded_steps.clocked,
    "split": tensor_parallel.compared,
    "carry": reshard.carried,
}

if __name__ == "__main__":
    warnings.filterwarnings("ignore", "FSDP2-wrapped module")  # of views changed in place
    with joined() as (ask, place):
        tell({job: JOBS[job](ask[job], place) for job in ask})
