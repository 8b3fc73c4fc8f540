"""`python -m gpulab_utils`."""

import sys

from gpulab_utils.cli import main

sys.exit(main())
