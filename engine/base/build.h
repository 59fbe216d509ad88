/* base/build.h - what this program was built from: the commit, the compiler and its flags.
 * Records keep it and `--version` prints it.
 * Threads: any; the strings are constants. */
#ifndef BASE_BUILD_H
#define BASE_BUILD_H

#include <stdbool.h>
#include <stdio.h>

struct build_info {
    const char *version; /* `git describe`: a tag and the commits since, or the commit */
    const char *commit;  /* 40 hexadecimal digits, or "unknown" outside a checkout */
    bool dirty;          /* the sources differ from that commit */
    const char *kernels; /* the newest commit that changed engine/kernels or engine/par */
    const char *compiler, *flags;
};
extern const struct build_info build_info;

/* Print the version of `program`: commit, compiler, flags, and `isa`, the words of the
 * instruction sets in use (cpu_isa_words()). */
void build_print(const char *program, const char *isa, FILE *f);

#endif
