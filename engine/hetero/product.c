#include "hetero/product.h"

#include "base/mem.h"
#include "cpu/cpu.h"

int hetero_work_open(struct hetero_work *w, int n_threads)
{
    *w = (struct hetero_work){.n_threads = n_threads};
    kern_table_choose(&w->kern, cpu_isa_usable(), KERN_EXACT);
    w->scratch = mem_new(MEM_OTHER, (size_t)n_threads, KERN_GEMM_SCRATCH_BYTES);
    return w->scratch ? OK : ERR_NOMEM;
}

void hetero_work_close(struct hetero_work *w)
{
    mem_free(w->scratch);
    mem_free(w->packed);
    mem_free(w->partial);
    *w = (struct hetero_work){0};
}

static struct kern_gemm_job job_of(const struct hetero_work *w,
                                   const struct hetero_product *p)
{
    struct kern_gemm_job j = {.v = w->kern.v[KERN_GEMM_F32 + p->w->type],
                              .gate = w->kern.v[KERN_SILU_MUL],
                              .w = p->w,
                              .m = p->n_tok,
                              .a_packed = w->packed,
                              .c = p->y,
                              .ldc = p->ldy,
                              .epilogue = p->epilogue,
                              .partial = w->partial};

    kern_schedule_default(&j.s, j.v, p->w, p->n_tok, w->n_threads);
    return j;
}

static int reserve(void **p, size_t *have, size_t bytes)
{
    if (bytes <= *have)
        return OK;
    mem_free(*p);
    *have = 0;
    *p = mem_new(MEM_OTHER, bytes, 1);
    if (!*p)
        return ERR_NOMEM;
    *have = bytes;
    return OK;
}

int hetero_product_reserve(struct hetero_work *w, const struct hetero_product *p)
{
    struct kern_gemm_job j;

    if (p->n_tok == 0)
        return OK;
    j = job_of(w, p);
    TRY(reserve(&w->packed, &w->packed_bytes,
                kern_a_bytes(j.v->a_format, p->n_tok, p->w->k_pad)));
    return reserve((void **)&w->partial, &w->partial_bytes, kern_gemm_partial_bytes(&j));
}

static void meet(struct par_self *self)
{
    if (self)
        par_barrier(self);
}

void hetero_product_run(struct hetero_work *w, const struct hetero_product *p,
                        struct par_self *self)
{
    int id = self ? self->id : 0;
    struct kern_gemm_job j;
    int64_t n_blocks, lo, hi;

    if (p->n_tok == 0)
        return;
    j = job_of(w, p);
    n_blocks = kern_a_blocks(j.m, j.s.mr);
    par_share(n_blocks, id, w->n_threads, &lo, &hi);
    for (int64_t b = lo; b < hi; b++) {
        int64_t r0 = kern_a_row(j.m, n_blocks, b), r1 = kern_a_row(j.m, n_blocks, b + 1);

        kern_a_pack(j.v, (char *)w->packed + kern_a_bytes(j.v->a_format, r0, p->w->k_pad),
                    p->x + r0 * p->ldx, p->ldx, r1 - r0, p->w->k, p->w->k_pad);
    }
    meet(self);
    j.scratch = (char *)w->scratch + (size_t)id * KERN_GEMM_SCRATCH_BYTES;
    kern_gemm_part(&j, p->epilogue == KERN_GATED ? 2 : 1, id);
    kern_gemm_run(&j);
    if (j.s.pk > 1) {
        meet(self);
        kern_gemm_reduce(&j, id, w->n_threads);
    }
    meet(self);
}

int hetero_product_alone(struct hetero_work *w, const struct hetero_product *p)
{
    TRY(hetero_product_reserve(w, p));
    hetero_product_run(w, p, NULL);
    return OK;
}

void hetero_swiglu(const struct hetero_work *w, float *h, int64_t ldh,
                   const float *gate_up, int64_t ld, int64_t n_tok, int64_t n_pairs)
{
    const struct kern_variant *v = w->kern.v[KERN_SILU_MUL];

    for (int64_t t = 0; t < n_tok; t++)
        for (int64_t p = 0; p < n_pairs; p++) {
            const float *gate = gate_up + t * ld + 2 * p * KERN_PANEL;

            v->fn.gate(h + t * ldh + p * KERN_PANEL, gate, gate + KERN_PANEL, KERN_PANEL);
        }
}
