#include "experiments/harness/provenance.h"

#include <sys/utsname.h>

#include "base/build.h"

int provenance_json(json_t **out)
{
    struct utsname u = {0};

    uname(&u);
    *out = json_pack("{s:s s:b s:s s:s s:s}", "commit", build_info.commit, "dirty",
                     build_info.dirty, "compiler", build_info.compiler, "flags",
                     build_info.flags, "arch", u.machine);
    return *out ? OK : err_set(ERR_NOMEM, "out of memory noting the provenance");
}
