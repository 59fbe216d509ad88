/* Writing a made model: the layout is known before the first weight, so threads take
 * pieces in any order and write each where it belongs. */
#include "format/make_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/file_tmp.h"
#include "base/mem.h"
#include "format/fill.h"

/* Large enough that the cost of a write call is small, small enough to stay in the
 * second-level cache's neighbourhood and to share evenly. */
#define PIECE_BYTES (2u << 20)
#define MAX_THREADS 256
#define PATH_BYTES  600

struct writer {
    const struct make_plan *plan;
    const struct make_random *random;
    int fd;
    const char *path;
    atomic_llong next, done_bytes; /* pieces handed out; bytes written */
    atomic_int failed;
    pthread_mutex_t lock; /* guards rc and text */
    int rc;
    char text[512]; /* the first error, for the thread that reports it */
};

struct worker {
    struct writer *w;
    bool reports; /* the caller's own thread: progress is called from there alone */
    pthread_t thread;
};

static int64_t rows_per_piece(const struct make_tensor *t)
{
    int64_t row_bytes = (int64_t)t->bytes / t->rows;
    int64_t rows = PIECE_BYTES / row_bytes;

    return rows < 1 ? 1 : rows < t->rows ? rows : t->rows;
}

static int64_t n_pieces(const struct make_tensor *t)
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

/* The generator's rows are in half-split order; where rotary pairs are interleaved, row
 * 2i + j of a head is row i + j head_dim / 2 of the model. So both formats hold the same
 * model. */
static int64_t model_row(const struct make_plan *p, const struct make_tensor *t,
                         int64_t row)
{
    int64_t d = p->config.head_dim, in_head = row % d;

    if (!p->interleave || (t->role != FORMAT_Q && t->role != FORMAT_K))
        return row;
    return row - in_head + in_head / 2 + in_head % 2 * (d / 2);
}

static int write_rows(const struct writer *w, const struct make_tensor *t, int64_t row,
                      int64_t n, char *buf)
{
    uint64_t row_bytes = t->bytes / (uint64_t)t->rows;
    int64_t i;

    for (i = 0; i < n; i++)
        if (t->given)
            memcpy(buf, t->given, row_bytes);
        else
            format_make_row(w->random, t->role, t->layer, model_row(w->plan, t, row + i),
                            t->cols, buf + (uint64_t)i * row_bytes);
    return write_at(w->fd, w->path, buf, (size_t)n * row_bytes,
                    w->plan->head.n + t->at + (uint64_t)row * row_bytes);
}

static void fail(struct writer *w, int rc)
{
    pthread_mutex_lock(&w->lock);
    if (w->rc == OK) {
        w->rc = rc;
        snprintf(w->text, sizeof(w->text), "%s", err_msg());
    }
    pthread_mutex_unlock(&w->lock);
    atomic_store(&w->failed, 1);
}

static size_t piece_bytes_max(const struct make_plan *p)
{
    size_t capacity = 0, bytes;
    int i;

    for (i = 0; i < p->n_tensors; i++) {
        bytes = p->tensor[i].bytes / (size_t)p->tensor[i].rows *
                (size_t)rows_per_piece(&p->tensor[i]);
        capacity = bytes > capacity ? bytes : capacity;
    }
    return capacity;
}

static void *work(void *arg)
{
    struct worker *self = arg;
    struct writer *w = self->w;
    const struct make_plan *p = w->plan;
    const struct make_tensor *t;
    char *buf = mem_new(MEM_MODEL_FILE, piece_bytes_max(p), 1);
    int64_t piece, before = 0, row, n;
    int i = 0, rc = buf ? OK : ERR_NOMEM;

    while (rc == OK && !atomic_load(&w->failed)) {
        piece = atomic_fetch_add(&w->next, 1);
        /* a thread's pieces come in ascending order, so its tensor only moves forward */
        while (i < p->n_tensors && piece - before >= n_pieces(&p->tensor[i]))
            before += n_pieces(&p->tensor[i++]);
        if (i == p->n_tensors)
            break;
        t = &p->tensor[i];
        row = (piece - before) * rows_per_piece(t);
        n = t->rows - row < rows_per_piece(t) ? t->rows - row : rows_per_piece(t);
        rc = write_rows(w, t, row, n, buf);
        atomic_fetch_add(&w->done_bytes, n * (int64_t)(t->bytes / (uint64_t)t->rows));
        if (self->reports && p->opts->progress)
            p->opts->progress(p->opts->progress_ctx, atomic_load(&w->done_bytes),
                              (int64_t)p->data_bytes);
    }
    if (rc != OK)
        fail(w, rc);
    mem_free(buf);
    return NULL;
}

/* Run work() on n threads, this one among them. With fewer threads than asked for the
 * bytes are the same, so a thread that cannot start is not an error. */
