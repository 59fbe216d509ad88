"""The figure of any record that has axes, for experiments without a figure of their own.
usage: sweep.py RESULT.h5 [FOLDER]"""

import sys

from lib import read, sweep

if len(sys.argv) < 2:
    sys.exit(0)  # it has no result of its own to draw
result = read.Result(sys.argv[1])
sweep.draw(result, str(result.attrs.get("experiment", "sweep")))
