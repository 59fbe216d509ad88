#include "experiments/harness/provenance.h"

#include <sys/utsname.h>

int provenance_json(json_t **out)
{
    struct utsname u = {0};

    uname(&u);
    *out =
        json_pack("{s:s s:b s:s s:s s:s}", "commit", BUILD_COMMIT, "dirty", BUILD_DIRTY,
                  "compiler", BUILD_CC, "flags", BUILD_FLAGS, "arch", u.machine);
    return *out ? OK : err_set(ERR_NOMEM, "out of memory noting the provenance");
}
