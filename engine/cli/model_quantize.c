/* sandwich model quantize: copies a model with its matrices in 4, 5 or 8 bits a weight. */
#include "cli/cli.h"

#include "cpu/cpu.h"
#include "format/quantize.h"

struct quantize_flags {
    char *out;
    int type;
    int64_t threads;
    bool help;
};

#define OPT_OF struct quantize_flags
static const struct opt_row quantize_table[] = {
    /* in the order of kern_quant_schemes */
    OPT_ROW(
        ENUM, type, "q4_0",
        "Type of the matrices. q8_0, q4_0, q4_1, q5_0, q5_1: as in other GGUF files, in "
        "blocks of 32 weights. q4_k: in blocks of 256, and q4_0 where rows are not whole "
        "blocks. w4b64, w4b128, w4c: q4_1 with one scale and offset for 64 weights, "
        "for 128, or for all of an output channel. w8c: q8_0 with one scale for an "
        "output channel.",
        .values = CLI_QUANT_SCHEMES),
    OPT_ROW(STR, out, NULL, "GGUF file to write.", .unit = "FILE", .letter = 'o'),
    OPT_ROW(INT, threads, NULL,
            "Number of threads that quantise. 0: one per available CPU core.",
            .max = 1024),
    OPT_HELP_ROW,
    {0},
};

static const struct opt_usage quantize_usage = {
    .line = "sandwich model quantize FILE --out FILE [options]",
    .about =
        "Copy a GGUF model whose matrices are f32, f16 or bf16 to a GGUF file whose "
        "matrices have 4, 5 or 8 bits a weight. Norms, biases, metadata and tokenizer "
        "stay as they are, and other readers of GGUF accept the file.",
    .examples = "  sandwich model quantize llama-160m-bf16.gguf --type q4_0 \\\n"
                "      --out llama-160m-q4_0.gguf\n"
                "  sandwich model quantize model.gguf --type w4c --out model-w4c.gguf\n",
    .exit_status = CLI_EXIT_STATUS,
};

static int quantize(const char *in, const struct quantize_flags *f)
{
    static char doing[] = "quantising";
    struct format_quantize_opts o = {.in = in,
                                     .out = f->out,
                                     .scheme = &kern_quant_schemes[f->type],
                                     .n_threads = (int)f->threads,
                                     .progress = cli_progress,
                                     .progress_ctx = doing};
    struct cpu_budget budget;

    if (!f->out)
        return err_set(ERR_ARG, "--out is needed: the file to write");
    TRY(cpu_budget_get(&budget));
    if (o.n_threads == 0)
        o.n_threads = budget.n;
    return format_quantize(&o);
}

int cli_model_quantize(int argc, char **argv)
{
    struct quantize_flags f;
    int status = cli_fail("model quantize", opt_init(quantize_table, &f));

    if (status == 0)
        status = cli_flags(&quantize_usage, quantize_table, &f, &f.help, argc, argv, 1);
    if (status == -1)
        status = cli_fail("model quantize", quantize(argv[0], &f));
    opt_free(quantize_table, &f);
    return status;
}
