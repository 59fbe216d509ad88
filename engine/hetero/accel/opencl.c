/* An accelerator behind OpenCL 1.2: the first GPU or accelerator of any platform, or else the first
 * CPU, which PoCL makes of the host. The library is loaded when it is asked for; its few types and
 * functions are declared here, so that nothing of it is needed to build.
 *
 * Two in-order queues are the streams, markers their events. Kernels read the panels that the CPU
 * reads, of every type. A product's sums are chains of fused multiply-adds along K, in that order,
 * as those of kern_variant.batch_invariant, whose bits they have. They are simple, not fast: with
 * them correctness is shown, and on PoCL, which computes on the CPU's own cores, times are those
 * of no accelerator.   Paper: ScheInfer III-C. */
#include <dlfcn.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "hetero/accel.h"
#include "kernels/panel.h"

#define LIBRARY "libOpenCL.so.1"

/* ---- OpenCL 1.2, as far as it is used here ---- */

typedef struct cl_object *cl_object; /* platforms, devices, contexts, queues, ... */
enum {
    CL_DEVICE_TYPE_CPU = 2,
    CL_DEVICE_TYPE_ANY_ACCELERATOR = 4 | 8, /* GPU, accelerator */
    CL_DEVICE_NAME = 0x102B,
    CL_PROGRAM_BUILD_LOG = 0x1183,
    CL_MEM_READ_WRITE = 1
};
#define MAX_PLATFORMS 8

#define FUNCTIONS(F)                                                                     \
    F(int32_t, clGetPlatformIDs, (uint32_t, cl_object *, uint32_t *))                    \
    F(int32_t, clGetDeviceIDs, (cl_object, uint64_t, uint32_t, cl_object *, uint32_t *)) \
    F(cl_object, clCreateContext,                                                        \
      (const intptr_t *, uint32_t, const cl_object *, void *, void *, int32_t *))        \
    F(int32_t, clReleaseContext, (cl_object))                                            \
    F(cl_object, clCreateCommandQueue, (cl_object, cl_object, uint64_t, int32_t *))      \
    F(int32_t, clReleaseCommandQueue, (cl_object))                                       \
    F(cl_object, clCreateBuffer, (cl_object, uint64_t, size_t, void *, int32_t *))       \
    F(int32_t, clReleaseMemObject, (cl_object))                                          \
    F(cl_object, clCreateProgramWithSource,                                              \
      (cl_object, uint32_t, const char **, const size_t *, int32_t *))                   \
    F(int32_t, clBuildProgram,                                                           \
      (cl_object, uint32_t, const cl_object *, const char *, void *, void *))            \
    F(int32_t, clGetProgramBuildInfo,                                                    \
      (cl_object, cl_object, uint32_t, size_t, void *, size_t *))                        \
    F(int32_t, clReleaseProgram, (cl_object))                                            \
    F(cl_object, clCreateKernel, (cl_object, const char *, int32_t *))                   \
    F(int32_t, clReleaseKernel, (cl_object))                                             \
    F(int32_t, clSetKernelArg, (cl_object, uint32_t, size_t, const void *))              \
    F(int32_t, clEnqueueNDRangeKernel,                                                   \
      (cl_object, cl_object, uint32_t, const size_t *, const size_t *, const size_t *,   \
       uint32_t, const cl_object *, cl_object *))                                        \
    F(int32_t, clEnqueueWriteBuffer,                                                     \
      (cl_object, cl_object, uint32_t, size_t, size_t, const void *, uint32_t,           \
       const cl_object *, cl_object *))                                                  \
    F(int32_t, clEnqueueReadBuffer,                                                      \
      (cl_object, cl_object, uint32_t, size_t, size_t, void *, uint32_t,                 \
       const cl_object *, cl_object *))                                                  \
    F(int32_t, clEnqueueFillBuffer,                                                      \
      (cl_object, cl_object, const void *, size_t, size_t, size_t, uint32_t,             \
       const cl_object *, cl_object *))                                                  \
    F(int32_t, clEnqueueMarkerWithWaitList,                                              \
      (cl_object, uint32_t, const cl_object *, cl_object *))                             \
    F(int32_t, clEnqueueBarrierWithWaitList,                                             \
      (cl_object, uint32_t, const cl_object *, cl_object *))                             \
    F(int32_t, clReleaseEvent, (cl_object))                                              \
    F(int32_t, clFlush, (cl_object))                                                     \
    F(int32_t, clFinish, (cl_object))

