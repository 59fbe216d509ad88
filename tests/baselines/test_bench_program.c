/* Bench programs of engines: what they are asked, the tables that they print, and programs that
 * fail, hang or print something else. The programs are scripts that this test writes. */
#include "tests/support/leftovers.h"
#include "tests/support/test.h"

#include <limits.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "baselines/bench_program.h"
#include "cpu/cpu.h"

static const char *script(const char *name, const char *text)
{
    static char path[PATH_MAX];
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", test_dir(), name);
    f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "#!/bin/sh\n%s\n", text);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(path, 0755), 0);
    return path;
}

/* A file whose bench is `program`, with the members of `more` replaced or added. Lent. */
static const char *system_of(const char *program, const char *more)
{
    static char path[PATH_MAX];
    json_t *bench = json_pack(
        "{s:s, s:[s, s], s:[s, s, s, s, s, s], s:[s, s, s, s, s, s], s:s,"
        " s:{s:s, s:s, s:s, s:s, s:s}}",
        "program", program, "version", "{program}", "--version", "prefill", "{program}",
        "prefill", "{n_prompt}", "{model}", "{threads}", "{ctx}", "decode", "{program}",
        "decode", "{n_output}", "{batch}", "{precision}", "{ctx}", "separator", "|",
        "columns", "n_prompt", "PP", "n_output", "TG", "batch", "B", "prefill_tok_s",
        "S_PP t/s", "decode_tok_s", "S_TG t/s");
    json_t *change = json_loads(more, 0, NULL);
    json_t *file = json_pack("{s:s, s:o}", "about", "this test", "bench", bench);

    assert_non_null(file);
    assert_non_null(change);
    json_object_update(bench, change);
    snprintf(path, sizeof(path), "%s/bench.json", test_dir());
    assert_ok(json_write_file(file, path));
    json_decref(change);
    json_decref(file);
    return path;
}

static int open_bench(struct sut_bench **out, const char *system, const char *isa)
{
    static struct cpu_budget budget;

    assert_ok(cpu_budget_get(&budget));
    return sut_bench_open(out, &(struct sut_bench_opts){.system = system,
                                                        .model = "m.gguf",
                                                        .isa = isa,
                                                        .precision = "a8",
                                                        .cpus = budget.cpus,
                                                        .n_threads = 1,
                                                        .limit_s = 20});
}

/* Says what it was asked, as another program's log would stand before and behind its table. */
#define PRINTS                                                                           \
    "[ \"$1\" = --version ] && { echo 'scripted 7'; exit; }\n"                           \
    "echo \"loading | $*\" >&2; echo \"$@\" >>\"$0.asked\"\n"                            \
    "echo '|    PP |     TG |    B |   N_KV | S_PP t/s | S_TG t/s |'\n"                  \
    "echo '|-------|--------|------|--------|----------|----------|'\n"                  \
    "echo '|    16 |      1 |    1 |     17 |   160.50 |    12.00 |'\n"                  \
    "echo '|   512 |      1 |    1 |    513 |    51.25 |    11.00 |'\n"                  \
    "echo '|   512 |      1 |    4 |    513 |    99.00 |    11.00 |'\n"                  \
    "echo '|    16 |     32 |    1 |     48 |   160.50 |    10.50 |'\n"                  \
    "echo '|    16 |     32 |    4 |    192 |     7.00 |    40.25 |'\n"                  \
    "echo '|    16 |     32 |    8 |    192 |     7.00 |      nan |'\n"                  \
    "echo 'timings | 1 | 2'\n"

