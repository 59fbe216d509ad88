/* A kernel that does to the perf_event provider what a test tells it. */
#ifndef TESTS_COUNTERS_FAKE_KERNEL_H
#define TESTS_COUNTERS_FAKE_KERNEL_H

#include <errno.h>

#include "characterize/counters/perf_sys.h"
#include "tests/support/test.h"

#define FAKE_FDS 256

static struct fake {
    int refuse;         /* errno of every open; 0: none */
    uint64_t bad;       /* a config that is refused with EINVAL; 0: none */
    int group_room;     /* events of a group; 0: no limit */
    int n_open, n_ever; /* now; in all */
    ssize_t read_bytes; /* 0: all */
    /* what each started event counts and how long it ran of 1 ms */
    uint64_t count, running_ns;
    bool on[FAKE_FDS], closed[FAKE_FDS];
    int leader[FAKE_FDS], cpu[FAKE_FDS];
    uint64_t times[FAKE_FDS];
    struct perf_event_attr attr[FAKE_FDS];
} fake;

static int fake_open(struct perf_event_attr *a, pid_t pid, int cpu, int group)
{
    int fd = fake.n_ever, in_group = 0;

    assert_int_equal(pid, cpu < 0 ? 0 : -1);
    assert_true(fd < FAKE_FDS);
    if (fake.refuse || (fake.bad && a->config == fake.bad)) {
        errno = fake.refuse ? fake.refuse : EINVAL;
        return -1;
    }
    for (int i = 0; i < fd && group >= 0; i++)
        in_group += !fake.closed[i] && fake.leader[i] == group;
    if (fake.group_room && in_group == fake.group_room) {
        errno = EINVAL; /* as the kernel says it */
        return -1;
    }
    fake.n_ever++;
    fake.n_open++;
    fake.attr[fd] = *a;
    fake.leader[fd] = group < 0 ? fd : group;
    fake.cpu[fd] = cpu;
    return fd;
}

static ssize_t fake_read(int fd, void *buf, size_t n)
{
    uint64_t r[3] = {fake.count + (uint64_t)fd, 0, 0};

    assert_int_equal(n, sizeof(r));
    assert_false(fake.on[fake.leader[fd]]);
    r[1] = fake.times[fd] * 1000000;
    r[2] = fake.times[fd] * fake.running_ns;
    memcpy(buf, r, sizeof(r));
    if (fake.read_bytes < 0)
        errno = EIO;
    return fake.read_bytes ? fake.read_bytes : (ssize_t)n;
}

static int fake_ioctl(int fd, unsigned long request)
{
    if (request == PERF_EVENT_IOC_ENABLE) {
        fake.on[fd] = true;
        for (int i = 0; i < fake.n_ever; i++)
            fake.times[i] += fake.leader[i] == fd; /* never reset, as in the kernel */
    }
    if (request == PERF_EVENT_IOC_DISABLE)
        fake.on[fd] = false;
    return 0;
}

static int fake_close(int fd)
{
    assert_false(fake.closed[fd]);
    fake.closed[fd] = true;
    fake.n_open--;
    return 0;
}

static char fake_devices[700], fake_paranoid[700];
static const struct counters_kernel fake_kernel = {.open = fake_open,
                                                   .read = fake_read,
                                                   .ioctl = fake_ioctl,
                                                   .close = fake_close,
                                                   .devices = fake_devices,
                                                   .paranoid = fake_paranoid};

static void fake_file(const char *dir, const char *name, const char *text)
{
    char path[1500];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    test_write(path, text, strlen(text));
}

/* Each test begins with a kernel that allows everything, at paranoid level 3. */
static int fake_begin(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof(fake));
    fake.count = 1000;
    fake.running_ns = 1000000;
    snprintf(fake_devices, sizeof(fake_devices), "%s/devices", test_dir());
    snprintf(fake_paranoid, sizeof(fake_paranoid), "%s/paranoid", test_dir());
    fake_file(test_dir(), "paranoid", "3\n");
    counters_kernel_set(&fake_kernel);
    return 0;
}

static int fake_end(void **state)
{
    (void)state;
    counters_kernel_set(NULL);
    return fake.n_open; /* every file was closed */
}

#endif
