/* experiments/record/env_cgroup.h - files of this process's control group, version 1
 * or 2. Private to env*.c. Threads: any. */
#ifndef RECORD_ENV_CGROUP_H
#define RECORD_ENV_CGROUP_H

#include <jansson.h>

/* {"version", "path", limits ...} */
json_t *env_cgroup_json(void);

#endif
