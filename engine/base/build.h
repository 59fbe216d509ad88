/* base/build.h - what this program was built from: version, commit, compiler and flags.
 * Records keep it and `--version` prints it.
 * Threads: any; the strings are constants. */
#ifndef BASE_BUILD_H
#define BASE_BUILD_H

#include <stdbool.h>
#include <stdio.h>

struct build_info {
    const char *version; /* of the file VERSION, such as "0.3.0" */
    const char *commit;  /* 40 hexadecimal digits, or "unknown" outside a checkout */
    bool dirty;          /* the sources differ from that commit */
    const char *kernels; /* the newest commit that changed engine/kernels or engine/par */
    const char *compiler, *flags;
};
extern const struct build_info build_info;

/* Print the version of `program`, its commit, compiler and flags, and `isa`, the words of
 * the instruction sets in use (cpu_isa_words()). */
void build_print(const char *program, const char *isa, FILE *f);

#endif
