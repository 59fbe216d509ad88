#include "tests/job/jobs.h"

#include <unistd.h>

#include "baselines/sut.h"
#include "experiments/metrics/metrics.h"

/* The least a job needs, and `extra` keys; a "system" among them replaces ours. */
static json_t *job_text(const char *extra)
{
    const char *system =
        strstr(extra, "\"system\"") ? "" : ", \"system\": {\"adapter\": \"scripted\"}";
    char text[4096];
    json_t *j;

    snprintf(text, sizeof(text), "{\"about\": \"a test\"%s%s%s}", system,
             extra[0] ? ", " : "", extra);
    assert_ok(json_read_text(&j, text, strlen(text), "test"));
    return j;
}

static struct job *job_of(const char *extra, const struct job_read_opts *o)
{
    json_t *root = job_text(extra);
    struct job *j = NULL;

    assert_ok(job_from_json(&j, root, "test", "t.json", o));
    json_decref(root);
    return j;
}

static void refuse(const char *extra, const char *part)
{
    json_t *root = job_text(extra);
    struct job *j = NULL;
    int rc = job_from_json(&j, root, "test", "t.json", NULL);

    assert_null(j);
    if (rc == OK || !strstr(err_msg(), part) || strncmp(err_msg(), "t.json", 6) != 0)
        fail_msg("{%s}: got %s \"%s\", wanted \"t.json... %s\"", extra, err_name(rc),
                 err_msg(), part);
    json_decref(root);
}

static const json_t *setting(const struct job *j, int cell, const char *section,
                             const char *key)
{
    return json_object_get(json_object_get(j->cells[cell].settings, section), key);
}

TEST(least_job_has_all_defaults)
{
    struct job *j = job_of("", NULL);

    assert_int_equal(j->n_cells, 1);
    assert_string_equal(j->cells[0].key, "repeat=0");
    assert_string_equal(j->cells[0].label, "test");
    assert_string_equal(json_string_value(setting(j, 0, "load", "process")), "closed");
    assert_int_equal(json_integer_value(setting(j, 0, "load", "concurrency")), 1);
    assert_int_equal(json_integer_value(setting(j, 0, "seeds", "output")), 1);
    assert_string_equal(json_string_value(setting(j, 0, "dataset", "reader")), "auto");
    assert_string_equal(json_string_value(setting(j, 0, "system", "adapter")),
                        "scripted");
    assert_int_equal(json_integer_value(setting(j, 0, "system", "vocab")), 32000);
    assert_string_equal(j->evidence, "measured");
    job_free(&j);
    assert_null(j);
}

TEST(each_kind_of_evidence_has_its_word)
{
    for (int i = 0; strcmp(metrics_evidence[i], "unavailable") != 0; i++) {
        char extra[64];
        struct job *j;

        snprintf(extra, sizeof(extra), "\"evidence\": \"%s\"", metrics_evidence[i]);
        j = job_of(extra, NULL);
        assert_string_equal(j->evidence, metrics_evidence[i]);
        job_free(&j);
    }
    assert_non_null(metrics_evidence_find("published"));
    refuse("\"evidence\": \"unavailable\"", "evidence");
}

TEST(unknown_keys_name_the_nearest)
{
    refuse("\"datset\": {}", "did you mean \"dataset\"");
    refuse("\"load\": {\"proces\": \"closed\"}", "did you mean \"process\"");
    refuse("\"slo\": {\"ttft\": 1}", "did you mean \"ttft_ms\"");
    refuse("\"seeds\": {\"arival\": 1}", "did you mean \"arrival\"");
    refuse("\"dataset\": {\"fitt\": \"x\"}", "did you mean \"fit\"");
    refuse("\"system\": {\"adapter\": \"scripted\", \"ttf_ms\": 1}", "did you mean");
    refuse("\"system\": {\"adapter\": \"nul\"}", "did you mean \"null\"");
    refuse("\"claim\": {\"papr\": \"x\"}", "did you mean \"paper\"");
    refuse("\"cost\": {\"minute\": 1}", "did you mean \"minutes\"");
    refuse("\"prepare\": [{\"run\": [\"true\"], \"creates\": \"x\", \"create\": 1}]",
           "did you mean \"creates\"");
    refuse("\"headline\": [{\"name\": \"x\", \"metric\": \"p50_tftt_ms\"}]",
           "did you mean \"p50_ttft_ms\"");
    refuse("\"load\": {\"process\": \"poison\", \"rate_rps\": 1}",
           "did you mean \"poisson\"");
}

