/* Where the files are that come with the programs. */
#include "base/home.h"

#include <unistd.h>

#include "base/file.h"
#include "tests/support/test.h"

static char out[4096];

TEST(near_the_program)
{
    assert_int_equal(unsetenv(HOME_ENV), 0);
    assert_true(out == home_find(out, sizeof(out), "experiments/quickstart.json"));
    assert_int_equal(out[0], '/');
    assert_int_equal(access(out, R_OK), 0);
    home_find(out, sizeof(out), "engine/simulate/machines");
    assert_int_equal(access(out, R_OK), 0);
}

TEST(what_is_nowhere_is_itself)
{
    home_find(out, sizeof(out), "no/such file");
    assert_string_equal(out, "no/such file");
    home_find(out, sizeof(out), "/experiments/quickstart.json");
    assert_string_equal(out, "/experiments/quickstart.json");
    home_program(out, sizeof(out), "no-such-program");
    assert_string_equal(out, "no-such-program");
    home_program(out, sizeof(out), "/bin/sh");
    assert_string_equal(out, "/bin/sh");
}

TEST(the_environment_comes_first)
{
    char file[400], want[400];

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
TEST(programs)
{
    const char *build = getenv("BUILD");
    char want[400];

    home_program(out, sizeof(out), "sandwich");
    snprintf(want, sizeof(want), "%s/sandwich", build ? build : "build");
    assert_non_null(strstr(out, want));
    assert_int_equal(access(out, X_OK), 0);
    home_program(out, sizeof(out), "gen"); /* a folder next to it */
    assert_string_equal(out, "gen");
    home_program(out, sizeof(out), "libsandwich.a");
    assert_string_equal(out, "libsandwich.a");
}

TEST(a_short_buffer_is_not_overrun)
{
    char small[8], name[5000];

    home_find(small, sizeof(small), "experiments/quickstart.json");
    assert_string_equal(small, "experim");
    memset(name, 'x', sizeof(name));
    name[sizeof(name) - 1] = '\0';
    home_find(out, sizeof(out), name);
    assert_int_equal(strlen(out), sizeof(out) - 1);
}
