#include "experiments/record/journal.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/name.h"
#include "experiments/record/journal_cell.h"

#define VERSION 2 /* of the lines; another one is never resumed */

#define BEFORE_CRC "{\"crc\":\""
#define CRC_FORMAT BEFORE_CRC "%08x\","
#define N_CRC      (sizeof(BEFORE_CRC) - 1 + 8 + 2) /* bytes of it */

struct journal {
    int fd;
    char *path;
    int64_t size;      /* bytes of whole lines: what a failed write is cut back to */
    bool broken;       /* a write failed; nothing may follow */
    json_t *resume;    /* what the first line of this process says; NULL: nothing */
    json_t *finished;  /* key -> state */
    size_t n_attempts; /* finished cells, each attempt counted */
};

static int out_of_memory(void)
{
    return err_set(ERR_NOMEM, "journal: out of memory");
}

static unsigned crc(const char *text, size_t n)
{
    return (unsigned)crc32_z(0, (const Bytef *)text, n);
}

/* --- appending */

static int write_line(struct journal *j, const char *line, size_t n, bool sync)
{
    int rc = OK;

    if (j->broken)
        return err_set(ERR_STATE, "%s: not appended: an earlier write failed", j->path);
    if (file_write_all(j->fd, line, n) != 0) {
        rc = err_set(ERR_IO, "%s: cannot append: %m", j->path);
        /* Reopening would cut the torn line too; this only does it sooner. */
        if (ftruncate(j->fd, j->size) != 0)
            log_error("%s: cannot cut back to %lld bytes", j->path, (long long)j->size);
    } else if (sync && fsync(j->fd) != 0) {
        /* The kernel may have dropped the pages: what was appended cannot be trusted. */
        rc = err_set(ERR_IO, "%s: cannot sync: %m", j->path);
    }
    j->broken = rc != OK;
    if (rc == OK)
        j->size += (int64_t)n;
    return rc;
}

/* {"crc":...,"<kind>":value}; `value` is stolen, NULL is ERR_NOMEM. */
static int append(struct journal *j, const char *kind, json_t *value, bool sync)
{
    json_t *o = json_object();
    char *text = NULL, *line = NULL;
    size_t n;
    int rc = ERR_NOMEM;

    if (json_object_set_new(o, kind, value) != 0) {
        out_of_memory();
        goto out;
    }
    text = json_text(o, JSON_COMPACT | JSON_SORT_KEYS);
    n = text ? strlen(text) - 1 : 0; /* the CRC's member replaces its brace */
    line = text ? mem_new(MEM_HARNESS, N_CRC + n + 2, 1) : NULL;
    if (!line)
        goto out;
    sprintf(line, CRC_FORMAT, crc(text + 1, n));
    memcpy(line + N_CRC, text + 1, n);
    line[N_CRC + n] = '\n';
    rc = write_line(j, line, N_CRC + n + 1, sync);
out:
    mem_free(line);
    mem_free(text);
    json_decref(o);
    return rc;
}

/* --- reading */

/* A line, and a newline behind it, whose CRC is right. */
static bool is_whole(const char *line, size_t n)
{
    char want[N_CRC + 1];

    if (n < N_CRC + 2 || line[n - 1] != '\n')
        return false;
    sprintf(want, CRC_FORMAT, crc(line + N_CRC, n - 1 - N_CRC));
    return memcmp(line, want, N_CRC) == 0;
}

/* Where the whole lines end, and whether more than a line cut short follows. */
struct extent {
    int64_t end;
    bool damaged;
};
typedef int (*line_fn)(void *ctx, const char *kind, const json_t *value);

static int take_line(const char *path, const char *line, size_t n, line_fn fn, void *ctx)
{
    json_t *o, *v;
    const char *kind;
    int rc = json_read_own(&o, line, n, path);

    if (rc != OK)
        return rc;
    json_object_foreach(o, kind, v) if (rc == OK && strcmp(kind, "crc") != 0) rc =
        fn(ctx, kind, v);
    json_decref(o);
    return rc;
}

