/* The harness of libFuzzer; fuzz.sh defines FUZZ_TARGET as the function of one parser. */
#include "tests/fuzz/targets.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    return FUZZ_TARGET(data, n);
}
