/* The memory that a thread needs in a step of any phase, and the rotary tables: laid out
 * once, at open, for the largest step. */
#include <math.h>

#include "base/mem.h"
#include "kernels/gemm.h"
#include "model/act.h"

/* The most rows a block of packed activations can have, over the chosen variants. */
static int block_rows(const struct model *m)
{
    int rows = 1;

    for (int i = 0; i < KERN_N_TYPES * (MODEL_RANGES + 1); i++) {
        const int t = i % KERN_N_TYPES, range = i / KERN_N_TYPES;
        const struct kern_variant *v =
            range == MODEL_RANGES ? m->kern.v[KERN_GEMM_F32 + t] : m->by_rows[t][range];

        for (int np = 1; v && np <= KERN_NP_MAX; np++)
            rows = kern_gemm_rows(v, np) > rows ? kern_gemm_rows(v, np) : rows;
    }
    return rows;
}

static void place(struct model *m, struct model_arena *a)
{
    int64_t rows = m->max_step_tok, half = model_rope_dims(&m->c) / 2, mr = block_rows(m);

    int64_t n_rope = m->max_tok * half * (m->c.rope_local_theta != 0 ? 2 : 1);

    m->rope_cos = model_take(a, n_rope, sizeof(float));
    m->rope_sin = model_take(a, n_rope, sizeof(float));
    m->rows = model_take(a, rows, sizeof(int64_t));
    for (int i = 0; i < m->n_threads; i++) {
        struct model_scratch *s = &m->scratch[i];

        s->stage = model_take(a, mr * m->k_max, sizeof(float));
        /* A row of A takes at most a float a number, and one factor or the end of a tile. */
        s->a = model_take(a, mr * (m->k_max + KERN_PANEL), sizeof(float));
        s->gemm = model_take(a, KERN_GEMM_SCRATCH_BYTES, 1);
        s->attn = model_take(a, KERN_ATTN_SCRATCH_BYTES(m->c.head_dim), 1);
        s->tail = model_take(a, rows * KERN_PANEL, sizeof(float));
        s->normed = model_take(a, m->c.n_experts > 0 ? m->ld_x : 0, sizeof(float));
        s->expert = model_take(a, rows * m->c.n_active, sizeof(int32_t));
        s->weight = model_take(a, rows * m->c.n_active, sizeof(float));
        s->row = model_take(a, rows * m->c.n_active, sizeof(int64_t));
        s->at = model_take(a, rows * m->c.n_active, sizeof(int32_t));
        s->first =
            model_take(a, m->c.n_experts > 0 ? m->c.n_experts + 1 : 0, sizeof(int32_t));
    }
    model_take(a, 0, 1); /* all scratches are of one size */
}

/* Angles in double: a float's rounding of position x frequency is visible at long
 * contexts. */
static void fill_rope(void *arg, struct par_self *self)
{
    struct model *m = arg;
    const struct model_config *c = &m->c;
    int half = model_rope_dims(c) / 2;
    const float *factor = c->rope_short_tok > 0 && m->max_tok > c->rope_short_tok
                              ? c->rope_long
                              : c->rope_factor;
    const double scaled = c->rope_length != 0 ? (double)c->rope_length : 1;
    const double theta = model_config_rope_theta(c, m->max_tok);
    int64_t lo, hi;

    par_share(m->max_tok, self->id, self->n, &lo, &hi);
    for (int i = 0; i < half * (c->rope_local_theta != 0 ? 2 : 1); i++) {
        const bool local = i >= half;
        const int k = i % half;
        const int64_t at = k + (local ? m->max_tok * half : 0);
        const double length = local ? 1 : scaled;
        double f =
            pow(local ? (double)c->rope_local_theta : theta, -2.0 * k / (2 * half));

        f /= local ? 1 : (double)factor[k];
        for (int64_t pos = lo; pos < hi; pos++) {
            m->rope_cos[at + pos * half] = (float)(length * cos((double)pos * f));
            m->rope_sin[at + pos * half] = (float)(length * sin((double)pos * f));
        }
    }
}

void *model_map(const struct model *m, size_t bytes)
{
    return m->shared ? mem_map_shared(MEM_ACTIVATIONS, bytes)
                     : mem_map(MEM_ACTIVATIONS, bytes, MEM_NODE_ANY);
}

void model_touch(void *p, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += MODEL_PAGE)
        ((volatile char *)p)[at] = 0;
}

/* Each thread its own scratch and its share of the rest. */
static void touch(void *arg, struct par_self *self)
{
    struct model *m = arg;
    char *scratch = (char *)m->scratch[0].stage, *end = (char *)m->act + m->act_bytes;
    size_t shared = (size_t)(scratch - (char *)m->act) / (size_t)self->n;
    size_t own = (size_t)(end - scratch) / (size_t)self->n;

    model_touch((char *)m->act + shared * (size_t)self->id, shared);
    model_touch((char *)m->scratch[self->id].stage, own);
}

int model_act_open(struct model *m)
{
    struct model_arena a = {0};

    m->scratch = mem_new(MEM_ACTIVATIONS, (size_t)m->n_threads, sizeof(m->scratch[0]));
    if (!m->scratch)
        return ERR_NOMEM;
    place(m, &a);
    m->act_bytes = a.used;
    m->act = model_map(m, m->act_bytes);
    if (!m->act)
        return ERR_NOMEM;
    a = (struct model_arena){.base = m->act};
    place(m, &a);
    par_team_run(m->team, m->n_threads, touch, m);
    par_team_run(m->team, m->n_threads, fill_rope, m);
    return OK;
}
