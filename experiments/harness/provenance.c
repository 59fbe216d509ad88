#include "experiments/harness/provenance.h"

#include <sys/utsname.h>

#include "cpu/cpu.h"

int provenance_json(json_t **out)
{
    struct utsname u = {0};
    char isa[128];

    uname(&u);
    cpu_isa_words(cpu_isa_detected(), isa, sizeof(isa));
    *out = json_pack("{s:s s:b s:s s:s s:s s:s}", "commit", BUILD_COMMIT, "dirty",
                     BUILD_DIRTY, "compiler", BUILD_CC, "flags", BUILD_FLAGS, "arch",
                     u.machine, "isa", isa);
    return *out ? OK : err_set(ERR_NOMEM, "out of memory noting the provenance");
}
