/* The memory of a step: laid out once, at open, for the largest step. */
#include <math.h>

#include "base/mem.h"
#include "kernels/gemm.h"
#include "model/impl.h"

#define PAGE 4096 /* what one thread writes never shares a page with another's */

struct arena {
    char *base;
    size_t used;
};

static void *take(struct arena *a, size_t n, size_t size, size_t align)
{
    a->used = (a->used + align - 1) & ~(align - 1);
    a->used += n * size;
    return a->base ? a->base + a->used - n * size : NULL;
}

static void place(struct model *m, struct arena *a)
{
    /* A row of A takes at most a float a number, and one factor. */
    int64_t k_max = m->ld_stage, rows = m->max_step_tok, half = m->c.head_dim / 2,
            mr = model_block_rows(m);

    k_max = m->ld_h > k_max ? m->ld_h : k_max;
    m->x = take(a, (size_t)(rows * m->ld_x), sizeof(float), PAGE);
    m->x_last = take(a, (size_t)(rows * m->ld_x), sizeof(float), PAGE);
    m->qkv = take(a, (size_t)(rows * m->ld_qkv), sizeof(float), PAGE);
    m->attn = take(a, (size_t)(rows * m->ld_attn), sizeof(float), PAGE);
    m->h = take(a, (size_t)(rows * m->ld_h), sizeof(float), PAGE);
    m->a_packed = take(a, (size_t)(rows * (k_max + 1)), sizeof(float), PAGE);
    m->partial = take(a, MODEL_PARTIAL_BYTES, 1, PAGE);
    m->rope_cos = take(a, (size_t)(m->max_tok * half), sizeof(float), PAGE);
    m->rope_sin = take(a, (size_t)(m->max_tok * half), sizeof(float), PAGE);
    m->rows = take(a, (size_t)rows, sizeof(int64_t), PAGE);
    for (int i = 0; i < par_team_size(m->team); i++) {
        struct model_scratch *s = &m->scratch[i];

        s->stage = take(a, (size_t)(mr * m->ld_stage), sizeof(float), PAGE);
        s->a = take(a, (size_t)(mr * (k_max + 1)), sizeof(float), PAGE);
        s->gemm = take(a, KERN_GEMM_SCRATCH_BYTES, 1, PAGE);
        s->attn = take(a, KERN_ATTN_SCRATCH_BYTES(m->c.head_dim), 1, PAGE);
        s->tail = take(a, (size_t)(rows * KERN_PANEL), sizeof(float), PAGE);
    }
    take(a, 0, 1, PAGE); /* all scratches are of one size */
}

/* Angles in double: a float's rounding of position x frequency is visible at long
 * contexts. */
static void fill_rope(struct model *m)
{
    int half = m->c.head_dim / 2;

    for (int i = 0; i < half; i++) {
        double f = pow((double)m->c.rope_theta, -2.0 * i / m->c.head_dim);

        f /= (double)m->c.rope_factor[i];
        for (int64_t pos = 0; pos < m->max_tok; pos++) {
            m->rope_cos[pos * half + i] = (float)cos((double)pos * f);
            m->rope_sin[pos * half + i] = (float)sin((double)pos * f);
        }
    }
}

static void touch_range(char *p, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += PAGE)
        ((volatile char *)p)[at] = 0;
}

/* Each thread writes its own scratch and its share of the rest first: pages come to its
 * node, and no request pays for zeroing them. */
static void touch(void *arg, struct par_self *self)
{
    struct model *m = arg;
    char *scratch = (char *)m->scratch[0].stage, *end = (char *)m->act + m->act_bytes;
    size_t shared = (size_t)(scratch - (char *)m->act) / (size_t)self->n;
    size_t own = (size_t)(end - scratch) / (size_t)self->n;

    touch_range((char *)m->act + shared * (size_t)self->id, shared);
    touch_range((char *)m->scratch[self->id].stage, own);
}

int model_act_open(struct model *m)
{
    struct arena a = {0};

    m->scratch =
        mem_new(MEM_ACTIVATIONS, (size_t)par_team_size(m->team), sizeof(m->scratch[0]));
    if (!m->scratch)
        return ERR_NOMEM;
    place(m, &a);
    m->act_bytes = a.used;
    m->act = mem_map(MEM_ACTIVATIONS, m->act_bytes, MEM_NODE_ANY);
    if (!m->act)
        return ERR_NOMEM;
    a = (struct arena){.base = m->act};
    place(m, &a);
    par_team_run(m->team, par_team_size(m->team), touch, m);
    fill_rope(m);
    return OK;
}
