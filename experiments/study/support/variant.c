#include "experiments/study/support/variant.h"

#include <stdio.h>
#include <string.h>

static enum kern_op op_of(int mode)
{
    return mode == STUDY_F32 ? KERN_GEMM_F32 : KERN_GEMM_BF16;
}

const struct kern_variant *study_variant_exact(int mode)
{
    struct kern_table table;

    kern_table_choose(&table, cpu_isa_usable(), KERN_EXACT);
    return table.v[op_of(mode)];
}

static int choose(struct model_variants *out, int mode, const struct tune_shape *s)
{
    enum kern_type type = mode == STUDY_F32 ? KERN_F32 : KERN_BF16;

    return model_variants_choose(
        out, type, mode == STUDY_BF16_RELAXED ? KERN_RELAXED : KERN_EXACT, s->n, s->k);
}

int study_variant_choose(struct tune_shape *s, int mode)
{
    struct model_variants v;

    TRY(choose(&v, mode, s));
    s->v = model_variants_at(&v, s->m);
    return OK;
}

int study_choices_apply(struct study_choices *c, struct tune_bench *b, int mode,
                        const char *matrix, struct tune_shape *s)
{
    struct study_choice *found = NULL;
    char key[sizeof(found->key)];

    snprintf(key, sizeof(key), "%d %s", mode, matrix);
    for (int i = 0; i < STUDY_CHOICES_MAX && !found; i++)
        if (strcmp(c->all[i].key, key) == 0)
            found = &c->all[i];
    if (!found) {
        found = &c->all[c->next++ % STUDY_CHOICES_MAX];
        found->key[0] = 0; /* until it holds a whole choice again */
        TRY(choose(&found->v, mode, s));
        snprintf(found->key, sizeof(found->key), "%s", key);
    }
    s->v = model_variants_at(&found->v, s->m);
    return tune_bench_shape(b, s);
}
