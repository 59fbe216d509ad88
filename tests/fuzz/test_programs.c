/* Damaged files through the programs themselves. Each mutant of a record, its head, a journal, a
 * machine card, a topology and a schedule cache is loaded, or refused with one line that
 * names it: no signal, no sanitizer's report, at most CPU_S of processor time and RSS_MAX of
 * memory.
 *
 *     build/tests/fuzz/test_programs [MUTANTS [KIND]]      default: 40 of each
 */
#include "tests/support/test.h"
#include "tests/support/mutate.h"

#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <limits.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#include "base/clock.h"
#include "base/json.h"
#include "characterize/probe.h"
#include "experiments/record/fields.h"

#define CPU_S   10
#define RSS_MAX ((long)2 << 20) /* KiB */
#define WALL_S  120             /* a program that waits for ever; nothing is timed */
#define N_WORDS 20

static int n_mutants = 40;
static const char *only_kind;

/* --- programs */

static const char *program(const char *name)
{
    static char path[2][300];
    char *p = path[name[0] == 's'];
    const char *build = getenv("BUILD");

    snprintf(p, sizeof(path[0]), "%s/%s", build ? build : "build", name);
    if (access(p, X_OK) != 0)
        test_skip("%s is not built", p);
    return p;
}

struct ended {
    int status;
    double wall_s;
    struct rusage use;
};

static void limit_and_run(const char *const *words, const char *out, const char *err)
{
    const struct rlimit cpu = {CPU_S, CPU_S + 5}, core = {0, 0};
    int o = open(out, O_CREAT | O_TRUNC | O_WRONLY, 0644);
    int e = open(err, O_CREAT | O_TRUNC | O_WRONLY, 0644);

    setrlimit(RLIMIT_CPU, &cpu);
    setrlimit(RLIMIT_CORE, &core);
    alarm(WALL_S);
    dup2(o, 1);
    dup2(e, 2);
    execv(words[0], (char *const *)words);
    _exit(127);
}

static pid_t start(const char *const *words)
{
    pid_t pid;

    fflush(NULL);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        limit_and_run(words, test_path("out"), test_path("err"));
    return pid;
}

static struct ended run(const char *const *words)
{
    int64_t from = clock_ns();
    struct ended r;
    pid_t pid = start(words);

    while (wait4(pid, &r.status, 0, &r.use) < 0)
        assert_int_equal(errno, EINTR);
    r.wall_s = (double)(clock_ns() - from) * 1e-9;
    return r;
}

static void run_ok(const char *const *words)
{
    struct ended r = run(words);
    size_t n;

    if (!WIFEXITED(r.status) || WEXITSTATUS(r.status) != 0)
        fail_msg("%s %s: status %d: %s", words[0], words[1], r.status,
                 (char *)test_read(test_path("err"), &n));
}
#define RUN_OK(...) run_ok((const char *const[N_WORDS]){__VA_ARGS__})

/* --- valid files */

static const char *tiny_model(void)
{
    static char path[300];

    if (!path[0]) {
        snprintf(path, sizeof(path), "%s", test_path("tiny.gguf"));
        RUN_OK(program("sandwich"), "model", "make", "--arch", "tiny", "--out", path);
    }
    return path;
}

static const char job[] =
    "{\"about\": \"a run to damage\", \"system\": {\"adapter\": \"scripted\", "
    "\"ttft_ms\": [3, 4, 5, 6], \"itl_ms\": 1}, \"dataset\": {\"n\": 4, "
    "\"max_prompt_tok\": 8, \"max_output_tok\": 3}, \"load\": {\"n_requests\": 4}, "
    "\"headline\": [{\"name\": \"t\", \"metric\": \"mean_ttft_ms\", \"better\": "
    "\"lower\", \"where\": {\"ttft_ms\": 6}}]}";

static const char *job_path(void)
{
    test_write(test_path("toy.json"), job, sizeof(job) - 1);
    return test_path("toy.json");
}

static const char *make_record(void)
{
    const char *path = test_path("whole/latest.json"), *file;
    static char record[600];
    json_t *latest;

    RUN_OK(program("testbed"), "run", job_path(), "--out", test_path("whole"), "--quiet");
    assert_ok(json_read_file(&latest, path, 1 << 20));
    assert_ok(json_get_str(latest, "file", &file, path));
    snprintf(record, sizeof(record), "%s/whole/%s", test_dir(), file);
    json_decref(latest);
    return record;
}

static void put_version(hid_t file)
{
    hid_t space = H5Screate(H5S_SCALAR);
    hid_t a = H5Acreate2(file, "schema_version", H5T_STD_I64LE, space, H5P_DEFAULT,
                         H5P_DEFAULT);

    assert_true(H5Awrite(a, H5T_NATIVE_INT, &(int){RECORD_SCHEMA_VERSION}) >= 0);
    H5Aclose(a);
    H5Sclose(space);
}

