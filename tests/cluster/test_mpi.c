/* One-sided communication as the transport mpi_put uses it, with each MPI library that is
 * installed: a target that is outside of MPI for a second. What has arrived by then is printed;
 * with the calls that the transport's receiver makes, all of it arrives. */
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/home.h"
#include "cluster/mpi/mpi.h"
#include "tests/support/test.h"

#define BYTES (64 << 10)

static const char *const names[] = {"openmpi", "mpich"};

/* ---- a process under mpirun ---- */

static void stay_outside(void)
{
    const struct timespec s = {.tv_sec = 1};

    nanosleep(&s, NULL);
}

static bool is_filled(const char *pool)
{
    for (int i = 0; i < BYTES; i++)
        if (pool[i] != (char)(i % 127 + 1))
            return false;
    return true;
}

static int act(const char *library)
{
    void *h = dlopen(library, RTLD_NOW | RTLD_GLOBAL);
    const struct cluster_mpi_library *m = h ? dlsym(h, CLUSTER_MPI_SYMBOL) : NULL;
    char text[128], *pool = calloc(1, BYTES), byte = 0;
    struct cluster_mpi_link *l;
    int rank, size, seen;

    if (!m || !pool || m->init(&rank, &size, text, sizeof(text)) != 0 || size != 2)
        return 1;
    l = m->open(!rank, rank == 1, pool, BYTES);
    if (!l)
        return 2;
    m->bcast(&byte, 1);
    if (rank == 0) {
        for (int i = 0; i < BYTES; i++)
            pool[i] = (char)(i % 127 + 1);
        for (int i = 0; i < 64; i++)
            m->put(l, (size_t)i * (BYTES / 64), pool + i * (BYTES / 64), BYTES / 64);
        m->flag(l, 1);
    } else {
        stay_outside();
        seen = m->seen(l) == 1;
        while (m->seen(l) != 1)
            m->progress(l);
        m->sync(l);
        printf("%s: %s; right %d\n", text,
               seen ? "arrived while the target was outside of MPI"
                    : "needed a target that calls MPI",
               is_filled(pool));
        fflush(stdout);
    }
    m->bcast(&byte, 1);
    m->close(l);
    m->finalize();
    return 0;
}

/* mpirun starts this program again. */
static int setup(void **state)
{
    (void)state;
    if (getenv("TEST_MPI_LIBRARY"))
        _exit(act(getenv("TEST_MPI_LIBRARY")));
    return 0;
}

/* ---- the test ---- */

static bool has_mpirun(const char *name)
{
    char command[64];

    snprintf(command, sizeof(command), "command -v mpirun.%s >/dev/null", name);
    return system(command) == 0;
}

TEST(a_target_outside_of_mpi)
{
    char path[512], command[1200], line[256], exe[512];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    int n_run = 0;

    assert_true(n > 0);
    exe[n] = 0;
    for (int i = 0; i < 2; i++) {
        bool right = false;
        FILE *f;

        snprintf(line, sizeof(line), "mpi/%s.so", names[i]);
        home_program(path, sizeof(path), line);
        if (!has_mpirun(names[i]) || access(path, R_OK) != 0)
            continue;
        snprintf(command, sizeof(command),
                 "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
                 "TEST_MPI_LIBRARY=%s timeout 60 mpirun.%s -n 2 %s %s 2>&1",
                 path, names[i], i == 0 ? "--oversubscribe --bind-to none" : "", exe);
        f = popen(command, "r");
        assert_non_null(f);
        while (fgets(line, sizeof(line), f)) {
            print_message("%s", line);
            right = right || strstr(line, "; right 1");
        }
        assert_int_equal(pclose(f), 0);
        assert_true(right);
        n_run++;
    }
    if (n_run == 0)
        test_skip("no mpirun.openmpi or mpirun.mpich with its shared object");
}

/* Without mpirun there is no MPI, and that is said. */
TEST(not_under_mpirun)
{
    char text[64];
    int rank, size;

    assert_int_equal(cluster_mpi_rank(), -1);
    assert_err(cluster_mpi_open(&rank, &size, text, sizeof(text)), ERR_STATE,
               "not started by mpirun");
    cluster_mpi_close();
}

TEST_GROUP(setup, NULL);
