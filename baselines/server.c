#include "baselines/server.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/child.h"
#include "base/clock.h"
#include "base/home.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/utf8.h"
#include "baselines/environment.h"
#include "baselines/http.h"
#include "baselines/server_file.h"

#define TAIL_LINES   12
#define TAIL_BYTES   4096
#define LAST_LINE    160 /* of its output, in an error */
#define SEARCH_BYTES (1 << 20)
#define VERSION_S    60 /* Python programs import for long */
#define READY_S      120
#define STOP_S       10
#define POLL_NS      10000000

struct sut_server {
    char name[64], path[PATH_MAX], url[192], root[64], version[128];
    json_t *file;
    struct sut_server_values v;
    char **argv;
    int log; /* what it writes: a file in memory, so that nothing is left behind */
    clockid_t cpu_clock;
    pid_t pid, group;
    uint64_t started_ns;
};

/* --- its output */

static void log_tail(const struct sut_server *s)
{
    char tail[TAIL_BYTES], *at, *line;
    struct stat file;
    size_t n_lines = 0;
    off_t from = 0;
    ssize_t n;

    if (fstat(s->log, &file) == 0 && file.st_size > (off_t)sizeof(tail) - 1)
        from = file.st_size - (off_t)sizeof(tail) + 1;
    n = pread(s->log, tail, sizeof(tail) - 1, from);
    if (n <= 0)
        return;
    tail[n] = '\0';
    for (at = tail + n; at > tail && n_lines <= TAIL_LINES; at--)
        n_lines += at[-1] == '\n';
    while ((line = strsep(&at, "\n")) != NULL)
        if (*line)
            log_line(LOG_INFO, "%s: | %s", s->name, line);
}

/* "ended by signal 9 (Killed)" is the message so far. */
static int report_end(struct sut_server *s, int rc)
{
    char how[256], line[LAST_LINE];

    snprintf(how, sizeof(how), "%s", err_msg());
    child_last_line(s->log, line, sizeof(line));
    log_tail(s);
    return err_set(rc, "%s: %s; %s%s", s->name, how,
                   line[0] ? "the last line it wrote: " : "it wrote nothing", line);
}

/* --- start */

static int make_log(struct sut_server *s)
{
    s->log = memfd_create("server-output", MFD_CLOEXEC);
    return s->log >= 0 ? OK : err_set(ERR_IO, "%s: no file for its output: %m", s->name);
}

/* A port that nobody listens on now. The server binds it a moment later. */
static int free_port(int *port)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(a);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), rc = OK;

    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) != 0 ||
        getsockname(fd, (struct sockaddr *)&a, &n) != 0)
        rc = err_set(ERR_IO, "no free port: %m");
    else
        *port = ntohs(a.sin_port);
    if (fd >= 0)
        close(fd);
    return rc;
}

static int spawn(struct sut_server *s, pid_t *pid, char **argv, char *const *env)
{
    const struct child_program p = {.argv = (const char *const *)argv,
                                    .env = env,
                                    .fd = {-1, s->log, s->log},
                                    .cpus = s->v.cpu,
                                    .n_cpus = s->v.n_cpus,
                                    .own_group = true};
    int rc = child_start(pid, &p);

    return rc != ERR_NOTFOUND
               ? rc
               : err_set(ERR_UNSUPPORTED, "%s: not found, see \"install\" in %s", argv[0],
                         s->path);
}

