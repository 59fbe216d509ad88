#include "sched/sched.h"

#include <string.h>

#include "base/name.h"

int sched_policy_find(const char *name, const struct sched_policy **out)
{
    *out = name_find(sched_policies, name, "scheduling policy");
    return *out ? OK : ERR_NOTFOUND;
}
