"""What every figure shares. Figures need two packages that the programs themselves do not."""

import sys

try:
    import h5py  # noqa: F401
    import matplotlib  # noqa: F401
except ImportError as missing:
    print("figures need %s: make deps (python3-matplotlib, python3-h5py)" % missing.name)
    sys.exit(2)