static int walk(const char *path, line_fn fn, void *ctx, struct extent *extent)
{
    size_t cap = 0, n_start = strlen(BEFORE_CRC);
    char *line = NULL;
    ssize_t n;
    FILE *f;
    int rc = file_stream(&f, path);

    *extent = (struct extent){0};
    if (rc != OK)
        return rc;
    while (rc == OK && (n = getline(&line, &cap, f)) > 0) {
        if (!is_whole(line, (size_t)n)) {
            size_t shown = (size_t)n < n_start ? (size_t)n : n_start;

            extent->damaged = line[n - 1] == '\n' || memcmp(line, BEFORE_CRC, shown) != 0;
            break;
        }
        rc = take_line(path, line, (size_t)n, fn, ctx);
        extent->end += n;
    }
    if (rc == OK && (ferror(f) || (n < 0 && !feof(f))))
        rc = err_set(ERR_IO, "%s: cannot read: %m", path);
    free(line);
    fclose(f);
    return rc;
}

struct reader {
    const char *path;
    journal_cell_fn fn;
    void *ctx;
    json_t *header, *resumes;
    size_t n_interrupted;
    bool begun;
};

static int read_line(void *ctx, const char *kind, const json_t *value)
{
    struct reader *r = ctx;
    struct journal_parsed p;
    int rc;

    if (!r->header) {
        r->header = json_incref((json_t *)value);
        return strcmp(kind, "header") == 0
                   ? OK
                   : err_set(ERR_FORMAT, "%s: offset 0: expected a journal's header",
                             r->path);
    }
    if (strcmp(kind, "note") == 0)
        return json_object_update(r->header, (json_t *)value) == 0 ? OK : out_of_memory();
    if (strcmp(kind, "cell") != 0) {
        r->n_interrupted += r->begun;
        r->begun = strcmp(kind, "begin") == 0;
        return r->begun || json_array_append(r->resumes, (json_t *)value) == 0
                   ? OK
                   : out_of_memory();
    }
    r->begun = false;
    if (!r->fn)
        return OK;
    rc = journal_cell_parse(&p, value, r->path);
    if (rc == OK)
        rc = r->fn(r->ctx, &p.cell);
    journal_parsed_fini(&p);
    return rc;
}

int journal_read(const char *path, journal_cell_fn fn, void *ctx, json_t **header,
                 size_t *n_interrupted)
{
    struct reader r = {.path = path, .fn = fn, .ctx = ctx, .resumes = json_array()};
    struct extent extent;
    int rc = r.resumes ? walk(path, read_line, &r, &extent) : out_of_memory();

    if (header)
        *header = NULL;
    if (rc == OK && !r.header)
        rc = err_set(ERR_FORMAT, "%s: offset 0: expected a journal's header", path);
    if (rc == OK && json_array_size(r.resumes) > 0 &&
        json_object_set(r.header, "resumes", r.resumes) != 0)
        rc = out_of_memory();
    if (rc == OK && n_interrupted)
        *n_interrupted = r.n_interrupted + r.begun;
    if (rc == OK && header)
        *header = json_incref(r.header);
    json_decref(r.resumes);
    json_decref(r.header);
    return rc;
}

/* --- the header */

static int check_header(const json_t *header, const char *where)
{
    const char *text;
    const json_t *object;
    int rc;

    if ((rc = json_get_str(header, "experiment", &text, where)) != OK ||
        (rc = json_get_str(header, "utc", &text, where)) != OK ||
        (rc = json_get_obj(header, "job", &object, where)) != OK ||
        (rc = json_get_obj(header, "provenance", &object, where)) != OK ||
        (rc = json_get_str(header, "evidence", &text, where)) != OK)
        return ERR_ARG;
    if (name_index(metrics_evidence, text) >= 0)
        return OK;
    return name_unknown(ERR_ARG, text, metrics_evidence,
                        "%s: evidence: \"%s\" is not a kind of evidence", where, text);
}

/* Runs that may share a journal: same experiment, same job, same code, same host. */
static bool same_run(const json_t *a, const json_t *b)
{
    static const char *const keys[] = {"journal_version", "experiment", "job",
                                       "provenance", "host"};

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        const json_t *x = json_object_get(a, keys[i]), *y = json_object_get(b, keys[i]);
        if (x != y && !json_equal(x, y))
            return false;
    }
    return true;
}

/* --- an existing file */

struct scan {
    struct journal *j;
    const json_t *header;
    json_t *old; /* the header found; NULL: none */
    bool same;
};

