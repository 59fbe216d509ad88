#include "hetero/accel.h"

#include "base/mem.h"
#include "base/name.h"

int accel_find(const char *name, const struct accel_kind **out)
{
    *out = name_find(accel_kinds, name, "accelerator");
    return *out ? OK : ERR_NOTFOUND;
}

int accel_grow(void *list, int n, int *max, size_t size)
{
    int more = 2 * *max + 64;
    void *p;

    if (n < *max)
        return OK;
    p = mem_resize(MEM_OTHER, *(void **)list, (size_t)more, size);
    if (!p)
        return ERR_NOMEM;
    *(void **)list = p;
    *max = more;
    return OK;
}
