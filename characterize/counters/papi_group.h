/* characterize/counters/papi_group.h - groups of events that PAPI counts, for the
 * providers papi and sde. Private to characterize/counters/. Threads: those of
 * counters.h. */
#ifndef COUNTERS_PAPI_GROUP_H
#define COUNTERS_PAPI_GROUP_H

#include "characterize/counters/counters.h"

/* As in struct counters_provider. */
int counters_papi_open(void **group);
int counters_papi_add(void *group, const char *event, struct counters_value *v);
int counters_papi_start(void *group);
int counters_papi_stop(void *group, struct counters_value *v);
void counters_papi_close(void *group);

#endif