static int note_finished(struct journal *j, const char *key, enum record_state state)
{
    j->n_attempts++;
    return json_object_set_new(j->finished, key, json_integer(state)) == 0
               ? OK
               : out_of_memory();
}

static int scan_line(void *ctx, const char *kind, const json_t *value)
{
    struct scan *s = ctx;
    struct journal_parsed p;
    int rc;

    if (!s->old) {
        s->old = json_incref((json_t *)value);
        s->same = strcmp(kind, "header") == 0 && same_run(s->header, value) &&
                  check_header(value, s->j->path) == OK;
    } else if (s->same && strcmp(kind, "cell") == 0) {
        /* All of it: what no record could hold is refused now, not after the run. */
        rc = journal_cell_parse(&p, value, s->j->path);
        if (rc == OK)
            rc = note_finished(s->j, p.cell.key, p.cell.state);
        else if (rc != ERR_NOMEM)
            rc = err_set(rc, "%s (--fresh begins again)", err_msg());
        journal_parsed_fini(&p);
        return rc;
    }
    return OK;
}

/* Keep another run's journal under a name that says when that run began. */
static int set_aside(const struct journal *j, const json_t *old)
{
    const char *utc = json_string_value(json_object_get(old, "utc"));
    size_t n = strlen(j->path) + 64;
    char *name = mem_new(MEM_HARNESS, n, 1), *end;
    int rc = OK;

    if (!name)
        return ERR_NOMEM;
    snprintf(name, n, "%s.%.40s", j->path, utc ? utc : "unreadable");
    for (char *c = name + strlen(j->path); *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr(".-:", *c))
            *c = '_';
    end = name + strlen(name);
    for (int i = 2; access(name, F_OK) == 0; i++)
        snprintf(end, n - (size_t)(end - name), ".%d", i);
    if (rename(j->path, name) != 0)
        rc = err_set(ERR_IO, "%s: cannot rename to %s: %m", j->path, name);
    else
        log_warning("journal_set_aside", 1, 0,
                    "an unfinished journal of another job, code or host is now %s", name);
    mem_free(name);
    return rc;
}

/* --- opening */

static int begin(struct journal *j, const json_t *header, const char *dir)
{
    int rc;

    if (ftruncate(j->fd, 0) != 0)
        return err_set(ERR_IO, "%s: cannot cut to 0 bytes: %m", j->path);
    j->size = 0;
    rc = append(j, "header", json_incref((json_t *)header), true);
    return rc == OK ? file_sync_dir(dir) : rc;
}

static int resume(struct journal *j, const json_t *header, bool damaged)
{
    if (ftruncate(j->fd, j->size) != 0)
        return err_set(ERR_IO, "%s: cannot cut to %lld bytes: %m", j->path,
                       (long long)j->size);
    if (damaged)
        log_warning(
            "journal_damaged", (double)j->size, 0,
            "%s: damaged at byte %lld: cells recorded after it are measured again",
            j->path, (long long)j->size);
    j->resume = json_pack("{sO sO*}", "utc", json_object_get(header, "utc"),
                          "environment", json_object_get(header, "environment"));
    if (!j->resume)
        return out_of_memory();
    log_info("%s: resumed, %zu finished cells", j->path, journal_n_finished(j));
    return OK;
}

/* Take up what the locked file holds. *again: it was renamed aside; open a new one. */
static int take_up(struct journal *j, const json_t *header, const char *dir, bool *again)
{
    struct scan s = {.j = j, .header = header};
    struct extent extent;
    int rc = walk(j->path, scan_line, &s, &extent);

    j->size = extent.end;
    if (rc == OK && !s.old && !extent.damaged && extent.end == 0)
        rc = begin(j, header, dir); /* empty, or killed while the header was written */
    else if (rc == OK && s.same)
        rc = resume(j, header, extent.damaged);
    else if (rc == OK)
        rc = set_aside(j, s.old), *again = true;
    json_decref(s.old);
    return rc;
}