/* The layout without checksums, where every changed byte is read. */
static const char *make_old_record(void)
{
    const char *path = test_path("earliest.h5");
    hid_t from = H5Fopen(make_record(), H5F_ACC_RDONLY, H5P_DEFAULT);
    hid_t to = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);

    assert_true(H5Ocopy(from, "cells", to, "cells", H5P_DEFAULT, H5P_DEFAULT) >= 0);
    assert_true(H5Ocopy(from, "headline", to, "headline", H5P_DEFAULT, H5P_DEFAULT) >= 0);
    put_version(to);
    H5Fclose(from);
    H5Fclose(to);
    return path;
}

/* The head of a record of "quickstart", under both of its names. */
static const char *make_head(void)
{
    const char *dir = test_path("heads/results/quickstart");
    char command[900];

    RUN_OK(program("testbed"), "run", job_path(), "--out", dir, "--quiet");
    snprintf(command, sizeof(command),
             "cd '%s' && ln -sf latest.json \"$(ls 2*.json)\" && cp latest.json ../valid",
             dir);
    assert_int_equal(system(command), 0);
    return test_path("heads/results/valid");
}

static bool has_two_cells(const char *journal)
{
    size_t n;
    char *text;
    const char *first;
    bool two;

    if (access(journal, R_OK) != 0)
        return false;
    text = test_read(journal, &n);
    first = memmem(text, n, "\"cell\":", 7);
    two = first && memmem(first + 1, n - (size_t)(first + 1 - text), "\"cell\":", 7);
    mem_free(text);
    return two;
}

/* A run is killed between its second cell and its end. */
static const char *make_journal(void)
{
    const char *dir = test_path("killed"), *journal = test_path("killed/toy.journal");
    const char *words[] = {program("testbed"), "run", job_path(), "--out", dir, NULL};
    const struct timespec pause = {.tv_nsec = 1000000};

    for (int tries = 0; tries < 50; tries++) {
        pid_t pid = start(words);
        int status;

        while (waitpid(pid, &status, WNOHANG) == 0) {
            if (has_two_cells(journal))
                kill(pid, SIGKILL);
            nanosleep(&pause, NULL);
        }
        if (has_two_cells(journal))
            return journal;
    }
    fail_msg("each run ended before it was killed");
    return NULL;
}

static const char *make_card(void)
{
    const char *path = test_path("card.json");
    const struct machine_card_opts o = {
        .dir = test_path("cards"),
        .force = true,
        .accept_noise = true,
        .budget_s = 0.05,
        .buffer_bytes = 16 << 20,
    };
    json_t *card;

    assert_ok(machine_card_get(&card, &o));
    assert_ok(json_write_file(card, path));
    json_decref(card);
    return path;
}

static const char rates[] =
    "{\"bandwidth_domains\": [], \"core_gbps\": 10, "
    "\"sharpness\": 2, \"node_gbps\": 80, \"contention_from\": 4,"
    " \"contention_per_core\": 0.01, \"same_package_factor\": 0.9, "
    "\"other_package_factor\": 0.6, \"link_gbps\": null,"
    " \"latency_ns\": 90, \"mlp\": 10, \"kappa\": 0.1, "
    "\"core_gflops\": 50, \"smt_factor\": 0.55,"
    " \"sync_ns\": [30, 40, 50, 60], \"noise_frac\": 0.01, "
    "\"spike_frac\": 0.05, \"spike_chance\": 0.01,"
    " \"assumed\": [], \"sources\": [\"made up\"], \"about\": "
    "\"rates for any topology\"}";

static const char *make_topology(void)
{
    test_write(test_path("rates.json"), rates, sizeof(rates) - 1);
    return "tests/fuzz/corpus/topology/good.xml";
}

static const char *make_cache(void)
{
    const char *path = test_path("whole.cache");

    RUN_OK(program("sandwich"), "tune", "--no-pin", "--rounds", "0", "--model",
           tiny_model(), "--rows", "1,2", "--cache", path);
    return path;
}

/* --- checksums: half of the mutants get the right ones, so that what they guard is read */

static size_t fix_journal(uint8_t *data, size_t n)
{
    static const char before[] = "{\"crc\":\"";
    size_t n_head = sizeof(before) - 1 + 10; /* eight digits, a quote, a comma */

    for (uint8_t *p = data, *end; p < data + n; p = end + 1) {
        char crc[9];

        end = memchr(p, '\n', (size_t)(data + n - p));
        if (!end)
            break;
        if ((size_t)(end - p) <= n_head || memcmp(p, before, sizeof(before) - 1) != 0)
            continue;
        snprintf(crc, sizeof(crc), "%08x",
                 (unsigned)crc32_z(0, p + n_head, (size_t)(end - p) - n_head));
        memcpy(p + sizeof(before) - 1, crc, 8);
    }
    return n;
}

