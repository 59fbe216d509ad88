/* The real kernel behind a table of functions. */
#include "characterize/counters/perf_sys.h"

#include <errno.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static int real_open(struct perf_event_attr *attr, pid_t pid, int cpu, int group)
{
    return (int)syscall(SYS_perf_event_open, attr, pid, cpu, group, PERF_FLAG_FD_CLOEXEC);
}

static ssize_t real_read(int fd, void *buf, size_t n)
{
    ssize_t got;

    do
        got = read(fd, buf, n);
    while (got < 0 && errno == EINTR);
    return got;
}

static int real_ioctl(int fd, unsigned long request)
{
    return ioctl(fd, request, 0);
}

static const struct counters_kernel real = {
    .open = real_open,
    .read = real_read,
    .ioctl = real_ioctl,
    .close = close,
    .devices = "/sys/bus/event_source/devices",
    .paranoid = "/proc/sys/kernel/perf_event_paranoid",
};
static const struct counters_kernel *kernel = &real;

void counters_kernel_set(const struct counters_kernel *k)
{
    kernel = k ? k : &real;
}

const struct counters_kernel *counters_kernel_of(void)
{
    return kernel;
}