/* Regression: of two equal values on an axis the second was never measured, and shown
 * as n/a.
 * Regression: a wrong name of a data set's reader was reported after the job's models
 * had been made. */
TEST(wrong_types_are_refused)
{
    refuse("\"load\": []", "load: expected an object");
    refuse("\"needs\": \"x\"", "needs: expected a list");
    refuse("\"needs\": [1]", "needs: expected a list of texts");
    refuse("\"repeats\": 0", "repeats");
    refuse("\"repeats\": [1, 2]", "repeats");
    refuse("\"evidence\": \"guessed\"", "evidence");
    refuse("\"system\": {}", "system.adapter: expected the name");
    refuse("\"slo\": {\"scale\": 2}", "slo.scale: expected a list");
    refuse("\"slo\": {\"scale\": [1, 0]}", "element 1");
    refuse("\"load\": {\"n_requests\": []}", "load.n_requests: the list is empty");
    refuse("\"load\": {\"n_requests\": \"many\"}", "n_requests");
    refuse("\"load\": {\"n_requests\": [1, 2, 1]}",
           "load.n_requests: values 1 and 3 of the list are equal");
    refuse("\"dataset\": {\"reader\": \"azur\"}",
           "did you mean \"azure\"? (known: agent");
    refuse("\"prepare\": [{\"run\": [], \"creates\": \"x\"}]", "\"run\"");
    refuse("\"prepare\": [{\"run\": [\"true\"]}]", "\"creates\"");
    refuse("\"prepare\": [{\"run\": [\"true\"], \"creates\": \"\"}]", "expected a path");
    refuse("\"smoke\": 1", "smoke");
    refuse("\"published\": \"no\"",
           "published: expected \"no: \" and the reason, found \"no\"");
    refuse("\"load\": {\"process\": \"poisson\"}", "rate_rps");
}

TEST(lists_make_axes_in_the_files_order)
{
    static const char *const keys[] = {
        "load.rate_rps=1 system.ttft_ms=5 repeat=0",
        "load.rate_rps=1 system.ttft_ms=6 repeat=0",
        "load.rate_rps=1 system.ttft_ms=7 repeat=0",
        "load.rate_rps=2 system.ttft_ms=5 repeat=0",
        "load.rate_rps=2 system.ttft_ms=6 repeat=0",
        "load.rate_rps=2 system.ttft_ms=7 repeat=0",
        "load.rate_rps=1 system.ttft_ms=5 repeat=1", /* repeats outermost */
    };
    json_t *root = json_loads("{\"about\": \"x\", \"load\": {\"process\": \"poisson\", "
                              "\"rate_rps\": [1, 2]}, \"system\": {\"adapter\": "
                              "\"scripted\", \"ttft_ms\": [5, 6, 7]}, \"repeats\": 2}",
                              0, NULL);
    struct job *j;

    assert_ok(job_from_json(&j, root, "t", "t.json", NULL));
    assert_int_equal(j->n_axes, 2);
    assert_int_equal(j->n_cells, 12);
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        assert_string_equal(j->cells[i].key, keys[i]);
    assert_string_equal(j->cells[4].label, "rate_rps=2 ttft_ms=6 repeat=0");
    assert_int_equal(json_number_value(setting(j, 4, "system", "ttft_ms")), 6);
    assert_int_equal(json_array_size(json_object_get(
                         json_object_get(j->resolved, "system"), "ttft_ms")),
                     3);
    job_free(&j);
    json_decref(root);
}

TEST(a_wrong_value_anywhere_on_an_axis_is_refused)
{
    refuse("\"load\": {\"concurrency\": [1, 2, -3]}", "concurrency");
    refuse("\"load\": {\"process\": [\"closed\", \"poisson\"]}", "rate_rps");
}