struct functions {
#define MEMBER(result, name, parameters) result(*name) parameters;
    FUNCTIONS(MEMBER)
#undef MEMBER
};

/* ---- kernels ---- */

/* Their arguments besides buffers; the kernels' source has the same members. */
struct gemm_args {
    int64_t x, w, y; /* offsets in bytes */
    int64_t ldx, ldy, accumulate;
    struct accel_form form;
};
struct swiglu_args {
    int64_t h, gate_up, ldh, ld;
};

_Static_assert(KERN_F32 == 0 && KERN_F16 == 1 && KERN_BF16 == 2, "in source[]");

static const char source[] =
    "#pragma OPENCL FP_CONTRACT OFF\n"
    "struct gemm_args {\n"
    "    long x, w, y, ldx, ldy, accumulate, k, k_unit, panel_bytes, unit_bytes,\n"
    "        type, subs, head, sub, bits, zero, min, scales, halves, book, wide;\n"
    "};\n"
    "struct swiglu_args { long h, gate_up, ldh, ld; };\n"
    "typedef __global const uchar *bytes;\n"
    "float half_at(bytes p) { return vload_half(0, (__global const half *)p); }\n"
    "float head(const struct gemm_args *a, bytes b, int i) {\n"
    "    if (a->wide == 2) return ((__global const float *)b)[i];\n"
    "    if (a->wide)\n"
    "        return as_float((uint)((__global const ushort *)b)[i] << 16);\n"
    "    return half_at(b + 2 * i);\n"
    "}\n"
    "float plain(int type, bytes panel, long k, int c) {\n"
    "    if (type == 0) return ((__global const float *)panel)[16 * k + c];\n"
    "    if (type == 1) return vload_half(16 * k + c, (__global const half *)panel);\n"
    "    return as_float(\n"
    "        (uint)((__global const ushort *)panel)[(k / 2 * 16 + c) * 2 + k % 2] << "
    "16);\n"
    "}\n"
    "__constant int books[3][16] = {\n"
    "    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},\n"
    "    {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241},\n"
    "    {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0}};\n"
    /* The same as kern_books[], kern_form_code() and kern_form_weight(). */
    "int code(const struct gemm_args *a, bytes s, int k, int c) {\n"
    "    int j = k / 4, lane = 4 * c + k % 4, low;\n"
    "    if (a->bits == 8) return s[64 * j + lane];\n"
    "    if (a->bits < 4) {\n"
    "        low = s[64 * (j / 4) + lane] >> (2 * (j % 4)) & 3;\n"
    "        return a->bits == 2 ? low : low | (s[128 + lane] >> j & 1) << 2;\n"
    "    }\n"
    "    low = s[64 * (j % 4) + lane] >> (j / 4 * 4) & 15;\n"
    "    if (a->bits == 5) return low | (s[256 + lane] >> j & 1) << 4;\n"
    "    if (a->bits == 6)\n"
    "        return low | (s[256 + 64 * (j / 4) + lane] >> (2 * (j % 4)) & 3) << 4;\n"
    "    return books[a->book][low];\n"
    "}\n"
    "float quantised(const struct gemm_args *a, bytes b, bytes s, int k, int c) {\n"
    "    float scale = head(a, b, c), min = a->min ? head(a, b, 16 + c) : 0;\n"
    "    int part = a->halves == 2 ? k / 16 : 0;\n"
    "    uchar by = a->scales ? s[a->scales + 16 * part + c] : 1;\n"
    "    if (a->scales) scale *= a->min ? (float)by : (float)(char)by;\n"
    "    if (a->scales && a->min) min *= s[a->scales + 16 * (a->halves + part) + c];\n"
    "    return scale * (float)(code(a, s, k, c) - (int)a->zero) - min;\n"
    "}\n"
    "__kernel void gemm(__global const uchar *xs, __global const uchar *ws,\n"
    "                   __global uchar *ys, const struct gemm_args in) {\n"
    "    struct gemm_args a = in;\n"
    "    long n = get_global_id(0), t = get_global_id(1), c = n % 16;\n"
    "    __global const float *x = (__global const float *)(xs + a.x) + t * a.ldx;\n"
    "    __global float *y = (__global float *)(ys + a.y) + t * a.ldy + n;\n"
    "    bytes unit = ws + a.w + n / 16 * a.panel_bytes;\n"
    "    float sum = a.accumulate ? *y : 0;\n"
    "    for (long left = a.k; left > 0; left -= a.k_unit, unit += a.unit_bytes) {\n"
    "        long rows = left < a.k_unit ? left : a.k_unit;\n"
    "        long subs = a.subs ? a.subs : rows / 32;\n"
    "        if (a.type < 3) {\n"
    "            for (long k = 0; k < rows; k++, x++)\n"
    "                sum = fma(*x, plain(a.type, unit, k, c), sum);\n"
    "            continue;\n"
    "        }\n"
    "        for (long k = 0; k < rows; k++, x++) {\n"
    "            bytes b = unit + k / (32 * subs) * (a.head + subs * a.sub);\n"
    "            bytes s = b + a.head + k / 32 % subs * a.sub;\n"
    "            sum = fma(*x, quantised(&a, b, s, k % 32, c), sum);\n"
    "        }\n"
    "    }\n"
    "    *y = sum;\n"
    "}\n"
    "__kernel void swiglu(__global uchar *hs, __global const uchar *gs,\n"
    "                     const struct swiglu_args a) {\n"
    "    long n = get_global_id(0), t = get_global_id(1);\n"
    "    __global const float *g = (__global const float *)(gs + a.gate_up) + t * a.ld "
    "+\n"
    "                              n / 16 * 32 + n % 16;\n"
    "    ((__global float *)(hs + a.h))[t * a.ldh + n] =\n"
    "        g[0] / (1 + exp(-g[0])) * g[16];\n"
    "}\n";

