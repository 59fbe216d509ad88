/* A libcuda.so.1 that is an interpreter of PTX, for tests without a GPU: the instructions that
 * hetero/accel/cuda.c uses, one thread after the other, and no others. Memory is the host's;
 * streams hold what they are given until somebody waits for them, so that what is not ordered by
 * an event is done late. */
#include <ctype.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LINES  600
#define MAX_NAMES  128
#define MAX_WORDS  6
#define MAX_QUEUED 4096

static void stop(const char *why, const char *what)
{
    fprintf(stderr, "fake cuda: %s: %s\n", why, what);
    abort();
}

/* ---- the text, as instructions ---- */

enum op {
    FMA_RN_F32,
    MUL_RN_F32,
    ADD_RN_F32,
    SUB_RN_F32,
    DIV_RN_F32,
    EX2_APPROX_F32,
    CVT_F32_F16,
    CVT_RN_F32_S32,
    CVT_U32_U64,
    CVT_U64_U32,
    CVT_U32_U16,
    MIN_S64,
    MAD_LO_U32,
    MUL_LO_U64,
    MOV_U32,
    MOV_B32,
    MOV_F32,
    MOV_U64,
    ADD_U32,
    ADD_U64,
    SUB_U32,
    SUB_U64,
    SHL_B32,
    SHL_B64,
    SHR_U32,
    SHR_U64,
    AND_B32,
    AND_B64,
    OR_B32,
    SETP_GE_U64,
    SETP_GE_S64,
    SETP_LE_S64,
    SETP_EQ_U64,
    SETP_NE_U64,
    LD_PARAM_U64,
    LD_GLOBAL_U8,
    LD_GLOBAL_S8,
    LD_GLOBAL_B16,
    LD_GLOBAL_F32,
    ST_GLOBAL_F32,
    BRA,
    RET,
    N_OPS
};
static const char *const op_texts[N_OPS] = {
    [FMA_RN_F32] = "fma.rn.f32",
    [MUL_RN_F32] = "mul.rn.f32",
    [ADD_RN_F32] = "add.rn.f32",
    [SUB_RN_F32] = "sub.rn.f32",
    [DIV_RN_F32] = "div.rn.f32",
    [EX2_APPROX_F32] = "ex2.approx.f32",
    [CVT_F32_F16] = "cvt.f32.f16",
    [CVT_RN_F32_S32] = "cvt.rn.f32.s32",
    [CVT_U32_U64] = "cvt.u32.u64",
    [CVT_U64_U32] = "cvt.u64.u32",
    [CVT_U32_U16] = "cvt.u32.u16",
    [MIN_S64] = "min.s64",
    [MAD_LO_U32] = "mad.lo.u32",
    [MUL_LO_U64] = "mul.lo.u64",
    [MOV_U32] = "mov.u32",
    [MOV_B32] = "mov.b32",
    [MOV_F32] = "mov.f32",
    [MOV_U64] = "mov.u64",
    [ADD_U32] = "add.u32",
    [ADD_U64] = "add.u64",
    [SUB_U32] = "sub.u32",
    [SUB_U64] = "sub.u64",
    [SHL_B32] = "shl.b32",
    [SHL_B64] = "shl.b64",
    [SHR_U32] = "shr.u32",
    [SHR_U64] = "shr.u64",
    [AND_B32] = "and.b32",
    [AND_B64] = "and.b64",
    [OR_B32] = "or.b32",
    [SETP_GE_U64] = "setp.ge.u64",
    [SETP_GE_S64] = "setp.ge.s64",
    [SETP_LE_S64] = "setp.le.s64",
    [SETP_EQ_U64] = "setp.eq.u64",
    [SETP_NE_U64] = "setp.ne.u64",
    [LD_PARAM_U64] = "ld.param.u64",
    [LD_GLOBAL_U8] = "ld.global.u8",
    [LD_GLOBAL_S8] = "ld.global.s8",
    [LD_GLOBAL_B16] = "ld.global.b16",
    [LD_GLOBAL_F32] = "ld.global.f32",
    [ST_GLOBAL_F32] = "st.global.f32",
    [BRA] = "bra",
    [RET] = "ret",
};

struct operand {
    int name; /* of a register or label, else -1 */
    uint64_t bits;
};
struct instruction {
    enum op op;
    int guard; /* a predicate; -1: none */
    int negated;
    struct operand at[MAX_WORDS];
    int label; /* it is one; else -1 */
};
struct kernel {
    char name[16];
    struct instruction code[MAX_LINES];
    int n, n_names;
    char names[MAX_NAMES][16];
    int where[MAX_NAMES]; /* of labels */
};
static struct kernel kernels[2];
static int n_kernels;