TEST(smoke_and_set_lie_over_the_rest)
{
    char *sets[] = {"load.n_requests=7", "system.ttft_ms=[1, 2]", "about=other words",
                    "dataset.fit=lmsys"};
    struct job_read_opts o = {.smoke = true, .sets = sets, .n_sets = 4};
    const char *text = "\"load\": {\"n_requests\": 100, \"warmup_requests\": 5}, "
                       "\"repeats\": 3, \"smoke\": {\"load\": {\"n_requests\": 3, "
                       "\"warmup_requests\": null}, \"repeats\": 1}";
    struct job *j = job_of(text, &o);

    assert_true(j->smoke);
    assert_int_equal(j->n_cells, 2);
    assert_int_equal(json_integer_value(setting(j, 0, "load", "n_requests")), 7);
    assert_int_equal(json_integer_value(setting(j, 0, "load", "warmup_requests")), 0);
    assert_string_equal(json_string_value(setting(j, 0, "dataset", "fit")), "lmsys");
    assert_string_equal(j->head.about, "other words");
    job_free(&j);
    j = job_of(text, NULL);
    assert_int_equal(j->n_cells, 3);
    assert_int_equal(json_integer_value(setting(j, 0, "load", "n_requests")), 100);
    job_free(&j);
}

TEST(bad_overrides_are_refused)
{
    char *no_equal[] = {"load.n_requests"}, *no_section[] = {"about.x=1"},
         *unknown[] = {"load.n_request=1"}, *latin[] = {"about=caf\xe9"};
    struct job_read_opts o = {.sets = no_equal, .n_sets = 1};
    json_t *root = job_text("");
    struct job *j;

    assert_err(job_from_json(&j, root, "t", "t.json", &o), ERR_ARG, "key=value");
    o.sets = no_section;
    assert_err(job_from_json(&j, root, "t", "t.json", &o), ERR_ARG, "not a section");
    o.sets = latin;
    assert_err(job_from_json(&j, root, "t", "t.json", &o), ERR_ARG, "expected UTF-8");
    o.sets = unknown;
    assert_err(job_from_json(&j, root, "t", "t.json", &o), ERR_ARG, "n_requests");
    o = (struct job_read_opts){.smoke = true};
    assert_err(job_from_json(&j, root, "t", "t.json", &o), ERR_ARG, "no \"smoke\"");
    json_decref(root);
}

TEST(the_sample_seed_is_the_datasets)
{
    struct job *j = job_of("\"seeds\": {\"sample\": [3, 4]}", NULL);

    assert_int_equal(json_integer_value(setting(j, 1, "dataset", "seed")), 4);
    job_free(&j);
    j = job_of("\"seeds\": {\"sample\": 3}, \"dataset\": {\"seed\": 9}", NULL);
    assert_int_equal(json_integer_value(setting(j, 0, "dataset", "seed")), 9);
    job_free(&j);
}

TEST(headlines_pick_one_setting)
{
    const char *axes = "\"load\": {\"process\": \"constant\", \"rate_rps\": [1, 2]}, "
                       "\"repeats\": 2, \"headline\": [";
    char text[1024];
    bool chosen[4];
    struct job *j;

    snprintf(text, sizeof(text),
             "%s{\"name\": \"a\", \"metric\": \"p50_ttft_ms\", \"better\": \"lower\", "
             "\"where\": {\"rate_rps\": 2.0}}, {\"name\": \"g\", \"metric\": "
             "\"goodput_rps\"}]",
             axes);
    j = job_of(text, NULL);
    assert_int_equal(j->n_headlines, 2);
    assert_int_equal(j->headlines[0].better, 1);
    assert_int_equal(job_headline_cells(j, &j->headlines[0], chosen), 2);
    assert_true(!chosen[0] && chosen[1] && !chosen[2] && chosen[3]);
    assert_int_equal(job_headline_cells(j, &j->headlines[1], chosen), 4);
    job_free(&j);

    snprintf(
        text, sizeof(text),
        "%s{\"name\": \"a\", \"metric\": \"n_failed\"}, {\"name\": \"a rate_rps=1\", "
        "\"metric\": \"n_failed\", \"where\": {\"rate_rps\": 1}}]",
        axes);
    refuse(text, "a second headline has the name \"a rate_rps=1\"");
    refuse("\"headline\": [{\"name\": \"a/b\", \"metric\": \"n_failed\"}]",
           "a name without '/'");
    snprintf(text, sizeof(text),
             "%s{\"name\": \"a\", \"metric\": \"p50_ttft_ms\", \"where\": {\"rat\": 1}}]",
             axes);
    refuse(text, "neither an axis");
    snprintf(text, sizeof(text), "%s{\"metric\": \"p50_ttft_ms\"}]", axes);
    refuse(text, "needs \"name\"");
}