/* ---- the device ---- */

struct buffer {
    cl_object object;
    size_t bytes;
};

struct opencl {
    struct accel accel; /* first */
    struct functions f;
    cl_object device, context, program, gemm, swiglu;
    cl_object queues[ACCEL_N_STREAMS];
    struct buffer *buffers;
    cl_object *events; /* those since first_event */
    int n_buffers, max_buffers, n_events, max_events, first_event;
    int32_t failed; /* the first error of a call that returns none */
    uint64_t zero_ns;
};

static struct opencl *opencl_of(struct accel *a)
{
    return (struct opencl *)a;
}

/* The numbers of cl.h that a user may meet. */
static int check(int32_t rc, const char *what)
{
    if (rc == 0)
        return OK;
    return err_set(rc == -4 || rc == -5 || rc == -6 || rc == -61 ? ERR_NOMEM : ERR_STATE,
                   "OpenCL: %s: error %d%s", what, (int)rc,
                   rc == -4 || rc == -61 ? ", the device has too little memory" : "");
}

static int load(struct functions *f)
{
    void *h = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL); /* stays: its threads may run */

    if (!h)
        return err_set(
            ERR_UNSUPPORTED,
            "accelerator opencl: " LIBRARY " is not here; Debian's packages "
            "ocl-icd-libopencl1 and pocl-opencl-icd have it with a device that "
            "is the CPU");
#define LOAD(result, name, parameters)                                                   \
    *(void **)&f->name = dlsym(h, #name);                                                \
    if (!f->name)                                                                        \
        return err_set(ERR_UNSUPPORTED, "accelerator opencl: " LIBRARY " has no " #name  \
                                        ": expected OpenCL 1.2");
    FUNCTIONS(LOAD)
#undef LOAD
    return OK;
}

