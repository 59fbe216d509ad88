/* Kernels that are raised, changed, lowered and compiled, against kernels/ref/. */
#include "ir/build.h"
#include "ir/problem.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/home.h"
#include "base/mem.h"
#include "tests/support/test.h"

static void raise_ref(struct ir *high, const char *name)
{
    char path[128];
    struct ir low;

    snprintf(path, sizeof(path), "engine/kernels/ref/%s_ref.c", name);
    assert_ok(ir_read(&low, path));
    assert_ok(ir_raise(high, &low));
    ir_fini(&low);
}

/* "vI=4 uI=2" */
static void set(struct ir *high, const char *list)
{
    char name[16];
    int value, n;

    for (; sscanf(list, " %15[^=]=%d%n", name, &value, &n) == 2; list += n)
        assert_ok(ir_set(high, name, value));
}

static void build(struct ir_kernel *k, const struct ir *high)
{
    int rc = ir_build(k, high, ir_target_of(cpu_isa_usable()), test_dir());

    if (rc == ERR_UNSUPPORTED && strstr(err_msg(), "no C compiler"))
        test_skip("%s", err_msg());
    assert_ok(rc);
}

/* As the reference on random problems; returns what a comparison of bits finds. */
static int64_t check(const char *name, const char *parameters, bool bits)
{
    struct ir high;
    struct ir_kernel k;
    struct ir_check c;

    raise_ref(&high, name);
    set(&high, parameters);
    assert_int_equal(ir_keeps_bits(&high), bits);
    build(&k, &high);
    assert_ok(ir_check(&c, &k.v, 60, 7));
    if (ir_check_verdict(&c, bits) != OK)
        fail_msg("%s %s: %s", name, parameters, err_msg());
    assert_true(c.n_values >= 60);
    ir_unload(&k);
    ir_fini(&high);
    return c.n_different;
}

TEST(gemm_keeps_its_bits)
{
    check("gemm_f32", "uM=6 uN=1 vN=8", true);
    check("gemm_f32", "uM=3 uN=4 vN=16 uK=4 aK=4096", true);
    check("gemm_f32", "vN=4 uK=3", true);
}

TEST(attention_keeps_its_bits)
{
    check("attn_f32", "vD=8", true);
    check("attn_f32", "vD=16 uD=4", true);
    check("attn_f32", "uD=8", true);
    check("attn_bf16", "vD=8 uD=2", true);
}

TEST(rope_keeps_its_bits)
{
    check("rope", "vI=4", true);
    check("rope", "vI=8 uI=2", true);
    check("rope", "vI=16 uI=3", true);
}

TEST(other_operators_keep_their_bits)
{
    check("add", "vI=8 uI=4", true);
    check("rmsnorm", "vI=8 uI=2", true);
    check("silu_mul", "uI=3", true);
    check("from_bf16", "vI=16", true);
    check("argmax", "", true);
}

/* Parameters that change the order of sums are told, and differ. */
TEST(sums_in_another_order)
{
    assert_true(check("gemm_f32", "uM=2 uN=2 vN=8 uK=4 sK=16", false) > 0);
    assert_true(check("attn_f32", "sD=8 uD=2", false) > 0);
    assert_true(check("rmsnorm", "sI=8", false) > 0);
}

/* A product's standard parameters give a variant that the driver and the tuner take. */
TEST(a_product_is_a_variant)
{
    const struct ir_target *target = ir_target_of(cpu_isa_usable());
    struct ir high;
    struct ir_kernel k, again;
    struct ir_check c;

    for (int bits = 0; bits < 2; bits++) {
        raise_ref(&high, "gemm_f32");
        assert_ok(ir_set_product(&high, target, bits));
        build(&k, &high);
        assert_int_equal(k.v.op, KERN_GEMM_F32);
        assert_int_equal(k.v.isa, target->isa);
        assert_int_equal(k.v.batch_invariant, bits);
        assert_true(k.v.rows[0] >= 3 && k.v.rows[3] >= 1);
        for (int np = 2; np <= KERN_NP_MAX; np++)
            assert_true(k.v.rows[np - 1] <= k.v.rows[np - 2]);
        assert_ok(ir_check(&c, &k.v, 100, 11));
        assert_ok(ir_check_verdict(&c, bits));
        /* The same again needs no compiler. */
        assert_ok(ir_build(&again, &high, target, test_dir()));
        assert_true(again.was_kept);
        assert_string_equal(again.name, k.name);
        ir_unload(&again);
        ir_unload(&k);
        ir_fini(&high);
    }
}

TEST(another_text_is_another_object)
{
    struct ir high;
    struct ir_kernel a, b;

    raise_ref(&high, "rope");
    build(&a, &high);
    assert_false(a.was_kept);
    assert_ok(ir_set(&high, "vI", 2));
    build(&b, &high);
    assert_false(b.was_kept);
    assert_string_not_equal(a.path, b.path);
    ir_unload(&a);
    ir_unload(&b);
    ir_fini(&high);
}

/* Regression: an object was loaded where the text next to it was the right one, and any folder that
 * came with exchanged results was taken for the cache. */
