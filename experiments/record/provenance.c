#include "experiments/record/provenance.h"

#include <sys/utsname.h>

#include "base/build.h"
#include "cpu/cpu.h"

int provenance_json(json_t **out)
{
    struct utsname u = {0};
    char isa[128];

    uname(&u);
    cpu_isa_words(cpu_isa_detected(), isa, sizeof(isa));
    *out = json_pack("{s:s s:s s:b s:s s:s s:s s:s}", "version", build_info.version,
                     "commit", build_info.commit, "dirty", build_info.dirty, "compiler",
                     build_info.compiler, "flags", build_info.flags, "arch", u.machine,
                     "isa", isa);
    return *out ? OK : err_set(ERR_NOMEM, "out of memory noting the provenance");
}