/* The mutant with the checksum of `of`, which is a part of it, or of all. */
static size_t put_checksum(json_t *root, const json_t *of, uint8_t *data, size_t n)
{
    char sum[17];

    if (json_is_object(root) && of) {
        json_object_del(root, "checksum");
        assert_ok(json_checksum(of, sum));
        assert_int_equal(json_object_set_new(root, "checksum", json_string(sum)), 0);
        if (json_dumpb(root, NULL, 0, JSON_COMPACT) <= n)
            n = json_dumpb(root, (char *)data, n, JSON_COMPACT);
    }
    json_decref(root);
    return n;
}

static size_t fix_cache(uint8_t *data, size_t n)
{
    json_t *root = json_loadb((char *)data, n, 0, NULL);

    return put_checksum(root, json_object_get(root, "groups"), data, n);
}

static size_t fix_card(uint8_t *data, size_t n)
{
    json_t *root = json_loadb((char *)data, n, 0, NULL);

    return put_checksum(root, root, data, n);
}

/* --- the kinds */

struct kind {
    const char *name;
    const char *file;  /* what a mutant is called */
    const char *named; /* what a refusal says of it */
    const char *(*make)(void);
    const char *(*make_second)(void); /* another valid file; may be NULL */
    size_t (*fix)(uint8_t *data, size_t n);
    /* The command for mutant number i at `path`. */
    void (*command)(const char **words, const char *path, int i);
};

static void put_words(const char **words, const char *const *given)
{
    int n = 0;

    for (; given[n]; n++)
        words[n] = given[n];
    words[n] = NULL;
}
#define WORDS(words, ...) put_words(words, (const char *const[N_WORDS]){__VA_ARGS__})

static void export_it(const char **words, const char *path, int i)
{
    static const char *const formats[] = {"csv", "csv-cells", "csv-series", "json",
                                          "markdown"};

    WORDS(words, program("testbed"), "export", path, "--format", formats[i / 4 % 4]);
}

static void resume_it(const char **words, const char *path, int i)
{
    (void)path;
    (void)i;
    WORDS(words, program("testbed"), "run", job_path(), "--out", test_path("resumed"),
          "--quiet");
}

static void compare_with_it(const char **words, const char *path, int i)
{
    WORDS(words, program("sandwich"), "run", "--no-pin", "--model", tiny_model(),
          "--prompt-ids", "1,2", "-n", "2", "--machine-card", path,
          i % 2 ? "--json" : "--ids");
}

static void plan_for_it(const char **words, const char *path, int i)
{
    (void)i;
    WORDS(words, program("sandwich"), "plan", "--machine", path, "--machine-params",
          test_path("rates.json"), "--model", "tiny", "--max-s", "1",
          "--max-measurements", "200", "--out", test_path("plan.json"));
}

static void schedule_by_it(const char **words, const char *path, int i)
{
    if (i / 4 % 2)
        WORDS(words, program("sandwich"), "tune", "--no-pin", "--rounds", "0", "--model",
              tiny_model(), "--rows", "1,2", "--budget", "0.001", "--cache", path);
    else
        WORDS(words, program("sandwich"), "run", "--no-pin", "--model", tiny_model(),
              "--prompt-ids", "1,2", "-n", "2", "--schedules", path);
}

static void report_on_it(const char **words, const char *path, int i)
{
    static char testbed[PATH_MAX];

    (void)path;
    (void)i;
    if (!realpath(program("testbed"), testbed))
        fail_msg("%s: %m", program("testbed"));
    WORDS(words, "/usr/bin/env", "-C", test_path("heads"), testbed, "report",
          "--no-draw");
}

static const struct kind kinds[] = {
    {"record", "mutant.h5", "mutant.h5", make_record, make_old_record, NULL, export_it},
    {"journal", "resumed/toy.journal", "toy.journal", make_journal, NULL, fix_journal,
     resume_it},
    {"card", "mutant.json", "mutant.json", make_card, NULL, fix_card, compare_with_it},
    {"topology", "mutant.xml", "mutant", make_topology, NULL, NULL, plan_for_it},
    {"cache", "mutant.cache", "mutant.cache", make_cache, NULL, fix_cache,
     schedule_by_it},
    {"head", "heads/results/quickstart/latest.json", "quickstart", make_head, NULL, NULL,
     report_on_it},
};

/* --- judging */

struct totals {
    int n_loaded, n_refused, n_in_child;
    double wall_s, cpu_s;
    long rss_kib;
};

static double seconds(struct timeval t)
{
    return (double)t.tv_sec + 1e-6 * (double)t.tv_usec;
}

