/* cli/census.h - which instructions a program or library contains that decide how fast it
 * multiplies: its disassembly by objdump, counted.   Threads: one. */
#ifndef CLI_CENSUS_H
#define CLI_CENSUS_H

#include "base/err.h"

struct cli_census_class {
    const char *name, *help;
    const char *const
        *mnemonics; /* [.., NULL]; one that ends in * stands for all that begin so */
};
extern const struct cli_census_class cli_census_classes[]; /* name NULL ends it */
#define CENSUS_CLASSES_MAX 16

struct cli_census {
    long long n_all, n[CENSUS_CLASSES_MAX]; /* instructions; of each class */
    int bits[CENSUS_CLASSES_MAX];      /* of the widest register in it; 0: not told */
    char most[CENSUS_CLASSES_MAX][96]; /* the function that has most of them, "" */
};
/* ERR_NOTFOUND: no such file, or objdump (Debian: binutils) is not installed. ERR_FORMAT: objdump
 * finds no program in it, or of another processor than it knows. */
MUST int cli_census_take(struct cli_census *out, const char *path);

#endif