TEST(speeds_are_read_from_the_table)
{
    static const int64_t prompts[] = {16, 128, 512}, batches[] = {1, 4, 8};
    const int fds = left_fds();
    char path[PATH_MAX + 8];
    struct sut_bench *b;
    double tok_s[3];
    char *asked;
    size_t n;

    snprintf(path, sizeof(path), "%s", script("prints", PRINTS));
    assert_ok(open_bench(&b,
                         system_of(path, "{\"settings\": {\"plain\": [],"
                                         " \"repacked\": [\"-rtr\", \"{threads}\"]}}"),
                         NULL));
    assert_string_equal(sut_bench_version(b), "scripted 7");
    assert_int_equal(sut_bench_n_settings(b), 2);
    assert_string_equal(sut_bench_setting(b, 1), "repacked");
    assert_ok(sut_bench_prefill(b, 0, prompts, 3, tok_s));
    assert_true(tok_s[0] == 160.5 && isnan(tok_s[1]) && tok_s[2] == 51.25);
    assert_ok(sut_bench_decode(b, 1, batches, 3, 32, tok_s));
    assert_true(tok_s[0] == 10.5 && tok_s[1] == 40.25 && isnan(tok_s[2]));
    sut_bench_close(&b);
    assert_null(b);
    strcat(path, ".asked");
    assert_ok(file_read(&asked, &n, path, 1 << 16));
    assert_string_equal(asked, "prefill 16,128,512 m.gguf 1 576\n"
                               "decode 32 1,4,8 a8 768 -rtr 1\n");
    mem_free(asked);
    left_no_child();
    assert_int_equal(left_fds(), fds);
}

/* As this engine and llama-bench print it: quoted or not, one row a test, one column of speed. */
TEST(a_table_with_commas)
{
    static const int64_t prompts[] = {16}, batches[] = {1, 2};
    char path[PATH_MAX];
    struct sut_bench *b;
    double tok_s[2];

    snprintf(path, sizeof(path), "%s",
             script("commas",
                    "echo 'n_gen,ser,\"n_prompt\",avg_ts'; echo '0,\"-1,0\",16,\"99.5\"';"
                    "echo '32,-,0,12.5'; echo '32,-,0'"));
    assert_ok(open_bench(
        &b,
        system_of(path, "{\"separator\": \",\", \"columns\": {\"n_prompt\": \"n_prompt\","
                        " \"n_output\": \"n_gen\", \"prefill_tok_s\": \"avg_ts\","
                        " \"decode_tok_s\": \"avg_ts\"}}"),
        NULL));
    assert_int_equal(sut_bench_n_settings(b), 1);
    assert_string_equal(sut_bench_setting(b, 0), "default");
    assert_ok(sut_bench_prefill(b, 0, prompts, 1, tok_s));
    assert_true(tok_s[0] == 99.5);
    assert_ok(sut_bench_decode(b, 0, batches, 2, 32, tok_s));
    assert_true(tok_s[0] == 12.5 && isnan(tok_s[1]));
    sut_bench_close(&b);
}

TEST(an_instruction_set_has_a_program_of_its_own)
{
    static const int64_t prompts[] = {16};
    char plain[PATH_MAX], limited[PATH_MAX], more[3 * PATH_MAX];
    struct sut_bench *b;
    double tok_s;

    snprintf(plain, sizeof(plain), "%s", script("full", "exit 3"));
    snprintf(limited, sizeof(limited), "%s",
             script("narrow", "echo '|PP|TG|B|S_PP t/s|S_TG t/s|';"
                              "echo \"|16|0|1|$SCRIPTED_SPEED|0|\""));
    snprintf(more, sizeof(more),
             "{\"isa\": {\"narrow\": {\"program\": \"%s\","
             " \"env\": {\"SCRIPTED_SPEED\": \"5{threads}\"}}}}",
             limited);
    assert_ok(open_bench(&b, system_of(plain, more), "narrow"));
    assert_ok(sut_bench_prefill(b, 0, prompts, 1, &tok_s));
    assert_true(tok_s == 51);
    sut_bench_close(&b);
    assert_err(open_bench(&b, system_of(plain, more), "sse"), ERR_UNSUPPORTED,
               "bench.isa: nothing for \"sse\"");
}

TEST(programs_that_fail)
{
    static const int64_t prompts[] = {16};
    struct sut_bench *b;
    double tok_s;

    assert_err(open_bench(&b, system_of("no-such-bench", "{}"), NULL), ERR_UNSUPPORTED,
               "no-such-bench: not found, see \"install\" in ");
    assert_null(b);
    assert_err(
        open_bench(&b, system_of(script("broken", "echo no library; exit 1"), "{}"),
                   NULL),
        ERR_UNSUPPORTED, "exited with status 1; the last line it wrote: no library");
    assert_ok(open_bench(
        &b, system_of(script("half", "[ \"$1\" = --version ] || exit 4"), "{}"), NULL));
    assert_err(sut_bench_prefill(b, 0, prompts, 1, &tok_s), ERR_IO,
               "bench.json: exited with status 4; it wrote nothing");
    sut_bench_close(&b);
    assert_ok(open_bench(&b, system_of(script("mute", "echo nothing"), "{}"), NULL));
    assert_err(sut_bench_decode(b, 0, prompts, 1, 4, &tok_s), ERR_FORMAT,
               "bench.json: printed no table with the columns of ");
    sut_bench_close(&b);
    left_no_child();
}

