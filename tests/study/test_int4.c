/* The 4-bit products that mnn_ablation compares give the bits of the engine's own, for either
 * sign of the codes and either order. */
#include "experiments/study/int4/int4.h"
#include "tests/kernels/gemm_check.h"

enum slot { SLOT_A, SLOT_B, SLOT_C, SLOT_WANT };

#define K_MAX 512

static float before[16 * KERN_PANEL];

/* v's product of mr rows of check_a with w's panel, added to `before` or not. */
static const float *product(const struct kern_variant *v, const struct kern_mat *w,
                            int slot, int mr, bool accumulate)
{
    const size_t bytes = (size_t)mr * KERN_PANEL * sizeof(float);
    void *a = guard_get(SLOT_A, kern_a_bytes(v->a_format, mr, w->k_pad));
    struct kern_gemm_tile t = {.a = a,
                               .b = w->data,
                               .b_panel_bytes = w->panel_bytes,
                               .b_unit_bytes = w->unit_bytes,
                               .k = w->k_pad,
                               .k_unit = w->k_unit,
                               .c = guard_get(slot, bytes),
                               .ldc = KERN_PANEL,
                               .mr = mr,
                               .np = 1,
                               .accumulate = accumulate,
                               .next = w->data};

    kern_a_pack(v, a, check_a, w->k, mr, w->k, w->k_pad);
    memcpy(t.c, before, bytes);
    v->fn.gemm(&t);
    guard_check(slot, bytes);
    return t.c;
}

static void test_bits(const struct kern_variant *v, struct rng *r)
{
    struct kern_table plain;

    kern_table_choose(&plain, 0, KERN_A8);
    for (int n = 0; n < 300; n++) {
        int64_t k = check_k(KERN_Q4_0, rng_range(r, 1, K_MAX));
        int mr = (int)rng_range(r, 1, kern_gemm_rows(v, 1));
        enum fill f = (enum fill)rng_below(r, FILL_N);
        bool accumulate = rng_below(r, 2);
        const float *want, *got;
        struct kern_mat w;

        AT("mr=%d k=%d %s", mr, (int)k, fill_names[f]);
        check_operands(&w, SLOT_B, r, f, KERN_Q4_0, mr, KERN_PANEL, k,
                       rng_below(r, 2) ? 2 * rng_range(r, 1, 160) : 0);
        fill_f32(r, f, before, (int64_t)mr * KERN_PANEL);
        want = product(plain.v[KERN_GEMM_Q4_0], &w, SLOT_WANT, mr, accumulate);
        study_int4_straight(NULL, &w);
        got = product(v, &w, SLOT_C, mr, accumulate);
        for (int i = 0; i < mr * KERN_PANEL; i++)
            CHECK(float_bits(got[i]) == float_bits(want[i]),
                  "C[%d][%d]: got %a, wanted %a", i / KERN_PANEL, i % KERN_PANEL, got[i],
                  want[i]);
    }
}

/* Every code has a place of its own, and gets there. */
static void test_order(const struct kern_variant *v, struct rng *r)
{
    const struct kern_form *f = kern_form(KERN_Q4_0);
    bool taken[KERN_Q4_0_SUB][2] = {{false}};
    uint8_t old[KERN_Q4_0_HEAD + KERN_Q8_0_SUB]; /* of a block of any type */
    struct kern_mat w;

    (void)v;
    check_operands(&w, SLOT_B, r, FILL_NORMAL, KERN_Q4_0, 1, KERN_PANEL, KERN_SUB, 0);
    memcpy(old, w.data, KERN_Q4_0_HEAD + KERN_Q4_0_SUB);
    study_int4_straight(NULL, &w);
    CHECK(memcmp(old, w.data, KERN_Q4_0_HEAD) == 0, "the scales have changed");
    for (int k = 0; k < KERN_SUB; k++)
        for (int c = 0; c < KERN_PANEL; c++) {
            int high, at = study_int4_byte(k, c, &high);
            const uint8_t *codes = (const uint8_t *)w.data + KERN_Q4_0_HEAD;

            CHECK(at >= 0 && at < KERN_Q4_0_SUB && !taken[at][high],
                  "row %d, column %d is at byte %d, where another one is", k, c, at);
            taken[at][high] = true;
            CHECK((codes[at] >> 4 * high & 15) ==
                      kern_form_code(f, old + KERN_Q4_0_HEAD, k, c),
                  "row %d, column %d is not at its place", k, c);
        }
}

/* Three variants of one instruction set, whatever this CPU may use. */
static void test_choice(const struct kern_variant *v, struct rng *r)
{
    const uint64_t masks[] = {0, cpu_isa_usable()};
    struct study_int4 x;

    (void)v, (void)r;
    for (int i = 0; i < 2; i++) {
        study_int4_choose(&x, masks[i]);
        CHECK(x.signed_straight && x.unsigned_straight && x.transposed.name,
              "none for %llx", (unsigned long long)masks[i]);
        CHECK(x.signed_straight != x.unsigned_straight, "one for both");
        CHECK((x.transposed.isa & ~masks[i]) == 0 &&
                  x.signed_straight->isa == x.transposed.isa &&
                  x.unsigned_straight->isa == x.transposed.isa,
              "%s, %s and %s", x.signed_straight->name, x.unsigned_straight->name,
              x.transposed.name);
        CHECK((x.signed_straight->a_group == NULL) == (x.transposed.a_group == NULL),
              "activations are packed in another way");
        CHECK(memcmp(x.signed_straight->rows, x.transposed.rows,
                     sizeof(x.transposed.rows)) == 0,
              "other tiles");
    }
}

int main(void)
{
    check_init();
    for (int i = 0; study_int4_variants[i]; i++)
        check_variant(study_int4_variants[i], test_bits);
    check_case("straight order", test_order, NULL);
    check_case("variants of one instruction set", test_choice, NULL);
    return check_done();
}