/* A program that is there and cannot run its version command is not installed. */
static int read_version(struct sut_server *s, char *const *env)
{
    const json_t *list = json_object_get(s->file, "version");
    char **argv = NULL, line[LAST_LINE], text[TAIL_BYTES], how[256];
    pid_t pid = 0;
    ssize_t got;
    int n, rc;

    if (!list)
        return OK;
    rc = sut_server_words(&argv, &n, list, &s->v, s->path);
    if (rc == OK)
        rc = spawn(s, &pid, argv, env);
    if (rc == OK && child_wait(&pid, VERSION_S) != OK) {
        snprintf(how, sizeof(how), "%s", err_msg());
        child_last_line(s->log, line, sizeof(line));
        rc =
            err_set(ERR_UNSUPPORTED, "%s: not usable, see \"install\" in %s: `%s` %s: %s",
                    s->name, s->path, argv[0], how, line);
        child_kill(&pid);
    }
    got = pread(s->log, text, sizeof(text) - 1, 0);
    text[got > 0 ? got : 0] = '\0';
    text[strcspn(text, "\r\n")] = '\0';
    utf8_show(s->version, sizeof(s->version), text);
    mem_free(argv);
    return rc;
}

static int ready_settings(const struct sut_server *s, const char **path, double *limit_s)
{
    static const char *const keys[] = {"path", "limit_s", NULL};
    const json_t *ready = json_object_get(s->file, "ready");
    int rc;

    *path = "/health";
    if (!ready)
        return OK;
    rc = json_check_keys(ready, keys, s->path);
    if (rc == OK)
        rc = json_opt_str(ready, "path", path, s->path);
    if (rc == OK && *limit_s <= 0) {
        *limit_s = READY_S;
        rc = json_opt_f64(ready, "limit_s", limit_s, s->path);
    }
    return rc;
}

int sut_server_check(struct sut_server *s)
{
    int rc = s->pid ? child_wait(&s->pid, 0.001) : err_set(ERR_IO, "has ended before");

    if (s->pid) /* it still runs */
        return OK;
    if (rc == OK)
        err_set(ERR_IO, "exited with status 0");
    return report_end(s, ERR_IO);
}

static int wait_ready(struct sut_server *s, double limit_s)
{
    const struct sut_http_opts http = {
        .url = s->root, .connect_timeout_s = 1, .timeout_s = 1};
    const char *path;
    uint64_t end_ns;

    TRY(ready_settings(s, &path, &limit_s));
    end_ns = clock_ns() + (uint64_t)((limit_s > 0 ? limit_s : READY_S) * 1e9);
    for (;;) {
        struct text answer = {0};
        long status = 0;
        int rc;

        TRY(sut_server_check(s));
        rc = sut_http_fetch(&http, path, NULL, &answer, &status);
        text_fini(&answer);
        if (rc == OK && status == 200)
            return sut_server_check(s);
        if (clock_ns() >= end_ns)
            break;
        clock_sleep_until_ns(clock_ns() + POLL_NS, 0);
    }
    err_set(ERR_LIMIT, "not ready after %.3g s (%s%s)", limit_s, s->root, path);
    return report_end(s, ERR_LIMIT);
}

static int find_program(struct sut_server *s, const char *given)
{
    const char *name = given;
    int rc = given ? OK : json_get_str(s->file, "program", &name, s->path);

    if (rc != OK)
        return rc;
    if (strchr(name, '/'))
        snprintf(s->v.program, sizeof(s->v.program), "%s", name);
    else
        home_program(s->v.program, sizeof(s->v.program), name);
    return OK;
}

/* The file's command, and the arguments that are given. New reference. */
static json_t *command_of(const struct sut_server *s, const struct sut_server_opts *o)
{
    json_t *command = json_object_get(s->file, o->plan ? "plan_command" : "command");
    const char *at = o->args ? o->args : "";

    if (!command)
        command = json_object_get(s->file, "command");
    command = json_deep_copy(command);
    for (size_t n; *(at += strspn(at, " ")); at += n) {
        n = strcspn(at, " ");
        json_array_append_new(command, json_stringn(at, n));
    }
    return command;
}

