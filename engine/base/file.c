#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

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

static int sync_parent(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *dir;
    int rc;

    dir = slash ? mem_strndup(MEM_OTHER, path, slash > path ? (size_t)(slash - path) : 1)
                : mem_strdup(MEM_OTHER, ".");
    if (!dir)
        return ERR_NOMEM;
    rc = file_sync_dir(dir);
    mem_free(dir);
    return rc;
}

int file_check_target(const char *path)
{
    struct stat st;

    if (!path[0])
        return err_set(ERR_ARG, "a file to write needs a name");
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return err_set(ERR_ARG, "%s: cannot be replaced: it is not a regular file", path);
    return OK;
}

int file_publish(const char *tmp, const char *path)
{
    int rc = OK, fd = open(tmp, O_RDONLY | O_CLOEXEC);

    if (fd < 0 || fsync(fd) != 0)
        rc = err_set(ERR_IO, "%s: cannot sync: %m", tmp);
    if (fd >= 0)
        close(fd);
    if (rc == OK && rename(tmp, path) != 0)
        rc = err_set(ERR_IO, "%s: cannot rename to %s: %m", tmp, path);
    return rc == OK ? sync_parent(path) : rc;
}

static int write_tmp(const char *tmp, const void *bytes, size_t n)
{
    int rc = OK, fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);

    if (fd < 0)
        return err_set(ERR_IO, "%s: cannot create: %m", tmp);
    if (file_write_all(fd, bytes, n) != 0)
        rc = err_set(ERR_IO, "%s: cannot write: %m", tmp);
    if (close(fd) != 0 && rc == OK)
        rc = err_set(ERR_IO, "%s: cannot close: %m", tmp);
    return rc;
}

int file_write(const char *path, const void *bytes, size_t n)
{
    static _Atomic unsigned serial; /* two threads may write the same path */
    size_t cap = strlen(path) + 40;
    char *tmp;
    int rc = file_check_target(path);

    if (rc != OK)
        return rc;
    tmp = mem_new(MEM_OTHER, cap, 1);
    if (!tmp)
        return err_prefix(ERR_NOMEM, "%s", path);
    snprintf(tmp, cap, "%s.%d.%u.tmp", path, (int)getpid(), atomic_fetch_add(&serial, 1));
    rc = write_tmp(tmp, bytes, n);
    if (rc == OK)
        rc = file_publish(tmp, path);
    if (rc != OK)
        unlink(tmp);
    mem_free(tmp);
    return rc;
}

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
