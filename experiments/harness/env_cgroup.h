/* experiments/harness/env_cgroup.h - files of this process's control group, version 1
 * or 2. Private to env*.c. Threads: any. */
#ifndef HARNESS_ENV_CGROUP_H
#define HARNESS_ENV_CGROUP_H

#include <stddef.h>
#include <jansson.h>

/* Path of a controller's file, for example ("cpu", "cpu.stat"): in our own group if it
 * can be seen from here, else at the root of the mount (a container shows its group as
 * the root). NULL: neither version has it. */
const char *env_cgroup_path(const char *controller, const char *file, char *out,
                            size_t n);

/* {"version", "path", limits ...} */
json_t *env_cgroup_json(void);

#endif