static int launch(struct sut_server *s, const struct sut_server_opts *o)
{
    json_t *command = command_of(s, o);
    char **set = NULL, **env = NULL;
    int n, n_set = 0, rc;

    rc = sut_server_words(&s->argv, &n, command, &s->v, s->path);
    json_decref(command);
    if (rc == OK)
        rc =
            sut_server_env(&set, &n_set, json_object_get(s->file, "env"), &s->v, s->path);
    if (rc == OK)
        rc = sut_environment(&env, set, n_set);
    if (rc == OK)
        rc = read_version(s, env);
    s->started_ns = clock_ns();
    if (rc == OK)
        rc = spawn(s, &s->pid, s->argv, env);
    s->group = s->pid;
    mem_free(env);
    mem_free(set);
    return rc;
}

int sut_server_start(struct sut_server **out, const struct sut_server_opts *o)
{
    struct sut_server *s = mem_new(MEM_HARNESS, 1, sizeof(*s));
    const char *base, *api = "/v1";
    int port = (int)o->port, rc;

    *out = NULL;
    s->log = -1;
    base = strrchr(o->system, '/');
    snprintf(s->name, sizeof(s->name), "%s", base ? base + 1 : o->system);
    rc = sut_server_file(&s->file, s->path, o->system);
    if (rc == OK)
        rc = json_opt_str(s->file, "api", &api, s->path);
    if (rc == OK)
        rc = sut_server_values(&s->v, o);
    if (rc == OK)
        rc = find_program(s, o->program);
    if (rc == OK && port == 0)
        rc = free_port(&port);
    if (rc == OK)
        rc = make_log(s);
    if (rc != OK)
        goto out;
    snprintf(s->v.port, sizeof(s->v.port), "%d", port);
    snprintf(s->root, sizeof(s->root), "http://127.0.0.1:%d", port);
    snprintf(s->url, sizeof(s->url), "%s%.40s", s->root, api);
    rc = launch(s, o);
    if (rc == OK)
        rc = wait_ready(s, o->ready_s);
    if (rc == OK)
        *out = s, s = NULL; /* the caller's now */
out:
    sut_server_stop(&s);
    return rc;
}

const char *sut_server_url(const struct sut_server *s)
{
    return s->url;
}

uint64_t sut_server_started_ns(const struct sut_server *s)
{
    return s->started_ns;
}

/* --- stop */

void sut_server_stop(struct sut_server **sp)
{
    struct sut_server *s = *sp;
    double limit_s = STOP_S;
    char message[512];

    if (!s)
        return;
    snprintf(message, sizeof(message), "%s", err_msg());
    if (s->pid) {
        if (json_opt_f64(s->file, "stop_s", &limit_s, s->path) != OK || !(limit_s > 0))
            limit_s = STOP_S;
        kill(s->pid, SIGTERM);
        if (child_wait(&s->pid, limit_s) == ERR_LIMIT)
            log_info("%s: did not end within %.3g s of SIGTERM, and is killed", s->name,
                     limit_s);
    }
    if (s->group > 0)
        kill(-s->group, SIGKILL); /* processes of its own */
    child_kill(&s->pid);
    if (s->log >= 0)
        close(s->log);
    json_decref(s->file);
    mem_free(s->argv);
    mem_free(s);
    *sp = NULL;
    err_set(ERR_IO, "%s", message); /* the one of why it was stopped */
}

/* --- what it reports */

static json_t *word_after(const struct sut_server *s, const char *marker)
{
    char *text = mem_new(MEM_HARNESS, SEARCH_BYTES + 1, 1), *at;
    json_t *found = NULL;
    ssize_t got;

    if (!text)
        return NULL;
    got = pread(s->log, text, SEARCH_BYTES, 0);
    text[got > 0 ? got : 0] = '\0';
    at = strstr(text, marker);
    if (at) {
        at += strlen(marker);
        at += strspn(at, " \t");
        found = json_stringn_lossy(at, strcspn(at, " \t\r\n,;)"));
    }
    mem_free(text);
    return found;
}

