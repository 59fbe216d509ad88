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
#include "base/json.h"
#include "base/mem.h"
#include "base/process.h"
#include "baselines/gemm/support/data.h"
#include "cpu/cpu.h"

/* How long to wait for the library's idle threads to sleep. GOMP_SPINCOUNT bounds their
 * spinning to some milliseconds; a library that never sleeps is timed all the same. */
#define SETTLE_MAX_NS UINT64_C(200000000)
#define COPY_ALIGN    4096

static struct gemm_shape shape;

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
    void **copies = mem_new(MEM_HARNESS, (size_t)n_copies, sizeof *copies);
    char *all = mem_map(MEM_WEIGHTS, (size_t)n_copies * step, MEM_NODE_ANY);

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

/* --- what is asked and answered */

static FILE *answers;

/* Steals `what`. */
static void answer(json_t *what)
{
    json_dumpf(what, answers, JSON_COMPACT);
    fputc('\n', answers);
    fflush(answers);
    json_decref(what);
}

/* The last error. Gigabytes need no tidying, and libraries have crashed at their end. */
static _Noreturn void refuse(void)
{
    answer(json_pack("{s:o}", "error", json_string_lossy(err_msg())));
    _exit(0);
}

/* Read the shape from `j`. */
static int shape_read(const json_t *j, const struct gemm_setting *s)
{
    const char *type, *threads = getenv("OMP_NUM_THREADS");
    int64_t n_copies, seed;

    TRY(json_get_str(j, "type", &type, "shape"));
    TRY(json_get_int(j, "m", 1, INT32_MAX, &shape.m, "shape"));
    TRY(json_get_int(j, "n", 1, INT32_MAX, &shape.n, "shape"));
    TRY(json_get_int(j, "k", 1, INT32_MAX, &shape.k, "shape"));
    TRY(json_get_int(j, "n_copies", 1, 1 << 20, &n_copies, "shape"));
    TRY(json_get_int(j, "seed", INT64_MIN, INT64_MAX, &seed, "shape"));
    if (!strstr(s->types, type) || (s->m_max && shape.m > s->m_max))
        return err_set(ERR_UNSUPPORTED, "%s: not for %s with m = %" PRId64, s->label,
                       type, shape.m);
    shape.n_copies = (int)n_copies;
    shape.seed = (uint64_t)seed;
    shape.bf16 = strcmp(type, "bf16") == 0;
    shape.n_threads = threads && atoi(threads) > 0 ? atoi(threads) : 1;
    return OK;
}

static int shape_open(const struct gemm_setting *s)
{
    float *a = mem_new(MEM_HARNESS, (size_t)(shape.m * shape.k), sizeof(float));

    shape.a = a;
    shape.c = mem_new(MEM_HARNESS, (size_t)(shape.m * shape.n), sizeof(float));
    for (int64_t i = 0; i < shape.m * shape.k; i++)
        a[i] = gemm_value(shape.seed, GEMM_A, i);
    for (int64_t i = 0; i < shape.m * shape.n; i++)
        shape.c[i] = NAN; /* a result that was not written must not look right */
    return gemm_library.open(&shape, s);
}

/* [[row, column] ...] of the result; null outside of it. */
static json_t *values_at(const json_t *at)
{
    json_t *values = json_array();

    for (size_t i = 0; i < json_array_size(at); i++) {
        const json_t *p = json_array_get(at, i);
        json_int_t row = json_integer_value(json_array_get(p, 0));
        json_int_t column = json_integer_value(json_array_get(p, 1));
        bool inside = row >= 0 && row < shape.m && column >= 0 && column < shape.n;

        json_array_append_new(
            values, json_number(inside ? (double)shape.c[row * shape.n + column] : NAN));
    }
    return values;
}

static void run_once(int copy, const json_t *at)
{
    uint64_t start, end;
    json_t *values;

    wake();
    start = clock_ns();
    if (gemm_library.run(copy) != OK)
        refuse();
    end = clock_ns();
    values = values_at(at);
    wait_for_idle_threads();
    answer(json_pack("{s:f, s:o}", "seconds", (double)(end - start) * 1e-9, "values",
                     values));
}

static void list(void)
{
    const struct gemm_setting *s;
    char version[GEMM_LABEL_MAX];
    json_t *all = json_array();

    gemm_library.version(version, sizeof version);
    for (long i = 0; (s = offered(i)); i++)
        json_array_append_new(all, json_pack("{s:s, s:s, s:I, s:s*}", "label", s->label,
                                             "types", s->types, "m_max",
                                             (json_int_t)s->m_max, "env", s->env));
    answer(
        json_pack("{s:o, s:o}", "version", json_string_lossy(version), "settings", all));
}

static void serve(const struct gemm_setting *setting, const char *asked)
{
    char line[16], label[GEMM_LABEL_MAX];
    json_t *j;

    snprintf(label, sizeof label, "%s", setting->label);
    if (gemm_library.took && gemm_library.took(setting, label, sizeof label) != OK)
        refuse();
    answer(json_pack("{s:o}", "setting", json_string_lossy(label)));
    if (!fgets(line, sizeof line, stdin))
        return;
    if (json_read_text(&j, asked, strlen(asked), "shape") != OK ||
        shape_read(j, setting) != OK || shape_open(setting) != OK)
        refuse();
    wait_for_idle_threads();
    answer(json_pack("{s:b}", "ready", 1));
    for (int copy = 0; fgets(line, sizeof line, stdin);
         copy = (copy + 1) % shape.n_copies)
        run_once(copy, json_object_get(j, "at"));
}

int main(int argc, char **argv)
{
    const struct gemm_setting *setting = NULL;
    char *end = NULL;
    long i;

    process_exit_when_short(argv[0], 1);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}); /* a crash leaves no file behind */
    /* The library may print on the standard output; the answers keep their own way. */
    answers = fdopen(dup(STDOUT_FILENO), "w");
    if (!answers || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
        return 1;
    if (argc == 2 && strcmp(argv[1], "list") == 0) {
        list();
        _exit(0);
    }
    if (argc == 3) {
        i = strtol(argv[1], &end, 10);
        if (!*end && i >= 0)
            setting = offered(i);
    }
    if (!setting) {
        fprintf(stderr, "usage: %s list | SETTING SHAPE\n", argv[0]);
        return 2;
    }
    serve(setting, argv[2]);
    _exit(0); /* see refuse() */
}
