#include "kernels/kern.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* Weights in a block, its bytes in a file; and of a panel the bytes of a head that it has once,
 * and those of the rows of a block, all 16 columns. */
static const struct {
    const char *name;
    int block;
    size_t bytes, once, panel_bytes;
} types[KERN_N_TYPES] = {
    [KERN_F32] = {"f32", 1, 4, 0, 4 * KERN_PANEL},
    [KERN_F16] = {"f16", 1, 2, 0, 2 * KERN_PANEL},
    [KERN_BF16] = {"bf16", 1, 2, 0, 2 * KERN_PANEL},
#define KERN_QUANT_TYPE(T, name, block, bytes, subs, head, sub, ...)                     \
    [KERN_##T] = {name, block, bytes, (subs) ? 0 : (head),                               \
                  (subs) ? (head) + (subs) * (sub) : (sub)},
#include "kernels/quant_types.def"
#undef KERN_QUANT_TYPE
};

static const char *const op_names[KERN_N_OPS] = {
    [KERN_GEMM_F32] = "gemm_f32",
    [KERN_GEMM_F16] = "gemm_f16",
    [KERN_GEMM_BF16] = "gemm_bf16",
#define KERN_QUANT_TYPE(T, name, ...) [KERN_GEMM_##T] = "gemm_" name,
#include "kernels/quant_types.def"
#undef KERN_QUANT_TYPE
    [KERN_ATTN_F32] = "attn_f32",
    [KERN_ATTN_F16] = "attn_f16",
    [KERN_ATTN_BF16] = "attn_bf16",
    [KERN_ATTN_Q8] = "attn_q8",
    [KERN_RMSNORM] = "rmsnorm",
    [KERN_LAYERNORM] = "layernorm",
    [KERN_ROPE] = "rope",
    [KERN_SILU_MUL] = "silu_mul",
    [KERN_GELU_MUL] = "gelu_mul",
    [KERN_SWIGLU_OAI] = "swiglu_oai",
    [KERN_ADD] = "add",
    [KERN_TO_BF16] = "to_bf16",
    [KERN_TO_F16] = "to_f16",
    [KERN_FROM_BF16] = "from_bf16",
    [KERN_FROM_F16] = "from_f16",
    [KERN_ARGMAX] = "argmax",
};

const char *kern_type_name(enum kern_type t)
{
    assert(t >= 0 && t < KERN_N_TYPES);
    return types[t].name;
}

int kern_type_parse(const char *word, enum kern_type *out)
{
    char all[160];
    size_t at = 0;

    for (int t = 0; t < KERN_N_TYPES; t++) {
        if (strcmp(word, types[t].name) == 0) {
            *out = (enum kern_type)t;
            return OK;
        }
    }
    for (int t = 0; t < KERN_N_TYPES && at < sizeof(all); t++)
        at += (size_t)snprintf(all + at, sizeof(all) - at, "%s%s",
                               t == 0                  ? ""
                               : t == KERN_N_TYPES - 1 ? " or "
                                                       : ", ",
                               types[t].name);
    return err_set(ERR_ARG, "unknown type \"%.40s\": expected %s", word, all);
}

int kern_type_block(enum kern_type t)
{
    return types[t].block;
}

size_t kern_type_bytes(enum kern_type t)
{
    return types[t].bytes;
}

size_t kern_type_size(enum kern_type t, int64_t n)
{
    assert(n % types[t].block == 0);
    return (size_t)(n / types[t].block) * types[t].bytes;
}

size_t kern_panel_size(enum kern_type t, int64_t k)
{
    assert(k % types[t].block == 0);
    return k == 0 ? 0
                  : types[t].once + (size_t)(k / types[t].block) * types[t].panel_bytes;
}

bool kern_type_one_block(enum kern_type t)
{
    return types[t].once > 0;
}

double kern_type_weight_bytes(enum kern_type t)
{
    return (double)types[t].panel_bytes / (types[t].block * KERN_PANEL);
}

static const char *const precisions[] = {"exact", "relaxed", "a8"};

const char *kern_precision_name(enum kern_precision p)
{
    return precisions[p];
}

enum kern_precision kern_precision_of(const char *name)
{
    int p = KERN_A8;

    while (p > KERN_EXACT && (!name || strcmp(name, precisions[p]) != 0))
        p--;
    return (enum kern_precision)p;
}

const char *kern_op_name(enum kern_op op)
{
    assert(op >= 0 && op < KERN_N_OPS);
    return op_names[op];
}

/* The highest isa.def row a variant needs; -1 for plain C. */
static int isa_row(const struct kern_variant *v)
{
    return v->isa ? 63 - __builtin_clzll(v->isa) : -1;
}

/* Activations of 8 bits are asked for to be faster, which they are in plain C only there. */
static bool is_better_a8(const struct kern_variant *a8, const struct kern_variant *other)
{
    return a8->isa || !other->isa;
}

/* Equal rows: the exact one, then the first by name, so that the choice never depends on
 * the order in which make listed the folder. */
static bool is_better(const struct kern_variant *v, const struct kern_variant *than)
{
    if (!than)
        return true;
    if (kern_a_is_i8(v->a_format) && !kern_a_is_i8(than->a_format))
        return is_better_a8(v, than);
    if (!kern_a_is_i8(v->a_format) && kern_a_is_i8(than->a_format))
        return !is_better_a8(than, v);
    if (isa_row(v) != isa_row(than))
        return isa_row(v) > isa_row(than);
    if (v->precision != than->precision)
        return v->precision == KERN_EXACT;
    return strcmp(v->name, than->name) < 0;
}

void kern_table_choose(struct kern_table *t, uint64_t isa_mask,
                       enum kern_precision precision)
{
    memset(t, 0, sizeof(*t));
    for (const struct kern_variant *const *p = kern_variants; *p; p++) {
        const struct kern_variant *v = *p;

        if ((v->isa & ~isa_mask) != 0)
            continue;
        if (v->precision > precision)
            continue;
        if (is_better(v, t->v[v->op]))
            t->v[v->op] = v;
    }
    for (int op = 0; op < KERN_N_OPS; op++)
        assert(t->v[op]);
}

/* Products and attention, which come first. */
static bool is_batched(int op)
{
    return kern_op_is_gemm((enum kern_op)op) || kern_op_is_attn((enum kern_op)op);
}

void kern_table_batch_invariant(struct kern_table *t, uint64_t isa_mask)
{
    for (int op = 0; is_batched(op); op++)
        t->v[op] = NULL;
    for (const struct kern_variant *const *p = kern_variants; *p; p++) {
        const struct kern_variant *v = *p;

        if (is_batched(v->op) && v->batch_invariant && v->precision == KERN_EXACT &&
            (v->isa & ~isa_mask) == 0 && is_better(v, t->v[v->op]))
            t->v[v->op] = v;
    }
    for (int op = 0; is_batched(op); op++)
        assert(t->v[op]);
}

void kern_table_print(const struct kern_table *t, char *out, size_t n)
{
    size_t at = 0;

    if (n > 0)
        out[0] = '\0';
    for (int op = 0; op < KERN_N_OPS && at < n; op++) {
        int w = snprintf(out + at, n - at, "%s%s=%s", op ? " " : "", op_names[op],
                         t->v[op] ? t->v[op]->name : "none");

        at += (size_t)w;
    }
}
