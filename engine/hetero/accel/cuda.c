/* An accelerator behind CUDA's driver: the first GPU. The library is loaded when it is asked for;
 * its few types and functions are declared here, so that nothing of it is needed to build. What it
 * runs is the PTX text below, which the driver compiles for the GPU that there is.
 *
 * Kernels read the panels that the CPU reads, of every type. A product's sums are chains of fused
 * multiply-adds along K, as those of opencl.c. They are simple, not fast. Copies are from pageable
 * memory, which the driver moves through buffers of its own. No GPU was here when this was
 * written: tests run it on a driver that is an interpreter of PTX.   Paper: ScheInfer III-C. */
#include <dlfcn.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "hetero/accel.h"
#include "kernels/panel.h"

#define LIBRARY "libcuda.so.1"
#define BLOCK   128 /* threads; any whole number of warps */

/* ---- CUDA's driver, as far as it is used here ---- */

typedef struct cuda_object
    *cuda_object; /* contexts, modules, functions, streams, events */
enum {
    CUDA_OUT_OF_MEMORY = 2,
    CUDA_STREAM_NON_BLOCKING = 1,
    CUDA_EVENT_DISABLE_TIMING = 2
};

#define FUNCTIONS(F)                                                                     \
    F(cuInit, (unsigned))                                                                \
    F(cuDeviceGet, (int *, int))                                                         \
    F(cuCtxCreate_v2, (cuda_object *, unsigned, int))                                    \
    F(cuCtxDestroy_v2, (cuda_object))                                                    \
    F(cuCtxSetCurrent, (cuda_object))                                                    \
    F(cuCtxSynchronize, (void))                                                          \
    F(cuModuleLoadData, (cuda_object *, const void *))                                   \
    F(cuModuleGetFunction, (cuda_object *, cuda_object, const char *))                   \
    F(cuMemAlloc_v2, (uint64_t *, size_t))                                               \
    F(cuMemsetD8_v2, (uint64_t, unsigned char, size_t))                                  \
    F(cuMemcpyHtoDAsync_v2, (uint64_t, const void *, size_t, cuda_object))               \
    F(cuMemcpyDtoHAsync_v2, (void *, uint64_t, size_t, cuda_object))                     \
    F(cuStreamCreate, (cuda_object *, unsigned))                                         \
    F(cuStreamSynchronize, (cuda_object))                                                \
    F(cuStreamWaitEvent, (cuda_object, cuda_object, unsigned))                           \
    F(cuEventCreate, (cuda_object *, unsigned))                                          \
    F(cuEventRecord, (cuda_object, cuda_object))                                         \
    F(cuEventDestroy_v2, (cuda_object))                                                  \
    F(cuLaunchKernel, (cuda_object, unsigned, unsigned, unsigned, unsigned, unsigned,    \
                       unsigned, unsigned, cuda_object, void **, void **))

struct functions {
#define MEMBER(name, parameters) int(*name) parameters;
    FUNCTIONS(MEMBER)
#undef MEMBER
};

/* ---- kernels ---- */

/* Their one parameter; the offsets of members are numbers in source[]. */
struct gemm_args {
    uint64_t x, w, y;                /* 0, 8, 16: addresses */
    int64_t n, ldx, ldy, accumulate; /* 24, 32, 40, 48 */
    /* k 56, k_unit 64, panel_bytes 72, unit_bytes 80, type 88, subs 96, head 104, sub 112,
     * bits 120, zero 128, min 136, scales 144, halves 152, book 160, wide 168 */
    struct accel_form form;
    uint64_t book[2]; /* 176: kern_books[form.book], a byte a code */
};
struct swiglu_args {
    uint64_t h, gate_up; /* 0, 8: addresses */
    int64_t n, ldh, ld;  /* 16, 24, 32 */
};
_Static_assert(sizeof(struct gemm_args) == 192 && sizeof(struct swiglu_args) == 40,
               "in source[]");
_Static_assert(KERN_F32 == 0 && KERN_F16 == 1 && KERN_BF16 == 2, "in source[]");