static int name_of(struct kernel *k, const char *word)
{
    for (int i = 0; i < k->n_names; i++)
        if (strcmp(k->names[i], word) == 0)
            return i;
    if (k->n_names == MAX_NAMES || strlen(word) >= sizeof(k->names[0]))
        stop("name", word);
    strcpy(k->names[k->n_names], word);
    return k->n_names++;
}

static struct operand operand_of(struct kernel *k, const char *word)
{
    struct operand o = {-1, 0};
    char *plus, base[24];

    if (strncmp(word, "0f", 2) == 0) {
        o.bits = strtoull(word + 2, NULL, 16);
    } else if (isdigit((unsigned char)*word)) {
        o.bits = strtoull(word, NULL, 10);
    } else if (*word == '[') { /* [name+number] */
        snprintf(base, sizeof(base), "%s", word + 1);
        plus = strchr(base, '+');
        if (!plus)
            stop("address", word);
        *plus = 0;
        o.name = name_of(k, base);
        o.bits = strtoull(plus + 1, NULL, 10);
    } else {
        o.name = name_of(k, word);
    }
    return o;
}

static void add_statement(struct kernel *k, char *text)
{
    struct instruction *i = &k->code[k->n];
    char *save, *word = strtok_r(text, " ,\t\n", &save);
    int n = 0;

    if (!word || word[0] == '.' || strcmp(word, "{") == 0 || strcmp(word, "}") == 0)
        return;
    if (++k->n == MAX_LINES)
        stop("too long", word);
    *i = (struct instruction){.guard = -1, .label = -1};
    if (word[strlen(word) - 1] == ':') {
        word[strlen(word) - 1] = 0;
        i->label = name_of(k, word);
        k->where[i->label] = k->n - 1;
        return;
    }
    if (*word == '@') {
        i->negated = word[1] == '!';
        i->guard = name_of(k, word + 1 + i->negated);
        word = strtok_r(NULL, " ,\t\n", &save);
    }
    while (i->op < N_OPS && strcmp(op_texts[i->op], word) != 0)
        i->op++;
    if (i->op == N_OPS)
        stop("no such instruction", word);
    while ((word = strtok_r(NULL, " ,\t\n", &save)))
        i->at[n++] = operand_of(k, word);
}

static void parse(const char *source)
{
    char *text = strdup(source), *save, *line;

    n_kernels = 0;
    for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *entry = strstr(line, ".entry "), *inner, *one;

        if (entry) {
            sscanf(entry + 7, "%15[a-z]", kernels[n_kernels].name);
            kernels[n_kernels].n = kernels[n_kernels].n_names = 0;
            n_kernels++;
        }
        if (entry || n_kernels == 0 || strstr(line, ".reg"))
            continue;
        for (one = strtok_r(line, ";", &inner); one; one = strtok_r(NULL, ";", &inner))
            add_statement(&kernels[n_kernels - 1], one);
    }
    free(text);
}

/* ---- a thread ---- */

struct thread {
    uint64_t r[MAX_NAMES];
    const char *param;
};

static float f32(uint64_t bits)
{
    uint32_t u = (uint32_t)bits;
    float f;

    memcpy(&f, &u, 4);
    return f;
}

static uint64_t of_f32(float f)
{
    uint32_t u;

    memcpy(&u, &f, 4);
    return u;
}

static float half(uint16_t h)
{
    int e = h >> 10 & 31, m = h & 1023;
    float f = e ? ldexpf((float)(m + 1024), e - 25) : ldexpf((float)m, -24);

    if (e == 31)
        f = m ? NAN : INFINITY;
    return h >> 15 ? -f : f;
}

static uint64_t load(enum op op, const char *at)
{
    uint64_t v = 0;

    if (op == LD_GLOBAL_S8)
        return (uint32_t)(int32_t)(int8_t)*at;
    memcpy(&v, at,
           op == LD_GLOBAL_U8    ? 1
           : op == LD_GLOBAL_B16 ? 2
           : op == LD_GLOBAL_F32 ? 4
                                 : 8);
    return v;
}