/* "a.b" in the JSON answer of a path; NULL where it is not there. */
static json_t *answer_key(const struct sut_server *s, const char *path, const char *key)
{
    const struct sut_http_opts http = {
        .url = s->root, .connect_timeout_s = 2, .timeout_s = 5};
    struct text answer = {0};
    json_t *root = NULL, *found;
    char part[64];
    long status = 0;

    if (sut_http_fetch(&http, path, NULL, &answer, &status) != OK || status != 200 ||
        json_read_text(&root, answer.p, answer.n, path) != OK)
        root = NULL;
    found = root;
    while (found && *key) {
        size_t n = strcspn(key, ".");

        snprintf(part, sizeof(part), "%.*s", (int)n, key);
        found = json_object_get(found, part);
        key += n + (key[n] == '.');
    }
    json_incref(found);
    json_decref(root);
    text_fini(&answer);
    return found;
}

static json_t *read_back(const struct sut_server *s)
{
    json_t *out = json_object(), *how;
    const char *name;

    json_object_foreach(json_object_get(s->file, "read_back"), name, how)
    {
        const char *after = json_string_value(json_object_get(how, "after"));
        const char *path = json_string_value(json_object_get(how, "path"));
        const char *key = json_string_value(json_object_get(how, "key"));
        json_t *v = after  ? word_after(s, after)
                    : path ? answer_key(s, path, key ? key : "")
                           : NULL;

        json_object_set_new(out, name, v ? v : json_string("unavailable: not reported"));
    }
    return out;
}

/* Read one thread's line of CPUs, "Cpus_allowed_list:\t0-3,8". */
const clockid_t *sut_server_cpu_clock(struct sut_server *s)
{
    return s->pid && clock_getcpuclockid(s->pid, &s->cpu_clock) == 0 ? &s->cpu_clock
                                                                     : NULL;
}

static void add_cpus(bool *allowed, pid_t pid, const char *task)
{
    static const char field[] = "Cpus_allowed_list:";
    char path[300], line[4096];
    int cpus[CPU_MAX], n;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%d/task/%s/status", (int)pid, task);
    f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f)) {
        char *value = line + sizeof(field) - 1;

        if (strncmp(line, field, sizeof(field) - 1) != 0)
            continue;
        value += strspn(value, " \t");
        value[strcspn(value, "\n")] = '\0';
        if (cpu_list_parse(value, cpus, CPU_MAX, &n) == OK)
            for (int i = 0; i < n; i++)
                allowed[cpus[i]] = true;
    }
    if (f)
        fclose(f);
}

/* Its threads, and the CPUs that any of them may use, as the system shows them. */
static int count_threads(pid_t pid, char *cpus, size_t n)
{
    bool allowed[CPU_MAX] = {0};
    int list[CPU_MAX], n_cpus = 0, n_threads = 0;
    const struct dirent *e;
    char path[64];
    DIR *d;

    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    d = opendir(path);
    while (d && (e = readdir(d)) != NULL) {
        if (e->d_name[0] == '.')
            continue;
        add_cpus(allowed, pid, e->d_name);
        n_threads++;
    }
    if (d)
        closedir(d);
    for (int i = 0; i < CPU_MAX; i++)
        if (allowed[i])
            list[n_cpus++] = i;
    cpu_list_print(list, n_cpus, cpus, (int)n);
    return n_threads;
}

int sut_server_describe(struct sut_server *s, json_t **out)
{
    char cpus[4 * CPU_MAX];
    const int n_threads = count_threads(s->pid, cpus, sizeof(cpus));
    struct text command = {0};

    for (int i = 0; s->argv[i]; i++) {
        text_puts(&command, i ? " " : "");
        text_puts(&command, s->argv[i]);
    }
    text_put(&command, "", 1);
    *out = command.rc != OK
               ? NULL
               : json_pack("{s:o, s:s, s:o, s:o, s:s, s:s, s:i, s:s}", "file",
                           json_string_lossy(s->path), "version", s->version, "command",
                           json_string_lossy(command.p), "read_back", read_back(s),
                           "asked_threads", s->v.threads, "asked_prefill_threads",
                           s->v.prefill_threads, "os_threads", n_threads, "cpus_allowed",
                           cpus);
    text_fini(&command);
    return OK;
}
