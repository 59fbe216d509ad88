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
#include "experiments/frame/frame.h"
#include "experiments/study/support/program.h"
#include "experiments/study/support/options.h"

#define SYSTEMS_MAX 12
#define ROUNDS_MAX  99
#define NAME_CHARS  48
#define ANSWER_S    120
#define READ_BYTES  (1 << 20)
#define KEPT_FRAC   0.02 /* of a file that counts as dropped: what is read with its head */

enum { WARM, COLD };

#define OPTIONS(X)                                                                       \
    OPTION_MODEL(X)                                                                      \
    X(STR, systems, "sandwich ik_llama.cpp llama.cpp",                                   \
      "Servers, separated by blanks: names in baselines/systems/, or paths of such "     \
      "files. The first is held against the others.")                                    \
    X(ENUM, cache, "warm",                                                               \
      "Whether the page cache has the file (warm), or it is read from disk.",            \
      .values = "warm|cold")                                                             \
    X(ENUM, precision, "a8", "Precision of this engine's matrix products.",              \
      .values = KERN_PRECISIONS)                                                         \
    OPTION_THREADS(X, "0", "Number of threads. 0: one for each core of the budget.")     \
    X(INT, n_prompt_tok, "16", "Prompt tokens.", .unit = "tok", .min = 1, .max = 4096)   \
    X(INT, ctx_tok, "512", "Longest sequence, for which memory is reserved.",            \
      .unit = "tok", .min = 2, .max = 1 << 20)                                           \
    X(INT, rounds, "5", "Rounds of all programs, in turn.", .min = 3, .max = ROUNDS_MAX)

/* Phases of `sandwich run`, whose times add up to that of its first token. */
#define PHASE(X, name, text) X(name##_s, "s", LOWER, "of `sandwich run`: " text)
#define RESULTS(X)                                                                       \
    X(run_first_token_s, "s", LOWER, "start to first token: `sandwich run`")             \
    PHASE(X, read, "reading the file, or waiting for it, mean over threads")             \
    PHASE(X, pack, "packing the weights, mean over threads")                             \
    PHASE(X, wait, "threads that wait for one another while weights are packed")         \
    PHASE(X, kv, "memory for keys and values")                                           \
    PHASE(X, rest, "threads, the file's head, kernels, tokenizer")                       \
    PHASE(X, prompt, "the prompt")                                                       \
    X(first_token_s, "s", LOWER, "start to first token: the first server")               \
    X(ready_s, "s", LOWER, "start to ready: the first server")                           \
    X(rival_first_token_s, "s", 0, "start to first token: the fastest of the others")    \
    X(first_token_over_rival, "x", LOWER, "the first server's time / that one's")        \
    X(file_mb, "MB", 0, "the model's file")                                              \
    X(weights_gbps, "GB/s", HIGHER, "the file's bytes / time of reading and packing")    \
    X(disk_frac, "", 0, "share of the file that was read from disk meanwhile")

FRAME_TYPES;

struct cold_start {
    FRAME_CELL;
    char names[SYSTEMS_MAX][NAME_CHARS], *systems[SYSTEMS_MAX];
    int n_systems;
    double weights_s, disk_bytes, ready_s[SYSTEMS_MAX];
    int fd; /* of the model's file, + 1; 0: not open */
    int64_t file_bytes;
    char ids[4096 * 6]; /* the prompt, separated by commas */
};

/* ---- the page cache ---- */

/* The share of the file that the page cache has. */
static int cached_frac(const struct cold_start *c, double *frac)
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

static int fill_cache(const struct cold_start *c)
{
    char *buffer = mem_new(MEM_HARNESS, READ_BYTES, 1);
    int64_t at = 0;
    ssize_t n;

    while ((n = pread(c->fd - 1, buffer, READ_BYTES, at)) > 0)
        at += n;
    mem_free(buffer);
    return at == c->file_bytes ? OK : err_set(ERR_IO, "%s: cannot be read", c->o->model);
}

static int prepare_cache(const struct cold_start *c)
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

static int cold_start_program(const struct cold_start *c, json_t **report)
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

