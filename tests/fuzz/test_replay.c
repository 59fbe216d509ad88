/* Every input of the corpus (seeds, and whatever a fuzzer once found) through its parser.
 */
#include "tests/support/test.h"

#include <dirent.h>

#include "tests/fuzz/targets.h"

static void replay(const char *name, int (*target)(const uint8_t *, size_t))
{
    char dir[64], path[400];
    struct dirent *e;
    uint8_t *data;
    size_t n;
    int count = 0;
    DIR *d;

    snprintf(dir, sizeof(dir), "tests/fuzz/corpus/%s", name);
    printf("# %s\n", dir); /* says which, should it abort */
    d = opendir(dir);
    assert_non_null(d);
    while ((e = readdir(d)) != NULL) {
        if (e->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
        data = test_read(path, &n);
        assert_int_equal(target(data, n), 0); /* aborts on an unsound outcome */
        mem_free(data);
        count++;
    }
    closedir(d);
    assert_true(count >= 2); /* at least a good file and a bad one */
}

TEST(every_input_of_the_corpus)
{
    for (int i = 0; i < FUZZ_N_TARGETS; i++)
        replay(fuzz_targets[i].name, fuzz_targets[i].run);
}
