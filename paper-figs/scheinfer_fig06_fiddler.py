"""ScheInfer Fig. 6: slices on CPU and accelerator over Fiddler's placement of experts."""

from lib import slicing

slicing.speedups("scheinfer_fig06_fiddler", "speedup_fiddler",
                 "Slices on CPU and accelerator over Fiddler, by the linear models of Table I (ScheInfer Fig. 6)")
