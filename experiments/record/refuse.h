/* experiments/record/refuse.h - shares that exceed what their bound allows.   Threads: any. */
#ifndef RECORD_REFUSE_H
#define RECORD_REFUSE_H

#include <jansson.h>

/* A number of a summary or of the headlines, {"value", "unit", "why" ...}: a share above what its
 * bound allows (metrics_exceeds_bound()) becomes null with the reason, and stays as "refused". */
void export_refuse(const char *name, json_t *number);

#endif
