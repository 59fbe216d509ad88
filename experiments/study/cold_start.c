/* The time from the start of a program to its first token: of `sandwich run`, by its phases, and
 * of servers, this engine's and others', in turn. A server's prompt is sent when it is ready, for
 * which it is asked every 10 ms. Before each start the model's file is read, so that the page
 * cache has it, or dropped from there; a hypervisor may have it still. Not in the five papers. */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/stats.h"
#include "base/text.h"
#include "baselines/http.h"
#include "baselines/server.h"
#include "cpu/cpu.h"
#include "experiments/study/support/compare.h"
#include "experiments/study/support/program.h"
#include "experiments/study/support/rows.h"

#define SYSTEMS_MAX 12
#define ROUNDS_MAX  99
#define NAME_CHARS  48
#define ANSWER_S    120
#define READ_BYTES  (1 << 20)
#define KEPT_FRAC   0.02 /* of a file that counts as dropped: what is read with its head */

enum { WARM, COLD };

struct opts {
    char *model, *systems;
    int cache, precision;
    int64_t threads, n_prompt_tok, ctx_tok, rounds;
};

static const struct opt_row table[] = {
    ROW_MODEL,
    OPT_ROW(STR, systems, "sandwich ik_llama.cpp llama.cpp",
            "Servers, separated by blanks: names in baselines/systems/, or paths of such "
            "files. The first is held against the others."),
    OPT_ROW(ENUM, cache, "warm",
            "Whether the page cache has the file (warm), or it is read from disk.",
            .values = "warm|cold"),
    OPT_ROW(ENUM, precision, "a8", "Precision of this engine's matrix products.",
            .values = KERN_PRECISIONS),
    ROW_THREADS("0", "Number of threads. 0: one for each core of the budget."),
    OPT_ROW(INT, n_prompt_tok, "16", "Prompt tokens.", .unit = "tok", .min = 1,
            .max = 4096),
    OPT_ROW(INT, ctx_tok, "512", "Longest sequence, for which memory is reserved.",
            .unit = "tok", .min = 2, .max = 1 << 20),
    OPT_ROW(INT, rounds, "5", "Rounds of all programs, in turn.", .min = 3,
            .max = ROUNDS_MAX),
    {0},
};

/* Phases of `sandwich run`: metric, key of its "load" ("": put_phases() knows it), text. */
#define PHASES(X)                                                                        \
    X(read, "read_s", "reading the file, or waiting for it, mean over threads")          \
    X(pack, "pack_s", "packing the weights, mean over threads")                          \
    X(wait, "", "threads that wait for one another while weights are packed")            \
    X(kv, "kv_s", "memory for keys and values")                                          \
    X(rest, "", "threads, the file's head, kernels, tokenizer")                          \
    X(prompt, "", "the prompt")
#define ID(name, key, text)     PHASE_##name,
#define NAME(name, key, text)   #name,
#define METRIC(name, key, text) {#name "_s", "s", "lower", "of `sandwich run`: " text},
enum { PHASES(ID) N_PHASES, READY = N_PHASES, DISK_BYTES };
static const char *const phase_names[] = {PHASES(NAME)};

static const struct study_metric metrics[] = {
    {"run_first_token_s", "s", "lower", "start to first token: `sandwich run`"},
    PHASES(METRIC){"first_token_s", "s", "lower",
                   "start to first token: the first server"},
    {"ready_s", "s", "lower", "start to ready: the first server"},
    {"rival_first_token_s", "s", "", "start to first token: the fastest of the others"},
    {"first_token_over_rival", "x", "lower", "the first server's time / that one's"},
    {"file_mb", "MB", "", "the model's file"},
    {"weights_gbps", "GB/s", "higher", "the file's bytes / time of reading and packing"},
    {"disk_frac", "", "", "share of the file that was read from disk meanwhile"},
    {0},
};

