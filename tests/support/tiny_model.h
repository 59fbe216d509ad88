/* tests/support/tiny_model.h - a model of the architecture "tiny", the smallest that is made,
 * with random weights. */
#ifndef TESTS_SUPPORT_TINY_MODEL_H
#define TESTS_SUPPORT_TINY_MODEL_H

#include "kernels/kern.h"

/* Its GGUF file in test_dir(), with weights of `type`; made by the first call for a type.
 * Fails the test on error. Lent. */
const char *tiny_model(enum kern_type type);

#endif