static void expect_headlines(const struct job *j, const char *const *names)
{
    int n = 0;

    for (; names[n]; n++)
        if (n >= j->n_headlines || strcmp(j->headlines[n].name, names[n]) != 0)
            fail_msg("headline %d is \"%s\", wanted \"%s\"", n,
                     n < j->n_headlines ? j->headlines[n].name : "none", names[n]);
    assert_int_equal(j->n_headlines, n);
}

/* One for each metric and value, whose names have the short form of a value where there is one. */
TEST(headlines_go_over_axes)
{
    static const char *const names[] = {"p50_ttft_ms_slow_10",
                                        "p50_ttft_ms_slow_20",
                                        "p50_ttft_ms_2.5_10",
                                        "p50_ttft_ms_2.5_20",
                                        "failed_slow_10",
                                        "failed_slow_20",
                                        "failed_2.5_10",
                                        "failed_2.5_20",
                                        "one_2.5",
                                        NULL};
    bool chosen[8];
    struct job *j = job_of(
        "\"load\": {\"process\": \"constant\", \"rate_rps\": [1, 2.5], \"timeout_s\": "
        "[10, 20]}, \"repeats\": 2, \"words\": {\"n_failed\": \"failed\", \"1\": "
        "\"slow\"}, "
        "\"headline\": [{\"name\": \"{metric}_{rate_rps}_{load.timeout_s}\", \"metric\": "
        "[\"p50_ttft_ms\", \"n_failed\"], \"each\": [\"rate_rps\", \"load.timeout_s\"]}, "
        "{\"name\": \"one_{rate_rps}\", \"metric\": \"n_failed\", \"each\": "
        "[\"rate_rps\"], \"where\": {\"timeout_s\": 20, \"rate_rps\": [2.5]}}]",
        NULL);

    expect_headlines(j, names);
    assert_int_equal(job_headline_cells(j, &j->headlines[6], chosen), 2);
    assert_true(chosen[2] && chosen[6]);
    assert_int_equal(job_headline_cells(j, &j->headlines[8], chosen), 2);
    assert_true(chosen[3] && chosen[7]);
    /* A record has them one by one. */
    assert_int_equal(json_array_size(json_object_get(j->resolved, "headline")), 9);
    assert_null(json_object_get(j->resolved, "words"));
    job_free(&j);
    refuse("\"headline\": [{\"name\": \"a\", \"metric\": [\"n_failed\"]}]",
           "expected \"{metric}\" in its name, found \"a\"");
    refuse("\"headline\": [{\"name\": \"a{n}\", \"metric\": \"n_failed\", \"each\": "
           "\"n\"}]",
           "each: expected a list of axes");
    refuse(
        "\"headline\": [{\"name\": \"a{1}\", \"metric\": \"n_failed\", \"each\": [1]}]",
        "each: expected names of axes");
    refuse(
        "\"headline\": [{\"name\": \"{n}\", \"metric\": \"n_failed\", \"each\": [\"n\"], "
        "\"where\": {\"n\": 3}}]",
        "each: \"n\" has one value in \"where\"");
    refuse("\"headline\": [{\"name\": \"{x}\", \"metric\": \"n_failed\", \"each\": "
           "[\"x\"]}]",
           "\"x\" is neither an axis nor an option");
    refuse("\"words\": {\"a\": 1}", "words: a: expected a text");
}

/* --set makes axes of a job whose headlines know nothing of them.
 * Regression: `--set` with a list was refused on a shipped job: no headline named the
 * new axis. */
