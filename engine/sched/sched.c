#include "sched/sched.h"

#include <string.h>

#include "base/opt.h"

int sched_policy_find(const char *name, const struct sched_policy **out)
{
    const char *words[64];
    const char *near;
    int n = 0;

    *out = NULL;
    for (const struct sched_policy *const *p = sched_policies; *p && n < 63; p++) {
        words[n++] = (*p)->name;
        if (!strcmp((*p)->name, name)) {
            *out = *p;
            return OK;
        }
    }
    words[n] = NULL;
    near = opt_nearest(name, words);
    return err_set(ERR_NOTFOUND, "scheduling policy \"%s\" does not exist%s%s%s", name,
                   near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}