static int try_run(struct cold_start *c, double *first_s)
{
    json_t *report = NULL;
    const json_t *load;
    double weights_s, read_s, pack_s, kv_s, prompt_s;

    TRY(cold_start_program(c, &report));
    load = json_object_get(json_object_get(report, "engine"), "load");
    *first_s = json_f64_at(report, "start_to_first_token_s");
    weights_s = json_f64_at(load, "weights_s");
    read_s = json_f64_at(load, "read_s");
    pack_s = json_f64_at(load, "pack_s");
    kv_s = json_f64_at(load, "kv_s");
    prompt_s = json_f64_at(report, "ttft_s");
    frame_put(c->f, &c->r->read_s, read_s);
    frame_put(c->f, &c->r->pack_s, pack_s);
    frame_put(c->f, &c->r->wait_s, weights_s - read_s - pack_s);
    frame_put(c->f, &c->r->kv_s, kv_s);
    frame_put(c->f, &c->r->rest_s, *first_s - weights_s - kv_s - prompt_s);
    frame_put(c->f, &c->r->prompt_s, prompt_s);
    frame_put(c->f, &c->weights_s, weights_s);
    frame_put(c->f, &c->disk_bytes, json_f64_at(load, "disk_bytes"));
    json_decref(report);
    return OK;
}

/* ---- a server ---- */

static int ask(const struct cold_start *c, const char *url)
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

static int try_server(struct cold_start *c, int i, double *first_s, double *ready_s)
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
static int open_systems(struct cold_start *c)
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

static int cold_start_trial(void *arg, int i, struct measure_trial *t)
{
    struct cold_start *c = arg;
    double ready_s;

    TRY(prepare_cache(c));
    if (i == 0)
        return try_run(c, &t->seconds);
    TRY(try_server(c, i - 1, &t->seconds, &ready_s));
    frame_put(c->f, &c->ready_s[i - 1], ready_s);
    return OK;
}

static double median_s(const struct cold_start *c, int i)
{
    return stats_median(frame_times(c->f, i), (size_t)c->f->n_rounds);
}

static void report_servers(struct cold_start *c)
{
    struct results *r = c->r;
    int fastest = 0; /* of the others */
    char name[NAME_CHARS + 24];

    for (int i = 0; i < c->n_systems; i++) {
        snprintf(name, sizeof(name), "first_token_s_of_%s", c->names[i]);
        frame_times_series(c->f, name, i + 1);
        if (i > 0 && (!fastest || median_s(c, i + 1) < median_s(c, fastest + 1)))
            fastest = i;
    }
    frame_set(c->f, &r->first_token_s, c->n_systems ? median_s(c, 1) : NAN,
              "the first server is not installed");
    frame_set(c->f, &r->ready_s, c->n_systems ? c->ready_s[0] : NAN,
              "the first server is not installed");
    r->rival_first_token_s = r->first_token_over_rival = NAN;
    frame_why(c->f, NULL, "no other server is installed");
    if (fastest > 0) {
        r->rival_first_token_s = median_s(c, fastest + 1);
        frame_ratio(c->f, &r->first_token_over_rival, 1, fastest + 1, 0);
    }
}

static void cold_start_report(struct cold_start *c)
{
    double bytes = (double)c->file_bytes;

    c->r->run_first_token_s = median_s(c, 0);
    frame_times_series(c->f, "run_first_token_s_by_round", 0);
    c->r->file_mb = bytes * 1e-6;
    c->r->weights_gbps = bytes * 1e-9 / c->weights_s;
    c->r->disk_frac = c->disk_bytes / bytes;
    frame_why(c->f, NULL, "`sandwich run` did not report it");
    report_servers(c);
}

static int open_file(struct cold_start *c)
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

static void cold_start_close(struct cold_start *c)
{
    for (int i = 0; i < c->n_systems; i++)
        mem_free(c->systems[i]);
    if (c->fd > 0)
        close(c->fd - 1);
}

static int cold_start_run(struct cold_start *c)
{
    size_t at = 0;

    FRAME_CLOSE(c->f, cold_start_close, c);
    TRY(open_file(c));
    for (int64_t i = 0; i < c->o->n_prompt_tok; i++) /* any ids: weights are random */
        at += (size_t)snprintf(c->ids + at, sizeof(c->ids) - at, "%s%d", i ? "," : "",
                               (int)(3 + i * 7 % 90));
    TRY(prepare_cache(c));
    TRY(open_systems(c));
    TRY(frame_rounds(c->f, "starts of all programs, in turn", 1 + c->n_systems,
                     c->o->rounds, cold_start_trial, c));
    cold_start_report(c);
    return OK;
}

STUDY(cold_start, "start to first token of programs and servers, by phases");