struct cell {
    const struct opts *o;
    struct study_cell *out;
    char names[SYSTEMS_MAX][NAME_CHARS], *systems[SYSTEMS_MAX];
    int n_systems;
    struct study_compare rounds; /* `sandwich run`, then the servers */
    int fd;                      /* of the model's file, + 1; 0: not open */
    int64_t file_bytes;
    char ids[4096 * 6]; /* the prompt, separated by commas */
};

/* ---- the page cache ---- */

/* The share of the file that the page cache has. */
static int cached_frac(const struct cell *c, double *frac)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = (size_t)c->file_bytes;
    size_t n = (bytes + page - 1) / page, found = 0;
    unsigned char *in = mem_new(MEM_HARNESS, n, 1);
    void *p = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, c->fd - 1, 0);
    int rc = OK;

    if (p == MAP_FAILED || mincore(p, bytes, in) != 0)
        rc = err_set(ERR_IO, "%s: cannot ask for cached pages: %m", c->o->model);
    if (p != MAP_FAILED)
        munmap(p, bytes);
    for (size_t i = 0; i < n; i++)
        found += in[i] & 1;
    mem_free(in);
    *frac = (double)found / (double)n;
    return rc;
}

static int fill_cache(const struct cell *c)
{
    char *buffer = mem_new(MEM_HARNESS, READ_BYTES, 1);
    int64_t at = 0;
    ssize_t n;

    while ((n = pread(c->fd - 1, buffer, READ_BYTES, at)) > 0)
        at += n;
    mem_free(buffer);
    return at == c->file_bytes ? OK : err_set(ERR_IO, "%s: cannot be read", c->o->model);
}

static int prepare_cache(const struct cell *c)
{
    double kept;

    if (c->o->cache == WARM)
        return fill_cache(c);
    if (fdatasync(c->fd - 1) != 0 || /* pages that are not on disk stay */
        posix_fadvise(c->fd - 1, 0, 0, POSIX_FADV_DONTNEED) != 0)
        return err_set(ERR_NOTFOUND, "%s: cannot be dropped from the page cache: %m",
                       c->o->model);
    TRY(cached_frac(c, &kept));
    return kept <= KEPT_FRAC
               ? OK
               : err_set(ERR_NOTFOUND, "%s: the page cache keeps %.0f %% of it",
                         c->o->model, 100 * kept);
}

/* ---- `sandwich run` ---- */

static int cold_start_program(const struct cell *c, json_t **report)
{
    char threads[24], ctx[24];
    const char *const argv[] = {"sandwich",
                                "run",
                                "--model",
                                c->o->model,
                                "--prompt-ids",
                                c->ids,
                                "-n",
                                "1",
                                "--json",
                                "--threads",
                                threads,
                                "--max-tok",
                                ctx,
                                "--precision",
                                kern_precision_name((enum kern_precision)c->o->precision),
                                NULL};

    snprintf(threads, sizeof(threads), "%lld", (long long)c->o->threads);
    snprintf(ctx, sizeof(ctx), "%lld", (long long)c->o->ctx_tok);
    return study_program_run(
        &(struct study_program){.name = "sandwich run", .argv = argv}, report);
}

/* The parts of its time to the first token, which add up to it. */
static void put_phases(struct cell *c, const json_t *report, double first_s)
{
#define KEY(name, key, text) key,
    static const char *const keys[] = {PHASES(KEY)};
#undef KEY
    const json_t *load = json_object_get(json_object_get(report, "engine"), "load");
    double s[N_PHASES], rest = first_s;

    for (int i = 0; i < N_PHASES; i++)
        s[i] = *keys[i] ? json_f64_at(load, keys[i]) : 0;
    s[PHASE_wait] = json_f64_at(load, "weights_s") - s[PHASE_read] - s[PHASE_pack];
    s[PHASE_prompt] = json_f64_at(report, "ttft_s");
    for (int i = 0; i < N_PHASES; i++)
        rest -= s[i];
    s[PHASE_rest] = rest;
    for (int i = 0; i < N_PHASES; i++)
        study_compare_put(&c->rounds, i, s[i]);
    study_compare_put(&c->rounds, READY, json_f64_at(load, "weights_s"));
    study_compare_put(&c->rounds, DISK_BYTES, json_f64_at(load, "disk_bytes"));
}

