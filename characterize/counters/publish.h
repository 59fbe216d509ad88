/* characterize/counters/publish.h - numbers of this program as events that PAPI counts
 * (software defined events). The provider `sde` reads them back, and so can any tool that
 * knows PAPI; a machine without a PMU still has the whole way through PAPI.
 * Threads: publish and withdraw from one thread while no thread counts; the numbers may be
 * written by any one thread, which stops writing while a set starts or stops. */
#ifndef COUNTERS_PUBLISH_H
#define COUNTERS_PUBLISH_H

#include <stdint.h>

#include "base/err.h"

#define COUNTERS_PUBLISHED_MAX 64

/* `total` grows while work is done and is read when a set starts and stops: publishing
 * costs the work nothing. It must live until counters_withdraw(). The event is
 * "sde:::sandwich::NAME" to PAPI and NAME to the provider.
 * ERR_ARG: published already, or the name is too long. ERR_LIMIT: too many. */
MUST int counters_publish(const char *name, const int64_t *total);
/* NULL: all of them. */
void counters_withdraw(const char *name);
int counters_published(const char *name);

#endif
