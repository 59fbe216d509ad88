#include "tests/support/test.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"

/* TEST_ONLY=NAME in the environment, which may hold * and ?, leaves out all other tests. */
__attribute__((constructor)) static void choose_tests(void)
{
    if (getenv("TEST_ONLY"))
        cmocka_set_test_filter(getenv("TEST_ONLY"));
}

static struct {
    struct test_entry tests[64];
    struct CMUnitTest sorted[64];
    size_t n;
    CMFixtureFunction before, after;
} group;

void test_add(const struct test_entry *t)
{
    assert_true(group.n < sizeof(group.tests) / sizeof(group.tests[0]));
    group.tests[group.n++] = *t;
}

void test_group(CMFixtureFunction before, CMFixtureFunction after)
{
    group.before = before;
    group.after = after;
}

static int by_order(const void *a, const void *b)
{
    return ((const struct test_entry *)a)->order - ((const struct test_entry *)b)->order;
}

int test_main(void)
{
    qsort(group.tests, group.n, sizeof(group.tests[0]), by_order);
    for (size_t i = 0; i < group.n; i++)
        group.sorted[i] = group.tests[i].test;
    return _cmocka_run_group_tests(program_invocation_short_name, group.sorted, group.n,
                                   group.before, group.after);
}

__attribute__((weak)) int main(void)
{
    return test_main();
}

const char *test_data(const char *relative)
{
    static const char hwloc[] = "hwloc/";
    static char ring[8][1024];
    static int at;
    const char *root = getenv("SANDWICH_DATA");
    char *p = ring[at++ % 8];

    snprintf(p, sizeof(ring[0]), "%s/%s", root ? root : "../shared/data", relative);
    if (access(p, R_OK) != 0 && strncmp(relative, hwloc, sizeof(hwloc) - 1) == 0)
        snprintf(p, sizeof(ring[0]), "datasets/topologies/%s",
                 relative + sizeof(hwloc) - 1);
    return access(p, R_OK) == 0 ? p : NULL;
}

const char *test_need_data(const char *relative)
{
    const char *path = test_data(relative);

    if (!path)
        test_skip("%s is not in $SANDWICH_DATA", relative);
    return path;
}

static char dir[256];

static void remove_dir(void)
{
    char cmd[300];

    snprintf(cmd, sizeof(cmd), "rm -rf '%s'", dir);
    if (system(cmd) != 0)
        fprintf(stderr, "cannot remove %s\n", dir);
}

const char *test_dir(void)
{
    const char *build = getenv("BUILD");

    if (dir[0])
        return dir;
    snprintf(dir, sizeof(dir), "%s/tmp.XXXXXX", build ? build : "build");
    if (!mkdtemp(dir))
        fail_msg("cannot make %s", dir);
    atexit(remove_dir);
    return dir;
}

const char *test_path(const char *name)
{
    static char ring[16][600];
    static int at;
    size_t n_dir = strlen(test_dir());

    for (int i = 0; i < 16; i++)
        if (ring[i][0] && strcmp(ring[i] + n_dir + 1, name) == 0)
            return ring[i];
    at = (at + 1) % 16;
    snprintf(ring[at], sizeof(ring[0]), "%s/%s", test_dir(), name);
    return ring[at];
}

void test_write(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");

    if (!f || fwrite(data, 1, n, f) != n || fclose(f) != 0)
        fail_msg("cannot write %s", path);
}

void *test_read(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    struct stat st;
    char *p;

    if (!f || fstat(fileno(f), &st) != 0)
        fail_msg("cannot read %s", path);
    p = mem_new(MEM_TEST, (size_t)st.st_size + 1, 1);
    if (!p || fread(p, 1, (size_t)st.st_size, f) != (size_t)st.st_size)
        fail_msg("cannot read %s", path);
    fclose(f);
    *n = (size_t)st.st_size;
    return p;
}

bool test_warned(const char *code)
{
    struct log_warning w[8];
    bool found = false;

    for (int i = log_warnings_take(w, 8) - 1; i >= 0; i--)
        found |= strcmp(w[i].code, code) == 0;
    return found;
}

uint64_t test_seed(void)
{
    const char *s = getenv("TEST_SEED");

    return s ? strtoull(s, NULL, 0) : 1;
}