/* *again: the file was renamed or removed before it was locked. */
static int lock_file(struct journal *j, bool *again)
{
    struct stat here, there;
    int rc;

    j->fd = open(j->path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (j->fd < 0)
        return err_set(ERR_IO, "%s: cannot open: %m", j->path);
    rc = file_lock(j->fd, j->path, false);
    if (rc != OK)
        return rc;
    *again = fstat(j->fd, &here) != 0 || stat(j->path, &there) != 0 ||
             here.st_ino != there.st_ino || here.st_dev != there.st_dev;
    return OK;
}

static int adopt(struct journal *j, const json_t *header, const char *dir, bool fresh)
{
    bool again;
    int rc;

    do {
        if (j->fd >= 0)
            close(j->fd);
        again = false;
        rc = lock_file(j, &again);
        if (rc == OK && !again)
            rc = fresh ? begin(j, header, dir) : take_up(j, header, dir, &again);
    } while (rc == OK && again);
    return rc;
}

int journal_open(struct journal **out, const char *dir, const char *stem,
                 const json_t *header, bool fresh)
{
    size_t n = strlen(dir) + strlen(stem) + 16;
    struct journal *j = NULL;
    json_t *full = NULL;
    int rc;

    *out = NULL;
    rc = check_header(header, stem);
    if (rc == OK)
        rc = file_make_dirs(dir);
    if (rc != OK)
        return rc;
    j = mem_new(MEM_HARNESS, 1, sizeof(*j));
    if (!j)
        return ERR_NOMEM;
    j->fd = -1;
    j->path = mem_new(MEM_HARNESS, n, 1);
    j->finished = json_object();
    full = json_object(); /* json_copy() would drop members without a word */
    if (!j->path || !j->finished || !full ||
        json_object_update(full, (json_t *)header) != 0 ||
        json_object_set_new(full, "journal_version", json_integer(VERSION)) != 0) {
        rc = out_of_memory();
        goto out;
    }
    snprintf(j->path, n, "%s/%s.journal", dir, stem);
    rc = adopt(j, full, dir, fresh);
    if (rc == OK)
        *out = j, j = NULL;
out:
    json_decref(full);
    journal_close(&j);
    return rc;
}

void journal_close(struct journal **jp)
{
    struct journal *j = *jp;

    if (!j)
        return;
    if (j->fd >= 0)
        close(j->fd); /* and with it the lock */
    json_decref(j->resume);
    json_decref(j->finished);
    mem_free(j->path);
    mem_free(j);
    *jp = NULL;
}

bool journal_finished(const struct journal *j, const char *key, enum record_state *state)
{
    const json_t *v = json_object_get(j->finished, key);

    if (v && state)
        *state = (enum record_state)json_integer_value(v);
    return v != NULL;
}

size_t journal_n_finished(const struct journal *j)
{
    return json_object_size(j->finished);
}

size_t journal_n_attempts(const struct journal *j)
{
    return j->n_attempts;
}

bool journal_has_failed(const struct journal *j)
{
    const char *key;
    json_t *v;

    json_object_foreach(j->finished, key, v)
    {
        if (json_integer_value(v) == RECORD_FAILED)
            return true;
    }
    return false;
}

int journal_remove(struct journal **j)
{
    if (unlink((*j)->path) != 0)
        return err_set(ERR_IO, "%s: cannot remove: %m", (*j)->path);
    journal_close(j);
    return OK;
}

const char *journal_path(const struct journal *j)
{
    return j->path;
}

/* --- cells */

/* Only a run that measures more was resumed: one that was killed after its record was
 * renamed makes the same record again, byte for byte, and finds it there. */
static int note_resume(struct journal *j)
{
    int rc = j->resume ? append(j, "resume", json_incref(j->resume), true) : OK;

    if (rc == OK) {
        json_decref(j->resume);
        j->resume = NULL;
    }
    return rc;
}

int journal_begin(struct journal *j, const char *key)
{
    int rc = journal_key_check(key, j->path);

    if (rc == OK)
        rc = note_resume(j);
    return rc == OK ? append(j, "begin", json_string(key), false) : rc;
}

int journal_note(struct journal *j, json_t *note)
{
    return append(j, "note", note, true);
}

int journal_cell(struct journal *j, const struct record_cell *c)
{
    json_t *line;
    int rc = journal_cell_check(c, j->path);

    if (rc == OK)
        rc = note_resume(j);
    if (rc != OK)
        return rc;
    line = journal_cell_json(c);
    if (!line)
        return ERR_NOMEM;
    rc = append(j, "cell", line, true);
    return rc == OK ? note_finished(j, c->key, c->state) : rc;
}