/* NULL, or what is wrong with how the program ended. */
static const char *fault(const struct ended *r, const char *name, const char *err,
                         struct totals *t)
{
    double cpu = seconds(r->use.ru_utime) + seconds(r->use.ru_stime);
    const char *last = err, *line = err;

    t->wall_s = r->wall_s > t->wall_s ? r->wall_s : t->wall_s;
    t->cpu_s = cpu > t->cpu_s ? cpu : t->cpu_s;
    t->rss_kib = r->use.ru_maxrss > t->rss_kib ? r->use.ru_maxrss : t->rss_kib;
    if (!WIFEXITED(r->status))
        return strsignal(WTERMSIG(r->status));
    if (strstr(err, "Sanitizer") || strstr(err, "runtime error:"))
        return "a sanitizer's report";
    if (WEXITSTATUS(r->status) > 3)
        return "an exit status that is not documented";
    if (r->use.ru_maxrss > RSS_MAX)
        return "more than 2 GB of memory";
    t->n_in_child += strstr(err, "the process working on it ended") != NULL;
    if (WEXITSTATUS(r->status) == 0) {
        t->n_loaded++;
        return NULL;
    }
    t->n_refused++;
    while ((line = strchr(line, '\n')) && line[1])
        last = ++line;
    return strstr(last, name) ? NULL : "a refusal that does not name the file";
}

static void keep(const char *kind, int i, const uint8_t *data, size_t n, const char *what)
{
    const char *build = getenv("BUILD");
    char path[300];
    size_t n_err;

    snprintf(path, sizeof(path), "%s/mutant-%s-%llu-%d", build ? build : "build", kind,
             (unsigned long long)test_seed(), i);
    test_write(path, data, n);
    fail_msg("%s %d, seed %llu: %s (kept as %s): %s", kind, i,
             (unsigned long long)test_seed(), what, path,
             (char *)test_read(test_path("err"), &n_err));
}

/* Of what the last resumed run left. */
static void empty_folder(void)
{
    char command[400];

    snprintf(command, sizeof(command), "rm -rf '%1$s' && mkdir '%1$s'",
             test_path("resumed"));
    assert_int_equal(system(command), 0);
}

static void one_mutant(const struct kind *k, struct rng *r, const uint8_t *valid,
                       size_t n, int i, struct totals *t)
{
    uint8_t *data = mem_new(MEM_TEST, n + MUTATE_EXTRA, 1);
    const char *path = test_path(k->file);
    char *err;
    const char *words[N_WORDS], *what;
    size_t size = n, n_err;
    struct ended ended;

    assert_non_null(data);
    if (i < 0) /* the valid file itself */
        memcpy(data, valid, n);
    else
        size = mutate(r, valid, n, data);
    if (i >= 0 && k->fix && i % 2)
        size = k->fix(data, size);
    empty_folder();
    test_write(path, data, size);
    k->command(words, path, i < 0 ? 0 : i);
    ended = run(words);
    err = test_read(test_path("err"), &n_err);
    what = fault(&ended, k->named, err, t);
    if (what)
        keep(k->name, i, data, size, what);
    mem_free(err);
    mem_free(data);
}

static void mutants_of(const struct kind *k)
{
    struct totals t = {0};
    uint8_t *valid[2] = {NULL};
    size_t n[2];
    struct rng r;

    if (only_kind && strcmp(only_kind, k->name) != 0)
        test_skip("%s alone was asked for", only_kind);
    valid[0] = test_read(k->make(), &n[0]);
    if (k->make_second)
        valid[1] = test_read(k->make_second(), &n[1]);
    one_mutant(k, NULL, valid[0], n[0], -1, &t);
    assert_int_equal(t.n_loaded, 1);
    rng_init(&r, test_seed(), k->name);
    for (int i = 0; i < n_mutants; i++) {
        int which = k->make_second ? i % 2 : 0;

        one_mutant(k, &r, valid[which], n[which], i, &t);
    }
    printf(
        "# %s: %d mutants: %d loaded, %d refused (%d broke a library in its process); at "
        "most %.1f s, %.1f s of processor time, %ld MiB\n",
        k->name, n_mutants, t.n_loaded - 1, t.n_refused, t.n_in_child, t.wall_s, t.cpu_s,
        t.rss_kib >> 10);
    mem_free(valid[0]);
    mem_free(valid[1]);
}

TEST(records)
{
    mutants_of(&kinds[0]);
}

TEST(journals)
{
    mutants_of(&kinds[1]);
}

TEST(machine_cards)
{
    mutants_of(&kinds[2]);
}

TEST(topologies)
{
    mutants_of(&kinds[3]);
}

TEST(schedule_caches)
{
    mutants_of(&kinds[4]);
}

TEST(heads)
{
    mutants_of(&kinds[5]);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        n_mutants = atoi(argv[1]);
    if (argc > 2)
        only_kind = argv[2];
    return test_main();
}
