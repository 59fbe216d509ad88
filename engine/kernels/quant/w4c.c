/* Q4_1 whose blocks all have the scales of their row: 4 bits per output channel. Files have no
 * number for it: it is how such matrices of theirs are packed.   Paper: MNN-LLM. */
#include "kernels/quant.h"

const struct kern_quant kern_quant_w4c = {.type = KERN_W4C,
                                          .gguf_type = -1,
                                          .gguf_file_type = -1,
                                          .sub = 32,
                                          .q_min = 0,
                                          .q_max = 15,
                                          .decode = kern_quant_decode_q4_1};