TEST(planted_objects_are_not_loaded)
{
    const struct ir_target *target = ir_target_of(cpu_isa_usable());
    struct ir rope, add;
    struct ir_kernel a, b, again;
    char dir[300], other[300];
    size_t n;
    char *object;

    raise_ref(&rope, "rope");
    raise_ref(&add, "add");
    build(&a, &rope);
    build(&b, &add);
    object = test_read(b.path, &n);
    ir_unload(&a);
    assert_ok(file_write(a.path, object, n)); /* under the name that rope's has */
    assert_ok(ir_build(&again, &rope, target, test_dir()));
    assert_false(again.was_kept);
    ir_unload(&again);
    assert_ok(ir_build(&again, &rope, target, test_dir()));
    assert_true(again.was_kept);
    ir_unload(&again);
    mem_free(object);

    snprintf(dir, sizeof(dir), "%s/open", test_dir());
    assert_int_equal(mkdir(dir, 0755), 0);
    assert_err(ir_build(&again, &rope, target, dir), ERR_STATE,
               "with mode 700, found a folder of user");
    snprintf(other, sizeof(other), "%s/link", test_dir());
    assert_int_equal(chmod(dir, 0700), 0);
    assert_int_equal(symlink(dir, other), 0);
    assert_err(ir_build(&again, &rope, target, other), ERR_STATE,
               "found a symbolic link");
    assert_ok(ir_build(&again, &rope, target, dir));
    ir_unload(&again);
    ir_unload(&b);
    ir_fini(&add);
    ir_fini(&rope);
}

TEST(the_cache_is_the_users)
{
    char *top = realpath(test_dir(), NULL), want[4200], path[4200];

    assert_non_null(top);
    assert_int_equal(setenv("HOME", top, 1), 0);
    for (int xdg = 0; xdg < 2; xdg++) {
        assert_int_equal(setenv("XDG_CACHE_HOME", xdg ? top : "relative", 1), 0);
        snprintf(want, sizeof(want), "%s%s/sandwich/kernels", top, xdg ? "" : "/.cache");
        assert_string_equal(home_cache(path, sizeof(path), IR_CACHE_DIR), want);
    }
    free(top);
}

TEST(without_a_compiler)
{
    const char *cc = getenv("CC");
    char kept[256];
    struct ir high;
    struct ir_kernel k;

    snprintf(kept, sizeof(kept), "%s", cc ? cc : "");
    raise_ref(&high, "rope");
    setenv("CC", "no-such-compiler", 1);
    assert_err(ir_build(&k, &high, ir_target_of(0), test_dir()), ERR_UNSUPPORTED,
               "no C compiler \"no-such-compiler\"");
    setenv("CC", "false", 1);
    assert_int_not_equal(ir_build(&k, &high, ir_target_of(0), test_dir()), OK);
    if (cc)
        setenv("CC", kept, 1);
    else
        unsetenv("CC");
    ir_fini(&high);
}

TEST(what_cannot_be_lowered)
{
    struct ir high;
    struct ir_kernel k;

    raise_ref(&high, "attn_q8");
    assert_err(ir_build(&k, &high, ir_target_of(0), test_dir()), ERR_UNSUPPORTED,
               "cannot be lowered");
    ir_fini(&high);
    raise_ref(&high, "gemm_bf16"); /* pairs along K */
    assert_ok(ir_set(&high, "vN", 8));
    assert_err(ir_build(&k, &high, ir_target_of(0), test_dir()), ERR_UNSUPPORTED,
               "not next to each other");
    ir_fini(&high);
    raise_ref(&high, "silu_mul"); /* expf */
    assert_ok(ir_set(&high, "vI", 8));
    assert_err(ir_build(&k, &high, ir_target_of(0), test_dir()), ERR_UNSUPPORTED,
               "cannot have vectors");
    ir_fini(&high);
}

/* A function that the operator's callers would call with other arguments. */
TEST(another_signature_is_refused)
{
    static const char text[] =
        "static void add(float *y, int64_t n)\n{\n    y[0] = n;\n}\n"
        "const struct kern_variant kern_add_x = {.op = KERN_ADD, .fn.add = add};\n";
    struct ir low, high;
    struct ir_kernel k;

    assert_ok(ir_parse(&low, IR_LOW, text, strlen(text), "x.c"));
    assert_ok(ir_raise(&high, &low));
    assert_err(ir_build(&k, &high, ir_target_of(0), test_dir()), ERR_UNSUPPORTED,
               "expected a function of (float *, const float *, int64_t)");
    ir_fini(&high);
    ir_fini(&low);
}

/* What is wrong is found: a kernel that computes something else. */
TEST(a_wrong_kernel_is_found)
{
    static const char text[] =
        "static void add(float *y, const float *x, int64_t n)\n{\n"
        "    for (int64_t i = 1; i < n; i++)\n        y[i] += x[i];\n}\n"
        "const struct kern_variant kern_add_x = {.op = KERN_ADD, .fn.add = add};\n";
    struct ir low, high;
    struct ir_kernel k;
    struct ir_check c;

    assert_ok(ir_parse(&low, IR_LOW, text, strlen(text), "x.c"));
    assert_ok(ir_raise(&high, &low));
    build(&k, &high);
    assert_ok(ir_check(&c, &k.v, 5, 1));
    assert_err(ir_check_verdict(&c, true), ERR_STATE, "differ from kernels/ref/");
    assert_err(ir_check_verdict(&c, false), ERR_STATE, "off by");
    ir_unload(&k);
    ir_fini(&high);
    ir_fini(&low);
}
