"""ScheInfer Fig. 7: slices on CPU and accelerator over llama.cpp's whole layers."""

from lib import slicing

slicing.speedups("scheinfer_fig07_llamacpp", "speedup_whole_layers",
                 "Slices on CPU and accelerator over llama.cpp, by the linear models of Table I (ScheInfer Fig. 7)")
