/* Serving systems that we start: their files, and programs that work, crash, hang or are not
 * there. The program is this test itself, which can serve. */
#include "tests/support/leftovers.h"
#include "tests/support/test.h"
#include "tests/support/web_server.h"

#include <dirent.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "baselines/http.h"
#include "baselines/server.h"
#include "baselines/server_file.h"
#include "baselines/sut.h"
#include "plan/plan.h"

static char self[PATH_MAX];

static struct text logged;
static void on_log(void *ctx, enum log_level level, const char *line)
{
    (void)ctx, (void)level;
    text_puts(&logged, line);
    text_put(&logged, "\n", 1);
}

static const char *log_text(void)
{
    text_put(&logged, "", 1);
    logged.n--;
    return logged.p;
}

/* The members of a file that serves; `more` replaces or adds some. Lent. */
static const char *write_system(const char *name, const char *more)
{
    static char path[PATH_MAX];
    char text[6000];
    json_t *j, *change;

    snprintf(
        text, sizeof(text),
        "{\"about\": \"this test\", \"install\": [\"make test\"], \"program\": \"%s\","
        " \"version\": [\"{program}\", \"--version\"],"
        " \"command\": [\"{program}\", \"serve\", \"{port}\", \"threads = {threads},\","
        "   [\"--model\", \"{model}\"], [\"--plan\", \"{plan}\"]],"
        " \"env\": {\"SCRIPTED_CPUS\": \"on {cpus}\"},"
        " \"ready\": {\"path\": \"/health\", \"limit_s\": 20},"
        " \"read_back\": {\"threads\": {\"after\": \"threads = \"},"
        "   \"version\": {\"path\": \"/version\", \"key\": \"version\"},"
        "   \"slots\": {\"after\": \"slots = \"}},"
        " \"stop_s\": 5}",
        self);
    j = json_loads(text, 0, NULL);
    change = json_loads(more, 0, NULL);
    assert_non_null(j);
    assert_non_null(change);
    json_object_update(j, change);
    snprintf(path, sizeof(path), "%s/%s.json", test_dir(), name);
    assert_ok(json_write_file(j, path));
    json_decref(change);
    json_decref(j);
    return path;
}

static int start(struct sut_server **out, const char *system)
{
    const struct sut_server_opts o = {
        .system = system, .ctx_tok = 100, .slots = 2, .model = "m.gguf", .ready_s = 0};

    logged.n = 0;
    return sut_server_start(out, &o);
}

static int health(const char *url)
{
    struct text answer = {0};
    char root[128];
    long status = 0;
    int rc;

    snprintf(root, sizeof(root), "%.*s", (int)strlen(url) - 3, url);
    rc = sut_http_fetch(
        &(struct sut_http_opts){.url = root, .connect_timeout_s = 2, .timeout_s = 2},
        "/health", NULL, &answer, &status);
    text_fini(&answer);
    return rc == OK && status == 200;
}

TEST(it_is_started_read_back_and_stopped)
{
    const int fds = left_fds();
    struct sut_server *s;
    const json_t *back;
    char url[128];
    json_t *d;

    assert_ok(start(&s, write_system("works", "{}")));
    snprintf(url, sizeof(url), "%s", sut_server_url(s));
    assert_true(health(url));
    assert_ok(sut_server_check(s));
    assert_ok(sut_server_describe(s, &d));
    assert_string_equal(json_string_value(json_object_get(d, "version")), "scripted 4.2");
    back = json_object_get(d, "read_back");
    assert_string_equal(json_string_value(json_object_get(back, "version")), "1.2.3");
    assert_string_equal(json_string_value(json_object_get(back, "threads")),
                        json_string_value(json_object_get(d, "asked_threads")));
    assert_string_equal(json_string_value(json_object_get(back, "slots")),
                        "unavailable: not reported");
    assert_true(json_integer_value(json_object_get(d, "os_threads")) >= 1);
    assert_non_null(
        strstr(json_string_value(json_object_get(d, "command")), " threads = "));
    assert_true(json_string_length(json_object_get(d, "cpus_allowed")) > 0);
    json_decref(d);
    sut_server_stop(&s);
    assert_null(s);
    assert_false(health(url));
    left_no_child();
    assert_int_equal(left_fds(), fds);
}

TEST(one_that_is_missing_is_unsupported)
{
    struct sut_server *s;

    assert_err(start(&s, write_system("missing", "{\"program\": \"no-such-server\"}")),
               ERR_UNSUPPORTED, "no-such-server: not found, see \"install\" in ");
    assert_null(s);
    assert_err(
        start(&s, write_system("broken", "{\"version\": [\"{program}\", \"crash\"]}")),
        ERR_UNSUPPORTED, "exited with status 7: cannot map the model");
    left_no_child();
}

