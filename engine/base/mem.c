#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ALIGN     64
#define HUGE_PAGE ((size_t)2 << 20)
/* A larger object is a number read from a hostile file; what is really that big is
 * mapped. */
#define OBJECT_MAX ((size_t)1 << 39)
/* Linux ABI values; base does not include libnuma's headers. */
#define MPOL_BIND_ 2
#define NODES_MAX  1024

/* Stored in the 64 bytes before each object, so that mem_free() needs neither its size nor
 * its tag. */
struct head {
    size_t bytes;
    enum mem_tag tag;
};
_Static_assert(sizeof(struct head) <= ALIGN, "the head fits before the object");

static _Atomic size_t used[MEM_N_TAGS], peak[MEM_N_TAGS];
static _Atomic long n_allocs;

enum fail_mode { FAIL_OFF, FAIL_ONCE, FAIL_ALL };
static _Atomic int fail_mode;
static _Atomic long fail_left;

static void account(enum mem_tag tag, size_t bytes)
{
    size_t now = atomic_fetch_add(&used[tag], bytes) + bytes;
    size_t high = atomic_load(&peak[tag]);

    while (now > high && !atomic_compare_exchange_weak(&peak[tag], &high, now))
        ;
}

static void unaccount(enum mem_tag tag, size_t bytes)
{
    atomic_fetch_sub(&used[tag], bytes);
}

int mem_alloc_refused(void)
{
    int mode = atomic_load(&fail_mode);
    long left;

    atomic_fetch_add(&n_allocs, 1);
    if (mode == FAIL_OFF)
        return 0;
    left = atomic_fetch_sub(&fail_left, 1);
    return mode == FAIL_ONCE ? left == 0 : left <= 0;
}

static int no_memory(enum mem_tag tag, size_t n, size_t size)
{
    return err_set(ERR_NOMEM, "out of memory: %zu x %zu bytes for %s", n, size,
                   mem_tag_name(tag));
}

static void (*_Atomic when_short)(void);

void mem_when_short(void (*end)(void))
{
    atomic_store(&when_short, end);
}

void mem_refused(enum mem_tag tag, size_t n, size_t size)
{
    void (*end)(void) = atomic_load(&when_short);

    no_memory(tag, n, size);
    if (end && (tag == MEM_OTHER || tag == MEM_DATASET || tag == MEM_HARNESS))
        end();
}

static void *object_new(enum mem_tag tag, size_t bytes)
{
    void *base;
    struct head *h;

    if (bytes > OBJECT_MAX || mem_alloc_refused() ||
        posix_memalign(&base, ALIGN, ALIGN + bytes) != 0)
        return NULL;
    h = base;
    h->bytes = bytes;
    h->tag = tag;
    account(tag, bytes);
    return (char *)base + ALIGN;
}

static struct head *head_of(void *p)
{
    return (struct head *)((char *)p - ALIGN);
}

void *mem_new(enum mem_tag tag, size_t n, size_t size)
{
    size_t bytes;
    void *p = NULL;

    if (!__builtin_mul_overflow(n, size, &bytes))
        p = object_new(tag, bytes);
    if (!p) {
        mem_refused(tag, n, size);
        return NULL;
    }
    memset(p, 0, bytes);
    return p;
}

void *mem_resize(enum mem_tag tag, void *p, size_t n, size_t size)
{
    size_t bytes, old;
    void *q = NULL;

    if (!p)
        return mem_new(tag, n, size);
    if (!__builtin_mul_overflow(n, size, &bytes))
        q = object_new(tag, bytes);
    if (!q) {
        mem_refused(tag, n, size);
        return NULL;
    }
    old = head_of(p)->bytes;
    memcpy(q, p, old < bytes ? old : bytes);
    if (bytes > old)
        memset((char *)q + old, 0, bytes - old);
    mem_free(p);
    return q;
}

char *mem_strndup(enum mem_tag tag, const char *s, size_t n)
{
    size_t len = strnlen(s, n);
    char *p = object_new(tag, len + 1);

    if (!p) {
        mem_refused(tag, len + 1, 1);
        return NULL;
    }
    memcpy(p, s, len);
    p[len] = 0;
    return p;
}

char *mem_strdup(enum mem_tag tag, const char *s)
{
    return mem_strndup(tag, s, strlen(s));
}

void mem_free(void *p)
{
    struct head *h;

    if (!p)
        return;
    h = head_of(p);
    unaccount(h->tag, h->bytes);
    free(h);
}

/* Length really mapped for `bytes`: whole huge pages, at least one. 0 on overflow. */
static size_t map_length(size_t bytes)
{
    if (bytes > SIZE_MAX - 2 * HUGE_PAGE)
        return 0;
    return bytes ? (bytes + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1) : HUGE_PAGE;
}

static int bind_to_node(void *p, size_t len, int node)
{
    unsigned long mask[NODES_MAX / (8 * sizeof(unsigned long))] = {0};

    if (node >= NODES_MAX)
        return err_set(ERR_NOMEM, "NUMA node %d: expected below %d", node, NODES_MAX);
    mask[(size_t)node / (8 * sizeof(*mask))] = 1UL
                                               << ((size_t)node % (8 * sizeof(*mask)));
    if (syscall(SYS_mbind, p, len, MPOL_BIND_, mask, (unsigned long)NODES_MAX + 1, 0) ==
        0)
        return OK;
    /* A kernel or container without NUMA calls has one node: node 0 is where pages go
     * anyway. */
    if (node == 0 && (errno == ENOSYS || errno == EPERM))
        return OK;
    return err_set(ERR_NOMEM, "cannot bind %zu bytes to NUMA node %d: %m", len, node);
}