static int write_tensors(struct writer *w, int n)
{
    struct worker workers[MAX_THREADS];
    int i, started = 1;

    n = n < 1 ? 1 : n > MAX_THREADS ? MAX_THREADS : n;
    workers[0] = (struct worker){.w = w, .reports = true};
    for (i = 1; i < n; i++) {
        workers[i] = (struct worker){.w = w};
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
            break;
        started++;
    }
    work(&workers[0]);
    for (i = 1; i < started; i++)
        pthread_join(workers[i].thread, NULL);
    return w->rc == OK ? OK : err_set(w->rc, "%s", w->text);
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

/* Write the planned file, open for writing and empty. */
static int write_file(const struct make_plan *p, int fd, const char *path)
{
    struct writer w = {
        .plan = p, .fd = fd, .path = path, .lock = PTHREAD_MUTEX_INITIALIZER};
    struct make_random random = {0};
    int rc;

    w.random = &random;
    if ((rc = reserve(fd, path, p->head.n + p->data_bytes)) != OK ||
        (rc = write_at(fd, path, p->head.p, p->head.n, 0)) != OK ||
        (rc = format_make_random_init(&random, &p->config, p->opts->type,
                                      p->opts->seed)) != OK)
        return rc;
    rc = write_tensors(&w, p->opts->n_threads);
    format_make_random_fini(&random);
    return rc;
}

/* The tensors in the order of their use: embedding, layers, final norm, head. */
static int plan_tensors(struct make_plan *p)
{
    const int per_layer = FORMAT_N_ROLES - FORMAT_ATTN_NORM;
    int i, n = FORMAT_ATTN_NORM + p->config.n_layers * per_layer;
    struct make_tensor *t;
    enum format_role role;
    size_t elem;

    /* one more for what a format adds */
    p->tensor = mem_new(MEM_MODEL_FILE, (size_t)n + 1, sizeof(p->tensor[0]));
    if (!p->tensor)
        return ERR_NOMEM;
    for (i = 0; i < n; i++) {
        if (i == 0)
            role = FORMAT_EMBED;
        else if (i <= p->config.n_layers * per_layer)
            role = FORMAT_ATTN_NORM + (enum format_role)((i - 1) % per_layer);
        else
            role = i == n - 1 ? FORMAT_HEAD : FORMAT_OUT_NORM;
        if (!format_role_needed(&p->config, role))
            continue;
        t = &p->tensor[p->n_tensors++];
        t->role = role;
        t->layer = role < FORMAT_ATTN_NORM ? 0 : (i - 1) / per_layer;
        format_role_shape(&p->config, role, &t->rows, &t->cols);
        t->type =
            t->rows > 1 ? p->opts->type : KERN_F32; /* vectors stay exact, as is usual */
        elem = kern_type_bytes(t->type);
        t->bytes = (uint64_t)t->rows * (uint64_t)t->cols * elem;
    }
    return OK;
}

static int make_gguf(struct make_plan *p, struct file_tmp *tmp)
{
    int rc = file_check_target(p->opts->out, p->opts->tokenizer);

    if (rc == OK)
        rc = format_make_gguf_head(p);
    if (rc == OK)
        rc = file_tmp_open(tmp, p->opts->out);
    return rc == OK ? write_file(p, tmp->fd, tmp->path) : rc;
}

static int write_safetensors(const struct make_plan *p, const char *path)
{
    int rc, fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);

    if (fd < 0)
        return err_set(ERR_IO, "%s: cannot create: %m", path);
    rc = write_file(p, fd, path);
    if (rc == OK && fdatasync(fd) != 0)
        rc = err_set(ERR_IO, "%s: cannot write to disk: %m", path);
    close(fd);
    return rc;
}

static int make_safetensors(struct make_plan *p, struct file_tmp *tmp)
{
    char path[PATH_BYTES + 64];
    int rc;

    if (rmdir(p->opts->out) != 0 && errno != ENOENT)
        return err_set(ERR_IO, "%s: expected no such file, or an empty directory: %m",
                       p->opts->out);
    if ((rc = format_make_safetensors_head(p)) != OK ||
        (rc = file_tmp_open_dir(tmp, p->opts->out)) != OK ||
        (rc = format_make_hf_files(p, tmp->path)) != OK)
        return rc;
    snprintf(path, sizeof(path), "%s/model.safetensors", tmp->path);
    return write_safetensors(p, path);
}

static int check_opts(const struct format_make_opts *o, bool *gguf)
{
    *gguf = strcmp(o->format, "gguf") == 0;
    if (!*gguf && strcmp(o->format, "safetensors") != 0)
        return err_set(ERR_ARG,
                       "model make: format: expected gguf or safetensors, found %.40s",
                       o->format);
    if ((int)o->type < 0 || o->type >= KERN_N_TYPES)
        return err_set(ERR_ARG, "model make: type: expected f32, f16 or bf16, found %d",
                       (int)o->type);
    if (o->tokenizer && (strstr(o->tokenizer, ".json") != NULL) == *gguf)
        return err_set(
            ERR_UNSUPPORTED,
            "model make: tokenizer: expected a %s for a %s model, found %.200s",
            *gguf ? ".gguf file" : "tokenizer.json", o->format, o->tokenizer);
    return OK;
}

int format_make(const struct format_make_opts *o)
{
    struct make_plan p = {.opts = o};
    struct file_tmp tmp = {.fd = -1};
    bool gguf;
    int rc;

    if ((rc = check_opts(o, &gguf)) != OK ||
        (rc = format_make_shape(o->arch, &p.shape)) != OK ||
        (rc = format_make_config(o->arch, &p.config)) != OK)
        return rc;
    if (strlen(o->out) > PATH_BYTES - 60)
        return err_set(ERR_LIMIT, "%.60s...: path: expected at most %d bytes, found %zu",
                       o->out, PATH_BYTES - 60, strlen(o->out));
    if ((rc = plan_tensors(&p)) == OK)
        rc = gguf ? make_gguf(&p, &tmp) : make_safetensors(&p, &tmp);
    if (rc == OK)
        rc = file_tmp_publish(&tmp, o->out);
    file_tmp_close(&tmp);
    mem_free(p.tensor);
    text_fini(&p.head);
    return rc;
}
