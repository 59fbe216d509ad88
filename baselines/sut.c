#include "baselines/sut.h"

#include <string.h>

#include "base/name.h"

int sut_adapter_find(const char *name, const struct sut_adapter **out)
{
    *out = name_find(sut_adapters, name, "adapter");
    return *out ? OK : ERR_NOTFOUND;
}
