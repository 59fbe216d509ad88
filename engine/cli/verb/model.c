/* sandwich model: makes a model file with random weights, quantises one, or describes one. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/table.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cpu/cpu.h"
#include "format/family.h"
#include "format/format.h"
#include "format/quantize.h"
#include "format/safet_quant.h"
#include "format/support.h"
#include "kernels/quant.h"
#include "make/make.h"
#include "model/inspect.h"
#include "step/op.h"

/* ---- sandwich model quantize: copies a model with its matrices in 3 to 8 bits a weight ---- */

/* The schemes of quantisation, as an option lists them. */
#define SCHEME_NAME(name, ...) name
#define OTHER_NAME(name, ...)  "|" name
#define SCHEMES                KERN_QUANT_SCHEMES(SCHEME_NAME, OTHER_NAME)

struct quantize_flags {
    char *out;
    int type;
    int64_t threads;
};

#define OPT_OF struct quantize_flags
static const struct opt_row quantize_table[] = {
    /* in the order of kern_quant_schemes */
    OPT_ROW(
        ENUM, type, "q4_0",
        "Type of the matrices. q8_0, q4_0, q4_1, q5_0, q5_1: as in other GGUF files, in "
        "blocks of 32 weights. q4_k: in blocks of 256, and q4_0 where rows are not whole "
        "blocks; so q3_k and iq4_xs. iq4_nl, iq4_xs, mxfp4: 4 bits that name 16 numbers, "
        "dense near 0. w4b64, w4b128, w4c: q4_1 with one scale and offset for 64 "
        "weights, "
        "for 128, or for all of an output channel. w8c: q8_0 with one scale for an "
        "output channel.",
        .values = SCHEMES, .unit = "TYPE"),
    OPT_ROW(STR, out, NULL, "GGUF file to write.", .unit = "FILE", .letter = 'o'),
    OPT_ROW(INT, threads, NULL,
            "Number of threads that quantise. 0: one per available CPU core.",
            .max = 1024),
    {0},
};