static int find_device(struct opencl *o)
{
    static const uint64_t types[] = {CL_DEVICE_TYPE_ANY_ACCELERATOR, CL_DEVICE_TYPE_CPU};
    cl_object platforms[MAX_PLATFORMS];
    uint32_t n = 0, n_devices;

    if (o->f.clGetPlatformIDs(MAX_PLATFORMS, platforms, &n) != 0)
        n = 0;
    n = n < MAX_PLATFORMS ? n : MAX_PLATFORMS;
    for (int t = 0; t < 2; t++)
        for (uint32_t i = 0; i < n; i++)
            if (o->f.clGetDeviceIDs(platforms[i], types[t], 1, &o->device, &n_devices) ==
                0)
                return OK;
    return err_set(ERR_UNSUPPORTED,
                   "accelerator opencl: %u OpenCL platforms and no device here; Debian's "
                   "package pocl-opencl-icd makes one of the CPU",
                   (unsigned)n);
}

static int build(struct opencl *o)
{
    const char *text = source;
    char log[200] = "";
    int32_t rc;

    o->program = o->f.clCreateProgramWithSource(o->context, 1, &text, NULL, &rc);
    TRY(check(rc, "clCreateProgramWithSource"));
    if (o->f.clBuildProgram(o->program, 1, &o->device, "-cl-std=CL1.2", NULL, NULL) !=
        0) {
        (void)o->f.clGetProgramBuildInfo(o->program, o->device, CL_PROGRAM_BUILD_LOG,
                                         sizeof(log) - 1, log, NULL);
        log[strcspn(log, "\n")] = 0;
        return err_set(ERR_UNSUPPORTED, "OpenCL: the kernels cannot be built: %s", log);
    }
    o->gemm = o->f.clCreateKernel(o->program, "gemm", &rc);
    TRY(check(rc, "clCreateKernel"));
    o->swiglu = o->f.clCreateKernel(o->program, "swiglu", &rc);
    return check(rc, "clCreateKernel");
}

static void drop_events(struct opencl *o)
{
    for (int i = 0; i < o->n_events; i++)
        (void)o->f.clReleaseEvent(o->events[i]);
    o->first_event += o->n_events;
    o->n_events = 0;
}

static void opencl_close(struct accel **a)
{
    struct opencl *o = *a ? opencl_of(*a) : NULL;

    if (!o)
        return;
    for (int i = 0; i < ACCEL_N_STREAMS; i++)
        if (o->queues[i])
            (void)o->f.clFinish(o->queues[i]);
    drop_events(o);
    for (int i = 0; i < o->n_buffers; i++)
        (void)o->f.clReleaseMemObject(o->buffers[i].object);
    if (o->gemm)
        (void)o->f.clReleaseKernel(o->gemm);
    if (o->swiglu)
        (void)o->f.clReleaseKernel(o->swiglu);
    if (o->program)
        (void)o->f.clReleaseProgram(o->program);
    for (int i = 0; i < ACCEL_N_STREAMS; i++)
        if (o->queues[i])
            (void)o->f.clReleaseCommandQueue(o->queues[i]);
    if (o->context)
        (void)o->f.clReleaseContext(o->context);
    mem_free(o->buffers);
    mem_free(o->events);
    mem_free(o);
    *a = NULL;
}

static int open_all(struct opencl *o)
{
    int32_t rc;

    TRY(load(&o->f));
    TRY(find_device(o));
    o->context = o->f.clCreateContext(NULL, 1, &o->device, NULL, NULL, &rc);
    TRY(check(rc, "clCreateContext"));
    for (int i = 0; i < ACCEL_N_STREAMS; i++) {
        o->queues[i] = o->f.clCreateCommandQueue(o->context, o->device, 0, &rc);
        TRY(check(rc, "clCreateCommandQueue"));
    }
    return build(o);
}

static int opencl_open(struct accel **out, const struct accel_opts *opts)
{
    struct opencl *o = mem_new(MEM_OTHER, 1, sizeof(*o));
    int rc;

    (void)opts; /* its times are its own */
    *out = NULL;
    if (!o)
        return ERR_NOMEM;
    *out = &o->accel;
    rc = open_all(o);
    o->zero_ns = clock_ns();
    if (rc != OK)
        opencl_close(out);
    return rc;
}

/* ---- memory ---- */

