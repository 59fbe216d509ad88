#include "base/file_map.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"

/* The files that are mapped, for the handler. */
static struct {
    _Atomic uintptr_t base; /* 0: free; set last, cleared first */
    uint64_t bytes;
    char *path;
    _Atomic bool lost;
} maps[1024];
#define N_MAPS (sizeof(maps) / sizeof(maps[0]))

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* for opening and closing */
static struct sigaction before;

/* Put zeros from the page on to the end of its mapping. */
static void on_bus_error(int sig, siginfo_t *info, void *context)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)info->si_addr;

    (void)context;
    at -= at % page;
    for (size_t i = 0; i < N_MAPS && info->si_code > 0; i++) {
        uintptr_t base = atomic_load(&maps[i].base);

        if (!base || at < base || at - base >= maps[i].bytes)
            continue;
        atomic_store(&maps[i].lost, true);
        if (mmap((void *)at, base + maps[i].bytes - at, PROT_READ,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED)
            return;
    }
    sigaction(sig, &before, NULL);
    if (info->si_code <= 0)
        raise(sig); /* it was sent; a fault comes again by itself */
}

/* Others may have set their own handler since the last time. With the lock held. */
static void catch_bus_errors(void)
{
    const struct sigaction ours = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    struct sigaction now;

    if (sigaction(SIGBUS, NULL, &now) != 0 || now.sa_sigaction == on_bus_error)
        return;
    before = now;
    sigaction(SIGBUS, &ours, NULL);
}

/* Takes `path` on success. */
static int enter(const struct file_map *m, char *path)
{
    size_t i = 0;

    pthread_mutex_lock(&lock);
    while (i < N_MAPS && atomic_load(&maps[i].base))
        i++;
    if (i < N_MAPS) {
        maps[i].bytes = m->bytes;
        maps[i].path = path;
        atomic_store(&maps[i].lost, false);
        atomic_store(&maps[i].base, (uintptr_t)m->base);
        catch_bus_errors();
    }
    pthread_mutex_unlock(&lock);
    return i < N_MAPS
               ? OK
               : err_set(ERR_LIMIT, "%s: more than %zu files are mapped", path, N_MAPS);
}

static int map_fd(struct file_map *m, int fd, const char *path)
{
    char *own = mem_strdup(MEM_OTHER, path);
    struct stat st;
    void *p;
    int rc;

    if (!own)
        return ERR_NOMEM;
    if (fstat(fd, &st) != 0) {
        rc = err_set(ERR_IO, "%s: cannot stat: %m", path);
    } else if (st.st_size == 0) {
        rc = err_set(ERR_FORMAT, "%s: expected a file with content, found 0 bytes", path);
    } else if ((p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0)) ==
               MAP_FAILED) {
        rc = err_set(ERR_IO, "%s: cannot map %" PRId64 " bytes: %m", path,
                     (int64_t)st.st_size);
    } else {
        *m = (struct file_map){p, (uint64_t)st.st_size};
        rc = enter(m, own);
    }
    if (rc == OK)
        return OK;
    if (m->base)
        munmap((void *)m->base, m->bytes);
    *m = (struct file_map){0};
    mem_free(own);
    return rc;
}

int file_map_open(struct file_map *m, const char *path)
{
    int fd, rc = file_open(&fd, path);

    *m = (struct file_map){0};
    if (rc != OK)
        return rc;
    rc = map_fd(m, fd, path);
    close(fd); /* the mapping outlives it */
    return rc;
}

void file_map_close(struct file_map *m)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < N_MAPS && m->base; i++)
        if (atomic_load(&maps[i].base) == (uintptr_t)m->base) {
            atomic_store(&maps[i].base, 0);
            mem_free(maps[i].path);
            break;
        }
    pthread_mutex_unlock(&lock);
    if (m->base)
        munmap((void *)m->base, m->bytes);
    *m = (struct file_map){0};
}

int file_map_check(void)
{
    int rc = OK;

    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < N_MAPS && rc == OK; i++)
        if (atomic_load(&maps[i].base) && atomic_load(&maps[i].lost))
            rc = err_set(ERR_IO,
                         "%s: cannot read all of it: it had %" PRIu64
                         " bytes when it was opened and was cut since, or its disk fails",
                         maps[i].path, maps[i].bytes);
    pthread_mutex_unlock(&lock);
    return rc;
}

/* For one advice Linux reads no more than its read-ahead, 128 KiB unless it was changed. */
#define ADVICE_BYTES ((uintptr_t)128 << 10)

void file_map_will_need(const void *p, uint64_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t at = (uintptr_t)p / page * page, end = (uintptr_t)p + bytes;

    for (; p && at < end; at += ADVICE_BYTES)
        (void)madvise((void *)at, end - at < ADVICE_BYTES ? end - at : ADVICE_BYTES,
                      MADV_WILLNEED); /* advice: failing changes nothing */
}

void file_map_drop(const void *p, uint64_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t lo = ((uintptr_t)p + page - 1) / page * page;
    uintptr_t hi = ((uintptr_t)p + bytes) / page * page;

    if (p && hi > lo)
        (void)madvise((void *)lo, hi - lo,
                      MADV_DONTNEED); /* advice: failing changes nothing */
}
