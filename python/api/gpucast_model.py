"""`gpucast model` starts this file: its folder comes first on the path, so the package of the command itself is used."""

import sys

from gpucast.model.main import main

sys.exit(main(sys.argv[1:]))
