/* Pages that a sanitizer touches besides those of a test. */
#ifndef TESTS_COUNTERS_SHADOW_H
#define TESTS_COUNTERS_SHADOW_H

#include <stdlib.h>
#include <string.h>

/* Faults are below this many times the pages touched: the shadow of addresses is an eighth
 * of them, that of threads twice as many. */
static inline double test_shadow(void)
{
    const char *san = getenv("SAN");

    return san && strstr(san, "thread") ? 3.3 : 1.3;
}

#endif