static int quantize(const struct verb_words *w)
{
    const struct quantize_flags *f = w->opts;
    static char doing[] = "quantising";
    struct format_quantize_opts o = {.in = w->rest[0],
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

static const struct verb quantize_verb = {
    .name = "quantize",
    .help = "Copy a model to a file whose matrices have 3 to 8 bits a weight.",
    .usage =
        {.line = "sandwich model quantize FILE --out FILE [options]",
         .about =
             "Copy a GGUF model whose matrices are f32, f16 or bf16 to a GGUF file whose "
             "matrices have 3 to 8 bits a weight. Norms, biases, metadata and "
             "tokenizer "
             "stay as they are, and other readers of GGUF accept the file.",
         .examples =
             "  sandwich model quantize llama-160m-bf16.gguf --type q4_0 \\\n"
             "      --out llama-160m-q4_0.gguf\n"
             "  sandwich model quantize model.gguf --type w4c --out model-w4c.gguf\n"},
    .n_args = 1,
    .opts = {{quantize_table}},
    .opts_bytes = sizeof(struct quantize_flags),
    .run = quantize,
};

/* ---- sandwich model make */

struct make_flags {
    char *arch, *out, *format, *tokenizer;
    int type;
    int64_t seed, threads;
};

static const char *arch_name(int i)
{
    return make_names()[i];
}

#undef OPT_OF
#define OPT_OF struct make_flags
static const struct opt_row make_table[] = {
    OPT_ROW(STR, arch, NULL,
            "Architecture whose shape the model gets. Those named tiny are for tests.",
            .unit = "NAME", .names = arch_name),
    /* Plain types in the order of enum kern_type, then kern_quant_schemes. */
    OPT_ROW(
        ENUM, type, "bf16",
        "Type of the matrices. Norms and biases are always f32. Types from q8_0 on are "
        "quantised, see `sandwich model quantize --help`.",
        .values = "f32|f16|bf16|" SCHEMES, .unit = "TYPE"),
    OPT_ROW(STR, out, NULL, "File to write, or folder with --format safetensors.",
            .unit = "FILE", .letter = 'o'),
    OPT_ROW(STR, format, "gguf",
            "Format to write: gguf (one file) or safetensors (a folder).",
            .unit = "FORMAT"),
    OPT_ROW(INT, seed, "1",
            "Seed of the random weights. The same seed gives the same bytes."),
    OPT_ROW(STR, tokenizer, NULL,
            "Copy the vocabulary from this .gguf file or tokenizer.json. Without it a "
            "byte-level vocabulary is generated.",
            .unit = "FILE"),
    OPT_ROW(INT, threads, NULL,
            "Number of threads that generate weights. 0: one per available CPU core.",
            .max = 1024),
    {0},
};

static int make(const struct verb_words *w)
{
    const struct make_flags *f = w->opts;
    static char doing[] = "making";
    struct cpu_budget budget;
    struct make_opts o = {.arch = f->arch,
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
        return err_set(
            ERR_ARG,
            "--arch and --out are needed: the shape to make and the file to write");
    rc = cpu_budget_get(&budget);
    if (rc != OK)
        return rc;
    if (o.n_threads == 0)
        o.n_threads = budget.n;
    if (f->type >= KERN_N_PLAIN_TYPES) {
        o.type = KERN_F32;
        o.scheme = &kern_quant_schemes[f->type - KERN_N_PLAIN_TYPES];
    }
    return make_model(&o);
}

static const struct verb make_verb = {
    .name = "make",
    .help = "Make a model of a published shape with seeded random weights.",
    .usage =
        {.line = "sandwich model make --arch NAME --out FILE [options]",
         .about =
             "Make a model of a published shape with seeded random weights. Its speed is "
             "that of the real model; its text has no meaning.",
         .examples =
             "  sandwich model make --arch llama-160m --out llama-160m-bf16.gguf\n"
             "  sandwich model make --arch sheared-llama-1.3b --type q4_0 --out "
             "model.gguf\n"},

    .opts = {{make_table}},
    .opts_bytes = sizeof(struct make_flags),
    .run = make,
};

/* ---- sandwich model inspect */

struct inspect_flags {
    bool json, operators;
};

#undef OPT_OF
#define OPT_OF struct inspect_flags
static const struct opt_row inspect_table[] = {
    OPT_ROW(BOOL, json, NULL, "Print JSON, with bytes and FLOP as whole numbers."),
    OPT_ROW(BOOL, operators, NULL,
            "Print the operators of a step, a list that can be changed and run: sandwich "
            "run --operators FILE."),
    {0},
};

static int print_operators(char **text, const struct format_file *f)
{
    struct model_ops o;
    int rc;

    TRY(model_ops_of(&o, &f->config));
    rc = model_ops_print(text, &o);
    model_ops_fini(&o);
    return rc;
}

static int inspect(const struct verb_words *w)
{
    const struct inspect_flags *flags = w->opts;
    struct format_file *f = NULL;
    json_t *j = NULL;
    char *text = NULL;
    int rc;

    if (flags->json && flags->operators)
        return err_set(ERR_ARG, "--operators prints a list, --json prints JSON: expected "
                                "one of them");
    rc = format_open(&f, w->rest[0]);
    if (rc != OK)
        goto out;
    if (!flags->json) {
        rc = flags->operators ? print_operators(&text, f) : model_inspect_text(f, &text);
        if (rc == OK)
            fputs(text, stdout);
        goto out;
    }
    rc = model_inspect_json(f, &j);
    if (rc == OK)
        rc = cli_print_json(j);
out:
    json_decref(j);
    mem_free(text);
    format_close(&f);
    return rc;
}

static const struct verb inspect_verb = {
    .name = "inspect",
    .help = "Print what a model file holds and what its steps cost.",
    .usage = {.line = "sandwich model inspect FILE [options]",
              .about = "Print what a model file holds (shape, tensors, types) and how "
                       "many bytes and "
                       "FLOP its steps cost.",
              .examples = "  sandwich model inspect llama-160m.gguf\n"
                          "  sandwich model inspect --json llama-160m.gguf\n"
                          "  sandwich model inspect --operators llama-160m.gguf\n"},
    .n_args = 1,
    .opts = {{inspect_table}},
    .opts_bytes = sizeof(struct inspect_flags),
    .run = inspect,
};

/* ---- sandwich model explain-support */

struct support_flags {
    bool json;
};

#undef OPT_OF
#define OPT_OF struct support_flags
static const struct opt_row support_table[] = {
    OPT_ROW(BOOL, json, NULL, "Print JSON."),
    {0},
};

static bool of_arch(const char *shape, const char *arch)
{
    struct model_config c;

    return make_config(shape, &c) == OK && strcmp(c.arch, arch) == 0;
}

/* The classes that config.json names a family's models by, and the shapes of `model make`. */
static json_t *known_arch(const char *arch)
{
    json_t *classes = json_array(), *shapes = json_array();
    int rc = 0;

    for (const struct format_family *f = format_families; f->arch; f++)
        if (strcmp(f->arch, arch) == 0)
            rc |= json_array_append_new(
                classes, json_string(f->gguf_only ? "GGUF files only" : f->hf_class));
    for (const char *const *name = make_names(); *name; name++)
        if (of_arch(*name, arch))
            rc |= json_array_append_new(shapes, json_string(*name));
    if (rc != 0) {
        json_decref(classes);
        json_decref(shapes);
        return NULL;
    }
    return json_pack("{s:s, s:b, s:o, s:o}", "arch", arch, "known", 1, "classes", classes,
                     "shapes", shapes);
}

static json_t *support_json(void)
{
    json_t *all = json_array();
    int rc = 0;

    for (const struct format_family *f = format_families; f->arch; f++)
        if (format_family_of_arch(f->arch) == f)
            rc |= json_array_append_new(all, known_arch(f->arch));
    for (const struct format_refused *r = format_refusals; r->arch; r++)
        rc |= json_array_append_new(all, json_pack("{s:s, s:b, s:s}", "arch", r->arch,
                                                   "known", 0, "missing", r->missing));
    for (const struct format_quant_method *m = format_quant_methods; m->name; m++)
        rc |= json_array_append_new(all, json_pack("{s:s, s:s, s:s}", "quant_method",
                                                   m->name, "loads", m->loads,
                                                   "weight_types", m->becomes));
    if (rc != 0) {
        json_decref(all);
        return NULL;
    }
    return all;
}

static void put_list(struct table *t, const json_t *list)
{
    struct text line = {0};
    const json_t *v;
    size_t i;

    json_array_foreach(list, i, v)
    {
        text_printf(&line, "%s%s", i ? ", " : "", json_string_value(v));
    }
    text_put(&line, "", 1);
    table_cell(t, "%s", line.rc == OK ? line.p : "");
    text_fini(&line);
}

static void print_support(const json_t *all)
{
    static const struct table_column columns[] = {
        {"architecture", -16}, {"known", -5}, {"classes, or what is missing", 0}, {0}};
    static const struct table_column methods[] = {
        {"quant_method", -18}, {"weights", -19}, {"what loads", 0}, {0}};
    struct table t = {.f = stdout, .markdown = true, .columns = columns};
    const json_t *v;
    size_t i, n = 0, n_archs = 0;

    table_head(&t);
    json_array_foreach(all, i, v)
    {
        const char *missing = json_string_value(json_object_get(v, "missing"));

        if (!json_object_get(v, "arch"))
            continue;
        n_archs++;
        n += missing == NULL;
        table_cell(&t, "%s", json_string_value(json_object_get(v, "arch")));
        table_cell(&t, "%s", missing ? "no" : "yes");
        if (missing)
            table_cell(&t, "needs %s", missing);
        else
            put_list(&t, json_object_get(v, "classes"));
    }
    printf("\n%zu architectures: %zu known, %zu refused.\n\n", n_archs, n, n_archs - n);
    printf("Quantised folders, by quantization_config of config.json:\n\n");
    t.columns = methods;
    table_head(&t);
    for (const struct format_quant_method *m = format_quant_methods; m->name; m++) {
        table_cell(&t, "%s", m->name);
        table_cell(&t, "%s", m->becomes);
        table_cell(&t, "%s", m->loads);
    }
}

static int explain_support(const struct verb_words *w)
{
    const struct support_flags *flags = w->opts;
    json_t *all = support_json();
    int rc = OK;

    if (!all)
        rc = ERR_NOMEM;
    else if (flags->json)
        rc = cli_print_json(all);
    else
        print_support(all);
    json_decref(all);
    return rc;
}

static const struct verb support_verb = {
    .name = "explain-support",
    .help = "Print which architectures and quantised folders load, and what others lack.",
    .usage =
        {.line = "sandwich model explain-support [options]",
         .about =
             "Print each architecture that GGUF files of llama.cpp name: whether it "
             "loads, by which classes of config.json too, or the operator that this "
             "engine lacks; and what loads of quantised folders. With --json also the "
             "shapes of `sandwich model make`.",
         .examples = "  sandwich model explain-support\n"
                     "  sandwich model explain-support --json\n"},
    .opts = {{support_table}},
    .opts_bytes = sizeof(struct support_flags),
    .run = explain_support,
};

static const char help[] =
    "Usage: sandwich model make|quantize|inspect|explain-support [options]\n"
    "\n"
    "Make a model with random weights, quantise a model file, or inspect one.\n"
    "\n"
    "Commands:\n"
    "  make             Make a model of a published shape with seeded random weights.\n"
    "  quantize         Copy a model to a file whose matrices have 3 to 8 bits a\n"
    "                   weight.\n"
    "  inspect          Print what a model file holds and what its steps cost.\n"
    "  explain-support  Print which architectures load, and what the others lack.\n"
    "\n"
    "Options:\n"
    "  -h, --help\n"
    "        Print this text and exit. `sandwich model make --help` describes the "
    "options\n"
    "        of make, and so on: `sandwich model quantize --help`,\n"
    "        `sandwich model inspect --help`, `sandwich model explain-support --help`.\n"
    "\n"
    "Examples:\n"
    "  sandwich model make --arch llama-160m --out llama-160m-bf16.gguf\n"
    "  sandwich model quantize llama-160m-bf16.gguf --type q4_0 \\\n"
    "      --out llama-160m-q4_0.gguf\n"
    "  sandwich model inspect llama-160m-q4_0.gguf\n"
    "\n"
    "Exit status:\n" CLI_EXIT_STATUS;

const struct verb cli_verb_model = {
    .name = "model",
    .help = "Make a model with random weights, or inspect a model file.",
    .place = 4,
    .verbs = (const struct verb *const[]){&make_verb, &quantize_verb, &inspect_verb,
                                          &support_verb, NULL},
    .text = help,
};