TEST(one_that_crashes_shows_its_last_lines)
{
    struct sut_server *s;

    assert_err(
        start(&s, write_system("crashes", "{\"command\": [\"{program}\", \"crash\"]}")),
        ERR_IO,
        "crashes.json: exited with status 7; the last line it wrote: cannot map the "
        "model");
    assert_non_null(strstr(log_text(), "crashes.json: | line 19\n"));
    assert_null(strstr(log_text(), "line 1\n"));
    assert_err(
        start(&s, write_system("killed", "{\"command\": [\"{program}\", \"abort\"]}")),
        ERR_IO, "killed.json: ended by signal 6");
    left_no_child();
}

/* Regression: stopping a server that was not ready replaced the reason by the signal
 * that stopped it. */
TEST(one_that_hangs_is_given_up)
{
    struct sut_server *s;

    assert_err(start(&s, write_system("hangs", "{\"command\": [\"{program}\", \"hang\"],"
                                               " \"ready\": {\"limit_s\": 0.3}}")),
               ERR_LIMIT, "hangs.json: not ready after 0.3 s (http://127.0.0.1:");
    assert_non_null(strstr(err_msg(), "the last line it wrote: loading"));
    left_no_child();
    assert_err(start(&s, write_system("stays", "{\"command\": [\"{program}\", \"stay\"],"
                                               " \"ready\": {\"limit_s\": 0.3},"
                                               " \"stop_s\": 0.2}")),
               ERR_LIMIT, "stays.json: not ready");
    assert_non_null(strstr(log_text(), "did not end within 0.2 s of SIGTERM"));
    left_no_child();
}

TEST(one_that_dies_later_is_noticed)
{
    struct sut_server *s;
    json_t *d;
    int pid;

    assert_ok(start(&s, write_system("dies", "{\"read_back\": {\"pid\": {\"after\": "
                                             "\"pid = \"}}}")));
    assert_ok(sut_server_describe(s, &d));
    pid =
        atoi(json_string_value(json_object_get(json_object_get(d, "read_back"), "pid")));
    json_decref(d);
    assert_true(pid > 0);
    kill(pid, SIGKILL);
    while (sut_server_check(s) == OK)
        ;
    assert_err(sut_server_check(s), ERR_IO, "has ended before");
    sut_server_stop(&s);
    left_no_child();
}

TEST(files_are_checked)
{
    static const struct {
        const char *more, *error;
        int rc;
    } cases[] = {
        {"{\"comand\": []}", "unknown key \"comand\"; did you mean \"command\"?",
         ERR_FORMAT},
        {"{\"command\": []}", "expected a list of words", ERR_FORMAT},
        {"{\"command\": \"x\"}", "expected a list of words", ERR_FORMAT},
        {"{\"command\": [3]}", "word 0: expected a string", ERR_FORMAT},
        {"{\"command\": [\"{prot}\"]}", "no value {prot}; did you mean \"port\"?",
         ERR_FORMAT},
        {"{\"command\": [\"{port\"]}", "a '{' without its '}'", ERR_FORMAT},
        {"{\"command\": [\"{plan}\"]}", "system.plan: this system needs it", ERR_ARG},
        {"{\"env\": {\"A\": 1}}", "A: expected a string", ERR_FORMAT},
        {"{\"program\": 1}", "program: expected a string", ERR_FORMAT},
        {"{\"ready\": {\"pth\": 1}}", "pth", ERR_FORMAT},
    };
    struct sut_server *s;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int rc = start(&s, write_system("checked", cases[i].more));

        if (rc != cases[i].rc || !strstr(err_msg(), cases[i].error))
            fail_msg("%s: %d \"%s\"", cases[i].more, rc, err_msg());
        assert_null(s);
        left_no_child();
    }
    assert_err(start(&s, "llama"), ERR_NOTFOUND, "no system \"llama\"; there are ");
    assert_non_null(strstr(err_msg(), "llama.cpp"));
}

TEST(words_get_their_values)
{
    const struct sut_server_opts o = {.ctx_tok = 100, .slots = 3, .model = "m"};
    struct sut_server_values *v = mem_new(MEM_TEST, 1, sizeof(*v));
    json_t *list = json_loads("[\"a{port}b\", [\"--plan\", \"{plan}\"], \"{{x}\","
                              " [\"{model}\", \"{ctx_total}\"]]",
                              0, NULL);
    char **argv;
    int n;

    assert_ok(sut_server_values(v, &o));
    snprintf(v->port, sizeof(v->port), "80");
    assert_ok(sut_server_words(&argv, &n, list, v, "here"));
    assert_int_equal(n, 4);
    assert_string_equal(argv[0], "a80b");
    assert_string_equal(argv[1], "{x}");
    assert_string_equal(argv[2], "m");
    assert_string_equal(argv[3], "300");
    assert_null(argv[4]);
    mem_free(argv);
    json_decref(list);
    mem_free(v);
}

