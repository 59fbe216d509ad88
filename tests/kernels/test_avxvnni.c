/* The kernels for AVX-VNNI with their one instruction in the encoding of AVX-512, which does
 * the same: everything else is the code that runs where the processor has AVX-VNNI, so this
 * reaches it on every processor with AVX-512 VNNI. */
#include "kernels/pack.h"
#include "tests/kernels/blocks.h"
#include "tests/kernels/target.h"

#ifdef __x86_64__
/* clang's assembler knows the instruction with its set only. */
TARGET_BEGIN("avx2,fma,f16c,avx512vl,avx512vnni")
#ifndef QUANT
#define QUANT Q4_K
#endif
#ifndef PRODUCTS
#define PRODUCTS "kernels/x86/gemm_a8_avx2.h"
#endif
#define TILE_VPDPBUSD "%{evex%} vpdpbusd"
#include "kernels/x86/dots_avxvnni.h"
#include PRODUCTS
TARGET_END

enum slot { SLOT_A, SLOT_B, SLOT_C, SLOT_WANT };

#define K_MAX 768
static float x[TILE_MR_MAX * K_MAX], c0[TILE_MR_MAX * KERN_PANEL];
static char file[KERN_PANEL * K_MAX];

static float *multiply(kern_gemm_fn gemm, const struct kern_mat *w, const void *a, int mr,
                       int slot)
{
    const size_t bytes = (size_t)mr * KERN_PANEL * sizeof(float);
    struct kern_gemm_tile t = {
        .a = a,
        .b = w->data,
        .b_panel_bytes = w->panel_bytes,
        .b_unit_bytes = w->unit_bytes,
        .k = w->k_pad,
        .k_unit = w->k_unit,
        .c = guard_get(slot, bytes),
        .ldc = KERN_PANEL,
        .mr = mr,
        .np = 1,
        .accumulate = true,
        .next = w->data,
    };

    memcpy(t.c, c0, bytes);
    gemm(&t);
    guard_check(slot, bytes);
    return t.c;
}

static void test_type(const struct kern_variant *ref, struct rng *r)
{
    for (int n = 0; n < 300; n++) {
        int64_t k = 256 * rng_range(r, 1, 3);
        int mr = (int)rng_range(r, 1, TILE_MR_MAX);
        const void *rows[KERN_PANEL];
        const float *want, *got;
        struct kern_mat w;
        void *a;

        AT("mr=%d k=%d", mr, (int)k);
        blocks_random(r, FILL_MIXED, KERN_QUANT_ENUM, file, KERN_PANEL, k);
        for (int i = 0; i < KERN_PANEL; i++)
            rows[i] = file + kern_type_size(KERN_QUANT_ENUM, i * k);
        kern_mat_layout(&w, KERN_QUANT_ENUM, KERN_PANEL, k, rng_below(r, 2) ? 256 : 0);
        w.data = guard_get_aligned(SLOT_B, w.bytes);
        kern_mat_put_panels(&w, 0, 1, rows, KERN_QUANT_ENUM);
        fill_f32(r, FILL_MIXED, x, mr * k);
        fill_f32(r, FILL_MIXED, c0, mr * KERN_PANEL);
        a = guard_get(SLOT_A, kern_a_bytes(KERN_A_I8, mr, k));
        kern_a_pack(ref, a, x, k, mr, k, k);
        want = multiply(ref->fn.gemm, &w, a, mr, SLOT_WANT);
        got = multiply(tile_dispatch, &w, a, mr, SLOT_C);
        for (int i = 0; i < mr * KERN_PANEL; i++)
            CHECK(float_bits(got[i]) == float_bits(want[i]),
                  "C[%d][%d]: got %a, wanted %a", i / KERN_PANEL, i % KERN_PANEL, got[i],
                  want[i]);
    }
}

int main(void)
{
    const uint64_t need = CPU_MASK(AVX512) | CPU_MASK(AVX512VNNI);
    struct kern_table t;
    char name[96];

    check_init();
    kern_table_choose(&t, 0, KERN_A8);
    snprintf(name, sizeof(name), "%s avxvnni, its dot product in another encoding",
             kern_op_name(KERN_QUANT_OP));
    if ((need & ~cpu_isa_detected()) == 0) {
        check_case(name, test_type, t.v[KERN_QUANT_OP]);
    } else {
        printf("# skip: this CPU lacks AVX-512 VNNI\n");
        printf("ok %d - %s # SKIP\n", ++check_n, name);
    }
    return check_done();
}
#else
int main(void)
{
    printf("# skip: not an x86 processor\nok 1 - avxvnni # SKIP\n1..1\n");
    return 0;
}
#endif
