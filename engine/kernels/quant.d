engine/kernels/quant: engine/kernels/quant.c engine/kernels/quant.h \
 engine/kernels/kern.h engine/base/err.h
engine/kernels/quant.h:
engine/kernels/kern.h:
engine/base/err.h:
