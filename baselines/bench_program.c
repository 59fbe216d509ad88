#include "baselines/bench_program.h"

#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/child.h"
#include "base/home.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "baselines/environment.h"
#include "baselines/server_file.h"
#include "baselines/words.h"

#define VERSION_S    60 /* Python programs import for long */
#define LAST_LINE    160
#define OUTPUT_BYTES (4 << 20)
#define LIST_CHARS   512
#define COLUMNS_MAX  96
#define PROMPT_TOK   64 /* at most, of the prompt before decode */

struct sut_bench {
    char name[64], path[PATH_MAX], program[PATH_MAX], version[128];
    struct sut_bench_opts o;
    json_t *file;
    const json_t *bench, *env; /* lent by the file */
    char separator;
};

/* ---- a run of the program ---- */

/* The settings of a measurement, as text; NULL: not given. */
struct ask {
    const char *n_prompt, *n_output, *batch, *ctx;
};

struct command {
    char **argv, **set, **env;
    int out; /* what it writes: a file in memory */
};

static void close_command(struct command *c)
{
    if (c->out >= 0)
        close(c->out);
    mem_free(c->env);
    mem_free(c->set);
    mem_free(c->argv);
}

static int open_command(struct command *c, const struct sut_bench *b, const char *key,
                        const json_t *more, const struct ask *ask)
{
    char threads[16];
    const struct sut_value values[] = {{"program", b->program},
                                       {"model", b->o.model},
                                       {"threads", threads},
                                       {"precision", b->o.precision},
                                       {"n_prompt", ask->n_prompt},
                                       {"n_output", ask->n_output},
                                       {"batch", ask->batch},
                                       {"ctx", ask->ctx},
                                       {0}};
    json_t *list = json_copy(json_object_get(b->bench, key));
    int n, n_set = 0, rc;

    snprintf(threads, sizeof(threads), "%d", b->o.n_threads);
    if (list && more)
        json_array_extend(list, (json_t *)more);
    rc = sut_words(&c->argv, &n, list, values, b->path);
    json_decref(list);
    if (rc == OK && b->env)
        rc = sut_words_env(&c->set, &n_set, b->env, values, b->path);
    if (rc == OK)
        rc = sut_environment(&c->env, c->set, n_set);
    c->out = memfd_create("bench-output", MFD_CLOEXEC);
    return rc == OK && c->out < 0
               ? err_set(ERR_IO, "%s: no file for its output: %m", b->name)
               : rc;
}

/* Start the command and wait for its end. */
static int execute(const struct command *c, const struct sut_bench *b, double limit_s)
{
    const struct child_program p = {.argv = (const char *const *)c->argv,
                                    .env = c->env,
                                    .fd = {-1, c->out, c->out},
                                    .cpus = b->o.cpus,
                                    .n_cpus = b->o.n_threads};
    char how[256], line[LAST_LINE];
    pid_t pid;
    int rc = child_start(&pid, &p);

    if (rc == ERR_NOTFOUND)
        return err_set(ERR_UNSUPPORTED, "%s: not found, see \"install\" in %s",
                       b->program, b->path);
    if (rc != OK)
        return rc;
    rc = child_wait(&pid, limit_s);
    if (rc == ERR_LIMIT)
        err_set(ERR_LIMIT, "did not end within %g s", limit_s);
    child_kill(&pid);
    if (rc == OK)
        return OK;
    snprintf(how, sizeof(how), "%s", err_msg());
    child_last_line(c->out, line, sizeof(line));
    return err_set(rc, "%s: %s; %s%s", b->name, how,
                   line[0] ? "the last line it wrote: " : "it wrote nothing", line);
}

/* *text: mem_free(). */
static int read_output(const struct command *c, const struct sut_bench *b, char **text)
{
    struct stat written;
    ssize_t got;

    if (fstat(c->out, &written) != 0 || written.st_size > OUTPUT_BYTES)
        return err_set(ERR_FORMAT, "%s: wrote more than %d bytes", b->name, OUTPUT_BYTES);
    *text = mem_new(MEM_HARNESS, (size_t)written.st_size + 1, 1);
    got = pread(c->out, *text, (size_t)written.st_size, 0);
    (*text)[got > 0 ? got : 0] = '\0';
    return OK;
}

/* Run a command of the file with more words. *text: what it wrote, also where it failed
 * (ERR_IO), mem_free(). */
static int run(const struct sut_bench *b, const char *key, const json_t *more,
               const struct ask *ask, double limit_s, char **text)
{
    struct command c = {.out = -1};
    int rc = open_command(&c, b, key, more, ask);

    *text = NULL;
    if (rc == OK)
        rc = execute(&c, b, limit_s);
    if (rc == OK || (rc == ERR_IO && c.out >= 0))
        rc = read_output(&c, b, text) == OK ? rc : ERR_FORMAT;
    close_command(&c);
    return rc;
}

/* ---- the table that it prints ---- */

enum { N_PROMPT, N_OUTPUT, BATCH, PREFILL, DECODE, N_COLUMNS };
static const char *const column_keys[] = {"n_prompt",      "n_output",     "batch",
                                          "prefill_tok_s", "decode_tok_s", NULL};

/* Cut a line into its fields, without the blanks around them; an empty one before the first and
 * after the last "|" is none. */
static int cut(char *line, char separator, char *fields[COLUMNS_MAX])
{
    int n = 0;

    if (separator == '|') {
        line += strspn(line, " ");
        line += *line == '|';
    }
    while (line && n < COLUMNS_MAX) {
        char *quoted = *line == '"' ? strchr(line + 1, '"') : NULL; /* may hold commas */
        char *end = strchr(quoted ? quoted : line, separator),
             *next = end ? end + 1 : NULL;

        if (!end)
            end = line + strlen(line);
        *end = '\0';
        line += strspn(line, " \t\"");
        while (end > line && strchr(" \t\r\"", end[-1]))
            *--end = '\0';
        fields[n++] = line;
        line = next;
    }
    return n;
}

/* Where the columns stand, if this is the line of the titles. */
static bool find_columns(int at[N_COLUMNS], const struct sut_bench *b,
                         char *const *fields, int n)
{
    const json_t *titles = json_object_get(b->bench, "columns");
    int found[N_COLUMNS];

    for (int k = 0; k < N_COLUMNS; k++) {
        const char *title = json_string_value(json_object_get(titles, column_keys[k]));

        found[k] = -1;
        for (int i = 0; i < n && title; i++)
            if (strcmp(fields[i], title) == 0)
                found[k] = i;
        if (title && found[k] < 0)
            return false;
    }
    memcpy(at, found, sizeof(found));
    return true;
}

static double number(char *const *fields, int n, int at, double missing)
{
    char *end;
    double v;

    if (at < 0)
        return missing;
    if (at >= n)
        return NAN;
    v = strtod(fields[at], &end);
    return end > fields[at] && *end == '\0' ? v : NAN;
}

/* The quantity that a row measured. */
struct row {
    double n_prompt, n_output, batch, prefill_tok_s, decode_tok_s;
};

/* Call `take` for each row under the titles. ERR_FORMAT: there are no titles. */
static int read_table(const struct sut_bench *b, char *text,
                      void (*take)(void *ctx, const struct row *r), void *ctx)
{
    char *fields[COLUMNS_MAX], *line;
    bool found = false;
    int at[N_COLUMNS];

    while ((line = strsep(&text, "\n")) != NULL) {
        int n = cut(line, b->separator, fields);

        if (find_columns(at, b, fields, n)) {
            found = true;
        } else if (found) {
            const struct row r = {
                number(fields, n, at[N_PROMPT], NAN),
                number(fields, n, at[N_OUTPUT], NAN), number(fields, n, at[BATCH], 1),
                number(fields, n, at[PREFILL], NAN), number(fields, n, at[DECODE], NAN)};

            take(ctx, &r);
        }
    }
    return found ? OK
                 : err_set(ERR_FORMAT, "%s: printed no table with the columns of %s",
                           b->name, b->path);
}

/* ---- what is asked ---- */

struct wanted {
    const int64_t *v; /* prompt tokens, or sequences */
    int n;
    int64_t n_output;
    double *tok_s;
};

static void take_prefill(void *ctx, const struct row *r)
{
    const struct wanted *w = ctx;

    for (int i = 0; i < w->n; i++)
        if (r->batch == 1 && r->n_prompt == (double)w->v[i] && r->prefill_tok_s > 0)
            w->tok_s[i] = r->prefill_tok_s;
}

static void take_decode(void *ctx, const struct row *r)
{
    const struct wanted *w = ctx;

    for (int i = 0; i < w->n; i++)
        if (r->batch == (double)w->v[i] && r->n_output == (double)w->n_output &&
            r->decode_tok_s > 0)
            w->tok_s[i] = r->decode_tok_s;
}

/* "16,512"; *most: the largest. */
static void print_list(char *out, size_t n, const int64_t *v, int n_v, int64_t *most)
{
    size_t at = 0;

    *most = 0;
    out[0] = '\0';
    for (int i = 0; i < n_v && at < n; i++) {
        at += (size_t)snprintf(out + at, n - at, "%s%lld", i ? "," : "", (long long)v[i]);
        *most = v[i] > *most ? v[i] : *most;
    }
}

/* Has the program printed every speed that was asked for? */
static bool is_complete(const struct wanted *w)
{
    for (int i = 0; i < w->n; i++)
        if (isnan(w->tok_s[i]))
            return false;
    return true;
}

/* A program that failed with ERR_IO and err_msg(): what it had measured by then stands if nothing
 * is missing. Some crash while they clean up. */
static int accept_failed(const struct sut_bench *b, char *text, struct wanted *w,
                         void (*take)(void *ctx, const struct row *r))
{
    char how[512];

    snprintf(how, sizeof(how), "%s", err_msg());
    if (read_table(b, text, take, w) != OK || !is_complete(w))
        return err_set(ERR_IO, "%s", how);
    err_clear();
    log_warning("failed_after_measuring", 1, 0, "%s, after all that was asked for", how);
    return OK;
}

static int measure(const struct sut_bench *b, const char *key, int setting,
                   const struct ask *ask, struct wanted *w,
                   void (*take)(void *ctx, const struct row *r))
{
    const json_t *settings = json_object_get(b->bench, "settings");
    const json_t *more = json_object_get(settings, sut_bench_setting(b, setting));
    char *text;
    int rc;

    for (int i = 0; i < w->n; i++)
        w->tok_s[i] = NAN;
    rc = run(b, key, more, ask, b->o.limit_s, &text);
    if (rc == OK)
        rc = read_table(b, text, take, w);
    else if (rc == ERR_IO && text)
        rc = accept_failed(b, text, w, take);
    mem_free(text);
    return rc;
}

int sut_bench_prefill(struct sut_bench *b, int setting, const int64_t *n_prompt, int n,
                      double *tok_s)
{
    char list[LIST_CHARS], ctx[24];
    int64_t most;
    struct wanted w = {.v = n_prompt, .n = n, .tok_s = tok_s};

    print_list(list, sizeof(list), n_prompt, n, &most);
    snprintf(ctx, sizeof(ctx), "%lld", (long long)most + PROMPT_TOK);
    return measure(b, "prefill", setting, &(struct ask){.n_prompt = list, .ctx = ctx}, &w,
                   take_prefill);
}

int sut_bench_decode(struct sut_bench *b, int setting, const int64_t *batch, int n,
                     int64_t n_output, double *tok_s)
{
    char list[LIST_CHARS], ctx[24], tokens[24];
    int64_t most;
    struct wanted w = {.v = batch, .n = n, .n_output = n_output, .tok_s = tok_s};

    print_list(list, sizeof(list), batch, n, &most);
    snprintf(tokens, sizeof(tokens), "%lld", (long long)n_output);
    snprintf(ctx, sizeof(ctx), "%lld", (long long)(most * (n_output + PROMPT_TOK)));
    return measure(b, "decode", setting,
                   &(struct ask){.n_output = tokens, .batch = list, .ctx = ctx}, &w,
                   take_decode);
}

/* ---- the file ---- */

static bool is_list(const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!json_is_string(json_array_get(list, i)) &&
            !json_is_array(json_array_get(list, i)))
            return false;
    return json_is_array(list);
}

static int check_commands(const struct sut_bench *b)
{
    static const char *const commands[] = {"prefill", "decode"};
    json_t *settings = json_object_get(b->bench, "settings"), *list;
    const char *name;

    for (int i = 0; i < 2; i++) {
        list = json_object_get(b->bench, commands[i]);
        if (!is_list(list) || json_array_size(list) == 0)
            return err_set(ERR_FORMAT, "%s: bench.%s: expected a list of words", b->path,
                           commands[i]);
    }
    if (settings && json_object_size(settings) == 0)
        return err_set(ERR_FORMAT,
                       "%s: bench.settings: expected an object with a member for each",
                       b->path);
    json_object_foreach(settings, name, list)
    {
        if (!is_list(list))
            return err_set(ERR_FORMAT, "%s: bench.settings.%s: expected a list of words",
                           b->path, name);
    }
    return OK;
}

static int read_separator(struct sut_bench *b)
{
    const char *separator;

    TRY(json_get_str(b->bench, "separator", &separator, b->path));
    b->separator = separator[0];
    return strcmp(separator, ",") == 0 || strcmp(separator, "|") == 0
               ? OK
               : err_set(ERR_FORMAT,
                         "%s: bench.separator: expected \",\" or \"|\", found \"%.20s\"",
                         b->path, separator);
}

static int check_columns(const struct sut_bench *b)
{
    const json_t *titles = json_object_get(b->bench, "columns");

    TRY(json_check_keys(titles, column_keys, b->path));
    for (int k = 0; k < N_COLUMNS; k++)
        if (!json_is_string(json_object_get(titles, column_keys[k])) && k != BATCH)
            return err_set(ERR_FORMAT, "%s: bench.columns.%s: expected a title, a string",
                           b->path, column_keys[k]);
    return OK;
}

/* The words that the instruction set replaces. */
static int choose_program(struct sut_bench *b)
{
    static const char *const keys[] = {"program", "env", NULL};
    const json_t *own = NULL;
    const char *program;

    if (b->o.isa) {
        own = json_object_get(json_object_get(b->bench, "isa"), b->o.isa);
        if (!own)
            return err_set(ERR_UNSUPPORTED, "%s: bench.isa: nothing for \"%s\"", b->path,
                           b->o.isa);
        TRY(json_check_keys(own, keys, b->path));
    }
    b->env = json_object_get(json_object_get(own, "env") ? own : b->bench, "env");
    TRY(json_get_str(json_object_get(own, "program") ? own : b->bench, "program",
                     &program, b->path));
    if (strchr(program, '/'))
        snprintf(b->program, sizeof(b->program), "%s", program);
    else
        home_program(b->program, sizeof(b->program), program);
    return OK;
}

static int read_file(struct sut_bench *b)
{
    static const char *const keys[] = {"program",  "version", "prefill", "decode",
                                       "settings", "env",     "isa",     "separator",
                                       "columns",  NULL};

    TRY(sut_server_file(&b->file, b->path, b->o.system));
    b->bench = json_object_get(b->file, "bench");
    if (!b->bench)
        return err_set(ERR_UNSUPPORTED, "%s: has no \"bench\"", b->path);
    TRY(json_check_keys(b->bench, keys, b->path));
    TRY(check_commands(b));
    TRY(read_separator(b));
    TRY(check_columns(b));
    return choose_program(b);
}

static int read_version(struct sut_bench *b)
{
    char *text = NULL, how[256];
    int rc;

    if (!json_object_get(b->bench, "version"))
        return OK;
    rc = run(b, "version", NULL, &(struct ask){0}, VERSION_S, &text);
    if (rc == ERR_IO || rc == ERR_LIMIT) {
        snprintf(how, sizeof(how), "%s", err_msg());
        rc = err_set(ERR_UNSUPPORTED, "%s (see \"install\" in %s)", how, b->path);
    }
    if (rc == OK) {
        text[strcspn(text, "\r\n")] = '\0';
        utf8_show(b->version, sizeof(b->version), text);
    }
    mem_free(text);
    return rc;
}

int sut_bench_open(struct sut_bench **out, const struct sut_bench_opts *o)
{
    struct sut_bench *b = mem_new(MEM_HARNESS, 1, sizeof(*b));
    const char *base = strrchr(o->system, '/');
    int rc;

    *out = NULL;
    b->o = *o;
    snprintf(b->name, sizeof(b->name), "%s", base ? base + 1 : o->system);
    rc = read_file(b);
    if (rc == OK)
        rc = read_version(b);
    if (rc == OK)
        *out = b;
    else
        sut_bench_close(&b);
    return rc;
}

void sut_bench_close(struct sut_bench **b)
{
    if (!*b)
        return;
    json_decref((*b)->file);
    mem_free(*b);
    *b = NULL;
}

const char *sut_bench_version(const struct sut_bench *b)
{
    return b->version;
}

int sut_bench_n_settings(const struct sut_bench *b)
{
    const json_t *settings = json_object_get(b->bench, "settings");

    return settings ? (int)json_object_size(settings) : 1;
}

const char *sut_bench_setting(const struct sut_bench *b, int i)
{
    const char *name;
    json_t *words;

    json_object_foreach(json_object_get(b->bench, "settings"), name, words)
    {
        if (i-- == 0)
            return name;
    }
    return "default";
}
