#include "format/map.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int format_map_open(struct format_map *m, const char *path)
{
    struct stat st;
    void *p;
    int fd, rc = OK;

    *m = (struct format_map){0};
    /* O_NONBLOCK: opening a FIFO must not wait for its writer. */
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return err_set(ERR_IO, "%s: cannot open: %m", path);
    if (fstat(fd, &st) != 0) {
        rc = err_set(ERR_IO, "%s: cannot stat: %m", path);
        goto out;
    }
    if (!S_ISREG(st.st_mode) || st.st_size == 0) {
        rc = err_set(ERR_FORMAT, "%s: expected a regular file with content, found %s",
                     path, S_ISREG(st.st_mode) ? "0 bytes" : "something else");
        goto out;
    }
    p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED) {
        rc = err_set(ERR_IO, "%s: cannot map %" PRId64 " bytes: %m", path,
                     (int64_t)st.st_size);
        goto out;
    }
    m->base = p;
    m->bytes = (uint64_t)st.st_size;
out:
    close(fd); /* the mapping outlives it */
    return rc;
}

bool format_map_peek(const char *path, void *out, size_t n)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool got = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
               read(fd, out, n) == (ssize_t)n;

    if (fd >= 0)
        close(fd);
    return got;
}

void format_map_close(struct format_map *m)
{
    if (m->base)
        munmap((void *)m->base, m->bytes);
    *m = (struct format_map){0};
}

void format_map_drop(const void *p, uint64_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t lo = ((uintptr_t)p + page - 1) / page * page;
    uintptr_t hi = ((uintptr_t)p + bytes) / page * page;

    if (p && hi > lo)
        (void)madvise((void *)lo, hi - lo,
                      MADV_DONTNEED); /* advice: failing changes nothing */
}
