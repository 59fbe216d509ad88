#include "base/file_tmp.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/process.h"

/* Calls that a signal handler may make, and getdents64(), which is a system call. */
static void remove_all(const char *path)
{
    _Alignas(struct dirent64) char entries[2048];
    ssize_t n;
    int fd;

    if (unlink(path) == 0 || errno != EISDIR)
        return;
    fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    while (fd >= 0 && (n = getdents64(fd, entries, sizeof(entries))) > 0)
        for (char *at = entries; at < entries + n;) {
            struct dirent64 *e = (struct dirent64 *)at;

            unlinkat(fd, e->d_name, 0); /* "." and ".." stay */
            at += e->d_reclen;
        }
    if (fd >= 0)
        close(fd);
    rmdir(path);
}

/* ---- removed on a signal ---- */

struct name {
    pid_t pid;   /* a forked child must not remove its parent's */
    bool listed; /* in names[], at some time */
    char path[];
};

/* More at a time than any program has; one beyond them is only not removed on a signal.
 * Whoever takes a name out, the owner or the handler, has it alone. */
static _Atomic(struct name *) names[32];
#define N_NAMES ((int)(sizeof(names) / sizeof(names[0])))

static void remove_listed(int sig)
{
    (void)sig;
    for (int i = 0; i < N_NAMES; i++) {
        struct name *name = atomic_exchange(&names[i], NULL);

        if (name && name->pid == getpid())
            remove_all(name->path);
    }
}

static void remove_on_signals(struct name *name)
{
    for (int i = 0; i < N_NAMES && !name->listed; i++) {
        struct name *none = NULL;

        name->listed = atomic_compare_exchange_strong(&names[i], &none, name);
    }
    process_at_signal(remove_listed);
}

static struct name *name_of(const struct file_tmp *t)
{
    return (struct name *)(t->path - offsetof(struct name, path));
}

/* Leaves it to a handler that is at work on it. */
static void free_name(struct name *name)
{
    bool mine = !name->listed;

    for (int i = 0; i < N_NAMES && !mine; i++) {
        struct name *at = name;

        mine = atomic_compare_exchange_strong(&names[i], &at, NULL);
    }
    if (mine)
        mem_free(name);
}

/* ---- left by a process that was killed ---- */

/* Is it ".PID.N.tmp"? */
static bool is_suffix(const char *s)
{
    for (int i = 0; i < 2; i++) {
        size_t digits = *s == '.' ? strspn(s + 1, "0123456789") : 0;

        if (digits == 0)
            return false;
        s += 1 + digits;
    }
    return strcmp(s, ".tmp") == 0;
}

/* Remove the file if it is not locked and thus belongs to no living process. Where there are no
 * locks it stays. */
static void remove_if_stale(const char *path)
{
    int flags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
    int fd = open(path, O_RDWR | flags); /* over NFS only such a file can be locked */

    if (fd < 0 && errno == EISDIR)
        fd = open(path, O_RDONLY | flags);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
        remove_all(path);
    if (fd >= 0)
        close(fd);
}

/* The folder of the target, a path of n bytes. */
static int remove_stale(const char *target, size_t n)
{
    const char *slash = memrchr(target, '/', n);
    size_t n_dir = slash ? (size_t)(slash + 1 - target) : 0, n_base = n - n_dir;
    char *path = mem_new(MEM_OTHER, n_dir + NAME_MAX + 2, 1);
    struct dirent *e;
    DIR *dir;

    if (!path)
        return ERR_NOMEM;
    memcpy(path, n_dir ? target : ".", n_dir ? n_dir : 1);
    dir = opendir(path);
    while (dir && (e = readdir(dir)))
        if (strncmp(e->d_name, target + n_dir, n_base) == 0 &&
            is_suffix(e->d_name + n_base)) {
            strcpy(path + n_dir, e->d_name);
            remove_if_stale(path);
        }
    if (dir)
        closedir(dir);
    mem_free(path);
    return OK;
}

/* ---- one temporary ---- */

static int create(const char *path, bool folder)
{
    int fd;

    if (!folder)
        return open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (mkdir(path, 0777) != 0)
        return -1;
    fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        rmdir(path);
    return fd;
}

/* Create and lock it. *again: the name is another's, or another process took it for stale
 * before it was locked. */
static int begin(struct file_tmp *t, bool folder, bool *again)
{
    struct stat st;

    remove_on_signals(name_of(t)); /* before it exists: a signal may come at once */
    t->fd = create(t->path, folder);
    if (t->fd < 0 && errno == ENOENT) {
        int rc = file_make_parents(t->path);

        if (rc != OK)
            return rc;
        t->fd = create(t->path, folder);
    }
    *again = t->fd < 0 && errno == EEXIST;
    if (t->fd < 0)
        return *again ? OK : err_set(ERR_IO, "%s: cannot create: %m", t->path);
    (void)flock(t->fd, LOCK_EX | LOCK_NB); /* without locks nobody removes it */
    *again = fstat(t->fd, &st) == 0 && st.st_nlink == 0;
    return OK;
}

static int open_tmp(struct file_tmp *t, const char *target, bool folder)
{
    static _Atomic unsigned serial; /* two threads may write the same path */
    size_t n = strlen(target);
    bool again = false;
    int rc;

    while (n > 1 && target[n - 1] == '/')
        n--;
    rc = remove_stale(target, n);
    if (rc != OK)
        return err_prefix(rc, "%s", target);
    do {
        struct name *name = mem_new(MEM_OTHER, sizeof(*name) + n + 40, 1);

        file_tmp_close(t);
        if (!name)
            return err_prefix(ERR_NOMEM, "%s", target);
        name->pid = getpid();
        t->path = name->path;
        sprintf(t->path, "%.*s.%d.%u.tmp", (int)n, target, (int)name->pid,
                atomic_fetch_add(&serial, 1));
        rc = begin(t, folder, &again);
    } while (rc == OK && again);
    return rc;
}

int file_tmp_open(struct file_tmp *t, const char *target)
{
    int rc = file_check_target(target, NULL);

    *t = (struct file_tmp){.fd = -1};
    return rc == OK ? open_tmp(t, target, false) : rc;
}

int file_tmp_open_dir(struct file_tmp *t, const char *target)
{
    *t = (struct file_tmp){.fd = -1};
    return open_tmp(t, target, true);
}

int file_tmp_publish(struct file_tmp *t, const char *path)
{
    /* EINVAL: this file system has no sync of folders */
    if (fsync(t->fd) != 0 && errno != EINVAL)
        return err_set(ERR_IO, "%s: cannot sync: %m", t->path);
    if (rename(t->path, path) != 0)
        return err_set(ERR_IO, "%s: cannot rename to %s: %m", t->path, path);
    free_name(name_of(t));
    t->path = NULL;
    return file_sync_parent(path);
}

void file_tmp_close(struct file_tmp *t)
{
    if (t->path && t->fd >= 0)
        remove_all(t->path);
    if (t->path)
        free_name(name_of(t));
    t->path = NULL;
    if (t->fd >= 0)
        close(t->fd);
    t->fd = -1;
}

int file_write(const char *path, const void *bytes, size_t n)
{
    struct file_tmp t;
    int rc = file_tmp_open(&t, path);

    if (rc == OK && file_write_all(t.fd, bytes, n) != 0)
        rc = err_set(ERR_IO, "%s: cannot write: %m", t.path);
    if (rc == OK)
        rc = file_tmp_publish(&t, path);
    file_tmp_close(&t);
    return rc;
}
