/* baselines/gemm/support/child.c - main() of every GEMM library's program. */
#include "baselines/gemm/support/child.h"

#include <ctype.h>
#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "baselines/gemm/support/data.h"
#include "cpu/cpu.h"

/* How long to wait for the library's idle threads to sleep. GOMP_SPINCOUNT bounds their
 * spinning to some milliseconds; a library that never sleeps is timed all the same. */
#define SETTLE_MAX_NS UINT64_C(200000000)
#define COPY_ALIGN    4096

static struct gemm_shape shape;
static float *activations;
static bool ready; /* the shape's open() succeeded */
static int next_copy;

/* Only settings that this CPU, lowered by CPU_ISA_ENV, can execute are offered: several
 * libraries run what they are told to and end by an illegal instruction. A library that
 * decides by itself sees the whole CPU. */
static const struct gemm_setting *offered(long i)
{
    for (const struct gemm_setting *s = gemm_library.settings; s->label; s++) {
        bool fits = s->isa ? !(s->isa & ~cpu_isa_detected()) : !cpu_isa_hidden();

        if (fits && i-- == 0)
            return s;
    }
    return NULL;
}

/* --- the threads */

/* Is any thread but this one runnable? */
static bool others_run(void)
{
    DIR *d = opendir("/proc/self/task");
    bool busy = false;

    if (!d)
        return false;
    for (struct dirent *e; !busy && (e = readdir(d));) {
        char path[300], text[256] = "";
        if (!isdigit((unsigned char)e->d_name[0]) || atoi(e->d_name) == getpid())
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/stat", e->d_name);
        FILE *f = fopen(path, "re");
        if (!f)
            continue;
        size_t n = fread(text, 1, sizeof text - 1, f);
        fclose(f);
        text[n] = '\0';
        const char *state = strrchr(text, ')');
        busy = state && state[1] && state[2] == 'R';
    }
    closedir(d);
    return busy;
}

/* Wait until all threads of this process sleep, so that the next one to compute finds the
 * CPUs idle. */
static void wait_for_idle_threads(void)
{
    uint64_t end = clock_ns() + SETTLE_MAX_NS;

    while (others_run() && clock_ns() < end)
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
}

/* Threads that sleep are woken before the clock starts. */
static void wake(void)
{
#pragma omp parallel
    __asm__ volatile("" ::: "memory");
}

/* --- data */

int gemm_copies(void ***out, int n_copies, size_t bytes)
{
    size_t step = (bytes + COPY_ALIGN - 1) / COPY_ALIGN * COPY_ALIGN;
    void **copies = mem_new(MEM_WEIGHTS, (size_t)n_copies, sizeof *copies);
    char *all =
        copies ? mem_map(MEM_WEIGHTS, (size_t)n_copies * step, MEM_NODE_ANY) : NULL;

    *out = NULL;
    if (!all)
        return ERR_NOMEM; /* the process ends with it */
    for (int i = 0; i < n_copies; i++)
        copies[i] = all + (size_t)i * step;
    *out = copies;
    return OK;
}

void gemm_fill(void *dst, const struct gemm_shape *s, bool nk)
{
    int64_t rows = nk ? s->n : s->k, cols = nk ? s->k : s->n;
    int64_t row_step = nk ? 1 : s->n, col_step = nk ? s->n : 1;

#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) {
            float f = gemm_value(s->seed, GEMM_W, r * row_step + c * col_step);
            if (s->bf16)
                ((uint16_t *)dst)[r * cols + c] = gemm_bf16(f);
            else
                ((float *)dst)[r * cols + c] = f;
        }
}

void gemm_spread(void **copies, int n_copies, size_t bytes)
{
    const size_t chunk = (size_t)1 << 20;
    int64_t n_chunks = (int64_t)((bytes + chunk - 1) / chunk);

    for (int i = 1; i < n_copies; i++) {
#pragma omp parallel for schedule(static)
        for (int64_t j = 0; j < n_chunks; j++) {
            size_t at = (size_t)j * chunk, n = bytes - at < chunk ? bytes - at : chunk;
            memcpy((char *)copies[i] + at, (char *)copies[0] + at, n);
        }
    }
}

void gemm_round_activations(uint16_t *dst, const struct gemm_shape *s, int64_t stride)
{
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < s->m; r++) {
        const float *from = s->a + r * s->k;
        uint16_t *to = dst + r * stride;
#pragma omp simd
        for (int64_t i = 0; i < s->k; i++)
            to[i] = gemm_bf16(from[i]);
        for (int64_t i = s->k; i < stride; i++)
            to[i] = 0;
    }
}

/* --- the commands */

