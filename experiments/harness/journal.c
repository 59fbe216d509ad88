#include "experiments/harness/journal.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/name.h"
#include "base/utf8.h"
#include "experiments/harness/journal_cell.h"

#define VERSION 1 /* of the frames' payloads; another one is never resumed */

struct journal {
    int fd;
    char *path;
    int64_t size; /* bytes of whole frames: what a failed write is cut back to */
    uint64_t sync_interval_ns, synced_ns;
    bool dirty;  /* appended since the last sync */
    bool broken; /* a write failed; nothing may follow */
    struct journal_buf buf;
    json_t *finished; /* key -> state */
    size_t n_ends;    /* finished cells, each attempt counted */
    char *key;        /* the cell begun, NULL outside */
    size_t n_rows;    /* of that cell */
};

/* --- appending */

static int out_of_memory(void)
{
    return err_set(ERR_NOMEM, "journal: out of memory");
}

static int sync_now(struct journal *j)
{
    if (!j->dirty)
        return OK;
    if (fsync(j->fd) != 0) {
        /* The kernel may have dropped the pages: what was appended cannot be trusted. */
        j->broken = true;
        return err_set(ERR_IO, "%s: cannot sync: %m", j->path);
    }
    j->dirty = false;
    j->synced_ns = clock_ns();
    return OK;
}

static int write_frame(struct journal *j)
{
    size_t done = 0;

    while (done < j->buf.n) {
        ssize_t put = write(j->fd, j->buf.p + done, j->buf.n - done);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0) {
            int rc = err_set(ERR_IO, "%s: cannot append: %m", j->path);
            j->broken = true;
            /* Reopening would cut the torn frame too; this only does it sooner. */
            if (ftruncate(j->fd, j->size) != 0)
                log_error("%s: cannot cut back to %lld bytes", j->path,
                          (long long)j->size);
            return rc;
        }
        done += (size_t)put;
    }
    j->size += (int64_t)j->buf.n;
    j->dirty = true;
    return OK;
}

/* Close the frame begun in j->buf and append it; `sync`: now, not at the interval. */
static int append(struct journal *j, uint32_t type, bool sync)
{
    int rc;

    if (j->broken)
        return err_set(ERR_STATE, "%s: not appended: an earlier write failed", j->path);
    rc = journal_put_end(&j->buf, type);
    if (rc == OK)
        rc = write_frame(j);
    if (rc == OK && (sync || clock_ns() - j->synced_ns > j->sync_interval_ns))
        rc = sync_now(j);
    return rc;
}

static int append_json(struct journal *j, uint32_t type, const json_t *value)
{
    char *text = json_text(value, JSON_COMPACT | JSON_SORT_KEYS);

    if (!text)
        return ERR_NOMEM;
    journal_put_begin(&j->buf);
    journal_put_bytes(&j->buf, text, strlen(text));
    mem_free(text);
    return append(j, type, true);
}

/* --- the header */

static const char *const truths[] = {"measured", "measured_small", "model", "simulated",
                                     "emulated", "unavailable",    NULL};

