/* tests/support/failing_disk.h - a disk that fails: replaces write(), fsync() and rename() of
 * the test program. Include it once in a test. */
#ifndef TESTS_SUPPORT_FAILING_DISK_H
#define TESTS_SUPPORT_FAILING_DISK_H

#include <errno.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Calls that still succeed; every later one fails with ENOSPC. -1: none fails. A write that is
 * refused writes half, if that is at least a byte. */
static int calls_left = -1;

static int refused(void)
{
    if (calls_left < 0 || calls_left-- > 0)
        return 0;
    calls_left = 0;
    errno = ENOSPC;
    return 1;
}

ssize_t write(int fd, const void *p, size_t n)
{
    if (fd > 2 && refused())
        return n > 1 ? syscall(SYS_write, fd, p, n / 2) : -1;
    return syscall(SYS_write, fd, p, n);
}

int fsync(int fd)
{
    return refused() ? -1 : (int)syscall(SYS_fsync, fd);
}

int rename(const char *from, const char *to)
{
    return refused() ? -1 : (int)syscall(SYS_renameat2, -100, from, -100, to, 0);
}

#endif
