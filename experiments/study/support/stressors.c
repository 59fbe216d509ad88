#include "experiments/study/support/stressors.h"

#include <fcntl.h>
#include <math.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "cpu/cpu.h"

#define LINE_BYTES   64
#define LINES_A_LOOK 64    /* between two looks at the clock: about a microsecond */
#define PIECE_BYTES  65536 /* of the file, the same: whole pages of any size */
#define DISK_BLOCK   512   /* as getrusage() counts */

/* The scheduler runs a thread that wakes the sooner the shorter the time it asks for. */
#define ASKED_SLICE_NS 100000

struct stressor {
    _Alignas(64) struct study_stressors *all;
    pthread_t thread;
    bool started;
    int cpu;
    char *buffer, piece[PIECE_BYTES];
    size_t bytes, used, at; /* used: that part is touched */
    off_t file_at;
    double begin_cpu_s;
    atomic_llong n_slices, touched_bytes, read_bytes, disk_bytes; /* in this mode */
};

struct study_stressors {
    struct study_stressors_opts o;
    struct stressor *stressors; /* [n] */
    double share;               /* in this mode */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    atomic_int mode;
    int n_idle; /* stressors that wait for another mode than OFF; under the lock */
    bool ending;
};

static void touch(struct stressor *h)
{
    for (int i = 0; i < LINES_A_LOOK; i++) {
        (void)*(volatile const char *)(h->buffer + h->at);
        h->at += LINE_BYTES;
        if (h->at >= h->used)
            h->at = 0;
    }
}

/* Read the next piece of the file and drop it; returns its bytes. */
static size_t evict(struct stressor *h)
{
    ssize_t n = pread(h->all->o.fd, h->piece, PIECE_BYTES, h->file_at);

    if (n > 0)
        (void)posix_fadvise(h->all->o.fd, h->file_at, n, POSIX_FADV_DONTNEED);
    h->file_at = n == PIECE_BYTES ? h->file_at + n : 0;
    return n > 0 ? (size_t)n : 0;
}

static long long thread_disk_bytes(void)
{
    struct rusage u = {0};

    (void)getrusage(RUSAGE_THREAD, &u);
    return (long long)u.ru_inblock * DISK_BLOCK;
}

static void slice(struct stressor *h, uint64_t end_ns)
{
    int mode = atomic_load(&h->all->mode);
    long long disk = thread_disk_bytes();
    size_t touched = 0;

    while (clock_ns() < end_ns && atomic_load(&h->all->mode) == mode)
        if (mode == STUDY_STRESSORS_TOUCH) {
            touch(h);
            touched += LINES_A_LOOK * LINE_BYTES;
        } else if (mode == STUDY_STRESSORS_EVICT) {
            touched += evict(h);
        } else {
            cpu_relax();
        }
    atomic_fetch_add(&h->n_slices, 1);
    atomic_fetch_add(&h->disk_bytes, thread_disk_bytes() - disk);
    atomic_fetch_add(&h->touched_bytes,
                     (long long)(touched < h->used ? touched : h->used));
    atomic_fetch_add(&h->read_bytes, (long long)touched); /* the last */
}

/* Periods begin at multiples of their length by the clock that all stressors read. */
static void run_periods(struct stressor *h)
{
    uint64_t period = (uint64_t)(h->all->o.period_s * 1e9);
    uint64_t work = (uint64_t)(h->all->share * (double)period);

    while (atomic_load(&h->all->mode) != STUDY_STRESSORS_OFF) {
        uint64_t begin = (clock_ns() / period + (work < period)) * period;

        clock_sleep_until_ns(begin, 0);
        slice(h, begin + work);
    }
}

static void ask_for_short_slices(void)
{
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime_ns, deadline_ns, period_ns;
    } a = {.size = sizeof(a), .runtime_ns = ASKED_SLICE_NS};

    syscall(SYS_sched_setattr, 0, &a, 0); /* a hint: kernels before 6.12 ignore it */
}

static void *run(void *arg)
{
    struct stressor *h = arg;
    struct study_stressors *all = h->all;

    if (cpu_pin_self(h->cpu) != OK)
        err_clear(); /* it takes its share of all CPUs then */
    ask_for_short_slices();
    memset(h->buffer, 1, h->bytes);
    pthread_mutex_lock(&all->lock);
    while (!all->ending) {
        if (atomic_load(&all->mode) == STUDY_STRESSORS_OFF) {
            all->n_idle++;
            pthread_cond_broadcast(&all->changed);
            while (!all->ending && atomic_load(&all->mode) == STUDY_STRESSORS_OFF)
                pthread_cond_wait(&all->changed, &all->lock);
            all->n_idle--;
            continue;
        }
        pthread_mutex_unlock(&all->lock);
        run_periods(h);
        pthread_mutex_lock(&all->lock);
    }
    pthread_mutex_unlock(&all->lock);
    return NULL;
}