/* A thread computes one number: column n of row t. Sums are rounded as .rn says, so that nothing
 * but fma is fused. */
#define THREAD                                                                           \
    "mov.u32 r0, %ctaid.x; mov.u32 r1, %ntid.x; mov.u32 r2, %tid.x;\n"                   \
    "mad.lo.u32 r0, r0, r1, r2; cvt.u64.u32 n, r0;\n"                                    \
    "mov.u32 r1, %ctaid.y; cvt.u64.u32 t, r1;\n"

static const char source[] =
    ".version 6.0\n"
    ".target sm_50\n"
    ".address_size 64\n"
    ".visible .entry gemm(.param .align 8 .b8 a[192])\n"
    "{\n"
    ".reg .pred p, has_min, has_scales, two, wide, single;\n"
    ".reg .b16 h;\n"
    ".reg .b32 r0, r1, r2, low, shift, jj, lane;\n"
    ".reg .b64 n, t, c, x, y, unit, left, k_unit, rows, k, type, d0, d1, at;\n"
    ".reg .b64 subs, head, sub, bits, scales, b, s, si, j;\n"
    ".reg .f32 sum, xv, wv, d, dmin, mn, scale, f;\n" THREAD
    "ld.param.u64 d0, [a+24]; setp.ge.u64 p, n, d0;\n"
    "@p ret;\n"
    "and.b64 c, n, 15;\n"
    /* x + 4 t ldx, y + 4 (t ldy + n), w + n / 16 panel_bytes */
    "ld.param.u64 x, [a+0]; ld.param.u64 d0, [a+32];\n"
    "mul.lo.u64 d0, d0, t; shl.b64 d0, d0, 2; add.u64 x, x, d0;\n"
    "ld.param.u64 y, [a+16]; ld.param.u64 d0, [a+40];\n"
    "mul.lo.u64 d0, d0, t; add.u64 d0, d0, n; shl.b64 d0, d0, 2; add.u64 y, y, d0;\n"
    "ld.param.u64 unit, [a+8]; ld.param.u64 d0, [a+72]; shr.u64 d1, n, 4;\n"
    "mul.lo.u64 d0, d0, d1; add.u64 unit, unit, d0;\n"
    "mov.f32 sum, 0f00000000;\n"
    "ld.param.u64 d0, [a+48]; setp.ne.u64 p, d0, 0;\n"
    "@p ld.global.f32 sum, [y+0];\n"
    "ld.param.u64 left, [a+56]; ld.param.u64 k_unit, [a+64];\n"
    "ld.param.u64 type, [a+88];\n"
    "UNIT:\n"
    "setp.le.s64 p, left, 0;\n"
    "@p bra DONE;\n"
    "min.s64 rows, left, k_unit; mov.u64 k, 0;\n"
    "setp.ge.u64 p, type, 3;\n"
    "@p bra QUANTISED;\n"
    "PLAIN:\n"
    "setp.ge.s64 p, k, rows;\n"
    "@p bra NEXT;\n"
    "setp.eq.u64 p, type, 2;\n"
    "@p bra BF16;\n"
    "shl.b64 at, k, 4; add.u64 at, at, c;\n" /* 16 k + c */
    "setp.eq.u64 p, type, 1;\n"
    "@p bra F16;\n"
    "shl.b64 at, at, 2; add.u64 at, at, unit; ld.global.f32 wv, [at+0];\n"
    "bra ADD;\n"
    "F16:\n"
    "shl.b64 at, at, 1; add.u64 at, at, unit;\n"
    "ld.global.b16 h, [at+0]; cvt.f32.f16 wv, h;\n"
    "bra ADD;\n"
    "BF16:\n" /* 2 ((k / 2 16 + c) 2 + k % 2) */
    "shr.u64 at, k, 1; shl.b64 at, at, 4; add.u64 at, at, c; shl.b64 at, at, 1;\n"
    "and.b64 d0, k, 1; add.u64 at, at, d0; shl.b64 at, at, 1; add.u64 at, at, unit;\n"
    "ld.global.b16 h, [at+0]; cvt.u32.u16 r0, h; shl.b32 r0, r0, 16; mov.b32 wv, r0;\n"
    "ADD:\n"
    "ld.global.f32 xv, [x+0]; fma.rn.f32 sum, xv, wv, sum;\n"
    "add.u64 x, x, 4; add.u64 k, k, 1;\n"
    "bra PLAIN;\n"
    "QUANTISED:\n"
    "ld.param.u64 subs, [a+96]; setp.eq.u64 p, subs, 0;\n"
    "@p shr.u64 subs, rows, 5;\n"
    "ld.param.u64 head, [a+104]; ld.param.u64 sub, [a+112];\n"
    "ld.param.u64 bits, [a+120]; ld.param.u64 scales, [a+144];\n"
    "ld.param.u64 d0, [a+136]; setp.ne.u64 has_min, d0, 0;\n"
    "setp.ne.u64 has_scales, scales, 0;\n"
    "ld.param.u64 d0, [a+152]; setp.eq.u64 two, d0, 2;\n"
    "ld.param.u64 d0, [a+168]; setp.eq.u64 wide, d0, 1;\n"
    "setp.eq.u64 single, d0, 2;\n"
    "mov.u64 b, unit;\n"
    "BLOCK:\n"
    "setp.ge.s64 p, k, rows;\n"
    "@p bra NEXT;\n"
    "shl.b64 at, c, 1;\n"
    "@single shl.b64 at, c, 2;\n"
    "add.u64 at, at, b;\n"
    "ld.global.b16 h, [at+0]; cvt.f32.f16 d, h; mov.f32 dmin, 0f00000000;\n"
    "@single ld.global.f32 d, [at+0];\n"
    "cvt.u32.u16 r0, h; shl.b32 r0, r0, 16;\n"
    "@wide mov.b32 d, r0;\n" /* such a type has no min */
    "@!has_min bra HEAD;\n"
    "ld.global.b16 h, [at+32]; cvt.f32.f16 dmin, h;\n"
    "@single ld.global.f32 dmin, [at+64];\n"
    "HEAD:\n"
    "add.u64 s, b, head; mov.u64 si, 0;\n"
    "SUB:\n"
    "setp.ge.u64 p, si, subs;\n"
    "@p bra END_BLOCK;\n"
    "mov.u64 j, 0;\n"
    "ROW:\n"
    "setp.ge.u64 p, j, 32;\n"
    "@p bra END_SUB;\n"
    "mov.f32 scale, d; mov.f32 mn, dmin;\n"
    "@!has_scales bra CODE;\n"
    "add.u64 at, s, scales; add.u64 at, at, c; and.b64 d0, j, 16;\n"
    "@two add.u64 at, at, d0;\n"
    "ld.global.s8 r0, [at+0];\n"
    "@!has_min bra SCALE;\n"
    /* unsigned, and the mins are behind the scales of all halves */
    "ld.global.u8 r0, [at+0]; ld.param.u64 d0, [a+152]; shl.b64 d0, d0, 4;\n"
    "add.u64 at, at, d0; ld.global.u8 r1, [at+0];\n"
    "cvt.rn.f32.s32 f, r1; mul.rn.f32 mn, dmin, f;\n"
    "SCALE:\n"
    "cvt.rn.f32.s32 f, r0; mul.rn.f32 scale, d, f;\n"
    "CODE:\n" /* as kern_form_code(), with jj for its j */
    "cvt.u32.u64 r1, j; shr.u32 jj, r1, 2; and.b32 r1, r1, 3;\n"
    "cvt.u32.u64 lane, c; shl.b32 lane, lane, 2; add.u32 lane, lane, r1;\n"
    "setp.ge.u64 p, bits, 4;\n"
    "@!p bra BITS_2;\n"
    "mov.u32 shift, 0; mov.u32 r2, jj;\n"
    "setp.eq.u64 p, bits, 8;\n"
    "@p bra LOW;\n"
    "and.b32 r2, jj, 3; and.b32 shift, jj, 4;\n"
    "LOW:\n"
    "shl.b32 r2, r2, 6; add.u32 r2, r2, lane; cvt.u64.u32 at, r2; add.u64 at, at, s;\n"
    "ld.global.u8 low, [at+0];\n"
    "@p bra WEIGHT;\n"
    "shr.u32 low, low, shift; and.b32 low, low, 15;\n"
    "setp.eq.u64 p, bits, 5;\n"
    "@p bra BITS_5;\n"
    "setp.eq.u64 p, bits, 6;\n"
    "@p bra BITS_6;\n"
    /* byte `low` of the book, in which codes of 4 bits stand for others or for themselves */
    "ld.param.u64 d0, [a+176]; ld.param.u64 d1, [a+184];\n"
    "cvt.u64.u32 at, low; setp.ge.u64 p, at, 8;\n"
    "@p mov.u64 d0, d1;\n"
    "and.b32 r2, low, 7; shl.b32 r2, r2, 3; shr.u64 d0, d0, r2; and.b64 d0, d0, 255;\n"
    "cvt.u32.u64 low, d0;\n"
    "bra WEIGHT;\n"
    "BITS_2:\n"
    "shr.u32 r2, jj, 2; shl.b32 r2, r2, 6; add.u32 r2, r2, lane;\n"
    "cvt.u64.u32 at, r2; add.u64 at, at, s; ld.global.u8 low, [at+0];\n"
    "and.b32 r2, jj, 3; shl.b32 r2, r2, 1; shr.u32 low, low, r2; and.b32 low, low, 3;\n"
    "setp.eq.u64 p, bits, 2;\n"
    "@p bra WEIGHT;\n"
    "cvt.u64.u32 at, lane; add.u64 at, at, s; ld.global.u8 r0, [at+128];\n"
    "shr.u32 r0, r0, jj; and.b32 r0, r0, 1; shl.b32 r0, r0, 2; or.b32 low, low, r0;\n"
    "bra WEIGHT;\n"
    "BITS_5:\n"
    "cvt.u64.u32 at, lane; add.u64 at, at, s; ld.global.u8 r0, [at+256];\n"
    "shr.u32 r0, r0, jj; and.b32 r0, r0, 1; shl.b32 r0, r0, 4; or.b32 low, low, r0;\n"
    "bra WEIGHT;\n"
    "BITS_6:\n"
    "and.b32 r2, jj, 4; shl.b32 r2, r2, 4; add.u32 r2, r2, lane;\n"
    "cvt.u64.u32 at, r2; add.u64 at, at, s; ld.global.u8 r0, [at+256];\n"
    "and.b32 r2, jj, 3; shl.b32 r2, r2, 1; shr.u32 r0, r0, r2;\n"
    "and.b32 r0, r0, 3; shl.b32 r0, r0, 4; or.b32 low, low, r0;\n"
    "WEIGHT:\n"
    "ld.param.u64 d0, [a+128]; cvt.u32.u64 r0, d0; sub.u32 low, low, r0;\n"
    "cvt.rn.f32.s32 f, low; mul.rn.f32 wv, scale, f; sub.rn.f32 wv, wv, mn;\n"
    "ld.global.f32 xv, [x+0]; fma.rn.f32 sum, xv, wv, sum;\n"
    "add.u64 x, x, 4; add.u64 j, j, 1;\n"
    "bra ROW;\n"
    "END_SUB:\n"
    "add.u64 s, s, sub; add.u64 si, si, 1; add.u64 k, k, 32;\n"
    "bra SUB;\n"
    "END_BLOCK:\n"
    "mov.u64 b, s;\n"
    "bra BLOCK;\n"
    "NEXT:\n"
    "sub.u64 left, left, k_unit;\n"
    "ld.param.u64 d0, [a+80]; add.u64 unit, unit, d0;\n"
    "bra UNIT;\n"
    "DONE:\n"
    "st.global.f32 [y+0], sum;\n"
    "ret;\n"
    "}\n"
    ".visible .entry swiglu(.param .align 8 .b8 a[40])\n"
    "{\n"
    ".reg .pred p;\n"
    ".reg .b32 r0, r1, r2;\n"
    ".reg .b64 n, t, d0, d1, h, g;\n"
    ".reg .f32 gate, up, e;\n" THREAD "ld.param.u64 d0, [a+16]; setp.ge.u64 p, n, d0;\n"
    "@p ret;\n"
    /* h + 4 (t ldh + n); gate_up + 4 (t ld + n / 16 32 + n % 16) */
    "ld.param.u64 h, [a+0]; ld.param.u64 d0, [a+24];\n"
    "mul.lo.u64 d0, d0, t; add.u64 d0, d0, n; shl.b64 d0, d0, 2; add.u64 h, h, d0;\n"
    "ld.param.u64 g, [a+8]; ld.param.u64 d0, [a+32]; mul.lo.u64 d0, d0, t;\n"
    "shr.u64 d1, n, 4; shl.b64 d1, d1, 5; add.u64 d0, d0, d1;\n"
    "and.b64 d1, n, 15; add.u64 d0, d0, d1; shl.b64 d0, d0, 2; add.u64 g, g, d0;\n"
    "ld.global.f32 gate, [g+0]; ld.global.f32 up, [g+64];\n"
    /* gate / (1 + 2^(-gate log2(e))) up */
    "mul.rn.f32 e, gate, 0fBFB8AA3B; ex2.approx.f32 e, e; add.rn.f32 e, e, 0f3F800000;\n"
    "div.rn.f32 e, gate, e; mul.rn.f32 e, e, up;\n"
    "st.global.f32 [h+0], e;\n"
    "ret;\n"
    "}\n";