static int opencl_alloc(struct accel *a, size_t bytes, int *buffer)
{
    static const uint8_t zero;
    struct opencl *o = opencl_of(a);
    size_t n = bytes > 0 ? bytes : 1; /* there are none of 0 */
    cl_object b = NULL;
    int32_t rc;

    TRY(accel_grow(&o->buffers, o->n_buffers, &o->max_buffers, sizeof(*o->buffers)));
    b = o->f.clCreateBuffer(o->context, CL_MEM_READ_WRITE, n, NULL, &rc);
    TRY(check(rc, "clCreateBuffer"));
    o->buffers[o->n_buffers] = (struct buffer){b, bytes};
    *buffer = o->n_buffers++;
    TRY(check(
        o->f.clEnqueueFillBuffer(o->queues[ACCEL_COPY], b, &zero, 1, 0, n, 0, NULL, NULL),
        "clEnqueueFillBuffer"));
    return check(o->f.clFinish(o->queues[ACCEL_COPY]), "clFinish");
}

/* The buffer, with `bytes` from there on. */
static int buffer_of(const struct opencl *o, struct accel_at at, size_t bytes,
                     cl_object *out)
{
    if (at.buffer < 0 || at.buffer >= o->n_buffers ||
        at.offset > o->buffers[at.buffer].bytes ||
        bytes > o->buffers[at.buffer].bytes - at.offset)
        return err_set(ERR_ARG, "bytes %zu to %zu of buffer %d", at.offset,
                       at.offset + bytes, at.buffer);
    *out = o->buffers[at.buffer].object;
    return OK;
}

static int opencl_copy(struct accel *a, struct accel_at to, const void *from,
                       size_t bytes)
{
    struct opencl *o = opencl_of(a);
    cl_object b = NULL;

    TRY(buffer_of(o, to, bytes, &b));
    if (bytes == 0)
        return OK;
    return check(o->f.clEnqueueWriteBuffer(o->queues[ACCEL_COPY], b, 0, to.offset, bytes,
                                           from, 0, NULL, NULL),
                 "clEnqueueWriteBuffer");
}

static int opencl_fetch(struct accel *a, void *to, struct accel_at from, size_t bytes)
{
    struct opencl *o = opencl_of(a);
    cl_object b = NULL;

    TRY(buffer_of(o, from, bytes, &b));
    if (bytes == 0)
        return OK;
    return check(o->f.clEnqueueReadBuffer(o->queues[ACCEL_COPY], b, 0, from.offset, bytes,
                                          to, 0, NULL, NULL),
                 "clEnqueueReadBuffer");
}

/* ---- what it computes ---- */

/* Its calls are its launches. */
static void opencl_launch(struct accel *a, int n)
{
    (void)a, (void)n;
}

static int set_arg(const struct opencl *o, cl_object kernel, uint32_t i, size_t bytes,
                   const void *arg)
{
    return check(o->f.clSetKernelArg(kernel, i, bytes, arg), "clSetKernelArg");
}

/* One work item for each number of the result, those of a panel's row together: kernels of one size
 * are compiled once. */
static int enqueue(struct opencl *o, cl_object kernel, int64_t n, int64_t n_tok)
{
    const size_t size[2] = {(size_t)n, (size_t)n_tok}, local[2] = {KERN_PANEL, 1};

    if (n == 0 || n_tok == 0)
        return OK;
    return check(o->f.clEnqueueNDRangeKernel(o->queues[ACCEL_COMPUTE], kernel, 2, NULL,
                                             size, local, 0, NULL, NULL),
                 "clEnqueueNDRangeKernel");
}

static int opencl_gemm(struct accel *a, const struct accel_gemm *g)
{
    struct opencl *o = opencl_of(a);
    const struct kern_mat *w = &g->layout;
    int64_t n = w->n_panels * KERN_PANEL;
    const struct gemm_args args = {.x = (int64_t)g->x.offset,
                                   .w = (int64_t)g->w.offset,
                                   .y = (int64_t)g->y.offset,
                                   .ldx = g->ldx,
                                   .ldy = g->ldy,
                                   .accumulate = g->accumulate,
                                   .form = accel_form_of(w)};
    cl_object x = NULL, b = NULL, y = NULL;

    if (g->n_tok == 0)
        return OK;
    TRY(buffer_of(o, g->x, accel_rows_bytes(g->n_tok, g->ldx, w->k), &x));
    TRY(buffer_of(o, g->w, w->bytes, &b));
    TRY(buffer_of(o, g->y, accel_rows_bytes(g->n_tok, g->ldy, n), &y));
    TRY(set_arg(o, o->gemm, 0, sizeof(x), &x));
    TRY(set_arg(o, o->gemm, 1, sizeof(b), &b));
    TRY(set_arg(o, o->gemm, 2, sizeof(y), &y));
    TRY(set_arg(o, o->gemm, 3, sizeof(args), &args));
    return enqueue(o, o->gemm, n, g->n_tok);
}

