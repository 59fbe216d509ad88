#include "base/build.h"

const struct build_info build_info = {.version = BUILD_VERSION,
                                      .commit = BUILD_COMMIT,
                                      .dirty = BUILD_DIRTY,
                                      .kernels = BUILD_KERNELS,
                                      .compiler = BUILD_CC,
                                      .flags = BUILD_FLAGS};

void build_print(const char *program, const char *isa, FILE *f)
{
    fprintf(f, "%s %s (%.10s%s)\n", program, build_info.version, build_info.commit,
            build_info.dirty ? ", modified" : "");
    fprintf(f, "commit: %s%s\ncompiler: %s, %s\ninstruction sets: %s\n",
            build_info.commit, build_info.dirty ? " (modified)" : "", build_info.compiler,
            build_info.flags, isa);
}
