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

static void gguf(void **state)
{
    (void)state;
    replay("gguf", fuzz_gguf);
}

static void safetensors(void **state)
{
    (void)state;
    replay("safetensors", fuzz_safetensors);
}

static void llama2c(void **state)
{
    (void)state;
    replay("llama2c", fuzz_llama2c);
}

static void config(void **state)
{
    (void)state;
    replay("config", fuzz_config);
}

static void tok(void **state)
{
    (void)state;
    replay("tok", fuzz_tok);
}

static void plan(void **state)
{
    (void)state;
    replay("plan", fuzz_plan);
}

static void request(void **state)
{
    (void)state;
    replay("request", fuzz_request);
}

static void machine_params(void **state)
{
    (void)state;
    replay("machine_params", fuzz_machine_params);
}

static void card(void **state)
{
    (void)state;
    replay("card", fuzz_card);
}

static void topology(void **state)
{
    (void)state;
    replay("topology", fuzz_topology);
}

static void cache(void **state)
{
    (void)state;
    replay("cache", fuzz_cache);
}

static void journal(void **state)
{
    (void)state;
    replay("journal", fuzz_journal);
}

static void record(void **state)
{
    (void)state;
    replay("record", fuzz_record);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gguf),    cmocka_unit_test(safetensors),
        cmocka_unit_test(llama2c), cmocka_unit_test(config),
        cmocka_unit_test(tok),     cmocka_unit_test(request),
        cmocka_unit_test(plan),    cmocka_unit_test(machine_params),
        cmocka_unit_test(card),    cmocka_unit_test(topology),
        cmocka_unit_test(cache),   cmocka_unit_test(journal),
        cmocka_unit_test(record),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