static int try_run(struct cell *c, double *first_s)
{
    json_t *report = NULL;

    TRY(cold_start_program(c, &report));
    *first_s = json_f64_at(report, "start_to_first_token_s");
    put_phases(c, report, *first_s);
    json_decref(report);
    return OK;
}

/* ---- a server ---- */

static int ask(const struct cell *c, const char *url)
{
    const struct sut_http_opts o = {
        .url = url, .connect_timeout_s = 5, .timeout_s = ANSWER_S};
    struct text body = {0}, answer = {0};
    long status = 0;
    int rc;

    text_puts(&body, "{\"prompt\": [");
    text_puts(&body, c->ids);
    text_puts(&body, "], \"max_tokens\": 1, \"temperature\": 0, \"stream\": false}");
    text_put(&body, "", 1);
    rc = body.rc;
    if (rc == OK)
        rc = sut_http_fetch(&o, "/completions", body.p, &answer, &status);
    if (rc == OK && status != 200)
        rc = err_set(ERR_IO, "%s: answered %ld to a prompt", url, status);
    text_fini(&body);
    text_fini(&answer);
    return rc;
}

static int try_server(struct cell *c, int i, double *first_s, double *ready_s)
{
    const struct sut_server_opts o = {
        .system = c->systems[i],
        .model = c->o->model,
        .threads = c->o->threads,
        .precision = kern_precision_name((enum kern_precision)c->o->precision),
        .ctx_tok = c->o->ctx_tok,
        .slots = 1};
    struct sut_server *s;
    uint64_t start_ns;
    int rc;

    TRY(sut_server_start(&s, &o));
    start_ns = sut_server_started_ns(s);
    *ready_s = (double)(clock_ns() - start_ns) * 1e-9;
    rc = ask(c, sut_server_url(s));
    *first_s = (double)(clock_ns() - start_ns) * 1e-9;
    sut_server_stop(&s);
    return rc;
}

/* Those that are installed; the others are noted with the reason. */
static int open_systems(struct cell *c)
{
    char *names = mem_strdup(MEM_HARNESS, c->o->systems), *at = names, *name;
    double first_s, ready_s;
    int rc = OK;

    while (rc == OK && (name = strsep(&at, " ")) != NULL) {
        const char *base = strrchr(name, '/');
        int i = c->n_systems;

        if (!*name)
            continue;
        if (i == SYSTEMS_MAX) {
            rc = err_set(ERR_ARG, "study.systems: expected at most %d", SYSTEMS_MAX);
            break;
        }
        snprintf(c->names[i], NAME_CHARS, "%s", base ? base + 1 : name);
        c->systems[i] = mem_strdup(MEM_HARNESS, name);
        rc = try_server(c, i, &first_s, &ready_s);
        if (rc == ERR_UNSUPPORTED) {
            study_note_text(c->out, c->names[i], err_msg());
            err_clear();
            mem_free(c->systems[i]);
            rc = OK;
            continue;
        }
        c->n_systems++;
    }
    mem_free(names);
    return rc;
}

/* ---- the cell ---- */

static int trial(void *arg, int i, struct measure_trial *t)
{
    struct cell *c = arg;
    double ready_s;

    TRY(prepare_cache(c));
    if (i == 0)
        return try_run(c, &t->seconds);
    TRY(try_server(c, i - 1, &t->seconds, &ready_s));
    study_compare_put(&c->rounds, READY, ready_s);
    return OK;
}

static double median_s(const struct cell *c, int i)
{
    return stats_median(study_compare_times(&c->rounds, i), (size_t)c->rounds.n_rounds);
}