/* len bytes on a huge page's boundary: of one huge page more, cut to it. */
static char *map_aligned(size_t len, int flags, int fd)
{
    const int prot = PROT_READ | PROT_WRITE;
    char *raw = mmap(NULL, len + HUGE_PAGE, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    size_t lead;
    char *p;

    if (raw == MAP_FAILED)
        return NULL;
    lead = (HUGE_PAGE - ((uintptr_t)raw & (HUGE_PAGE - 1))) & (HUGE_PAGE - 1);
    p = raw + lead;
    if (lead)
        munmap(raw, lead);
    munmap(p + len, HUGE_PAGE - lead);
    if (mmap(p, len, prot, flags | MAP_FIXED | MAP_NORESERVE, fd, 0) != MAP_FAILED)
        return p;
    munmap(p, len);
    return NULL;
}

static void *map_as(enum mem_tag tag, size_t bytes, int flags, int fd)
{
    size_t len = map_length(bytes);
    char *p;

    if (len == 0 || mem_alloc_refused()) {
        no_memory(tag, 1, bytes);
        return NULL;
    }
    if (fd >= 0 && ftruncate(fd, (off_t)len) != 0) {
        err_set(ERR_NOMEM, "shared memory of %zu bytes for %s: %m", len,
                mem_tag_name(tag));
        return NULL;
    }
    p = map_aligned(len, flags, fd);
    if (!p) {
        err_set(ERR_NOMEM, "cannot map %zu bytes for %s: %m", len, mem_tag_name(tag));
        return NULL;
    }
    madvise(p, len, MADV_HUGEPAGE); /* advice only: refused where THP is off */
    account(tag, len);
    return p;
}

void *mem_map(enum mem_tag tag, size_t bytes, int node)
{
    void *p = map_as(tag, bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1);

    if (p && node != MEM_NODE_ANY && bind_to_node(p, map_length(bytes), node) != OK) {
        mem_unmap(tag, p, bytes);
        return NULL;
    }
    return p;
}

void *mem_map_shared_fd(enum mem_tag tag, size_t bytes, int *fd)
{
    void *p;

    *fd = memfd_create("sandwich", MFD_CLOEXEC);
    if (*fd < 0) {
        err_set(ERR_NOMEM, "cannot make shared memory for %s: %m", mem_tag_name(tag));
        return NULL;
    }
    p = map_as(tag, bytes, MAP_SHARED, *fd);
    if (!p) {
        close(*fd);
        *fd = -1;
    }
    return p;
}

void *mem_map_shared(enum mem_tag tag, size_t bytes)
{
    int fd;
    void *p = mem_map_shared_fd(tag, bytes, &fd);

    if (p)
        close(fd); /* the mapping keeps the memory */
    return p;
}

void mem_unmap(enum mem_tag tag, void *p, size_t bytes)
{
    if (!p)
        return;
    munmap(p, map_length(bytes));
    unaccount(tag, map_length(bytes));
}

const char *mem_tag_name(enum mem_tag tag)
{
    static const char *const names[MEM_N_TAGS] = {
        [MEM_OTHER] = "other",
        [MEM_WEIGHTS] = "weights",
        [MEM_KV] = "kv",
        [MEM_ACTIVATIONS] = "activations",
        [MEM_TOKENIZER] = "tokenizer",
        [MEM_MODEL_FILE] = "format_file",
        [MEM_TEAM] = "team",
        [MEM_DATASET] = "dataset",
        [MEM_HARNESS] = "harness",
        [MEM_TEST] = "test",
    };

    return (unsigned)tag < MEM_N_TAGS ? names[tag] : "?";
}

size_t mem_used_bytes(enum mem_tag tag)
{
    return atomic_load(&used[tag]);
}

size_t mem_peak_bytes(enum mem_tag tag)
{
    return atomic_load(&peak[tag]);
}

static size_t status_kib(const char *key)
{
    char line[256];
    size_t kib = 0, n = strlen(key);
    FILE *f = fopen("/proc/self/status", "re");

    if (!f)
        return 0;
    while (fgets(line, sizeof(line), f))
        if (strncmp(line, key, n) == 0) {
            kib = strtoull(line + n, NULL, 10);
            break;
        }
    fclose(f);
    return kib;
}

size_t mem_rss_bytes(void)
{
    return status_kib("VmRSS:") * 1024;
}

size_t mem_rss_peak_bytes(void)
{
    return status_kib("VmHWM:") * 1024;
}

int mem_rss_peak_reset(void)
{
    int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    int rc = OK;

    if (fd < 0 || write(fd, "5", 1) != 1)
        rc = err_set(ERR_UNSUPPORTED, "/proc/self/clear_refs: cannot reset the peak: %m");
    if (fd >= 0)
        close(fd);
    return rc;
}

void mem_fail_after(long n, int once)
{
    atomic_store(&fail_mode, FAIL_OFF);
    atomic_store(&fail_left, n);
    if (n >= 0)
        atomic_store(&fail_mode, once ? FAIL_ONCE : FAIL_ALL);
}

long mem_n_allocs(void)
{
    return atomic_load(&n_allocs);
}