TEST(a_swept_setting_makes_headlines)
{
    static const char *const names[] = {"t rate_rps=5", "t rate_rps=20", "t rate_rps=80",
                                        "fixed",        "best",          NULL},
                             *const two[] = {"g model=_a_x.gguf concurrency=1",
                                             "g model=_a_x.gguf concurrency=2",
                                             "g model=_b_x.gguf concurrency=1",
                                             "g model=_b_x.gguf concurrency=2", NULL};
    char *sets[] = {(char[]){"load.process=poisson"},
                    (char[]){"load.rate_rps=[5,20,80]"}},
         *more[] = {(char[]){"load.concurrency=[1,2]"},
                    (char[]){"system.model=[\"/a/x.gguf\",\"/b/x.gguf\"]"}};
    struct job_read_opts o = {.sets = sets, .n_sets = 2};
    bool chosen[8];
    struct job *j =
        job_of("\"repeats\": 2, \"headline\": [{\"name\": \"t\", \"metric\": "
               "\"p50_ttft_ms\"}, {\"name\": \"fixed\", \"metric\": \"n_failed\", "
               "\"where\": {\"rate_rps\": 20}}, {\"name\": \"best\", \"metric\": "
               "\"n_failed\", \"over\": \"min\"}]",
               &o);

    expect_headlines(j, names);
    assert_int_equal(job_headline_cells(j, &j->headlines[1], chosen), 2);
    assert_true(chosen[1] && chosen[4]);
    assert_null(job_headline_open_axis(j, &j->headlines[1], chosen));
    assert_int_equal(json_array_size(j->swept), 1);
    assert_string_equal(json_string_value(json_array_get(j->swept, 0)), "load.rate_rps");
    assert_int_equal(json_array_size(json_object_get(j->resolved, "headline")), 3);
    job_free(&j);

    o = (struct job_read_opts){.sets = more, .n_sets = 2};
    j = job_of(
        "\"system\": {\"adapter\": \"sandwich\"}, \"headline\": [{\"name\": \"g\", "
        "\"metric\": \"goodput_rps\"}]",
        &o);
    expect_headlines(j, two);
    job_free(&j);
}

/* Only what --set made of one value was swept; goodput takes all rates as one setting. */
TEST(an_axis_of_the_file_is_not_swept)
{
    static const char *const names[] = {"g timeout_s=1", "g timeout_s=2", NULL};
    char *sets[] = {(char[]){"load.rate_rps=[1,2,3]"}, (char[]){"load.timeout_s=[1,2]"}};
    struct job_read_opts o = {.sets = sets, .n_sets = 2};
    struct job *j = job_of("\"load\": {\"process\": \"constant\", \"rate_rps\": [1, 2]}, "
                           "\"headline\": [{\"name\": \"g\", \"metric\": "
                           "\"goodput_rps\"}]",
                           &o);

    expect_headlines(j, names);
    assert_int_equal(json_array_size(j->swept), 1);
    assert_string_equal(json_string_value(json_array_get(j->swept, 0)), "load.timeout_s");
    job_free(&j);
}

/* What would be a page of numbers stays one, which asks in the result. */
TEST(a_long_axis_leaves_its_headline_open)
{
    char text[2048] = "load.n_requests=[1";
    char *sets[] = {text};
    struct job_read_opts o = {.sets = sets, .n_sets = 1};
    bool chosen[100];
    struct job *j;

    for (int i = 2; i <= 100; i++)
        sprintf(text + strlen(text), ",%d", i);
    strcat(text, "]");
    j = job_of("\"headline\": [{\"name\": \"t\", \"metric\": \"p50_ttft_ms\"}]", &o);
    assert_int_equal(j->n_headlines, 1);
    assert_int_equal(job_headline_cells(j, &j->headlines[0], chosen), 100);
    assert_string_equal(job_headline_open_axis(j, &j->headlines[0], chosen)->name,
                        "load.n_requests");
    job_free(&j);
}

TEST(schedule_of_open_loop)
{
    struct job *j = job_of("\"load\": {\"process\": \"constant\", \"rate_rps\": [1, 2], "
                           "\"n_requests\": 8, \"warmup_requests\": 2}",
                           NULL);

    assert_true(job_scheduled_s(j) == 15);
    job_free(&j);
    j = job_of("", NULL);
    assert_true(job_scheduled_s(j) != job_scheduled_s(j)); /* NaN: the system decides */
    job_free(&j);
}

static void count_line(void *ctx, const char *line)
{
    int *n = ctx;

    assert_non_null(line);
    (*n)++;
}

static struct job *preparing(const char *run, const char *creates)
{
    char text[1024];

    snprintf(text, sizeof(text), "\"prepare\": [{\"run\": %s, \"creates\": \"%s\"}]", run,
             creates);
    return job_of(text, NULL);
}

TEST(prepare_runs_once)
{
    char path[300], run[400];
    struct job *j;
    int n = 0;

    snprintf(path, sizeof(path), "%s/new/file", test_dir());
    snprintf(run, sizeof(run), "[\"touch\", \"%s\"]", path);
    j = preparing(run, path);
    assert_ok(job_prepare(j, true, count_line, &n));
    assert_int_equal(access(path, F_OK), 0);
    assert_ok(job_prepare(j, true, count_line, &n));
    assert_int_equal(n, 1);
    job_free(&j);
}