/* ---- the device ---- */

struct buffer {
    uint64_t at;
    size_t bytes;
};

struct cuda {
    struct accel accel; /* first */
    struct functions f;
    cuda_object context, gemm, swiglu;
    cuda_object streams[ACCEL_N_STREAMS];
    struct buffer *buffers;
    cuda_object *events; /* those since first_event */
    int n_buffers, max_buffers, n_events, max_events, first_event;
    int failed; /* the first error of a call that returns none */
    uint64_t zero_ns;
};

static struct cuda *cuda_of(struct accel *a)
{
    return (struct cuda *)a;
}

static int check(int rc, const char *what)
{
    return rc == 0
               ? OK
               : err_set(rc == CUDA_OUT_OF_MEMORY ? ERR_NOMEM : ERR_STATE,
                         "CUDA: %s: error %d%s", what, rc,
                         rc == CUDA_OUT_OF_MEMORY ? ", the device has too little memory"
                                                  : "");
}
#define CALL(c, name, ...) TRY(check((c)->f.name(__VA_ARGS__), #name))

/* The steps of a phase come from another thread than the one that opened it. */
static int enter(const struct cuda *c)
{
    CALL(c, cuCtxSetCurrent, c->context);
    return OK;
}

static int load(struct functions *f)
{
    void *h = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL); /* stays: its threads may run */

    if (!h)
        return err_set(ERR_UNSUPPORTED, "accelerator cuda: " LIBRARY
                                        " is not here: expected NVIDIA's driver");
