/* tests/support/mutate.h - damaged copies of a valid file, for tests of parsers. */
#ifndef TESTS_SUPPORT_MUTATE_H
#define TESTS_SUPPORT_MUTATE_H

#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"

/* What a mutant may have more than its original. */
#define MUTATE_EXTRA ((size_t)1 << 17)

/* One to eight changes: bits and bytes, extreme integers and decimal numbers, pieces left
 * out, repeated and exchanged, a cut, long runs of one byte. `out` has n + MUTATE_EXTRA
 * bytes. Returns the mutant's length. */
size_t mutate(struct rng *r, const uint8_t *data, size_t n, uint8_t *out);

#endif
