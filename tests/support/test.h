/* tests/support/test.h - what every test file includes: cmocka, tests that list themselves,
 * skipping with a reason, the place of the optional real data, and small conveniences.
 *
 * TEST(name) { ... } is a test. A program runs all of its tests in the order of the file; it
 * needs no main(). TEST_GROUP(before, after) names functions to call once before the first
 * and after the last test, TEST_WITH(name, before, after) those of one test. NULL: none.
 *
 * A test skips with test_skip("why"): the reason is printed and counted. Real data lie in
 * $SANDWICH_DATA or ../shared/data next to the checkout, or are absent; the topologies that
 * may be shipped are in datasets/topologies. */
#ifndef TESTS_SUPPORT_TEST_H
#define TESTS_SUPPORT_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"
#include "cpu/cpu.h"

struct test_entry {
    struct CMUnitTest test;
    int order; /* __COUNTER__ */
};
/* Called before main() by the macros below. */
void test_add(const struct test_entry *t);
void test_group(CMFixtureFunction before, CMFixtureFunction after);
/* Run the tests; a main() of a program's own ends with it. Returns the exit status. */
int test_main(void);

#define TEST(name) TEST_WITH(name, NULL, NULL)
#define TEST_WITH(name, before, after)                                                   \
    static void name(void **state);                                                      \
    __attribute__((constructor)) static void add_##name(void)                            \
    {                                                                                    \
        test_add(&(const struct test_entry){                                             \
            cmocka_unit_test_setup_teardown(name, before, after), __COUNTER__});         \
    }                                                                                    \
    static void name(__attribute__((unused)) void **state)
#define TEST_GROUP(before, after)                                                        \
    __attribute__((constructor)) static void add_group(void)                             \
    {                                                                                    \
        test_group(before, after);                                                       \
    }                                                                                    \
    struct test_entry

/* Skip the running test; prints "# skip: why". */
#define test_skip(...)                                                                   \
    do {                                                                                 \
        printf("# skip: " __VA_ARGS__);                                                  \
        printf("\n");                                                                    \
        fflush(stdout);                                                                  \
        skip();                                                                          \
    } while (0)

/* Skip the running test where this machine, lowered by SANDWICH_ISA, lacks the instruction
 * set: a test that names one asks for it first (lint has the rule). */
#define test_needs_isa(word)                                                             \
    do {                                                                                 \
        uint64_t mask_;                                                                  \
        if (cpu_isa_parse(word, &mask_) != OK)                                           \
            test_skip("%s", err_msg());                                                  \
    } while (0)

/* rc is OK, or the test fails with the error's message. */
#define assert_ok(expr)                                                                  \
    do {                                                                                 \
        int rc_ = (expr);                                                                \
        if (rc_ != OK)                                                                   \
            fail_msg("%s: %s: %s", #expr, err_name(rc_), err_msg());                     \
    } while (0)
/* The call failed with this code and its message contains `part`. */
#define assert_err(expr, code, part)                                                     \
    do {                                                                                 \
        int rc_ = (expr);                                                                \
        if (rc_ != (code) || !strstr(err_msg(), part))                                   \
            fail_msg("%s: got %s \"%s\", wanted %s with \"%s\"", #expr, err_name(rc_),   \
                     err_msg(), err_name(code), part);                                   \
    } while (0)

/* Path of a real data file, or NULL when it is not there. Lent; the last 8 stay valid. */
const char *test_data(const char *relative);
/* The same; the test is skipped when it is not there, and run.sh names it at the end. */
const char *test_need_data(const char *relative);
/* A fresh directory below the build folder, removed at exit. Lent. */
const char *test_dir(void);
/* The path of a file there. Lent; those of the last 16 names stay valid. */
const char *test_path(const char *name);
/* Write n bytes to a file / read a whole file (mem_free). Fail the test on error. */
void test_write(const char *path, const void *data, size_t n);
void *test_read(const char *path, size_t *n);
/* Take the warnings that were logged: was one of them `code`? */
bool test_warned(const char *code);
/* The seed of this run: TEST_SEED from the environment, else 1. Printed on failure by
 * you. */
uint64_t test_seed(void);

#endif