#define LOAD(name, parameters)                                                           \
    *(void **)&f->name = dlsym(h, #name);                                                \
    if (!f->name)                                                                        \
        return err_set(ERR_UNSUPPORTED, "accelerator cuda: " LIBRARY " has no " #name);
    FUNCTIONS(LOAD)
#undef LOAD
    return OK;
}

static void drop_events(struct cuda *c)
{
    for (int i = 0; i < c->n_events; i++)
        (void)c->f.cuEventDestroy_v2(c->events[i]);
    c->first_event += c->n_events;
    c->n_events = 0;
}

/* The context takes streams, memory and kernels with it. */
static void cuda_close(struct accel **a)
{
    struct cuda *c = *a ? cuda_of(*a) : NULL;

    if (!c)
        return;
    if (c->context) {
        (void)c->f.cuCtxSetCurrent(c->context);
        (void)c->f.cuCtxSynchronize();
        drop_events(c);
        (void)c->f.cuCtxDestroy_v2(c->context);
    }
    mem_free(c->buffers);
    mem_free(c->events);
    mem_free(c);
    *a = NULL;
}

static int open_all(struct cuda *c)
{
    cuda_object module = NULL;
    int device, rc;

    TRY(load(&c->f));
    rc = c->f.cuInit(0);
    if (rc == 0)
        rc = c->f.cuDeviceGet(&device, 0);
    if (rc != 0)
        return err_set(ERR_UNSUPPORTED,
                       "accelerator cuda: no GPU: error %d of the driver", rc);
    CALL(c, cuCtxCreate_v2, &c->context, 0, device);
    CALL(c, cuModuleLoadData, &module, source);
    CALL(c, cuModuleGetFunction, &c->gemm, module, "gemm");
    CALL(c, cuModuleGetFunction, &c->swiglu, module, "swiglu");
    for (int i = 0; i < ACCEL_N_STREAMS; i++)
        CALL(c, cuStreamCreate, &c->streams[i], CUDA_STREAM_NON_BLOCKING);
    return OK;
}

static int cuda_open(struct accel **out, const struct accel_opts *opts)
{
    struct cuda *c = mem_new(MEM_OTHER, 1, sizeof(*c));
    int rc;

    (void)opts; /* its times are its own */
    *out = NULL;
    if (!c)
        return ERR_NOMEM;
    *out = &c->accel;
    rc = open_all(c);
    c->zero_ns = clock_ns();
    if (rc != OK)
        cuda_close(out);
    return rc;
}

/* ---- memory ---- */

static int cuda_alloc(struct accel *a, size_t bytes, int *buffer)
{
    struct cuda *c = cuda_of(a);
    struct buffer b = {0, bytes};
    size_t n = bytes > 0 ? bytes : 1; /* there are none of 0 */

    TRY(enter(c));
    TRY(accel_grow(&c->buffers, c->n_buffers, &c->max_buffers, sizeof(b)));
    CALL(c, cuMemAlloc_v2, &b.at, n);
    *buffer = c->n_buffers;
    c->buffers[c->n_buffers++] = b;
    CALL(c, cuMemsetD8_v2, b.at, 0, n);
    CALL(c, cuCtxSynchronize, ); /* streams do not wait for it */
    return OK;
}

/* The address, with `bytes` from there on in the buffer. */
static int address_of(const struct cuda *c, struct accel_at at, size_t bytes,
                      uint64_t *out)
{
    if (at.buffer < 0 || at.buffer >= c->n_buffers ||
        at.offset > c->buffers[at.buffer].bytes ||
        bytes > c->buffers[at.buffer].bytes - at.offset)
        return err_set(ERR_ARG, "bytes %zu to %zu of buffer %d", at.offset,
                       at.offset + bytes, at.buffer);
    *out = c->buffers[at.buffer].at + at.offset;
    return enter(c);
}

static int cuda_copy(struct accel *a, struct accel_at to, const void *from, size_t bytes)
{
    struct cuda *c = cuda_of(a);
    uint64_t at = 0;

    TRY(address_of(c, to, bytes, &at));
    if (bytes > 0)
        CALL(c, cuMemcpyHtoDAsync_v2, at, from, bytes, c->streams[ACCEL_COPY]);
    return OK;
}

static int cuda_fetch(struct accel *a, void *to, struct accel_at from, size_t bytes)
{
    struct cuda *c = cuda_of(a);
    uint64_t at = 0;

    TRY(address_of(c, from, bytes, &at));
    if (bytes > 0)
        CALL(c, cuMemcpyDtoHAsync_v2, to, at, bytes, c->streams[ACCEL_COPY]);
    return OK;
}

/* ---- what it computes ---- */

/* Its calls are its launches. */
static void cuda_launch(struct accel *a, int n)
{
    (void)a, (void)n;
}

static int run(const struct cuda *c, cuda_object kernel, int64_t n, int64_t n_tok,
               void *args)
{
    if (n > 0 && n_tok > 0)
        CALL(c, cuLaunchKernel, kernel, (unsigned)((n + BLOCK - 1) / BLOCK),
             (unsigned)n_tok, 1, BLOCK, 1, 1, 0, c->streams[ACCEL_COMPUTE], &args, NULL);
    return OK;
}

static int cuda_gemm(struct accel *a, const struct accel_gemm *g)
{
    struct cuda *c = cuda_of(a);
    const struct kern_mat *w = &g->layout;
    struct gemm_args args = {.n = w->n_panels * KERN_PANEL,
                             .ldx = g->ldx,
                             .ldy = g->ldy,
                             .accumulate = g->accumulate,
                             .form = accel_form_of(w)};

    memcpy(args.book, kern_books[args.form.book], sizeof(args.book));
    if (g->n_tok == 0)
        return OK;
    TRY(address_of(c, g->x, accel_rows_bytes(g->n_tok, g->ldx, w->k), &args.x));
    TRY(address_of(c, g->w, w->bytes, &args.w));
    TRY(address_of(c, g->y, accel_rows_bytes(g->n_tok, g->ldy, args.n), &args.y));
    return run(c, c->gemm, args.n, g->n_tok, &args);
}

static int cuda_swiglu(struct accel *a, const struct accel_swiglu *s)
{
    struct cuda *c = cuda_of(a);
    struct swiglu_args args = {.n = s->n_pairs * KERN_PANEL, .ldh = s->ldh, .ld = s->ld};

    if (s->n_tok == 0)
        return OK;
    TRY(address_of(c, s->h, accel_rows_bytes(s->n_tok, s->ldh, args.n), &args.h));
    TRY(address_of(c, s->gate_up, accel_rows_bytes(s->n_tok, s->ld, 2 * args.n),
                   &args.gate_up));
    return run(c, c->swiglu, args.n, s->n_tok, &args);
}

/* ---- events ---- */

static void note_failure(struct cuda *c, int rc)
{
    c->failed = c->failed ? c->failed : rc;
}

/* -1, which no stream waits for, after an error; finish() says which. */
static int cuda_record(struct accel *a, enum accel_stream stream)
{
    struct cuda *c = cuda_of(a);
    int rc = c->f.cuCtxSetCurrent(c->context);

    if (accel_grow(&c->events, c->n_events, &c->max_events, sizeof(c->events[0])) != OK)
        rc = CUDA_OUT_OF_MEMORY;
    if (rc == 0)
        rc = c->f.cuEventCreate(&c->events[c->n_events], CUDA_EVENT_DISABLE_TIMING);
    if (rc != 0) {
        note_failure(c, rc);
        return -1;
    }
    rc = c->f.cuEventRecord(c->events[c->n_events], c->streams[stream]);
    if (rc != 0)
        note_failure(c, rc);
    return c->first_event + c->n_events++;
}

static void cuda_wait(struct accel *a, enum accel_stream stream, int event)
{
    struct cuda *c = cuda_of(a);
    int at = event - c->first_event, rc;

    if (at < 0 || at >= c->n_events)
        return;
    rc = c->f.cuCtxSetCurrent(c->context);
    if (rc == 0)
        rc = c->f.cuStreamWaitEvent(c->streams[stream], c->events[at], 0);
    if (rc != 0)
        note_failure(c, rc);
}

static int cuda_finish(struct accel *a, double *seconds)
{
    struct cuda *c = cuda_of(a);

    TRY(enter(c));
    for (int i = 0; i < ACCEL_N_STREAMS; i++)
        CALL(c, cuStreamSynchronize, c->streams[i]);
    drop_events(c);
    *seconds = 1e-9 * (double)(clock_ns() - c->zero_ns);
    return check(c->failed, "an event");
}

const struct accel_kind accel_kind_cuda = {
    .name = "cuda",
    .help = "the first GPU of " LIBRARY "; simple kernels",
    .real_time = true,
    .open = cuda_open,
    .close = cuda_close,
    .alloc = cuda_alloc,
    .launch = cuda_launch,
    .copy = cuda_copy,
    .fetch = cuda_fetch,
    .gemm = cuda_gemm,
    .swiglu = cuda_swiglu,
    .record = cuda_record,
    .wait = cuda_wait,
    .finish = cuda_finish,
};