static int shape_open(const char *args, const struct gemm_setting *setting)
{
    char type[8];
    int64_t n_copies;

    if (activations)
        return err_set(ERR_STATE, "one shape a process");
    if (sscanf(args, "%7s %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNu64, type,
               &shape.m, &shape.n, &shape.k, &n_copies, &shape.seed) != 6 ||
        shape.m < 1 || shape.n < 1 || shape.k < 1 || n_copies < 1 || n_copies > 1 << 20)
        return err_set(ERR_ARG, "shape TYPE M N K COPIES SEED, found \"%s\"", args);
    if (!strstr(setting->types, type) || (setting->m_max && shape.m > setting->m_max))
        return err_set(ERR_UNSUPPORTED, "%s: not for %s with m = %" PRId64,
                       setting->label, type, shape.m);
    shape.n_copies = (int)n_copies;
    shape.bf16 = strcmp(type, "bf16") == 0;
    const char *threads = getenv("OMP_NUM_THREADS");
    shape.n_threads = threads && atoi(threads) > 0 ? atoi(threads) : 1;
    activations = mem_new(MEM_ACTIVATIONS, (size_t)(shape.m * shape.k), sizeof(float));
    shape.a = activations;
    shape.c = mem_new(MEM_ACTIVATIONS, (size_t)(shape.m * shape.n), sizeof(float));
    if (!shape.a || !shape.c)
        return ERR_NOMEM;
    for (int64_t i = 0; i < shape.m * shape.k; i++)
        activations[i] = gemm_value(shape.seed, GEMM_A, i);
    for (int64_t i = 0; i < shape.m * shape.n; i++)
        shape.c[i] = NAN; /* a result that was not written must not look right */
    int rc = gemm_library.open(&shape, setting);
    ready = rc == OK;
    return rc;
}

static int run_once(double *seconds)
{
    if (!ready)
        return err_set(ERR_STATE, "no shape yet");
    wake();
    uint64_t start = clock_ns();
    int rc = gemm_library.run(next_copy);
    uint64_t end = clock_ns();
    *seconds = (double)(end - start) * 1e-9;
    next_copy = (next_copy + 1) % shape.n_copies;
    wait_for_idle_threads();
    return rc;
}

static void answer(FILE *out, const char *line, const struct gemm_setting *setting)
{
    int64_t row, column;
    double seconds = NAN;
    int rc;

    if (strncmp(line, "shape ", 6) == 0) {
        rc = shape_open(line + 6, setting);
        wait_for_idle_threads();
        if (rc == OK)
            fprintf(out, "ready\n");
    } else if (strcmp(line, "run") == 0) {
        rc = run_once(&seconds);
        if (rc == OK)
            fprintf(out, "time %.9g\n", seconds);
    } else if (sscanf(line, "at %" SCNd64 " %" SCNd64, &row, &column) == 2) {
        rc = OK;
        if (!ready || row < 0 || row >= shape.m || column < 0 || column >= shape.n)
            rc = err_set(ERR_ARG, "no such element");
        else
            fprintf(out, "value %.9g\n", (double)shape.c[row * shape.n + column]);
    } else {
        rc = err_set(ERR_ARG, "unknown command \"%s\"", line);
    }
    if (rc != OK)
        fprintf(out, "no %s\n", err_msg());
}

static void list(FILE *out)
{
    const struct gemm_setting *s;
    char version[GEMM_LABEL_MAX];

    gemm_library.version(version, sizeof version);
    fprintf(out, "baseline %s\n", version);
    for (long i = 0; (s = offered(i)); i++)
        fprintf(out, "setting|%s|%s|%" PRId64 "|%s\n", s->label, s->types, s->m_max,
                s->env ? s->env : "");
    fprintf(out, "end\n");
}

static void serve(FILE *out, const struct gemm_setting *setting)
{
    char line[512], label[GEMM_LABEL_MAX];

    snprintf(label, sizeof label, "%s", setting->label);
    if (gemm_library.took && gemm_library.took(setting, label, sizeof label) != OK)
        fprintf(out, "no %s\n", err_msg());
    else
        fprintf(out, "baseline %s\n", label);
    fflush(out);
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = '\0';
        answer(out, line, setting);
        fflush(out);
    }
}

int main(int argc, char **argv)
{
    /* The library may print on the standard output; the answers keep their own way. */
    FILE *out = fdopen(dup(STDOUT_FILENO), "w");
    const struct gemm_setting *setting = NULL;
    char *end = NULL;
    long i;

    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}); /* a crash leaves no file behind */
    if (out && argc == 2 && dup2(STDERR_FILENO, STDOUT_FILENO) >= 0) {
        if (strcmp(argv[1], "list") == 0) {
            list(out);
            fflush(out);
            _exit(0);
        }
        i = strtol(argv[1], &end, 10);
        if (!*end && i >= 0)
            setting = offered(i);
    }
    if (!setting) {
        fprintf(stderr, "usage: %s list | SETTING\n", argv[0]);
        return 2;
    }
    serve(out, setting);
    _exit(0); /* gigabytes need no tidying, and libraries have crashed at their end */
}
