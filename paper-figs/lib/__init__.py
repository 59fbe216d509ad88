"""What every figure shares. Figures need two packages that the programs themselves do not."""

import os
import sys
import warnings

# Before numpy is loaded: its logarithms for AVX-512 differ from those of other x86 processors in the
# last bit, and so can a coordinate on a logarithmic axis. Figures are the same bytes on all.
os.environ.setdefault("NPY_DISABLE_CPU_FEATURES", " ".join(
    "AVX512" + name for name in ("F", "CD", "_KNL", "_KNM", "_SKX", "_CLX", "_CNL", "_ICL", "_SPR")))
warnings.filterwarnings("ignore", ".*NPY_DISABLE_CPU_FEATURES")  # some that this numpy does not know

try:
    import h5py  # noqa: F401
    import matplotlib  # noqa: F401
except ImportError as missing:
    print("figures need %s: make deps (python3-matplotlib, python3-h5py)" % missing.name)
    sys.exit(2)
