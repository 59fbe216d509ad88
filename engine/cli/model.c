/* sandwich model make|inspect */
#include "cli/cli.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cpu/cpu.h"
#include "format/format.h"
#include "format/make.h"
#include "model/inspect.h"

struct make_flags {
    char *arch, *out, *format, *tokenizer;
    int type;
    int64_t seed, threads;
    bool help;
};
#define AT(member) offsetof(struct make_flags, member)

static const struct opt_row make_table[] = {
    {.name = "arch",
     .type = OPT_STR,
     .offset = AT(arch),
     .help = "the architecture whose shape the model gets: llama-160m, "
             "sheared-llama-1.3b, llama-3.2-1b, llama-3.2-3b, llama-3-8b, qwen-1.8b, "
             "deepseek-r1-distill-qwen-7b, or tiny"},
    {.name = "type",
     .type = OPT_ENUM,
     .offset = AT(type),
     .def = "bf16",
     .values = "f32|f16|bf16", /* in the order of enum kern_type */
     .help = "the type of the matrices; norms and biases are always f32"},
    {.name = "out",
     .type = OPT_STR,
     .offset = AT(out),
     .letter = 'o',
     .help = "the file (gguf) or directory (safetensors) to write"},
    {.name = "format",
     .type = OPT_STR,
     .offset = AT(format),
     .def = "gguf",
     .help = "gguf writes one file, safetensors a directory"},
    {.name = "seed",
     .type = OPT_INT,
     .offset = AT(seed),
     .def = "1",
     .help = "the seed of the random weights; the same seed gives the same bytes"},
    {.name = "tokenizer",
     .type = OPT_STR,
     .offset = AT(tokenizer),
     .help = "a .gguf file or tokenizer.json whose vocabulary is copied; without it a "
             "byte-level vocabulary is generated"},
    {.name = "threads",
     .type = OPT_INT,
     .offset = AT(threads),
     .max = 1024,
     .help = "threads that write; 0 uses every CPU that this process may use"},
    {.name = "help",
     .type = OPT_BOOL,
     .offset = AT(help),
     .letter = 'h',
     .help = "print this help"},
    {0},
};
#undef AT

static int make(const struct make_flags *f)
{
    static char doing[] = "making";
    struct cpu_budget budget;
    struct format_make_opts o = {.arch = f->arch,
                                 .type = (enum kern_type)f->type,
                                 .seed = (uint64_t)f->seed,
                                 .format = f->format,
                                 .out = f->out,
                                 .tokenizer = f->tokenizer,
                                 .n_threads = (int)f->threads,
                                 .progress = cli_progress,
                                 .progress_ctx = doing};
    int rc;

    if (!f->arch || !f->out)
        return err_set(ERR_ARG, "--arch and --out are needed");
    rc = cpu_budget_get(&budget);
    if (rc != OK)
        return rc;
    if (o.n_threads == 0)
        o.n_threads = budget.n;
    return format_make(&o);
}

static int cli_make(int argc, char **argv)
{
    struct make_flags f;
    int status = cli_fail("model make", opt_init(make_table, &f));

    if (status == 0)
        status = cli_flags("model make --arch A --out F [options]", make_table, &f,
                           &f.help, argc, argv, 0);
    if (status == -1)
        status = cli_fail("model make", make(&f));
    opt_free(make_table, &f);
    return status;
}

struct inspect_flags {
    bool json, help;
};

static const struct opt_row inspect_table[] = {
    {.name = "json",
     .type = OPT_BOOL,
     .offset = offsetof(struct inspect_flags, json),
     .help = "print JSON: bytes and FLOP as whole numbers"},
    {.name = "help",
     .type = OPT_BOOL,
     .offset = offsetof(struct inspect_flags, help),
     .letter = 'h',
     .help = "print this help"},
    {0},
};

static int inspect(const char *path, bool as_json)
{
    struct format_file *f = NULL;
    json_t *j = NULL;
    char *text = NULL;
    int rc;

    rc = format_open(&f, path);
    if (rc != OK)
        goto out;
    if (!as_json) {
        rc = model_inspect_text(f, &text);
        if (rc == OK)
            fputs(text, stdout);
        goto out;
    }
    rc = model_inspect_json(f, &j);
    if (rc == OK && (json_dumpf(j, stdout, JSON_INDENT(2)) != 0 || putchar('\n') == EOF))
        rc = err_set(ERR_IO, "cannot write the description");
out:
    json_decref(j);
    mem_free(text);
    format_close(&f);
    return rc;
}

static int cli_inspect(int argc, char **argv)
{
    struct inspect_flags f = {0};
    int status = cli_flags("model inspect MODEL [--json]", inspect_table, &f, &f.help,
                           argc, argv, 1);

    return status == -1 ? cli_fail("model inspect", inspect(argv[0], f.json)) : status;
}

static const char usage[] =
    "usage: sandwich model make --arch A --out F [options]\n"
    "       sandwich model inspect MODEL [--json]\n\n"
    "make writes a model of a published architecture's exact shape with random weights:\n"
    "speed does not depend on their values.\n"
    "inspect prints a model's shape and tensors, and what its steps cost: the bytes "
    "that\n"
    "decoding a token must read, and the FLOP of processing a prompt.\n\n"
    "--help after make or inspect lists the options.\n";

int cli_model(int argc, char **argv)
{
    if (argc > 0 && !strcmp(argv[0], "make"))
        return cli_make(argc - 1, argv + 1);
    if (argc > 0 && !strcmp(argv[0], "inspect"))
        return cli_inspect(argc - 1, argv + 1);
    if (argc > 0 && (!strcmp(argv[0], "--help") || !strcmp(argv[0], "-h"))) {
        fputs(usage, stdout);
        return 0;
    }
    fprintf(stderr,
            "sandwich: model: expected make or inspect, found %s (see sandwich "
            "model --help)\n",
            argc > 0 ? argv[0] : "nothing");
    return EXIT_USAGE;
}
