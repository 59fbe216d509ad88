/* What a measurement depends on besides its shape. The commit comes from make, which asks
 * for the newest that touched what is measured: a change of the manual leaves tuned
 * schedules valid. */
#include <stdio.h>
#include <string.h>

#include "base/build.h"
#include "tune/cache_impl.h"

void tune_key_here(struct tune_key *out)
{
    struct cpu_info info;

    cpu_info_get(&info);
    memset(out, 0, sizeof(*out));
    snprintf(out->cpu, sizeof(out->cpu), "%s", info.model_name);
    snprintf(out->microcode, sizeof(out->microcode), "%s", info.microcode);
    snprintf(out->commit, sizeof(out->commit), "%s", build_info.kernels);
}
