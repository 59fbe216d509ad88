#include "tests/support/test.h"

#include <unistd.h>

#include "experiments/record/env.h"
#include "experiments/record/provenance.h"
#include "topo/machine.h"

TEST(provenance)
{
    static const char *const keys[] = {"version", "commit", "compiler",
                                       "flags",   "arch",   "isa"};
    json_t *a, *b;

    a = provenance_json();
    b = provenance_json();
    assert_true(json_equal(a, b));
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        assert_true(json_string_length(json_object_get(a, keys[i])) > 0);
    assert_true(json_is_boolean(json_object_get(a, "dirty")));
    json_decref(a);
    json_decref(b);
}

/* No leaf is missing, empty or null: it is a value or says why there is none. */
static void check_leaves(const json_t *v, const char *where, int *n)
{
    const char *key;
    size_t i;
    json_t *child;

    if (json_is_object(v)) {
        json_object_foreach((json_t *)v, key, child) check_leaves(child, key, n);
    } else if (json_is_array(v)) {
        json_array_foreach(v, i, child) check_leaves(child, where, n);
    } else {
        if (json_is_null(v))
            fail_msg("%s is null", where);
        ++*n;
    }
}

TEST(environment)
{
    static const char *const paths[][2] = {
        {"cpu", "microcode"},       {"cpu", "governor"},
        {"cpu", "model_name"},      {"kernel", "thp_enabled"},
        {"kernel", "release"},      {"kernel", "perf_event_paranoid"},
        {"kernel", "load_average"}, {"kernel", "numa_balancing"},
        {"memory", "total"},        {"process", "cpus_allowed"},
        {"versions", "hdf5"},       {"versions", "hwloc"},
        {"versions", "jansson"},    {"versions", "libc"},
        {"cgroup", "version"},
    };
    struct topo_machine *machine;
    json_t *env;
    int n = 0;

    /* as the programs do: it is what links hwloc, whose version is then known */
    assert_ok(topo_machine_open(&machine, "synthetic:core:2 pu:1"));
    topo_machine_close(&machine);
    env = env_json();
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        if (!json_object_get(json_object_get(env, paths[i][0]), paths[i][1]))
            fail_msg("no %s.%s", paths[i][0], paths[i][1]);
    check_leaves(env, "environment", &n);
    assert_true(n > 40);
    assert_true(json_string_length(
                    json_object_get(json_object_get(env, "versions"), "hwloc")) >= 5);
    json_decref(env);
}

/* Regression: records kept the whole command line, with what it tells of the machine's owner. */
TEST(only_parameters_that_matter)
{
    json_t *v =
        env_parameters_json("BOOT_IMAGE=/boot/x root=UUID=1 isolcpus=2-3 quiet  nosmt "
                            "hugepagesz=1G idle=poll init=/secret -- idle=no\n");
    char *text = json_dumps(v, JSON_COMPACT);

    assert_string_equal(text,
                        "[\"isolcpus=2-3\",\"nosmt\",\"hugepagesz=1G\",\"idle=poll\"]");
    free(text);
    json_decref(v);
    v = env_parameters_json("");
    assert_int_equal(json_array_size(v), 0);
    json_decref(v);
}

TEST(unreadable_says_why)
{
    char path[600], small[4];
    json_t *v = env_read_json("/nonexistent/file");

    assert_string_equal(json_string_value(json_object_get(v, "unavailable")),
                        "/nonexistent/file: No such file or directory");
    json_decref(v);
    snprintf(path, sizeof(path), "%s/fields", test_dir());
    test_write(path, "model name extra : no\nmodel name\t: a b  \nflags:\nlast : 1", 57);
    v = env_field_json(path, "model name");
    assert_string_equal(json_string_value(v), "a b");
    json_decref(v);
    v = env_field_json(path, "flags");
    assert_string_equal(json_string_value(v), "");
    json_decref(v);
    v = env_field_json(path, "last");
    assert_string_equal(json_string_value(v), "1");
    json_decref(v);
    v = env_field_json(path, "none");
    assert_non_null(
        strstr(json_string_value(json_object_get(v, "unavailable")), "no such"));
    json_decref(v);
    assert_string_equal(env_read(path, small, sizeof(small)), "mod");
    assert_null(
        env_read(test_dir(), small, sizeof(small))); /* a folder opens, reads not */
}

TEST(host)
{
    char whole[256], cut[3];

    env_host(whole, sizeof(whole));
    assert_true(strlen(whole) > 0);
    env_host(cut, sizeof(cut));
    assert_true(strlen(cut) < 3);
}
