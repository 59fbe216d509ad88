/* Which schedule multiplies which matrix, step by step. */
#include "model/impl.h"

static const struct kern_mat *mat_of(const struct model *m, enum model_mat which)
{
    const struct model_layer *l = &m->layers[0];

    switch (which) {
    case MODEL_MAT_QKV:
        return &l->qkv;
    case MODEL_MAT_O:
        return &l->o;
    case MODEL_MAT_GATE_UP:
        return &l->gate_up;
    case MODEL_MAT_DOWN:
        return &l->down;
    default:
        return &m->head;
    }
}

void model_schedules(const struct model *m, int64_t rows, int n_threads,
                     struct kern_schedule out[MODEL_N_MATS])
{
    for (int i = 0; i < MODEL_N_MATS; i++) {
        const struct kern_mat *w = mat_of(m, (enum model_mat)i);

        kern_schedule_default(&out[i], model_gemm(m, w), w, rows, n_threads);
    }
}

int model_block_rows(const struct model *m)
{
    int rows = 1;

    for (int t = 0; t < KERN_N_TYPES; t++) {
        const struct kern_variant *v = m->kern.v[KERN_GEMM_F32 + t];

        for (int np = 1; np <= KERN_NP_MAX; np++)
            rows = kern_gemm_rows(v, np) > rows ? kern_gemm_rows(v, np) : rows;
    }
    return rows;
}
