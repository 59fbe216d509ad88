/* --roles: what it may say, what it may not, and whose CPUs are whose. */
#include "roles/control.h"
#include "roles/spec.h"
#include "tests/support/test.h"

static struct serve_opts base(void)
{
    struct serve_opts o;

    assert_ok(opt_init(serve_opt_table, &o));
    assert_ok(opt_set(serve_opt_table, &o, "kv_alloc", "s3", "test"));
    o.threads = 3;
    return o;
}

TEST(options_of_a_kind)
{
    struct serve_opts o = base();
    struct roles_spec s;

    assert_ok(
        roles_spec_parse(&s, "token=2:kv_alloc=paged:threads=1,prompt=1:ranks=2", &o));
    assert_int_equal(s.n[CLUSTER_PROMPT], 1);
    assert_int_equal(s.n[CLUSTER_TOKEN], 2);
    assert_int_equal(s.n[CLUSTER_MIXED], 0);
    assert_string_equal(s.engine[CLUSTER_TOKEN].kv_alloc, "paged");
    assert_string_equal(s.engine[CLUSTER_PROMPT].kv_alloc, "s3");
    assert_int_equal(s.engine[CLUSTER_TOKEN].threads, 1);
    assert_int_equal(s.engine[CLUSTER_PROMPT].threads, 3);
    assert_int_equal(s.engine[CLUSTER_PROMPT].ranks, 2);
    assert_string_equal(o.kv_alloc, "s3");
    roles_spec_free(&s);
    assert_ok(roles_spec_parse(&s, "mixed=16", &o));
    assert_int_equal(s.n[CLUSTER_MIXED], 16);
    roles_spec_free(&s);
    opt_free(serve_opt_table, &o);
}

TEST(mistakes)
{
    static const struct {
        const char *text, *why;
    } all[] = {
        {"", "found \"\""},
        {"prompt=1,,token=1", "found \"\" in"},
        {"prompt=1,token=1,", "found \"\" in"},
        {"prompt=0,token=1", "from 1 to 16, found \"0\""},
        {"prompt=1,token=17", "from 1 to 16, found \"17\""},
        {"prompt=1x,token=1", "found \"1x\""},
        {"prompt,token=1", "expected KIND=N, found \"prompt\""},
        {"promt=1,token=1", "did you mean \"prompt\"?"},
        {"prompt=1,prompt=2", "prompt: given twice"},
        {"prompt=1", "1 prompt machines, 0 token machines"},
        {"prompt=1:threads,token=1", "OPTION=VALUE behind a colon, found \"threads\""},
        {"prompt=1:thread=1,token=1", "did you mean \"threads\"?"},
        {"prompt=1:threads=x,token=1", "roles: prompt: threads=x: expected an integer"},
        {"prompt=1:kv_type=bf16,token=1", "kv_type is that of all machines"},
        {"prompt=1,token=1:model=b.gguf", "model is that of all machines"},
    };
    struct serve_opts o = base();

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        struct roles_spec s;

        assert_err(roles_spec_parse(&s, all[i].text, &o), ERR_ARG, all[i].why);
        roles_spec_free(&s);
    }
    opt_free(serve_opt_table, &o);
}

TEST(machines_do_not_guess)
{
    struct roles_setup u = {0};
    struct serve_opts o;

    assert_ok(opt_init(serve_opt_table, &o));
    assert_ok(opt_set(serve_opt_table, &o, "draft", "lookup", "test"));
    assert_err(roles_setup_parse(&u, "prompt=1,token=1", &o), ERR_UNSUPPORTED,
               "draft: not with prompt and token machines");
    roles_spec_free(&u.spec);
    opt_free(serve_opt_table, &o);
}

/* By all threads of up to four machines on up to nine CPUs. */
TEST(cpus_are_divided)
{
    for (int n = 1; n <= 4; n++)
        for (int code = 0; code < 256; code++)
            for (int n_cpus = 1; n_cpus <= 9; n_cpus++) {
                int64_t threads[4];
                int lo[5], sum = 0, n_equal = 0, least = 9, most = 0;

                for (int i = 0; i < n; i++) {
                    threads[i] = code >> (2 * i) & 3;
                    sum += (int)threads[i];
                    n_equal += threads[i] == 0;
                }
                if (sum + n_equal > n_cpus) {
                    assert_false(roles_divide_cpus(lo, threads, n, n_cpus));
                    continue;
                }
                assert_true(roles_divide_cpus(lo, threads, n, n_cpus));
                assert_int_equal(lo[0], 0);
                assert_int_equal(lo[n], n_equal ? n_cpus : sum);
                for (int i = 0; i < n; i++) {
                    int got = lo[i + 1] - lo[i];

                    if (threads[i] > 0) {
                        assert_int_equal(got, threads[i]);
                        continue;
                    }
                    least = got < least ? got : least;
                    most = got > most ? got : most;
                }
                assert_true(n_equal == 0 || (least >= 1 && most - least <= 1));
            }
}
