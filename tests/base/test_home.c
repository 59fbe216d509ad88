/* Where the files are that come with the programs. */
#include "base/home.h"

#include <unistd.h>

#include "base/file.h"
#include "tests/support/test.h"

static char out[4096];

static void near_the_program(void **state)
{
    (void)state;
    assert_int_equal(unsetenv(HOME_ENV), 0);
    assert_true(out == home_find(out, sizeof(out), "experiments/quickstart.json"));
    assert_int_equal(out[0], '/');
    assert_int_equal(access(out, R_OK), 0);
    home_find(out, sizeof(out), "engine/simulate/machines");
    assert_int_equal(access(out, R_OK), 0);
}

static void what_is_nowhere_is_itself(void **state)
{
    (void)state;
    home_find(out, sizeof(out), "no/such file");
    assert_string_equal(out, "no/such file");
    home_find(out, sizeof(out), "/experiments/quickstart.json");
    assert_string_equal(out, "/experiments/quickstart.json");
    home_program(out, sizeof(out), "no-such-program");
    assert_string_equal(out, "no-such-program");
    home_program(out, sizeof(out), "/bin/sh");
    assert_string_equal(out, "/bin/sh");
}

static void the_environment_comes_first(void **state)
{
    char file[400], want[400];

    (void)state;
    snprintf(file, sizeof(file), "%s/experiments/quickstart.json", test_dir());
    assert_ok(file_write(file, "{}", 2));
    assert_int_equal(setenv(HOME_ENV, test_dir(), 1), 0);
    home_find(out, sizeof(out), "experiments/quickstart.json");
    snprintf(want, sizeof(want), "%s/experiments/quickstart.json", test_dir());
    assert_string_equal(out, want);
    home_find(out, sizeof(out), "datasets/fits"); /* not in that home */
    assert_int_equal(out[0], '/');
    assert_int_equal(setenv(HOME_ENV, "", 1), 0);
    home_find(out, sizeof(out), "experiments/quickstart.json");
    assert_int_equal(out[0], '/');
    assert_int_equal(unsetenv(HOME_ENV), 0);
}

/* Only a program is one: no folder, no file that cannot be executed. */
static void programs(void **state)
{
    const char *build = getenv("BUILD");
    char want[400];

    (void)state;
    home_program(out, sizeof(out), "sandwich");
    snprintf(want, sizeof(want), "%s/sandwich", build ? build : "build");
    assert_non_null(strstr(out, want));
    assert_int_equal(access(out, X_OK), 0);
    home_program(out, sizeof(out), "gen"); /* a folder next to it */
    assert_string_equal(out, "gen");
    home_program(out, sizeof(out), "libsandwich.a");
    assert_string_equal(out, "libsandwich.a");
}

static void a_short_buffer_is_not_overrun(void **state)
{
    char small[8], name[5000];

    (void)state;
    home_find(small, sizeof(small), "experiments/quickstart.json");
    assert_string_equal(small, "experim");
    memset(name, 'x', sizeof(name));
    name[sizeof(name) - 1] = '\0';
    home_find(out, sizeof(out), name);
    assert_int_equal(strlen(out), sizeof(out) - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(near_the_program),
        cmocka_unit_test(what_is_nowhere_is_itself),
        cmocka_unit_test(the_environment_comes_first),
        cmocka_unit_test(programs),
        cmocka_unit_test(a_short_buffer_is_not_overrun),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
