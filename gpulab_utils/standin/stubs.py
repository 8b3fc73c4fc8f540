"""What no CPU can run: one table of named stubs, each with its reason.

A stub keeps a lab going; it proves nothing. Lines that called one are told to the file
that `GPULAB_STUBS` names, so that the coverage of the GPU branches does not count them.
"""


def replace() -> None:
    pass