/* Of numbers in registers and in the text. */
static uint64_t compute(enum op op, uint64_t a, uint64_t b, uint64_t c)
{
    switch (op) {
    case FMA_RN_F32:
        return of_f32(fmaf(f32(a), f32(b), f32(c)));
    case MUL_RN_F32:
        return of_f32(f32(a) * f32(b));
    case ADD_RN_F32:
        return of_f32(f32(a) + f32(b));
    case SUB_RN_F32:
        return of_f32(f32(a) - f32(b));
    case DIV_RN_F32:
        return of_f32(f32(a) / f32(b));
    case EX2_APPROX_F32:
        return of_f32(exp2f(f32(a)));
    case CVT_F32_F16:
        return of_f32(half((uint16_t)a));
    case CVT_RN_F32_S32:
        return of_f32((float)(int32_t)a);
    case CVT_U32_U16:
        return (uint16_t)a;
    case MIN_S64:
        return (int64_t)a < (int64_t)b ? a : b;
    case MAD_LO_U32:
        return (uint32_t)(a * b + c);
    case MUL_LO_U64:
        return a * b;
    case MOV_U64:
        return a;
    case ADD_U32:
        return (uint32_t)(a + b);
    case ADD_U64:
        return a + b;
    case SUB_U32:
        return (uint32_t)(a - b);
    case SUB_U64:
        return a - b;
    case SHL_B32:
        return (uint32_t)(a << b);
    case SHL_B64:
        return a << b;
    case SHR_U32:
    case SHR_U64:
        return a >> b;
    case AND_B32:
    case AND_B64:
        return a & b;
    case OR_B32:
        return a | b;
    case SETP_GE_U64:
        return a >= b;
    case SETP_GE_S64:
        return (int64_t)a >= (int64_t)b;
    case SETP_LE_S64:
        return (int64_t)a <= (int64_t)b;
    case SETP_EQ_U64:
        return a == b;
    case SETP_NE_U64:
        return a != b;
    default: /* mov and cvt of 32 bits */
        return (uint32_t)a;
    }
}

static void run_thread(struct kernel *k, struct thread *t)
{
    for (int pc = 0; pc < k->n; pc++) {
        const struct instruction *i = &k->code[pc];
        const struct operand *at = i->at;
        uint64_t v[4];

        if (i->label >= 0 || (i->guard >= 0 && (t->r[i->guard] != 0) == i->negated))
            continue;
        for (int n = 0; n < 4; n++)
            v[n] = at[n].name >= 0 ? t->r[at[n].name] : at[n].bits;
        if (i->op == RET)
            return;
        if (i->op == BRA)
            pc = k->where[at[0].name];
        else if (i->op == LD_PARAM_U64)
            t->r[at[0].name] = load(i->op, t->param + at[1].bits);
        else if (i->op >= LD_GLOBAL_U8 && i->op <= LD_GLOBAL_F32)
            t->r[at[0].name] = load(i->op, (const char *)(uintptr_t)(v[1] + at[1].bits));
        else if (i->op == ST_GLOBAL_F32)
            memcpy((char *)(uintptr_t)(v[0] + at[0].bits), &v[1], 4);
        else
            t->r[at[0].name] = compute(i->op, v[1], v[2], v[3]);
    }
}

/* ---- streams ---- */

struct task {
    enum { COPY, KERNEL, EVENT, WAIT } kind;
    void *to;
    const void *from;
    size_t bytes;
    int kernel, event;
    unsigned grid[2], block;
    char param[192];
};
struct stream {
    struct task tasks[MAX_QUEUED];
    int n, done;
};
static struct stream streams[2];
static int n_streams, is_done[1 << 20], n_events;
static __thread int is_current;

static void run_kernel(const struct task *a)
{
    struct kernel *k = &kernels[a->kernel];
    static struct thread t;

    for (unsigned y = 0; y < a->grid[1]; y++)
        for (unsigned x = 0; x < a->grid[0] * a->block; x++) {
            memset(&t, 0, sizeof(t));
            t.param = a->param;
            t.r[name_of(k, "%ctaid.x")] = x / a->block;
            t.r[name_of(k, "%ntid.x")] = a->block;
            t.r[name_of(k, "%tid.x")] = x % a->block;
            t.r[name_of(k, "%ctaid.y")] = y;
            run_thread(k, &t);
        }
}

