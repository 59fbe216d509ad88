/* A phase under counters: each thread opens, starts, stops, reads and closes its own, the
 * same work is run once a pass in place of turns, and what ran short is told with both of
 * its times. The kernel is one of the test's own. */
#include <math.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cpu/cpu.h"
#include "experiments/study/counted/counted.h"
#include "tests/counters/fake_kernel.h"
#include "tests/support/tiny_model.h"

void study_progress(struct study_cell *c, double fraction, const char *what)
{
    (void)c, (void)what;
    assert_true(fraction >= 0 && fraction <= 1);
}

/* The fake kernel, asked by several threads; who did what with which file. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pid_t owner[FAKE_FDS];
static int n_strangers;

static void by_its_owner(int fd)
{
    n_strangers += owner[fd] != gettid();
}

static int locked_open(struct perf_event_attr *a, pid_t pid, int cpu, int group)
{
    int fd;

    pthread_mutex_lock(&lock);
    fd = fake_open(a, pid, cpu, group);
    if (fd >= 0)
        owner[fd] = gettid();
    pthread_mutex_unlock(&lock);
    return fd;
}

static ssize_t locked_read(int fd, void *buf, size_t n)
{
    ssize_t got;

    pthread_mutex_lock(&lock);
    by_its_owner(fd);
    got = fake_read(fd, buf, n);
    pthread_mutex_unlock(&lock);
    return got;
}

static int locked_ioctl(int fd, unsigned long request)
{
    int rc;

    pthread_mutex_lock(&lock);
    by_its_owner(fd);
    rc = fake_ioctl(fd, request);
    pthread_mutex_unlock(&lock);
    return rc;
}

static int locked_close(int fd)
{
    int rc;

    pthread_mutex_lock(&lock);
    by_its_owner(fd);
    rc = fake_close(fd);
    pthread_mutex_unlock(&lock);
    return rc;
}

static const struct counters_kernel locked_kernel = {.open = locked_open,
                                                     .read = locked_read,
                                                     .ioctl = locked_ioctl,
                                                     .close = locked_close,
                                                     .devices = fake_devices,
                                                     .paranoid = fake_paranoid};

static const char *model;
static char lists[700];

/* A folder with the generic list alone: the same events on every processor. */
static int prepare(void **state)
{
    size_t n;
    char *text = test_read(COUNTERS_EVENTS_DIR "/generic.json", &n);

    (void)state;
    model = tiny_model(KERN_F32);
    snprintf(lists, sizeof(lists), "%s/lists", test_dir());
    assert_int_equal(mkdir(lists, 0777), 0);
    fake_file(lists, "generic.json", text);
    mem_free(text);
    return 0;
}

static int begin(void **state)
{
    fake_begin(state);
    n_strangers = 0;
    counters_kernel_set(&locked_kernel);
    return 0;
}

static int n_threads_here(void)
{
    struct cpu_budget b;

    assert_ok(cpu_budget_get(&b));
    return b.n < 2 ? 1 : 2;
}

static struct study_counted *counted(enum serve_phase phase)
{
    const struct study_counted_opts o = {.model = model,
                                         .events = lists,
                                         .phase = phase,
                                         .batch = 2,
                                         .prompt_tok = 8,
                                         .steps = 3,
                                         .threads = n_threads_here(),
                                         .seed = 1};
    struct study_counted *w = mem_new(MEM_TEST, 1, sizeof(*w));

    assert_non_null(w);
    assert_ok(study_counted_run(w, &o, NULL));
    return w;
}

static void assert_same_totals(const struct study_counted *w)
{
    for (int i = 0; i < STUDY_N_TOTALS; i++) {
        const char *own = (const char *)&w->own + study_totals[i].offset;

        assert_true(w->totals[i].value == (double)*(const int64_t *)own);
    }
}

TEST_WITH(each_thread_its_own, begin, fake_end)
{
    int n = n_threads_here(), n_of[2] = {0};
    struct study_counted *w;

    fake.group_room = 3;
    w = counted(SERVE_DECODE);
    assert_int_equal(w->n_threads, n);
    assert_int_equal(n_strangers, 0);
    for (int i = 0; i < fake.n_ever; i++)
        n_of[owner[i] != gettid()]++;
    assert_true(n_of[0] > 0 && (n == 1 ? n_of[1] == 0 : n_of[1] == n_of[0]));
    assert_int_equal(w->own.n_steps, 3);
    assert_int_equal(w->own.n_tok, 6);
    assert_same_totals(w);
    assert_true(isnan(w->ticks) || (w->ticks > 0 && w->tick_ghz > 0));
    mem_free(w);
}

/* Nine events, three at once: as many passes as that takes, and each event was counted the
 * whole of one of them by every thread. */
TEST_WITH(passes_in_place_of_turns, begin, fake_end)
{
    int n = n_threads_here(), n_fake = 0;
    struct study_counted *w;

    fake.group_room = 3;
    w = counted(SERVE_PREFILL);
    for (int i = 0; i < w->list.n_events; i++) {
        assert_false(isnan(w->raw[i].value));
        if (w->raw[i].enabled_ns != 1000000u * (unsigned)n)
            continue; /* a real counter, through PAPI */
        assert_int_equal(w->raw[i].running_ns, w->raw[i].enabled_ns);
        n_fake++;
    }
    assert_true(n_fake > 3);
    assert_int_equal(w->n_passes, (n_fake + 2) / 3);
    assert_int_equal(w->own.n_tok, 16);
    assert_same_totals(w);
    mem_free(w);
}

TEST_WITH(short_running_is_told, begin, fake_end)
{
    int n = n_threads_here(), n_short = 0;
    struct study_counted *w;

    fake.running_ns = 400000;
    w = counted(SERVE_DECODE);
    for (int i = 0; i < w->list.n_events; i++) {
        if (w->raw[i].enabled_ns != 1000000u * (unsigned)n)
            continue;
        n_short++;
        assert_true(isnan(w->raw[i].value));
        assert_int_equal(w->raw[i].running_ns, 400000u * (unsigned)n);
        assert_non_null(strstr(w->raw[i].why, "ran 0.4 of the time"));
    }
    assert_true(n_short > 3);
    assert_true(isnan(w->metrics[COUNTERS_DTLB_MISS].value));
    assert_true(w->metrics[COUNTERS_DTLB_MISS].why[0]);
    assert_same_totals(w); /* nothing else is missing for it */
    mem_free(w);
}

TEST_WITH(refused_is_told, begin, fake_end)
{
    static const int refusals[] = {EACCES, ENOENT, EINVAL};

    for (int k = 0; k < 3; k++) {
        struct study_counted *w;

        fake.refuse = refusals[k];
        w = counted(SERVE_DECODE);
        for (int i = COUNTERS_DTLB_MISS; i < COUNTERS_N_METRICS; i++) {
            assert_true(isnan(w->metrics[i].value));
            assert_true(w->metrics[i].why[0]);
        }
        for (int i = 0; i < STUDY_N_SOFT; i++) {
            assert_true(isnan(w->soft[i].value));
            assert_int_equal(w->soft[i].error, refusals[k]);
        }
        assert_same_totals(w);
        mem_free(w);
    }
}

TEST_GROUP(prepare, NULL);
