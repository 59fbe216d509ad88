/* Plans that are kept: made once by a scripted `sandwich`, and again where anything that they
 * depend on has changed. */
#include "tests/support/test.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "baselines/plan_cache.h"
#include "baselines/sut.h"

static char dir[400], model[400], program[400], calls[400];

/* It writes its words into a file, a line for each call, and a plan where --out says. */
static int prepare(void **state)
{
    char text[1200];

    (void)state;
    snprintf(dir, sizeof(dir), "%s/plans", test_dir());
    snprintf(model, sizeof(model), "%s/m-bf16.gguf", test_dir());
    snprintf(calls, sizeof(calls), "%s/calls", test_dir());
    snprintf(program, sizeof(program), "%s/sandwich", test_dir());
    snprintf(text, sizeof(text),
             "#!/bin/sh\n"
             "echo \"$SANDWICH_ISA:$*\" >>%s\n"
             "case \"$*\" in *vllmpp*) echo 'no such plan' >&2; exit 3;; esac\n"
             "while [ $# -gt 1 ]; do shift; done\n"
             "echo '{\"made\": \"up\"}' >\"$1\"\n",
             calls);
    test_write(program, text, strlen(text));
    test_write(model, "weights", 7);
    return chmod(program, 0755);
}

static int n_calls(void)
{
    char *text;
    size_t n;
    int lines = 0;

    if (access(calls, F_OK) != 0)
        return 0;
    text = test_read(calls, &n);
    for (size_t i = 0; i < n; i++)
        lines += text[i] == '\n';
    mem_free(text);
    return lines;
}

static struct sut_plan_request request(enum sut_plan_by by)
{
    return (struct sut_plan_request){.by = by,
                                     .model = model,
                                     .weight_type = "file",
                                     .precision = "exact",
                                     .kv_type = "f32",
                                     .isa = "auto",
                                     .dir = dir,
                                     .program = program};
}

/* The plan is made (or found), and `words` were given to the program. */
static struct sut_plan get(const struct sut_plan_request *r, bool reused,
                           const char *words)
{
    struct sut_plan p = {.path = ""};
    int before = n_calls();

    assert_ok(sut_plan_get(&p, r));
    assert_int_equal(p.reused, reused);
    assert_int_equal(n_calls() - before, !reused);
    assert_int_equal(access(p.path, R_OK), 0);
    assert_true(p.made_s > 0);
    if (words) {
        size_t n;
        char *text = test_read(calls, &n);

        if (!strstr(text, words))
            fail_msg("\"%s\" is not in:\n%s", words, text);
        mem_free(text);
    }
    return p;
}

TEST(a_plan_is_made_once)
{
    struct sut_plan_request r = request(SUT_PLAN_ONE);
    struct sut_plan a, b;

    a = get(&r, false, " --method one_plan --precision exact --kv-type f32 --out ");
    b = get(&r, true, NULL);
    assert_string_equal(a.path, b.path);
    assert_true(a.made_s == b.made_s);
    assert_non_null(strstr(a.path, "/plans/m-bf16.gguf-one_plan-"));
}

TEST(each_way_has_its_words)
{
    struct sut_plan_request r = request(SUT_PLAN_SEARCH);

    get(&r, false, " --method search --precision exact --kv-type f32 --out ");
    r.by = SUT_PLAN_EVEN_SPLIT;
    get(&r, false, " --method even_split ");
    r.ranks = 2;
    get(&r, false,
        " --method even_split --precision exact --kv-type f32 --ranks 2 --out ");
    r = request(SUT_PLAN_SEARCH);
    r.by = SUT_PLAN_TUNED;
    r.budget = "90s";
    get(&r, false,
        " --method search --precision exact --kv-type f32 --tune --budget 90s --out ");
}

/* Any of these is another plan; after all of them the first one is still there. */
TEST(a_change_makes_another_plan)
{
    struct sut_plan_request r = request(SUT_PLAN_ONE);
    struct sut_plan first, other;
    const struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};

    first = get(&r, true, NULL);
    r.precision = "relaxed";
    get(&r, false, "--precision relaxed");
    r = request(SUT_PLAN_ONE);
    r.kv_type = "q8";
    get(&r, false, "--kv-type q8");
    r = request(SUT_PLAN_ONE);
    r.weight_type = "bf16";
    get(&r, false, "--type bf16");
    r = request(SUT_PLAN_ONE);
    r.isa = "ref";
    get(&r, false, "ref:plan --model ");
    r = request(SUT_PLAN_ONE);
    assert_int_equal(utimensat(AT_FDCWD, model, times, 0), 0);
    other = get(&r, false, NULL);
    assert_string_not_equal(first.path, other.path);
    /* What it says of itself counts, not its name. */
    snprintf(other.path + strlen(other.path) - 5, 16, ".made.json");
    test_write(other.path, "{}", 2);
    get(&r, false, NULL);
    assert_int_equal(unlink(other.path), 0);
    get(&r, false, NULL);
    get(&r, true, NULL);
}

TEST(what_fails_is_an_error_and_is_not_kept)
{
    struct sut_plan_request r = request(SUT_PLAN_VLLMPP);
    struct sut_plan p;

    assert_err(sut_plan_get(&p, &r), ERR_IO, "`sandwich plan --method vllmpp` for ");
    assert_err(sut_plan_get(&p, &r), ERR_IO, "exited with status 3");
    r.program = "/no/such/program";
    assert_err(sut_plan_get(&p, &r), ERR_NOTFOUND, "/no/such/program");
    r = request(SUT_PLAN_ONE);
    r.model = "/no/such/model";
    assert_err(sut_plan_get(&p, &r), ERR_NOTFOUND,
               "/no/such/model: cannot find the model");
    r = request(SUT_PLAN_ONE);
    r.isa = "avx3";
    assert_err(sut_plan_get(&p, &r), ERR_ARG, "avx3");
}

TEST(the_adapter_refuses_two_plans)
{
    const struct sut_adapter *a;
    struct sut *s;
    json_t *config = json_pack("{s:s, s:s, s:s}", "plan", "p.json", "plan_by", "one_plan",
                               "model", model);

    assert_ok(sut_adapter_find("sandwich", &a));
    assert_err(a->open(&s, config, NULL, NULL), ERR_ARG,
               "plan and plan_by exclude each other");
    assert_null(s);
    json_object_del(config, "plan");
    json_object_del(config, "model");
    assert_err(a->open(&s, config, NULL, NULL), ERR_ARG, "plan_by needs a model");
    json_object_set_new(config, "model", json_string(model));
    json_object_set_new(config, "plan_ranks", json_integer(2));
    assert_err(a->open(&s, config, NULL, NULL), ERR_ARG,
               "plan_ranks is for plan_by=even_split");
    json_decref(config);
}

TEST_GROUP(prepare, NULL);
