#include "experiments/study/int4/int4.h"

#include <string.h>

#include "cpu/cpu.h"

static int isa_row(const struct kern_variant *v)
{
    return v->isa ? 63 - __builtin_clzll(v->isa) : -1;
}

/* The variant whose name ends in `form` and that needs exactly `isa`; NULL: there is none. */
static const struct kern_variant *find(const struct kern_variant *const *all,
                                       const char *form, uint64_t isa)
{
    for (; *all; all++) {
        const char *dash = strrchr((*all)->name, '-');

        if ((*all)->op == KERN_GEMM_Q4_0 && (*all)->isa == isa && dash &&
            strcmp(dash + 1, form) == 0)
            return *all;
    }
    return NULL;
}

void study_int4_choose(struct study_int4 *out, uint64_t isa_mask)
{
    *out = (struct study_int4){0};
    for (int i = 0; study_int4_variants[i]; i++) {
        uint64_t isa = study_int4_variants[i]->isa;
        const struct kern_variant *own = find(kern_variants, "a8", isa);
        struct study_int4 x = {
            .signed_straight = find(study_int4_variants, "signed", isa),
            .unsigned_straight = find(study_int4_variants, "unsigned", isa)};

        if ((isa & ~isa_mask) != 0 || !x.signed_straight || !x.unsigned_straight ||
            !own || (out->transposed.name && isa_row(own) <= isa_row(&out->transposed)))
            continue;
        x.transposed = *own;
        memcpy(x.transposed.rows, x.signed_straight->rows, sizeof(own->rows));
        *out = x;
    }
}

/* The codes of a sub-block: first a byte each, by vector, then by pairs. */
static void straighten(uint8_t *codes)
{
    uint8_t code[8][64];

    for (int v = 0; v < 8; v++)
        for (int i = 0; i < 64; i++)
            code[v][i] = codes[64 * (v % 4) + i] >> (v / 4 * 4) & 15;
    for (int v = 0; v < 8; v++)
        for (int lane = 0; lane < 4; lane++) {
            uint8_t *to = codes + 64 * (v / 2) + 16 * lane + 8 * (v % 2);

            for (int i = 0; i < 8; i++)
                to[i] = (uint8_t)(code[v][16 * lane + 2 * i] |
                                  code[v][16 * lane + 2 * i + 1] << 4);
        }
}

void study_int4_straight(void *ctx, const struct kern_mat *w)
{
    const size_t block = kern_panel_size(KERN_Q4_0, KERN_SUB);

    (void)ctx;
    for (int64_t u = 0; u < w->n_units && w->type == KERN_Q4_0; u++) {
        int64_t left = w->k_pad - u * w->k_unit;
        int64_t n = (left < w->k_unit ? left : w->k_unit) / KERN_SUB;

        for (int64_t p = 0; p < w->n_panels; p++)
            for (int64_t i = 0; i < n; i++)
                straighten((uint8_t *)kern_mat_at(w, u, p) + (size_t)i * block +
                           KERN_Q4_0_HEAD);
    }
}
