#include "baselines/sut.h"

#include <string.h>

#include "base/opt.h"

#define MAX_ADAPTERS 64

int sut_adapter_find(const char *name, const struct sut_adapter **out)
{
    const char *words[MAX_ADAPTERS + 1];
    const char *near;
    int n = 0;

    *out = NULL;
    for (; sut_adapters[n] && n < MAX_ADAPTERS; n++) {
        words[n] = sut_adapters[n]->name;
        if (strcmp(words[n], name) == 0) {
            *out = sut_adapters[n];
            return OK;
        }
    }
    words[n] = NULL;
    near = opt_nearest(name, words);
    return err_set(ERR_NOTFOUND, "no adapter \"%s\"%s%s%s", name,
                   near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}