/* It crashes while it cleans up: what it measured before stands, unless something is missing. */
TEST(one_that_crashes_after_its_table)
{
    static const int64_t prompts[] = {16, 512, 128};
    struct log_warning w;
    struct sut_bench *b;
    double tok_s[3];

    assert_ok(
        open_bench(&b, system_of(script("crashes", PRINTS "kill -SEGV $$"), "{}"), NULL));
    while (log_warnings_take(&w, 1))
        continue;
    assert_ok(sut_bench_prefill(b, 0, prompts, 2, tok_s));
    assert_true(tok_s[0] == 160.5 && tok_s[1] == 51.25);
    assert_int_equal(log_warnings_take(&w, 1), 1);
    assert_string_equal(w.code, "failed_after_measuring");
    assert_non_null(strstr(w.text, "signal 11"));
    assert_err(sut_bench_prefill(b, 0, prompts, 3, tok_s), ERR_IO, "ended by signal 11");
    assert_int_equal(log_warnings_take(&w, 1), 0);
    sut_bench_close(&b);
    left_no_child();
}

TEST(one_that_does_not_end)
{
    static const int64_t prompts[] = {16};
    static struct cpu_budget budget;
    struct sut_bench *b;
    double tok_s;

    assert_ok(cpu_budget_get(&budget));
    assert_ok(sut_bench_open(
        &b, &(struct sut_bench_opts){
                .system = system_of(
                    script("hangs", "[ \"$1\" = --version ] || exec sleep 100"), "{}"),
                .model = "m",
                .precision = "a8",
                .cpus = budget.cpus,
                .n_threads = 1,
                .limit_s = 0.2}));
    assert_err(sut_bench_prefill(b, 0, prompts, 1, &tok_s), ERR_LIMIT,
               "bench.json: did not end within 0.2 s");
    sut_bench_close(&b);
    left_no_child();
}

TEST(files_are_checked)
{
    static const struct {
        const char *more, *error;
    } cases[] = {
        {"{\"prefil\": []}", "unknown key \"prefil\"; did you mean \"prefill\"?"},
        {"{\"separator\": \";\"}",
         "bench.separator: expected \",\" or \"|\", found \";\""},
        {"{\"settings\": {}}", "bench.settings: expected an object"},
        {"{\"settings\": []}", "bench.settings: expected an object"},
        {"{\"settings\": {\"a\": \"-x\"}}", "bench.settings.a: expected a list of words"},
        {"{\"columns\": {\"n_prompt\": \"PP\"}}",
         "bench.columns.n_output: expected a title"},
        {"{\"columns\": {\"n_prompts\": \"PP\"}}", "did you mean \"n_prompt\"?"},
        {"{\"decode\": []}", "bench.decode: expected a list of words"},
        {"{\"prefill\": \"x\"}", "bench.prefill: expected a list of words"},
    };
    char path[PATH_MAX];
    struct sut_bench *b;

    snprintf(path, sizeof(path), "%s", script("sound", "exit 0"));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (open_bench(&b, system_of(path, cases[i].more), NULL) != ERR_FORMAT ||
            !strstr(err_msg(), cases[i].error))
            fail_msg("%s: \"%s\"", cases[i].more, err_msg());
        assert_null(b);
    }
    assert_err(open_bench(&b, "vllm-cpu", NULL), ERR_UNSUPPORTED, "has no \"bench\"");
    assert_err(open_bench(&b, "llama", NULL), ERR_NOTFOUND, "no system \"llama\"");
}

/* Each file that is shipped: what it runs is complete. */
TEST(shipped_files_are_sound)
{
    static const char *const names[] = {"sandwich", "llama.cpp", "ik_llama.cpp"};
    struct sut_bench *b;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        int rc = open_bench(&b, names[i], NULL);

        if (rc != OK && rc != ERR_UNSUPPORTED)
            fail_msg("%s: %s", names[i], err_msg());
        sut_bench_close(&b);
    }
}

int main(void)
{
    return test_main();
}