static void report_servers(struct cell *c)
{
    const char *const alone = "no other server is installed";
    int rival = -1;
    char name[NAME_CHARS + 24];

    for (int i = 0; i < c->n_systems; i++) {
        snprintf(name, sizeof(name), "first_token_s_of_%s", c->names[i]);
        study_series(c->out, name, "s", study_compare_times(&c->rounds, i + 1),
                     (size_t)c->rounds.n_rounds);
        if (i > 0 && (rival < 0 || median_s(c, i + 1) < median_s(c, rival + 1)))
            rival = i;
    }
    study_value(c->out, "first_token_s", c->n_systems ? median_s(c, 1) : NAN,
                "the first server is not installed");
    study_value(c->out, "ready_s",
                c->n_systems ? study_compare_median(&c->rounds, 1, READY) : NAN,
                "the first server is not installed");
    study_value(c->out, "rival_first_token_s", rival > 0 ? median_s(c, rival + 1) : NAN,
                alone);
    if (rival > 0)
        (void)study_compare_ratio(&c->rounds, "first_token_over_rival", 1, rival + 1, 0);
    else
        study_value(c->out, "first_token_over_rival", NAN, alone);
}

static void report(struct cell *c)
{
    double bytes = (double)c->file_bytes;
    char name[NAME_CHARS];

    study_value(c->out, "run_first_token_s", median_s(c, 0), "");
    study_series(c->out, "run_first_token_s_by_round", "s",
                 study_compare_times(&c->rounds, 0), (size_t)c->rounds.n_rounds);
    for (int i = 0; i < N_PHASES; i++) {
        snprintf(name, sizeof(name), "%s_s", phase_names[i]);
        study_value(c->out, name, study_compare_median(&c->rounds, 0, i),
                    "`sandwich run` did not tell");
    }
    study_value(c->out, "file_mb", bytes * 1e-6, "");
    study_value(c->out, "weights_gbps",
                bytes * 1e-9 / study_compare_median(&c->rounds, 0, READY),
                "`sandwich run` did not tell");
    study_value(c->out, "disk_frac",
                study_compare_median(&c->rounds, 0, DISK_BYTES) / bytes,
                "`sandwich run` did not tell");
    report_servers(c);
}

static int open_file(struct cell *c)
{
    struct stat st;

    if (!c->o->model)
        return err_set(ERR_ARG, "study.model: no path given");
    c->fd = open(c->o->model, O_RDONLY | O_CLOEXEC) + 1;
    if (c->fd == 0 || fstat(c->fd - 1, &st) != 0)
        return err_set(ERR_IO, "%s: cannot open: %m", c->o->model);
    if (!S_ISREG(st.st_mode) || st.st_size == 0)
        return err_set(ERR_FORMAT, "%s: expected a file with content", c->o->model);
    c->file_bytes = st.st_size;
    return OK;
}

static int run(struct cell *c)
{
    size_t at = 0;

    TRY(open_file(c));
    for (int64_t i = 0; i < c->o->n_prompt_tok; i++) /* any ids: weights are random */
        at += (size_t)snprintf(c->ids + at, sizeof(c->ids) - at, "%s%d", i ? "," : "",
                               (int)(3 + i * 7 % 90));
    TRY(prepare_cache(c));
    TRY(open_systems(c));
    c->rounds = (struct study_compare){.doing = "starts of all programs, in turn"};
    TRY(study_compare(&c->rounds, c->out, 1 + c->n_systems, c->o->rounds, trial, c));
    report(c);
    return OK;
}

static void end(struct cell *c)
{
    study_compare_close(&c->rounds);
    for (int i = 0; i < c->n_systems; i++)
        mem_free(c->systems[i]);
    if (c->fd > 0)
        close(c->fd - 1);
}

STUDY(cold_start, "start to first token of programs and servers, by phases");