/* Regression: a job of a stranger ran any command, unseen. */
TEST(prepare_runs_only_programs_of_this_project)
{
    static const char *const others[] = {"touch", "./sandwich", "/bin/sh", "sandwich2"};
    char path[300], run[400], text[4096] = "";
    struct job *j;
    FILE *f;
    int n = 0;

    snprintf(path, sizeof(path), "%s/made", test_dir());
    for (size_t i = 0; i < 4; i++) {
        snprintf(run, sizeof(run), "[\"%s\", \"\\u001b[2K%s\"]", others[i], path);
        j = preparing(run, path);
        assert_err(job_prepare(j, false, count_line, &n), ERR_ARG, "--trust-prepare");
        assert_non_null(strstr(err_msg(), others[i]));
        f = fmemopen(text, sizeof(text), "w");
        job_describe(j, f);
        fclose(f);
        snprintf(run, sizeof(run), "if absent, by [\"%s\",\"\\u001B[2K%s\"]\n", others[i],
                 path);
        assert_non_null(strstr(text, run));
        job_free(&j);
    }
    assert_int_equal(n, 0);
    assert_int_not_equal(access(path, F_OK), 0);
    snprintf(
        run, sizeof(run),
        "[\"sandwich\", \"model\", \"make\", \"--arch\", \"tiny\", \"--out\", \"%s\"]",
        path);
    j = preparing(run, path);
    assert_ok(job_prepare(j, false, count_line, &n));
    assert_int_equal(n, 1);
    job_free(&j);
}

TEST(prepare_says_what_failed)
{
    static const char *const cases[][2] = {{"[\"false\"]", "exited with status 1"},
                                           {"[\"no-such-program-here\"]", "cannot start"},
                                           {"[\"true\"]", "did not create"}};
    char path[300];
    int n = 0;

    snprintf(path, sizeof(path), "%s/never", test_dir());
    for (size_t i = 0; i < 3; i++) {
        struct job *j = preparing(cases[i][0], path);

        assert_err(job_prepare(j, true, count_line, &n), ERR_IO, cases[i][1]);
        job_free(&j);
    }
}

/* Regression: texts of a job could move a terminal's cursor, or begin a line that is not one of
 * the description's. */
TEST(a_description_shows_control_characters)
{
    struct job *j = job_of(
        "\"expect\": \"a\\u001b[2J\\nb\", \"needs\": [\"c\\u001b\"], \"claim\": "
        "{\"text\": "
        "\"d\\u001b\\n\"}, \"variants\": [{\"name\": \"v\\u001b\", \"load\": "
        "{\"n_requests\": 2}}, {\"name\": \"w\"}], \"headline\": [{\"name\": "
        "\"h\\n{variant}\", \"metric\": \"n_completed\", \"each\": [\"variant\"]}]",
        NULL);
    char text[16384] = "";
    FILE *f = fmemopen(text, sizeof(text), "w");

    job_describe(j, f);
    fclose(f);
    assert_null(strchr(text, '\x1b'));
    assert_null(strstr(text, "\nb"));
    assert_non_null(strstr(text, "expect    a\\x1b[2J\\x0ab\n"));
    assert_non_null(strstr(text, "    h\\x0av\\x1b "));
    job_free(&j);
}

TEST(description_names_every_key)
{
    static const char *const words[] = {
        "concurrency",
        "[1,2]",
        "timeout_s",
        "max_tok",
        "max_prompt_tok",
        "arrival",
        "ttft_ms",
        "One of: closed, constant, gamma, poisson, stages, trace.",
        NULL};
    struct job *j = job_of("\"load\": {\"concurrency\": [1, 2]}", NULL);
    char *text = jobs_described(j, words, NULL);

    for (size_t i = 0; sut_adapters[i]; i++)
        if (!strstr(text, sut_adapters[i]->name))
            fail_msg("adapter %s is not in the description", sut_adapters[i]->name);
    assert_non_null(strstr(text, "adapter scripted"));
    assert_non_null(strstr(text, "headline"));
    free(text);
    job_free(&j);
}

TEST(short_of_memory)
{
    json_t *root = job_text("\"load\": {\"concurrency\": [1, 2]}, \"slo\": {\"scale\": "
                            "[1]}, \"words\": {\"1\": \"one\"}, \"headline\": "
                            "[{\"name\": \"a_{concurrency}\", \"metric\": \"n_failed\", "
                            "\"each\": [\"concurrency\"]}]");

    assert_true(jobs_short_of_memory(root) > 20);
    json_decref(root);
}
