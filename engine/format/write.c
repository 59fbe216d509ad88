#include "format/write.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/thread.h"

/* Large enough that the cost of a write call is small, small enough to stay in the
 * second-level cache's neighbourhood and to share evenly. */
#define PIECE_BYTES (2u << 20)

struct pool {
    const struct format_writer *w;
    int fd;
    const char *path;
    atomic_llong next, done_bytes; /* pieces handed out; bytes written */
    atomic_int failed;
    pthread_mutex_t lock; /* guards rc and text */
    int rc;
    char text[512]; /* the first error, for the thread that reports it */
};

static int64_t rows_per_piece(const struct format_write_tensor *t)
{
    int64_t row_bytes = (int64_t)t->bytes / t->rows;
    int64_t rows = PIECE_BYTES / row_bytes;

    return rows < 1 ? 1 : rows < t->rows ? rows : t->rows;
}

static int64_t n_pieces(const struct format_write_tensor *t)
{
    return (t->rows + rows_per_piece(t) - 1) / rows_per_piece(t);
}

static int write_at(int fd, const char *path, const void *p, size_t n, uint64_t at)
{
    const char *s = p;
    ssize_t done;

    while (n > 0) {
        done = pwrite(fd, s, n, (off_t)at);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return err_set(ERR_IO, "%s: offset %" PRIu64 ": cannot write %zu bytes: %m",
                           path, at, n);
        s += done;
        n -= (size_t)done;
        at += (uint64_t)done;
    }
    return OK;
}

static void fail(struct pool *p, int rc)
{
    pthread_mutex_lock(&p->lock);
    if (p->rc == OK) {
        p->rc = rc;
        snprintf(p->text, sizeof(p->text), "%s", err_msg());
    }
    pthread_mutex_unlock(&p->lock);
    atomic_store(&p->failed, 1);
}

static size_t piece_bytes_max(const struct format_writer *w)
{
    size_t capacity = 0, bytes;

    for (int i = 0; i < w->n_tensors; i++) {
        struct format_write_tensor t = w->tensor(w->ctx, i);

        bytes = t.bytes / (size_t)t.rows * (size_t)rows_per_piece(&t);
        capacity = bytes > capacity ? bytes : capacity;
    }
    return capacity;
}

static int write_piece(struct pool *p, int i, int64_t piece, char *buf, void *scratch)
{
    const struct format_writer *w = p->w;
    struct format_write_tensor t = w->tensor(w->ctx, i);
    uint64_t row_bytes = t.bytes / (uint64_t)t.rows;
    int64_t row = piece * rows_per_piece(&t);
    int64_t n = t.rows - row < rows_per_piece(&t) ? t.rows - row : rows_per_piece(&t);

    TRY(w->rows(w->ctx, i, row, n, buf, scratch));
    TRY(write_at(p->fd, p->path, buf, (size_t)n * row_bytes,
                 w->head->n + t.at + (uint64_t)row * row_bytes));
    atomic_fetch_add(&p->done_bytes, n * (int64_t)row_bytes);
    return OK;
}

/* Progress is called from the caller's own thread, 0, alone. */
static void work(void *ctx, int thread)
{
    struct pool *p = ctx;
    const struct format_writer *w = p->w;
    char *buf = mem_new(MEM_MODEL_FILE, piece_bytes_max(w), 1);
    void *scratch = buf ? mem_new(MEM_MODEL_FILE, w->scratch_bytes + 1, 1) : NULL;
    int64_t before = 0;
    int i = 0, rc = scratch ? OK : ERR_NOMEM;

    while (rc == OK && !atomic_load(&p->failed)) {
        int64_t piece = atomic_fetch_add(&p->next, 1);

        /* a thread's pieces come in ascending order, so its tensor only moves forward */
        for (; i < w->n_tensors; i++) {
            struct format_write_tensor t = w->tensor(w->ctx, i);

            if (piece - before < n_pieces(&t))
                break;
            before += n_pieces(&t);
        }
        if (i == w->n_tensors)
            break;
        rc = write_piece(p, i, piece - before, buf, scratch);
        if (thread == 0 && w->progress)
            w->progress(w->progress_ctx, atomic_load(&p->done_bytes),
                        (int64_t)w->data_bytes);
    }
    if (rc != OK)
        fail(p, rc);
    mem_free(scratch);
    mem_free(buf);
}

/* Reserve the file's space at once, so that a full disk is known before minutes of work. */
static int reserve(int fd, const char *path, uint64_t bytes)
{
    if (fallocate(fd, 0, 0, (off_t)bytes) == 0)
        return OK;
    if (errno != EOPNOTSUPP && errno != ENOSYS)
        return err_set(ERR_IO, "%s: cannot take %" PRIu64 " bytes of disk: %m", path,
                       bytes);
    if (ftruncate(fd, (off_t)bytes) != 0)
        return err_set(ERR_IO, "%s: cannot grow to %" PRIu64 " bytes: %m", path, bytes);
    return OK;
}

int format_write(const struct format_writer *w, int fd, const char *path)
{
    struct pool p = {.w = w, .fd = fd, .path = path, .lock = PTHREAD_MUTEX_INITIALIZER};

    TRY(reserve(fd, path, w->head->n + w->data_bytes));
    TRY(write_at(fd, path, w->head->p, w->head->n, 0));
    /* With fewer threads than asked for the bytes are the same. */
    thread_fork_join(w->n_threads, work, &p);
    return p.rc == OK ? OK : err_set(p.rc, "%s", p.text);
}