static int check_header(const json_t *header, const char *where)
{
    const char *text;
    const json_t *object;
    int rc;

    if ((rc = json_get_str(header, "experiment", &text, where)) != OK ||
        (rc = json_get_str(header, "utc", &text, where)) != OK ||
        (rc = json_get_obj(header, "job", &object, where)) != OK ||
        (rc = json_get_obj(header, "provenance", &object, where)) != OK ||
        (rc = json_get_str(header, "truth", &text, where)) != OK)
        return ERR_ARG;
    if (name_index(truths, text) >= 0)
        return OK;
    return name_unknown(ERR_ARG, text, truths, "%s: truth: \"%s\" is no kind of truth",
                        where, text);
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

enum found {
    FOUND_NOTHING, /* empty, or killed while the header was written */
    FOUND_SAME,
    FOUND_OTHER
};

/* Note the finished cells and where the whole frames end. */
static int scan_frames(struct journal *j, const uint8_t *p, size_t n, size_t at)
{
    struct journal_frame f;
    struct journal_end end;
    char *key = NULL;
    int rc = OK;

    while (rc == OK && journal_frame_next(p, n, &at, &f)) {
        if (f.type == JOURNAL_CELL) {
            mem_free(key);
            key = mem_strndup(MEM_HARNESS, (const char *)f.payload, f.n);
            rc = key ? OK : ERR_NOMEM;
        } else if (f.type == JOURNAL_END && key) {
            rc = journal_decode_end(&f, &end, NULL);
            if (rc == OK &&
                json_object_set_new(j->finished, key, json_integer(end.state)) != 0)
                rc = out_of_memory();
            j->n_ends++;
            mem_free(key);
            key = NULL;
        }
    }
    mem_free(key);
    j->size = (int64_t)at;
    return rc;
}

static int scan(struct journal *j, const json_t *header, const uint8_t *p, size_t n,
                enum found *found, json_t **old)
{
    struct journal_frame f;
    uint32_t length = 0, type = 0;
    size_t at = 0;

    if (journal_frame_next(p, n, &at, &f) && f.type == JOURNAL_HEAD) {
        int rc = json_read_own(old, (const char *)f.payload, f.n, j->path);
        if (rc == ERR_NOMEM)
            return rc;
        *found = rc == OK && same_run(header, *old) ? FOUND_SAME : FOUND_OTHER;
        return *found == FOUND_SAME ? scan_frames(j, p, n, at) : OK;
    }
    if (n >= 8) {
        memcpy(&length, p, 4);
        memcpy(&type, p + 4, 4);
    }
    /* A header cut short holds nothing; anything else here is not ours to remove. */
    *found = n < 8 || (type == JOURNAL_HEAD && JOURNAL_FRAME_HEAD + (uint64_t)length > n)
                 ? FOUND_NOTHING
                 : FOUND_OTHER;
    return OK;
}

static int look(struct journal *j, const json_t *header, enum found *found, json_t **old)
{
    struct stat st;
    void *p;
    int rc;

    *found = FOUND_NOTHING;
    if (fstat(j->fd, &st) != 0)
        return err_set(ERR_IO, "%s: cannot stat: %m", j->path);
    if (st.st_size == 0)
        return OK;
    p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, j->fd, 0);
    if (p == MAP_FAILED)
        return err_set(ERR_IO, "%s: cannot map: %m", j->path);
    rc = scan(j, header, p, (size_t)st.st_size, found, old);
    munmap(p, (size_t)st.st_size);
    return rc;
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

static int make_dirs(const char *dir)
{
    char *path = mem_strdup(MEM_HARNESS, dir);
    int rc = OK;

    if (!path)
        return ERR_NOMEM;
    for (char *p = path + 1;; p++) {
        char c = *p;
        if (c != '/' && c != 0)
            continue;
        *p = 0;
        if (mkdir(path, 0777) != 0 && errno != EEXIST) {
            rc = err_set(ERR_IO, "%s: cannot make the folder: %m", path);
            break;
        }
        *p = c;
        if (!c)
            break;
    }
    mem_free(path);
    return rc;
}

/* Open and lock. *again: the file was renamed or removed between the two. */
static int lock_file(struct journal *j, bool *again)
{
    struct stat here, there;

    *again = false;
    j->fd = open(j->path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (j->fd < 0)
        return err_set(ERR_IO, "%s: cannot open: %m", j->path);
    if (flock(j->fd, LOCK_EX | LOCK_NB) != 0)
        return err_set(errno == EWOULDBLOCK ? ERR_STATE : ERR_IO,
                       errno == EWOULDBLOCK ? "%s: another run is writing it"
                                            : "%s: cannot lock: %m",
                       j->path);
    *again = fstat(j->fd, &here) != 0 || stat(j->path, &there) != 0 ||
             here.st_ino != there.st_ino || here.st_dev != there.st_dev;
    return OK;
}

static int resume(struct journal *j, const json_t *header)
{
    json_t *note;
    int rc;

    if (ftruncate(j->fd, j->size) != 0)
        return err_set(ERR_IO, "%s: cannot cut to %lld bytes: %m", j->path,
                       (long long)j->size);
    note = json_pack("{sO sO*}", "utc", json_object_get(header, "utc"), "environment",
                     json_object_get(header, "environment"));
    rc = note ? append_json(j, JOURNAL_RESUME, note) : out_of_memory();
    json_decref(note);
    if (rc == OK)
        log_info("%s: resumed, %zu finished cells", j->path, journal_n_finished(j));
    return rc;
}

static int begin(struct journal *j, const json_t *header, const char *dir)
{
    int rc = OK, fd;

    if (ftruncate(j->fd, 0) != 0)
        return err_set(ERR_IO, "%s: cannot cut to 0 bytes: %m", j->path);
    j->size = 0;
    rc = append_json(j, JOURNAL_HEAD, header);
    if (rc != OK)
        return rc;
    fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || (fsync(fd) != 0 && errno != EINVAL))
        rc = err_set(ERR_IO, "%s: cannot sync the folder: %m", dir);
    if (fd >= 0)
        close(fd);
    return rc;
}

static int adopt(struct journal *j, const json_t *header, const char *dir)
{
    enum found found;
    json_t *old = NULL;
    bool again;
    int rc;

    for (;;) {
        rc = lock_file(j, &again);
        if (rc != OK)
            break;
        if (!again) {
            rc = look(j, header, &found, &old);
            if (rc == OK && found == FOUND_SAME)
                rc = resume(j, header);
            else if (rc == OK && found == FOUND_NOTHING)
                rc = begin(j, header, dir);
            else if (rc == OK)
                rc = set_aside(j, old), again = rc == OK;
        }
        json_decref(old);
        old = NULL;
        if (!again)
            break;
        close(j->fd);
        j->fd = -1;
    }
    return rc;
}

int journal_open(struct journal **out, const char *dir, const char *stem,
                 const json_t *header, double sync_interval_s)
{
    size_t n = strlen(dir) + strlen(stem) + 16;
    struct journal *j = NULL;
    json_t *full = NULL;
    int rc;

    *out = NULL;
    rc = check_header(header, stem);
    if (rc != OK)
        return rc;
    rc = make_dirs(dir);
    if (rc != OK)
        return rc;
    j = mem_new(MEM_HARNESS, 1, sizeof(*j));
    if (!j)
        return ERR_NOMEM;
    j->fd = -1;
    j->sync_interval_ns = sync_interval_s > 0 ? (uint64_t)(sync_interval_s * 1e9) : 0;
    j->synced_ns = clock_ns();
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
    rc = adopt(j, full, dir);
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
    if (!j->broken && j->fd >= 0 && sync_now(j) != OK)
        log_error("%s", err_msg());
    if (j->fd >= 0)
        close(j->fd); /* and with it the lock */
    json_decref(j->finished);
    mem_free(j->buf.p);
    mem_free(j->key);
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
    return j->n_ends;
}

int journal_remove(struct journal **j)
{
    if (unlink((*j)->path) != 0)
        return err_set(ERR_IO, "%s: cannot remove: %m", (*j)->path);
    (*j)->dirty = false; /* nothing to sync any more */
    journal_close(j);
    return OK;
}

const char *journal_path(const struct journal *j)
{
    return j->path;
}

/* --- cells */

/* It is compared, stored as JSON and as an attribute: found out here, not after the run.
 */
static bool is_key(const char *s)
{
    const unsigned char *p = (const unsigned char *)s;
    int n = 1;

    while (*p >= ' ' && (n = utf8_len((const char *)p, strnlen((const char *)p, 4))) > 0)
        p += n;
    return p > (const unsigned char *)s && !*p;
}

int journal_cell_begin(struct journal *j, const char *key)
{
    char *copy;

    if (!is_key(key))
        return err_set(ERR_ARG, "%s: a cell needs a key of printable UTF-8", j->path);
    copy = mem_strdup(MEM_HARNESS, key);
    if (!copy)
        return ERR_NOMEM;
    mem_free(j->key);
    j->key = copy;
    j->n_rows = 0;
    journal_put_begin(&j->buf);
    journal_put_bytes(&j->buf, key, strlen(key));
    return append(j, JOURNAL_CELL, false);
}

int journal_row(struct journal *j, const struct metrics_row *row)
{
    int rc;

    if (!j->key)
        return err_set(ERR_STATE, "%s: a row outside a cell", j->path);
    if (row->n_tok < 0 || (row->n_tok > 0 && !row->token_ns))
        return err_set(ERR_ARG, "%s: request %lld: %lld tokens without times", j->path,
                       (long long)row->request, (long long)row->n_tok);
    journal_put_begin(&j->buf);
    journal_encode_row(&j->buf, row);
    rc = append(j, JOURNAL_ROW, false);
    j->n_rows += rc == OK;
    return rc;
}

/* A name becomes the name of an HDF5 object: found out here, not after the run. */
static int check_name(const struct journal *j, const char *what, const char *name)
{
    if (name[0] && !strchr(name, '/') && strcmp(name, ".") != 0)
        return OK;
    return err_set(ERR_ARG, "%s: cell %s: \"%s\" cannot name a %s", j->path, j->key, name,
                   what);
}

static int check_cell(const struct journal *j, const struct record_cell *c)
{
    int rc = OK;

    if (!j->key || strcmp(j->key, c->key) != 0)
        return err_set(ERR_STATE, "%s: the end of cell %s, expected of %s", j->path,
                       c->key, j->key ? j->key : "none");
    if (!json_is_object(c->attributes))
        return err_set(ERR_ARG, "%s: cell %s: attributes must be an object", j->path,
                       c->key);
    for (size_t i = 0; rc == OK && i < c->n_values; i++)
        rc = check_name(j, "metric", c->values[i].name);
    for (size_t i = 0; rc == OK && i < c->n_series; i++)
        rc = check_name(j, "series", c->series[i].name);
    return rc;
}

static int append_parts(struct journal *j, const struct record_cell *c)
{
    int rc = OK;

    for (size_t i = 0; rc == OK && i < c->n_rows; i++)
        rc = journal_row(j, &c->rows[i]);
    for (size_t i = 0; rc == OK && i < c->n_values; i++) {
        journal_put_begin(&j->buf);
        journal_encode_value(&j->buf, &c->values[i]);
        rc = append(j, JOURNAL_VALUE, false);
    }
    for (size_t i = 0; rc == OK && i < c->n_series; i++) {
        journal_put_begin(&j->buf);
        journal_encode_series(&j->buf, &c->series[i]);
        rc = append(j, JOURNAL_SERIES, false);
    }
    if (rc != OK)
        return rc;
    journal_put_begin(&j->buf);
    journal_encode_end(&j->buf, c, j->n_rows);
    return append(j, JOURNAL_END, true);
}

int journal_cell_end(struct journal *j, const struct record_cell *c)
{
    int rc = check_cell(j, c);

    if (rc != OK)
        return rc;
    rc = append_parts(j, c);
    mem_free(j->key); /* after a failure the cell is an interrupted one */
    j->key = NULL;
    if (rc != OK)
        return rc;
    j->n_ends++;
    if (json_object_set_new(j->finished, c->key, json_integer(c->state)) != 0)
        return out_of_memory();
    return OK;
}

int journal_cell(struct journal *j, const struct record_cell *c)
{
    int rc = journal_cell_begin(j, c->key);

    return rc == OK ? journal_cell_end(j, c) : rc;
}
