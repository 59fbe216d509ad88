/* baselines/gemm/onednn.c - oneDNN: its matmul and its inner product, weights packed as
 * it likes best for the shape, or plain. With bf16 weights it wants bf16 activations, so
 * these are rounded inside the time, by its own reorder. */
#include <stdio.h>
#include <string.h>
#include <oneapi/dnnl/dnnl.h>

#include "base/mem.h"
#include "baselines/gemm/support/child.h"
#include "cpu/cpu.h"

enum how { MATMUL_PACKED, MATMUL_KN, MATMUL_NK, INNER_PACKED };

#define BOTH "f32 bf16"
#define SETTING(isa, op, env, mask, types, how)                                          \
    {                                                                                    \
        "isa=" isa " " op, env, types, 0, mask, how, 0                                   \
    }
#define AVX2(op, how)                                                                    \
    SETTING("avx2", op, "ONEDNN_MAX_CPU_ISA=AVX2", CPU_MASK(AVX2), "f32", how)
#define AVX512(op, how)                                                                  \
    SETTING("avx512_core", op, "ONEDNN_MAX_CPU_ISA=AVX512_CORE", CPU_MASK(AVX512), BOTH, \
            how)
#define AVX512BF16(op, how)                                                              \
    SETTING("avx512_core_bf16", op, "ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16",               \
            CPU_MASK(AVX512BF16), "bf16", how)
static const struct gemm_setting settings[] = {
    SETTING("auto", "op=matmul layout=packed", NULL, 0, BOTH, MATMUL_PACKED),
    SETTING("auto", "op=inner layout=packed", NULL, 0, BOTH, INNER_PACKED),
    SETTING("auto", "op=matmul layout=KN", NULL, 0, BOTH, MATMUL_KN),
    SETTING("auto", "op=matmul layout=NK", NULL, 0, BOTH, MATMUL_NK),
    AVX512BF16("op=matmul layout=packed", MATMUL_PACKED),
    AVX512BF16("op=inner layout=packed", INNER_PACKED),
    AVX512("op=matmul layout=packed", MATMUL_PACKED),
    AVX512("op=inner layout=packed", INNER_PACKED),
    AVX2("op=matmul layout=packed", MATMUL_PACKED),
    AVX2("op=inner layout=packed", INNER_PACKED),
    AVX2("op=matmul layout=KN", MATMUL_KN),
    AVX2("op=matmul layout=NK", MATMUL_NK),
    {0},
};

static struct {
    struct gemm_shape shape;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_t compute, round; /* round: NULL for f32 */
    dnnl_memory_t a, a_rounded, c;
    dnnl_memory_t *w;
} one;

static int check(dnnl_status_t status, const char *what)
{
    if (status == dnnl_success)
        return OK;
    return err_set(status == dnnl_unimplemented ? ERR_UNSUPPORTED : ERR_STATE,
                   "oneDNN: %s: status %d", what, (int)status);
}

