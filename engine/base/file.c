#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_tmp.h"
#include "base/log.h"
#include "base/mem.h"

/* ---- reading ---- */

/* -1 on failure: errno is the reason, or 0 if it is not a regular file. */
static int open_regular(const char *path, struct stat *st)
{
    /* O_NONBLOCK: opening a pipe must not wait for its writer. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), e;

    if (fd < 0)
        return -1;
    e = fstat(fd, st) != 0 ? errno : 0;
    if (!e && S_ISREG(st->st_mode))
        return fd;
    close(fd);
    errno = e;
    return -1;
}

static const char *kind_of(mode_t mode)
{
    return S_ISDIR(mode)    ? "a folder"
           : S_ISFIFO(mode) ? "a pipe"
           : S_ISLNK(mode)  ? "a symbolic link"
           : S_ISSOCK(mode) ? "a socket"
                            : "a device";
}

int file_open(int *fd, const char *path)
{
    struct stat st;

    *fd = open_regular(path, &st);
    if (*fd >= 0)
        return OK;
    if (errno == 0)
        return err_set(ERR_IO, "%s: cannot read: expected a regular file, found %s", path,
                       kind_of(st.st_mode));
    return err_set(errno == ENOENT ? ERR_NOTFOUND : ERR_IO, "%s: cannot open: %m", path);
}

int file_stream(FILE **f, const char *path)
{
    int fd, rc = file_open(&fd, path);

    *f = NULL;
    if (rc != OK)
        return rc;
    *f = fdopen(fd, "r");
    if (*f)
        return OK;
    close(fd);
    return err_set(ERR_NOMEM, "%s: no memory to open it", path);
}

/* The whole of fd, which may be a pipe or a /proc file with no honest size. */
static int read_all(int fd, const char *path, size_t max_bytes, char **out, size_t *n_out)
{
    size_t cap = 0, n = 0;
    char *buf = NULL, *grown;
    ssize_t got;

    for (;;) {
        if (n == cap) {
            cap = cap ? cap * 2 : 64 * 1024;
            cap = cap > max_bytes ? max_bytes + 1
                                  : cap; /* one more shows that it is too long */
            grown = mem_resize(MEM_OTHER, buf, cap, 1);
            if (!grown) {
                mem_free(buf);
                return err_prefix(ERR_NOMEM, "%s", path);
            }
            buf = grown;
        }
        got = read(fd, buf + n, cap - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            mem_free(buf);
            return err_set(ERR_IO, "%s: cannot read: %m", path);
        }
        if (got == 0)
            break;
        n += (size_t)got;
        if (n > max_bytes) {
            mem_free(buf);
            return err_set(ERR_LIMIT, "%s: larger than the limit of %zu bytes", path,
                           max_bytes);
        }
    }
    *out = buf;
    *n_out = n;
    return OK;
}

int file_read(char **out, size_t *n, const char *path, size_t max_bytes)
{
    int fd, rc = file_open(&fd, path);

    *out = NULL;
    *n = 0;
    if (rc != OK)
        return rc;
    rc = read_all(fd, path, max_bytes, out, n);
    close(fd);
    return rc;
}

bool file_peek(const char *path, void *out, size_t n)
{
    struct stat st;
    int fd = open_regular(path, &st);
    bool got = fd >= 0 && read(fd, out, n) == (ssize_t)n;

    if (fd >= 0)
        close(fd);
    return got;
}

/* ---- folders ---- */

int file_make_dirs(const char *dir)
{
    char *path = mem_strdup(MEM_OTHER, dir);
    int rc = OK;

    if (!path)
        return ERR_NOMEM;
    for (char *p = path + (path[0] != 0);; p++) {
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

int file_check_dir(const char *dir)
{
    struct stat st;

    TRY(file_make_dirs(dir));
    if (stat(dir, &st) != 0)
        return err_set(ERR_IO, "%s: cannot open the folder: %m", dir);
    if (!S_ISDIR(st.st_mode))
        return err_set(ERR_IO, "%s: expected a folder, found a file", dir);
    if (access(dir, W_OK | X_OK) != 0)
        return err_set(ERR_IO, "%s: cannot write into the folder: %m", dir);
    return OK;
}

int file_make_private_dir(const char *dir)
{
    struct stat st;

    TRY(file_make_parents(dir));
    if (mkdir(dir, 0700) != 0 && errno != EEXIST)
        return err_set(ERR_IO, "%s: cannot make the folder: %m", dir);
    if (lstat(dir, &st) != 0)
        return err_set(ERR_IO, "%s: cannot open the folder: %m", dir);
    if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 0077))
        return err_set(ERR_STATE,
                       "%s: expected a folder of user %u with mode 700, found %s of user "
                       "%u with mode %o",
                       dir, (unsigned)geteuid(),
                       S_ISREG(st.st_mode) ? "a file" : kind_of(st.st_mode),
                       (unsigned)st.st_uid, (unsigned)st.st_mode & 07777);
    return OK;
}

int file_sync_dir(const char *dir)
{
    int rc = OK, fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    /* EINVAL: this file system has no sync of folders */
    if (fd < 0 || (fsync(fd) != 0 && errno != EINVAL))
        rc = err_set(ERR_IO, "%s: cannot sync the folder: %m", dir);
    if (fd >= 0)
        close(fd);
    return rc;
}

/* "." for a name alone. A longer path than PATH_MAX cannot be opened either. */
static const char *parent_of(const char *path, char out[PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    int n = slash ? (int)(slash - path) : 0;

    snprintf(out, PATH_MAX, "%.*s", n > 0 ? n : 1, slash ? path : ".");
    return out;
}

int file_make_parents(const char *path)
{
    char dir[PATH_MAX];

    return file_make_dirs(parent_of(path, dir));
}

int file_sync_parent(const char *path)
{
    char dir[PATH_MAX];

    return file_sync_dir(parent_of(path, dir));
}

/* ---- locks ---- */

int file_lock(int fd, const char *path, bool wait)
{
    static atomic_bool warned;
    int e;

    do
        e = flock(fd, wait ? LOCK_EX : LOCK_EX | LOCK_NB) != 0 ? errno : 0;
    while (e == EINTR);
    if (e == EWOULDBLOCK)
        return err_set(ERR_STATE, "%s: another process is writing it", path);
    if (e && !atomic_exchange(&warned, true))
        log_warning("no_file_lock", e, 0,
                    "%s: cannot be locked (%s): do not let two programs write it at the "
                    "same time",
                    path, strerror(e));
    return OK;
}

int file_lock_parent(int *fd, const char *path)
{
    char dir[PATH_MAX];
    int rc = file_make_dirs(parent_of(path, dir));

    *fd = rc == OK ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (rc == OK && *fd < 0)
        rc = err_set(ERR_IO, "%s: cannot open the folder: %m", dir);
    if (rc == OK)
        rc = file_lock(*fd, dir, true);
    return rc;
}

/* ---- writing ---- */

int file_write_all(int fd, const void *bytes, size_t n)
{
    const char *p = bytes;

    while (n > 0) {
        ssize_t put = write(fd, p, n);

        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return -1;
        p += put;
        n -= (size_t)put;
    }
    return 0;
}

int file_check_target(const char *path, const char *input)
{
    struct stat st, in;

    if (!path[0])
        return err_set(ERR_ARG, "a file to write needs a name");
    if (lstat(path, &st) != 0)
        return OK;
    if (!S_ISREG(st.st_mode))
        return err_set(ERR_ARG,
                       "%s: cannot be replaced: expected a regular file, found %s", path,
                       kind_of(st.st_mode));
    if (input && stat(input, &in) == 0 && in.st_dev == st.st_dev &&
        in.st_ino == st.st_ino)
        return err_set(ERR_ARG,
                       "%s: is an input of this command: choose another file to write",
                       path);
    return OK;
}
