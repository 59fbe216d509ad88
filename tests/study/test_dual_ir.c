/* dual_ir and kernel_raise: what is compared is right, and what is missing is said. */
#include "ir/build.h"
#include "tests/study/capture.h"

extern const struct study study_dual_ir, study_kernel_raise;

/* Skips where nothing can be compiled. */
static void run(const struct study *s, const char *options)
{
    bool of_256_bits = ir_target_of(cpu_isa_usable())->lanes == 8;
    int rc = capture_run(s, "{%s, \"vectors\": \"%s\", \"rounds\": 3, \"cell_s\": 0}",
                         options, of_256_bits ? "256_bit" : "widest");

    if (rc == ERR_NOTFOUND)
        test_skip("%s", err_msg());
    assert_ok(rc);
}

TEST(generated_micro_kernels)
{
    run(&study_dual_ir, "\"matrix\": \"tiny/down 96x256/64\", \"m\": 7, "
                        "\"cache_mb\": 1, \"tile_rows\": 3, "
                        "\"tile_panels\": 2, \"form\": \"bits\"");
    assert_true(value_of("ratio") > 0);
    assert_true(value_of("error") < 1e-6 && value_of("error_handwritten") < 1e-6);
    assert_true(value_of("tile_rows_used") <= 3 && value_of("tile_panels_used") <= 2);
    assert_true(value_of("n_rounds") >= 3);
}

TEST(bits_are_kept)
{
    run(&study_kernel_raise, "\"kernel\": \"rope vI=4,uI=2\", \"problems\": 20");
    assert_true(value_of("keeps_bits") == 1 && value_of("n_different") == 0);
    assert_true(value_of("n_results") > 20 && value_of("error") == 0);
    run(&study_kernel_raise, "\"kernel\": \"attn_f32 sD=8\", \"problems\": 20");
    assert_true(value_of("keeps_bits") == 0 && value_of("n_different") > 0);
    assert_true(value_of("error") < 1e-4);
}

TEST(what_is_wrong_is_named)
{
    assert_int_equal(capture_run(&study_kernel_raise, "{\"kernel\": \"rope vX=4\"}"),
                     ERR_NOTFOUND);
    assert_non_null(strstr(err_msg(), "no parameter \"vX\""));
    assert_int_equal(capture_run(&study_kernel_raise, "{\"kernel\": \"rope vI\"}"),
                     ERR_ARG);
    assert_non_null(strstr(err_msg(), "NAME=VALUE"));
    assert_int_not_equal(capture_run(&study_kernel_raise, "{\"kernel\": \"none\"}"), OK);
}

TEST_GROUP(NULL, capture_end);