static int open_stressors(struct study_stressors *all)
{
    int n = all->o.n;
    size_t each = all->o.footprint_bytes / (size_t)n / LINE_BYTES * LINE_BYTES;

    for (int i = 0; i < n; i++) {
        struct stressor *h = &all->stressors[i];

        h->all = all;
        h->cpu = all->o.cpus[i];
        h->bytes = h->used = each > LINE_BYTES ? each : LINE_BYTES;
        h->buffer = mem_map(MEM_HARNESS, h->bytes, MEM_NODE_ANY);
        if (!h->buffer)
            return ERR_NOMEM;
        TRY(thread_start(&h->thread, 0, run, h, "study.time_share"));
        h->started = true;
    }
    return OK;
}

int study_stressors_open(struct study_stressors **out,
                         const struct study_stressors_opts *o)
{
    struct study_stressors *h = mem_new(MEM_HARNESS, 1, sizeof(*h));
    int rc;

    h->o = *o;
    h->stressors = mem_new(MEM_HARNESS, (size_t)o->n, sizeof(*h->stressors));
    *out = h;
    rc = thread_mutex_init(&h->lock);
    if (rc == OK)
        rc = thread_cond_init(&h->changed);
    if (rc == OK)
        rc = open_stressors(h);
    if (rc == OK)
        study_stressors_set(
            h, STUDY_STRESSORS_OFF); /* waits until their buffers are written */
    else
        study_stressors_close(out);
    return rc;
}

static void all_idle(struct study_stressors *h)
{
    while (h->n_idle < h->o.n)
        pthread_cond_wait(&h->changed, &h->lock);
}

static double cpu_s_of(const struct stressor *s)
{
    struct timespec t;
    clockid_t clock;

    if (pthread_getcpuclockid(s->thread, &clock) != 0 || clock_gettime(clock, &t) != 0)
        return NAN;
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void begin_mode(struct stressor *s, size_t bytes)
{
    bytes = bytes / LINE_BYTES * LINE_BYTES;
    s->used = bytes < LINE_BYTES ? LINE_BYTES : bytes < s->bytes ? bytes : s->bytes;
    s->at = s->at < s->used ? s->at : 0;
    s->begin_cpu_s = cpu_s_of(s);
    atomic_store(&s->n_slices, 0);
    atomic_store(&s->touched_bytes, 0);
    atomic_store(&s->read_bytes, 0);
    atomic_store(&s->disk_bytes, 0);
}

void study_stressors_begin(struct study_stressors *h, enum study_stressors_mode mode,
                           double share, size_t footprint_bytes)
{
    pthread_mutex_lock(&h->lock);
    atomic_store(&h->mode, STUDY_STRESSORS_OFF);
    all_idle(h);
    for (int i = 0; i < h->o.n && mode != STUDY_STRESSORS_OFF; i++)
        begin_mode(&h->stressors[i], footprint_bytes / (size_t)h->o.n);
    h->share = share;
    atomic_store(&h->mode, mode);
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->lock);
}

void study_stressors_set(struct study_stressors *h, enum study_stressors_mode mode)
{
    study_stressors_begin(h, mode, h->o.share, h->o.footprint_bytes);
}

void study_stressors_dose(const struct study_stressors *h,
                          struct study_stressors_dose *out)
{
    *out = (struct study_stressors_dose){0};
    for (int i = 0; i < h->o.n; i++) {
        const struct stressor *s = &h->stressors[i];

        out->cpu_s += cpu_s_of(s) - s->begin_cpu_s;
        out->read_bytes += (double)atomic_load(&s->read_bytes);
        out->disk_bytes += (double)atomic_load(&s->disk_bytes);
    }
}

double study_stressors_touched_bytes(const struct study_stressors *h)
{
    double sum = 0;

    for (int i = 0; i < h->o.n; i++) {
        const struct stressor *s = &h->stressors[i];
        /* First, as a slice counts itself before its bytes. */
        double touched = (double)atomic_load(&s->touched_bytes);
        long long n = atomic_load(&s->n_slices);

        sum += n > 0 ? touched / (double)n : 0;
    }
    return sum;
}

void study_stressors_close(struct study_stressors **h)
{
    struct study_stressors *all = *h;

    if (!all)
        return;
    pthread_mutex_lock(&all->lock);
    all->ending = true;
    atomic_store(&all->mode, STUDY_STRESSORS_OFF);
    pthread_cond_broadcast(&all->changed);
    pthread_mutex_unlock(&all->lock);
    for (int i = 0; i < all->o.n; i++) {
        if (all->stressors[i].started)
            pthread_join(all->stressors[i].thread, NULL);
        mem_unmap(MEM_HARNESS, all->stressors[i].buffer, all->stressors[i].bytes);
    }
    pthread_cond_destroy(&all->changed);
    pthread_mutex_destroy(&all->lock);
    mem_free(all->stressors);
    mem_free(all);
    *h = NULL;
}