static int opencl_swiglu(struct accel *a, const struct accel_swiglu *s)
{
    struct opencl *o = opencl_of(a);
    int64_t n = s->n_pairs * KERN_PANEL;
    const struct swiglu_args args = {.h = (int64_t)s->h.offset,
                                     .gate_up = (int64_t)s->gate_up.offset,
                                     .ldh = s->ldh,
                                     .ld = s->ld};
    cl_object h = NULL, gate_up = NULL;

    if (s->n_tok == 0)
        return OK;
    TRY(buffer_of(o, s->h, accel_rows_bytes(s->n_tok, s->ldh, n), &h));
    TRY(buffer_of(o, s->gate_up, accel_rows_bytes(s->n_tok, s->ld, 2 * n), &gate_up));
    TRY(set_arg(o, o->swiglu, 0, sizeof(h), &h));
    TRY(set_arg(o, o->swiglu, 1, sizeof(gate_up), &gate_up));
    TRY(set_arg(o, o->swiglu, 2, sizeof(args), &args));
    return enqueue(o, o->swiglu, n, s->n_tok);
}

/* ---- events ---- */

/* -1, which no stream waits for, after an error; finish() says which. */
static int opencl_record(struct accel *a, enum accel_stream stream)
{
    struct opencl *o = opencl_of(a);
    int32_t rc = -6; /* no memory */

    if (accel_grow(&o->events, o->n_events, &o->max_events, sizeof(o->events[0])) == OK)
        rc = o->f.clEnqueueMarkerWithWaitList(o->queues[stream], 0, NULL,
                                              &o->events[o->n_events]);
    if (rc == 0)
        rc = o->f.clFlush(o->queues[stream]); /* the other queue will wait for it */
    if (rc != 0) {
        o->failed = o->failed ? o->failed : rc;
        return -1;
    }
    return o->first_event + o->n_events++;
}

static void opencl_wait(struct accel *a, enum accel_stream stream, int event)
{
    struct opencl *o = opencl_of(a);
    int at = event - o->first_event;
    int32_t rc;

    if (at < 0 || at >= o->n_events)
        return;
    rc = o->f.clEnqueueBarrierWithWaitList(o->queues[stream], 1, &o->events[at], NULL);
    if (rc != 0 && o->failed == 0)
        o->failed = rc;
}

static int opencl_finish(struct accel *a, double *seconds)
{
    struct opencl *o = opencl_of(a);

    /* Each may wait for the other: both have to be on their way. */
    for (int i = 0; i < ACCEL_N_STREAMS; i++)
        TRY(check(o->f.clFlush(o->queues[i]), "clFlush"));
    for (int i = 0; i < ACCEL_N_STREAMS; i++)
        TRY(check(o->f.clFinish(o->queues[i]), "clFinish"));
    drop_events(o);
    *seconds = 1e-9 * (double)(clock_ns() - o->zero_ns);
    return check(o->failed, "an event");
}

const struct accel_kind accel_kind_opencl = {
    .name = "opencl",
    .help = "the first device of " LIBRARY ", a GPU or PoCL's CPU; simple kernels",
    .real_time = true,
    .open = opencl_open,
    .close = opencl_close,
    .alloc = opencl_alloc,
    .launch = opencl_launch,
    .copy = opencl_copy,
    .fetch = opencl_fetch,
    .gemm = opencl_gemm,
    .swiglu = opencl_swiglu,
    .record = opencl_record,
    .wait = opencl_wait,
    .finish = opencl_finish,
};