static void version(char *out, size_t n)
{
    const dnnl_version_t *v = dnnl_version();

    snprintf(out, n, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
}

static const char *isa_word(dnnl_cpu_isa_t isa)
{
    static const struct {
        dnnl_cpu_isa_t isa;
        const char *word;
    } words[] = {
        {dnnl_cpu_isa_sse41, "sse41"},
        {dnnl_cpu_isa_avx, "avx"},
        {dnnl_cpu_isa_avx2, "avx2"},
        {dnnl_cpu_isa_avx2_vnni, "avx2_vnni"},
        {dnnl_cpu_isa_avx512_core, "avx512_core"},
        {dnnl_cpu_isa_avx512_core_vnni, "avx512_core_vnni"},
        {dnnl_cpu_isa_avx512_core_bf16, "avx512_core_bf16"},
        {dnnl_cpu_isa_avx512_core_amx, "avx512_core_amx"},
    };

    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (words[i].isa == isa)
            return words[i].word;
    return "other";
}

static int took(const struct gemm_setting *s, char *label, size_t n)
{
    const char *isa = isa_word(dnnl_get_effective_cpu_isa());
    const char *rest = strchr(s->label, ' ');
    char wanted[32] = "";

    sscanf(s->label, "isa=%31s", wanted);
    if (strcmp(wanted, "auto") != 0 && strcmp(wanted, isa) != 0)
        return err_set(ERR_UNSUPPORTED, "isa %s asked for, %s taken", wanted, isa);
    snprintf(label, n, "isa=%s%s", isa, rest ? rest : "");
    return OK;
}

/* --- building the primitive */

static int describe(dnnl_memory_desc_t *md, int64_t rows, int64_t cols,
                    dnnl_data_type_t type, dnnl_format_tag_t tag)
{
    return check(
        dnnl_memory_desc_init_by_tag(md, 2, (dnnl_dims_t){rows, cols}, type, tag),
        "memory descriptor");
}

/* The primitive for the shape; *w_md: how it wants its weights. */
static int make_compute(enum how how, const dnnl_memory_desc_t *a,
                        const dnnl_memory_desc_t *c, dnnl_memory_desc_t *w_md)
{
    const struct gemm_shape *s = &one.shape;
    dnnl_data_type_t type = s->bf16 ? dnnl_bf16 : dnnl_f32;
    dnnl_primitive_desc_t pd;
    dnnl_memory_desc_t w;
    dnnl_matmul_desc_t matmul;
    dnnl_inner_product_desc_t inner;

    if (how == INNER_PACKED) {
        TRY(describe(&w, s->n, s->k, type, dnnl_format_tag_any));
        TRY(check(dnnl_inner_product_forward_desc_init(&inner, dnnl_forward_inference, a,
                                                       &w, NULL, c),
                  "inner product"));
    } else {
        TRY(describe(&w, s->k, s->n, type,
                     how == MATMUL_PACKED ? dnnl_format_tag_any
                     : how == MATMUL_KN   ? dnnl_ab
                                          : dnnl_ba));
        TRY(check(dnnl_matmul_desc_init(&matmul, a, &w, NULL, c), "matmul"));
    }
    TRY(check(dnnl_primitive_desc_create(
                  &pd, how == INNER_PACKED ? (void *)&inner : (void *)&matmul, NULL,
                  one.engine, NULL),
              "no such primitive"));
    TRY(check(dnnl_primitive_create(&one.compute, pd), "primitive"));
    *w_md = *dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
    dnnl_primitive_desc_destroy(pd);
    return OK;
}

static int make_reorder(dnnl_primitive_t *out, dnnl_memory_t from, dnnl_memory_t to)
{
    const dnnl_memory_desc_t *from_md, *to_md;
    dnnl_primitive_desc_t pd;

    TRY(check(dnnl_memory_get_memory_desc(from, &from_md), "descriptor"));
    TRY(check(dnnl_memory_get_memory_desc(to, &to_md), "descriptor"));
    TRY(check(dnnl_reorder_primitive_desc_create(&pd, from_md, one.engine, to_md,
                                                 one.engine, NULL),
              "reorder"));
    TRY(check(dnnl_primitive_create(out, pd), "reorder"));
    dnnl_primitive_desc_destroy(pd);
    return OK;
}

static int wrap(dnnl_memory_t *out, const dnnl_memory_desc_t *md, void *data)
{
    return check(dnnl_memory_create(out, md, one.engine, data), "memory");
}

/* From plain weights into the form that the primitive wants, in `to`. */
static int pack(dnnl_memory_t to, bool nk)
{
    const struct gemm_shape *s = &one.shape;
    size_t bytes = (size_t)(s->n * s->k) * (s->bf16 ? 2 : 4);
    void *data = mem_map(MEM_WEIGHTS, bytes, MEM_NODE_ANY);
    dnnl_memory_desc_t md;
    dnnl_memory_t plain;
    dnnl_primitive_t reorder;

    if (!data)
        return ERR_NOMEM;
    gemm_fill(data, s, nk);
    TRY(describe(&md, nk ? s->n : s->k, nk ? s->k : s->n, s->bf16 ? dnnl_bf16 : dnnl_f32,
                 dnnl_ab));
    TRY(wrap(&plain, &md, data));
    TRY(make_reorder(&reorder, plain, to));
    TRY(check(dnnl_primitive_execute(
                  reorder, one.stream, 2,
                  (dnnl_exec_arg_t[]){{DNNL_ARG_FROM, plain}, {DNNL_ARG_TO, to}}),
              "reorder"));
    dnnl_primitive_destroy(reorder);
    mem_unmap(MEM_WEIGHTS, data, bytes);
    return OK;
}

/* Copy 0 is packed from the plain weights, the others from it. */
static int make_weights(enum how how, const dnnl_memory_desc_t *md)
{
    const struct gemm_shape *s = &one.shape;
    size_t bytes = dnnl_memory_desc_get_size(md);
    void **copies;

    one.w = mem_new(MEM_HARNESS, (size_t)s->n_copies, sizeof *one.w);
    TRY(gemm_copies(&copies, s->n_copies, bytes));
    for (int i = 0; i < s->n_copies; i++)
        TRY(wrap(&one.w[i], md, copies[i]));
    if (how == MATMUL_KN || how == MATMUL_NK)
        gemm_fill(copies[0], s, how == MATMUL_NK);
    else /* the weights of an inner product are [n, k] by definition */
        TRY(pack(one.w[0], how == INNER_PACKED));
    gemm_spread(copies, s->n_copies, bytes);
    return OK;
}

/* After an error the process ends: nothing is given back. */
static int open_shape(const struct gemm_shape *shape, const struct gemm_setting *setting)
{
    enum how how = (enum how)setting->how;
    dnnl_memory_desc_t a, a_rounded, c, w;

    one.shape = *shape;
    TRY(check(dnnl_engine_create(&one.engine, dnnl_cpu, 0), "engine"));
    TRY(check(dnnl_stream_create(&one.stream, one.engine, dnnl_stream_default_flags),
              "stream"));
    TRY(describe(&a, shape->m, shape->k, dnnl_f32, dnnl_ab));
    TRY(describe(&a_rounded, shape->m, shape->k, dnnl_bf16, dnnl_ab));
    TRY(describe(&c, shape->m, shape->n, dnnl_f32, dnnl_ab));
    TRY(make_compute(how, shape->bf16 ? &a_rounded : &a, &c, &w));
    TRY(wrap(&one.a, &a, (void *)shape->a));
    TRY(wrap(&one.c, &c, shape->c));
    if (shape->bf16) {
        TRY(wrap(&one.a_rounded, &a_rounded, DNNL_MEMORY_ALLOCATE));
        TRY(make_reorder(&one.round, one.a, one.a_rounded));
    }
    return make_weights(how, &w);
}

static int run(int copy)
{
    dnnl_exec_arg_t round[2] = {{DNNL_ARG_FROM, one.a}, {DNNL_ARG_TO, one.a_rounded}};
    dnnl_exec_arg_t args[3] = {{DNNL_ARG_SRC, one.round ? one.a_rounded : one.a},
                               {DNNL_ARG_WEIGHTS, one.w[copy]},
                               {DNNL_ARG_DST, one.c}};

    if (one.round)
        TRY(check(dnnl_primitive_execute(one.round, one.stream, 2, round), "reorder"));
    TRY(check(dnnl_primitive_execute(one.compute, one.stream, 3, args), "execute"));
    return check(dnnl_stream_wait(one.stream), "wait");
}

const struct gemm_library gemm_library = {
    .settings = settings,
    .version = version,
    .took = took,
    .open = open_shape,
    .run = run,
};