/* Up to the event, or to the end: of other streams what it waits for. */
static void drain(struct stream *s, int event)
{
    while (s->done < s->n) {
        struct task *a = &s->tasks[s->done++];

        if (a->kind == COPY)
            memcpy(a->to, a->from, a->bytes);
        else if (a->kind == KERNEL)
            run_kernel(a);
        else if (a->kind == EVENT)
            is_done[a->event] = 1;
        else if (!is_done[a->event])
            drain(&streams[s == streams], a->event);
        if (a->kind == EVENT && a->event == event)
            return;
    }
    s->n = s->done = 0;
}

static struct task *add(void *stream)
{
    struct stream *s = stream;

    if (!is_current)
        stop("context", "not current in this thread");
    if (s->n == MAX_QUEUED)
        stop("stream", "full");
    memset(&s->tasks[s->n], 0, sizeof(s->tasks[0]));
    return &s->tasks[s->n++];
}

/* ---- the driver ---- */

#define API __attribute__((visibility("default"))) int

API cuInit(unsigned flags)
{
    (void)flags;
    return getenv("FAKE_CUDA_ERROR") ? atoi(getenv("FAKE_CUDA_ERROR")) : 0;
}

API cuDeviceGet(int *device, int i)
{
    *device = i;
    return 0;
}

API cuCtxCreate_v2(void **c, unsigned flags, int device)
{
    (void)flags, (void)device;
    n_streams = n_events = 0;
    is_current = 1;
    *c = kernels;
    return 0;
}

API cuCtxDestroy_v2(void *c)
{
    (void)c;
    is_current = 0;
    return 0;
}

API cuCtxSetCurrent(void *c)
{
    is_current = c == kernels;
    return 0;
}

API cuCtxSynchronize(void)
{
    for (int i = 0; i < n_streams; i++)
        drain(&streams[i], -1);
    return 0;
}

API cuModuleLoadData(void **module, const void *source)
{
    parse(source);
    *module = kernels;
    return 0;
}

API cuModuleGetFunction(void **f, void *module, const char *name)
{
    (void)module;
    for (int i = 0; i < n_kernels; i++)
        if (strcmp(kernels[i].name, name) == 0) {
            *f = &kernels[i];
            return 0;
        }
    return 500;
}

API cuMemAlloc_v2(uint64_t *at, size_t bytes)
{
    *at = (uint64_t)(uintptr_t)malloc(bytes); /* until the program ends */
    return *at ? 0 : 2;
}

API cuMemsetD8_v2(uint64_t at, unsigned char v, size_t bytes)
{
    memset((void *)(uintptr_t)at, v, bytes);
    return 0;
}

API cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream)
{
    struct task *a = add(stream);

    a->kind = COPY, a->to = (void *)(uintptr_t)to, a->from = from, a->bytes = bytes;
    return 0;
}

API cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream)
{
    struct task *a = add(stream);

    a->kind = COPY, a->to = to, a->from = (void *)(uintptr_t)from, a->bytes = bytes;
    return 0;
}

API cuStreamCreate(void **stream, unsigned flags)
{
    (void)flags;
    streams[n_streams].n = streams[n_streams].done = 0;
    *stream = &streams[n_streams++];
    return 0;
}

API cuStreamSynchronize(void *stream)
{
    drain(stream, -1);
    return 0;
}

API cuEventCreate(void **event, unsigned flags)
{
    (void)flags;
    if (n_events == (int)(sizeof(is_done) / sizeof(is_done[0])))
        stop("events", "too many");
    is_done[n_events] = 0;
    *event = &is_done[n_events++];
    return 0;
}

API cuEventDestroy_v2(void *event)
{
    (void)event;
    return 0;
}

API cuEventRecord(void *event, void *stream)
{
    struct task *a = add(stream);

    a->kind = EVENT, a->event = (int)((int *)event - is_done);
    return 0;
}

API cuStreamWaitEvent(void *stream, void *event, unsigned flags)
{
    struct task *a = add(stream);

    (void)flags;
    a->kind = WAIT, a->event = (int)((int *)event - is_done);
    return 0;
}

API cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                   unsigned by, unsigned bz, unsigned shared, void *stream, void **params,
                   void **extra)
{
    struct task *a = add(stream);

    (void)shared, (void)extra;
    if (gz != 1 || by != 1 || bz != 1)
        stop("launch", "more dimensions than two");
    a->kind = KERNEL, a->kernel = (int)((struct kernel *)f - kernels);
    a->grid[0] = gx, a->grid[1] = gy, a->block = bx;
    memcpy(a->param, params[0], a->kernel == 0 ? 192 : 40);
    return 0;
}
