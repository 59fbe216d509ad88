/* Greedy ids of a model, and a hash of every logit they were chosen from: test_arm.sh builds this
 * for another processor and runs it under an emulator.
 * usage: greedy MODEL PRECISION N_NEW ID,ID,... */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "ranks/bench_steps.h"

#define MAX_IDS 128

struct answer {
    int32_t ids[MAX_IDS];
    int n_prompt, n; /* ids of the prompt, and of both */
    uint64_t hash;   /* FNV-1a of the logits' bytes */
};

static void add_hash(uint64_t *hash, const float *x, int n)
{
    const uint8_t *p = (const uint8_t *)x;

    for (size_t i = 0; i < (size_t)n * sizeof(*x); i++)
        *hash = (*hash ^ p[i]) * UINT64_C(1099511628211);
}

/* One step for the prompt, one for each further token; all by one thread. */
static int decode(struct model_bench *b, struct answer *a)
{
    const struct model_phase_opts o = {.n_ranks = 1, .n_threads = 1};
    const struct kern_variant *argmax = model_kern(b->model)->v[KERN_ARGMAX];
    const int vocab = model_config_of(b->model)->vocab;
    struct model_chunk c = {.kv = b->steps.kv, .ids = a->ids, .want_logits = true};
    float *logits = b->steps.logits;
    struct model_phase *phase;
    int rc = model_phase_open(&phase, b->model, &o);

    c.n_tok = a->n_prompt;
    for (int i = a->n_prompt; i < a->n && rc == OK; i++) {
        rc = model_forward(phase, &c, 1, logits);
        if (rc != OK)
            break;
        add_hash(&a->hash, logits, vocab);
        a->ids[i] = (int32_t)argmax->fn.argmax(logits, vocab);
        c.pos0 += c.n_tok;
        c.ids = &a->ids[i], c.n_tok = 1;
    }
    model_phase_close(&phase);
    return rc;
}

static int run(const char *path, enum kern_precision precision, struct answer *a)
{
    const struct model_bench_opts o = {
        .precision = precision, .n_seqs = 1, .max_tok = MAX_IDS, .step_tok = MAX_IDS};
    struct model_bench b = {0};
    struct format_file *f;
    char kernels[512];
    int rc;

    TRY(format_open(&f, path));
    rc = model_bench_open(&b, f, &o);
    format_close(&f);
    if (rc == OK)
        rc = decode(&b, a);
    if (rc == OK) {
        kern_table_print(model_kern(b.model), kernels, sizeof(kernels));
        printf("kernels %s\n", kernels);
    }
    model_bench_close(&b);
    return rc;
}

int main(int argc, char **argv)
{
    struct answer a = {.hash = UINT64_C(14695981039346656037)};
    char *next = argc == 5 ? argv[4] : "";

    for (; *next && a.n_prompt < MAX_IDS; next += *next == ',')
        a.ids[a.n_prompt++] = (int32_t)strtol(next, &next, 10);
    a.n = a.n_prompt + (argc == 5 ? atoi(argv[3]) : 0);
    if (a.n_prompt == 0 || a.n <= a.n_prompt || a.n > MAX_IDS) {
        fprintf(stderr, "usage: greedy MODEL PRECISION N_NEW ID,ID,...\n");
        return 2;
    }
    if (run(argv[1], kern_precision_of(argv[2]), &a) != OK) {
        fprintf(stderr, "greedy: %s\n", err_msg());
        return 1;
    }
    printf("ids");
    for (int i = a.n_prompt; i < a.n; i++)
        printf(" %d", (int)a.ids[i]);
    printf("\nlogits %016" PRIx64 "\n", a.hash);
    return 0;
}
