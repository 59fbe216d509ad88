/* The same of the type that has kernels of its own. */
#define QUANT    W4C
#define PRODUCTS "kernels/x86/gemm_w4c_a8_avx2.h"
#include "tests/kernels/test_avxvnni.c"