/* The CPUs and threads of a plan's phases. */
TEST(a_plan_becomes_flags)
{
    struct sut_server_values *v = mem_new(MEM_TEST, 1, sizeof(*v));
    struct sut_server_opts o = {.ctx_tok = 1, .slots = 1};
    struct plan *p = mem_new(MEM_TEST, 1, sizeof(*p));
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/plan.json", test_dir());
    *p = (struct plan){.prefill = {.n_ranks = 1, .n_threads = 4, .cpus = {0, 1, 2, 3}},
                       .decode = {.n_ranks = 2, .n_threads = 1, .cpus = {0, 2}}};
    for (int i = 0; i < 4; i++)
        p->prefill.nodes[i] = p->decode.nodes[i] = -1;
    p->prefill.expected_s = p->decode.expected_s = NAN;
    assert_ok(plan_number_cpus(p));
    assert_ok(plan_write(p, path));
    o.plan = path;
    assert_ok(sut_server_values(v, &o));
    assert_string_equal(v->threads, "2");
    assert_string_equal(v->prefill_threads, "4");
    assert_string_equal(v->cpus, "0,2");
    assert_string_equal(v->prefill_cpus, "0-3");
    assert_string_equal(v->rank_cpus, "0|2");
    assert_string_equal(v->ranks, "2");
    assert_int_equal(v->n_cpus, 4);
    o.threads = 2;
    assert_err(sut_server_values(v, &o), ERR_ARG, "a plan states CPUs and threads");
    mem_free(p);
    mem_free(v);
}

/* Each file that is shipped: its words are complete and its program, where it is not
 * installed, is skipped. */
TEST(shipped_files_are_sound)
{
    static const char *const names[] = {
        "llama.cpp",          "vllm-cpu", "openvino-model-server",
        "xfastertransformer", "sandwich", "ik_llama.cpp"};
    struct sut_server_values *v = mem_new(MEM_TEST, 1, sizeof(*v));
    struct sut_server_opts o = {.ctx_tok = 64, .slots = 4, .model = "m"};

    assert_ok(sut_server_values(v, &o));
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char path[PATH_MAX], **argv;
        const json_t *install;
        json_t *file;
        int n;

        assert_ok(sut_server_file(&file, path, names[i]));
        install = json_object_get(file, "install");
        assert_true(json_array_size(install) > 0);
        assert_ok(sut_server_words(&argv, &n, json_object_get(file, "version"), v, path));
        mem_free(argv);
        assert_ok(sut_server_words(&argv, &n, json_object_get(file, "command"), v, path));
        mem_free(argv);
        assert_ok(sut_server_env(&argv, &n, json_object_get(file, "env"), v, path));
        mem_free(argv);
        json_decref(file);
    }
    mem_free(v);
}

/* Through the adapter, as an experiment uses it. */
static int n_tok, n_done;
static void on_event(void *ctx, const struct sut_event *e)
{
    (void)ctx;
    n_tok += e->kind == SUT_TOKEN;
    if (e->kind == SUT_DONE)
        __atomic_add_fetch(&n_done, 1, __ATOMIC_RELEASE);
}

TEST(the_adapter_starts_it)
{
    static const int32_t prompt[] = {4, 5, 6};
    const struct sut_request r = {.prompt = prompt, .n_prompt = 3, .n_output = 5};
    const struct sut_adapter *a;
    struct sut *s;
    json_t *config, *d;

    config =
        json_pack("{s:s, s:s}", "system", write_system("adapted", "{}"), "model", "m");
    assert_ok(sut_adapter_find("openai_http", &a));
    assert_ok(a->open(&s, config, on_event, NULL));
    assert_ok(a->submit(s, &r));
    while (!__atomic_load_n(&n_done, __ATOMIC_ACQUIRE))
        usleep(1000);
    assert_ok(a->describe(s, &d));
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(d, "started"), "version")),
        "scripted 4.2");
    json_decref(d);
    a->close(&s);
    assert_int_equal(n_tok, 5);
    json_decref(config);
    left_no_child();
}

/* --- this program as a server */

static void ignore(int sig)
{
    (void)sig;
}

static int be(int argc, char **argv)
{
    if (strcmp(argv[1], "--version") == 0)
        return puts("scripted 4.2"), 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (strcmp(argv[1], "crash") == 0) {
        for (int i = 1; i < 20; i++)
            printf("line %d\n", i);
        fprintf(stderr, "cannot map the model\n\n");
        return 7;
    }
    if (strcmp(argv[1], "abort") == 0)
        raise(SIGABRT);
    if (strcmp(argv[1], "stay") == 0)
        signal(SIGTERM, ignore);
    if (strcmp(argv[1], "serve") != 0) {
        printf("loading\n");
        for (;;)
            sleep(1);
    }
    if (!getenv("SCRIPTED_CPUS") || strncmp(getenv("SCRIPTED_CPUS"), "on ", 3) != 0)
        return 3;
    printf("pid = %d\n", (int)getpid());
    for (int i = 2; i < argc; i++)
        printf("%s ", argv[i]);
    printf("\n");
    web_serve(&(struct web_script){.dialect = WEB_VLLM}, atoi(argv[2]));
    return 0;
}

int main(int argc, char **argv)
{
    int rc;

    if (argc > 1)
        return be(argc, argv);
    if (readlink("/proc/self/exe", self, sizeof(self) - 1) <= 0)
        return 1;
    log_set_sink(on_log, NULL);
    rc = test_main();
    text_fini(&logged);
    return rc;
}
