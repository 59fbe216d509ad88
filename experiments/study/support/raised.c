#include "experiments/study/support/raised.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/home.h"
#include "cpu/cpu.h"

int study_target(int vectors, const struct ir_target **out)
{
    uint64_t usable = cpu_isa_usable();

    if (vectors == STUDY_VECTORS_256 && !(usable & CPU_MASK(AVX2)))
        return err_set(ERR_NOTFOUND, "this processor has no AVX2");
    *out = ir_target_of(vectors == STUDY_VECTORS_256 ? CPU_MASK(AVX2) : usable);
    if (vectors == STUDY_VECTORS_WIDEST && (*out)->isa == CPU_MASK(AVX2))
        return err_set(ERR_NOTFOUND, "nothing wider than AVX2, which is another cell");
    return OK;
}

int study_raise(struct ir *out, const char *name)
{
    char file[128], path[1024];
    struct ir low;
    int rc;

    snprintf(file, sizeof(file), "engine/kernels/ref/%s_ref.c", name);
    home_find(path, sizeof(path), file);
    TRY(ir_read(&low, path));
    rc = ir_raise(out, &low);
    ir_fini(&low);
    return rc == OK ? OK : err_prefix(rc, "%s", path);
}

int study_set(struct ir *high, const char *parameters)
{
    for (const char *at = parameters; *at;) {
        char name[32], *end;
        size_t n = strcspn(at, "=");
        long long value;

        if (n == 0 || n >= sizeof(name) || at[n] != '=')
            return err_set(ERR_ARG, "parameters: expected NAME=VALUE, found \"%.40s\"",
                           at);
        snprintf(name, sizeof(name), "%.*s", (int)n, at);
        value = strtoll(at + n + 1, &end, 10);
        if (end == at + n + 1 || (*end && *end != ','))
            return err_set(ERR_ARG, "parameters: %s: expected an integer", name);
        TRY(ir_set(high, name, value));
        at = *end ? end + 1 : end;
    }
    return OK;
}

int study_build(struct ir_kernel *out, const struct ir *high,
                const struct ir_target *target)
{
    int rc = ir_build(out, high, target, NULL);

    return rc == ERR_UNSUPPORTED && strstr(err_msg(), "no C compiler")
               ? err_prefix(ERR_NOTFOUND, "kernels")
               : rc;
}

const struct kern_variant *study_handwritten(enum kern_op op,
                                             const struct ir_target *target)
{
    struct kern_table t;

    kern_table_choose(&t, target->isa, KERN_EXACT);
    return t.v[op];
}
