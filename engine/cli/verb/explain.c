/* sandwich explain: which kernel computes each matrix of a model and what the others measured, and
 * which instructions a program or library contains. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/child.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/table.h"
#include "cli/cli.h"
#include "cpu/cpu.h"
#include "format/format.h"
#include "kernels/kern.h"
#include "measure/card.h"
#include "model/choose.h"
#include "model/model.h"
#include "par/team.h"
#include "tune/measure.h"

#define VARIANTS_MAX 16
#define ROWS_MAX     16

struct flags {
    char *model, *library, *rows, *isa;
    int64_t threads, rounds;
    int precision;
    bool json;
};

#define OPT_OF struct flags
static const struct opt_row table[] = {
    OPT_ROW(STR, model, NULL, "Model file: its matrix products are explained.",
            .unit = "FILE", .letter = 'm'),
    OPT_ROW(
        STR, library, NULL,
        "Program or library, of any engine: its instructions that multiply are counted, "
        "by objdump (Debian: binutils).",
        .unit = "FILE"),
    OPT_ROW(STR, rows, "1,16,512",
            "Numbers of rows: of sequences that decode, of tokens of a prompt.",
            .unit = "LIST", .joins = ','),
    OPT_ROW(ENUM, precision, "exact", "Arithmetic, as in `sandwich run`.",
            .values = KERN_PRECISIONS),
    OPT_ROW(INT, threads, NULL, "Number of threads. 0: one per available CPU core.",
            .min = 0, .max = CPU_MAX, .letter = 't'),
    OPT_ROW(INT, rounds, "5", "Rounds of all variants in turn.", .min = 3, .max = 99),
    CPU_ISA_ROW,
    OPT_ROW(BOOL, json, NULL, "Print JSON."),
    {0},
};

/* ---- the instructions of a library: its disassembly by objdump, counted ---- */

struct census_class {
    const char *name, *help;
    const char *const
        *mnemonics; /* [.., NULL]; one that ends in * stands for all that begin so */
};
#define CENSUS_CLASSES_MAX 16

struct census {
    long long n_all, n[CENSUS_CLASSES_MAX]; /* instructions; of each class */
    int bits[CENSUS_CLASSES_MAX];           /* of the widest register in it; 0: unknown */
    char most[CENSUS_CLASSES_MAX][96];      /* the function that has most of them, "" */
};
#define LIST(...)                                                                        \
    (const char *const[])                                                                \
    {                                                                                    \
        __VA_ARGS__, NULL                                                                \
    }
/* The first class that has an instruction counts it. */
static const struct census_class classes[] = {
    {"int8 tile", "AMX: tiles of bytes",
     LIST("tdpbssd", "tdpbsud", "tdpbusd", "tdpbuud")},
    {"bf16 tile", "AMX: tiles of bf16 and f16", LIST("tdpbf16ps", "tdpfp16ps")},
    {"int8 matrix", "Arm i8mm", LIST("smmla", "ummla", "usmmla")},
    {"int8 dot", "VNNI, Arm dot product", LIST("vpdpb*", "sdot", "udot", "usdot")},
    {"int8 pairs", "products of bytes in pairs, before VNNI",
     LIST("vpmaddubsw", "pmaddubsw", "smull*", "smlal*")},
    {"bf16 dot", "dot products of bf16", LIST("vdpbf16ps", "bfdot", "bfmmla", "bfmlal*")},
    {"f16 fma", "multiply-adds of f16", LIST("vfmadd*ph", "vfnmadd*ph", "vfmadd*sh")},
    {"f32 fma", "multiply-adds of f32",
     LIST("vfmadd*ps", "vfnmadd*ps", "vfmadd*ss", "vfnmadd*ss", "vfmsub*ps", "fmla",
          "fmls", "fmadd")},
    {"int16 pairs", "products of 16 bits in pairs",
     LIST("vpmaddwd", "pmaddwd", "vpdpw*")},
    {"f16 convert", "f16 to f32", LIST("vcvtph2ps*", "fcvtl*")},
    {"prefetch", "asks for memory ahead", LIST("prefetch*", "prfm*")},
    {NULL, NULL, NULL},
};

/* A * stands for any characters. */
static bool matches(const char *pattern, const char *word)
{
    const char *star = strchr(pattern, '*');
    size_t n, tail;

    if (!star)
        return strcmp(pattern, word) == 0;
    n = (size_t)(star - pattern);
    tail = strlen(star + 1);
    return strncmp(pattern, word, n) == 0 && strlen(word) >= n + tail &&
           strcmp(word + strlen(word) - tail, star + 1) == 0;
}

static int class_of(const char *mnemonic)
{
    for (int i = 0; classes[i].name; i++)
        for (int k = 0; classes[i].mnemonics[k]; k++)
            if (matches(classes[i].mnemonics[k], mnemonic))
                return i;
    return -1;
}

static int bits_of(const char *operands)
{
    if (strstr(operands, "tmm"))
        return 8192;
    if (strstr(operands, "zmm"))
        return 512;
    if (strstr(operands, "ymm"))
        return 256;
    return strstr(operands, "xmm") || strstr(operands, ".16b") || strstr(operands, ".4s")
               ? 128
               : 0;
}

/* The counts of the current function, and those of the one that has the most so far. */
struct tally {
    char function[96];
    long long n[CENSUS_CLASSES_MAX], most[CENSUS_CLASSES_MAX];
};

static void end_function(struct census *c, struct tally *t)
{
    for (int i = 0; classes[i].name; i++)
        if (t->n[i] > t->most[i]) {
            t->most[i] = t->n[i];
            memcpy(c->most[i], t->function, sizeof(t->function));
        }
    memset(t->n, 0, sizeof(t->n));
}

/* "0000000000001139 <main>:" */
static bool begins_function(const char *line, char out[96])
{
    const char *a = strchr(line, '<'), *b = a ? strrchr(a, '>') : NULL;
    int n;

    if (!b || b[1] != ':' || line[0] == ' ')
        return false;
    n = (int)(b - a - 1);
    snprintf(out, 96, "%.*s", n < 95 ? n : 95, a + 1);
    return true;
}

/* "    1139:\tvfmadd231ps %ymm0,%ymm1,%ymm2" */
static void count(struct census *c, struct tally *t, const char *line)
{
    const char *tab = strchr(line, '\t');
    char word[32];
    size_t n;
    int i, bits;

    if (line[0] != ' ' || !tab)
        return;
    n = strcspn(++tab, " \t\n");
    if (n == 0 || n >= sizeof(word))
        return;
    memcpy(word, tab, n);
    word[n] = '\0';
    c->n_all++;
    i = class_of(word);
    if (i < 0)
        return;
    bits = bits_of(tab + n);
    c->n[i]++;
    c->bits[i] = bits > c->bits[i] ? bits : c->bits[i];
    t->n[i]++;
}

static int read_listing(struct census *c, FILE *f)
{
    struct tally t = {.function = ""};
    size_t capacity = 0;
    char *line = NULL;

    while (getline(&line, &capacity, f) >= 0) {
        char name[96];

        if (begins_function(line, name)) {
            end_function(c, &t);
            memcpy(t.function, name, sizeof(name));
        } else {
            count(c, &t, line);
        }
    }
    end_function(c, &t);
    free(line); /* getline's */
    return c->n_all > 0 ? OK : err_set(ERR_FORMAT, "objdump finds no instructions in it");
}

/* ERR_NOTFOUND: no such file, or objdump (Debian: binutils) is not installed. ERR_FORMAT: objdump
 * finds no program in it, or of another processor than it knows. */
static int take_census(struct census *out, const char *path)
{
    const char *argv[] = {"objdump", "-d", "--no-show-raw-insn", "-w", "--", path, NULL};
    FILE *listing = tmpfile(), *errors = tmpfile();
    struct child_program p = {.argv = argv, .fd = {-1, -1, -1}};
    char last[160];
    int fd, rc = OK;
    pid_t pid = 0;

    *out = (struct census){0};
    rc = listing && errors ? file_open(&fd, path)
                           : err_set(ERR_IO, "cannot make a temporary file: %m");
    if (rc == OK) {
        close(fd); /* it is there, and no pipe */
        p.fd[1] = fileno(listing);
        p.fd[2] = fileno(errors);
        rc = child_start(&pid, &p);
        if (rc == ERR_NOTFOUND)
            rc = err_set(ERR_NOTFOUND, "objdump is not installed (Debian: binutils)");
    }
    if (rc == OK && child_wait(&pid, 0) != OK) {
        child_last_line(fileno(errors), last, sizeof(last));
        rc = err_set(ERR_FORMAT, "%s: %s", path, *last ? last : err_msg());
    } else if (rc == OK) {
        rewind(listing);
        rc = read_listing(out, listing);
        rc = rc == OK ? OK : err_prefix(rc, "%s", path);
    }
    if (listing)
        fclose(listing);
    if (errors)
        fclose(errors);
    return rc;
}

static void print_census(const struct census *c, const char *path)
{
    static const struct table_column columns[] = {{"class", -12},
                                                  {"number", 9},
                                                  {"registers", 9},
                                                  {"most of them in", TABLE_OPEN},
                                                  {0}};
    struct table t = {.f = stdout, .markdown = true, .columns = columns};

    printf("%s: %lld instructions\n", path, c->n_all);
    table_head(&t);
    for (int i = 0; classes[i].name; i++) {
        if (c->n[i] == 0)
            continue;
        table_cell(&t, "%s", classes[i].name);
        table_cell(&t, "%lld", c->n[i]);
        if (c->bits[i] > 0)
            table_cell(&t, "%d bits", c->bits[i]);
        else
            table_cell(&t, "%s", "");
        table_cell(&t, "%s", c->most[i]);
    }
    for (int i = 0; classes[i].name; i++)
        if (c->n[i] == 0)
            printf("no %s inside (%s)\n", classes[i].name, classes[i].help);
}

static json_t *census_json(const struct census *c, const char *path)
{
    json_t *o = json_pack("{s:o, s:I, s:{}}", "file", json_string_lossy(path), "n_all",
                          (json_int_t)c->n_all, "classes");

    for (int i = 0; classes[i].name; i++)
        json_object_set_new(
            json_object_get(o, "classes"), classes[i].name,
            json_pack("{s:I, s:o, s:o}", "n", (json_int_t)c->n[i], "register_bits",
                      c->bits[i] > 0 ? json_integer(c->bits[i]) : json_null(), "most_in",
                      c->n[i] > 0 ? json_string_lossy(c->most[i]) : json_null()));
    return o;
}

static int explain_library(const struct flags *f)
{
    struct census c;
    json_t *j;
    int rc;

    TRY(take_census(&c, f->library));
    if (!f->json) {
        print_census(&c, f->library);
        return OK;
    }
    j = census_json(&c, f->library);
    rc = j ? cli_print_json(j) : ERR_NOMEM;
    json_decref(j);
    return rc;
}

/* ---- a model ---- */

struct explained {
    const struct flags *f;
    struct par_team *team;
    struct tune_bench *bench;
    struct measure *measure;
    enum kern_type type;
    struct model_variants chosen;
    json_t *card, *all; /* card NULL: bounds are unknown */
    struct tune_shape shape;
    const struct kern_variant *v[VARIANTS_MAX];
    struct kern_schedule schedule[VARIANTS_MAX];
    int n, n_threads;
};

static void find_variants(struct explained *x)
{
    uint64_t usable = cpu_isa_usable();

    x->n = 0;
    for (int i = 0; kern_variants[i] && x->n < VARIANTS_MAX; i++) {
        const struct kern_variant *v = kern_variants[i];

        if (v->op == KERN_GEMM_F32 + x->type && !(v->isa & ~usable) &&
            v->precision <= (enum kern_precision)x->f->precision && (v->isa || !usable))
            x->v[x->n++] = v;
    }
}

static int trial(void *arg, int i, struct measure_trial *t)
{
    struct explained *x = arg;

    if (cli_interrupted)
        return err_set(ERR_CANCELED, "interrupted");
    x->shape.v = x->v[i];
    TRY(tune_bench_shape(x->bench, &x->shape));
    return tune_run_once(x->bench, &x->schedule[i], x->n_threads, &t->seconds);
}

/* The share of the card's bound that a rate in GFLOP/s reaches; NaN: unknown, or it is above the
 * bound, which then is wrong: memory that is shared with others is faster at times. */
static double share_of_bound(const struct explained *x, double gflops, double flop,
                             double bytes)
{
    const char *precision = kern_precision_name(x->f->precision);
    double peak = measure_card_peak_gflops(x->card, kern_type_name(x->type), precision,
                                           x->n_threads);
    double roof = measure_card_read_gbps(x->card, x->n_threads) * flop / bytes;
    double share = gflops / (roof < peak ? roof : peak);

    return share <= 1 ? share : NAN;
}

static int explain_rows(struct explained *x, const char *name, int64_t rows, json_t *out)
{
    const struct measure_opts mo = {MEASURE_EXACTLY((int)x->f->rounds)};
    const struct kern_variant *chosen = model_variants_at(&x->chosen, rows);
    double flop = 2.0 * (double)rows * (double)x->shape.n * (double)x->shape.k, gflops;
    struct measure_report r[VARIANTS_MAX];
    json_t *others = json_array();
    char text[128] = "";
    int at = 0;

    x->shape.m = rows;
    for (int i = 0; i < x->n; i++) {
        x->shape.v = x->v[i];
        TRY(tune_bench_shape(x->bench, &x->shape));
        kern_schedule_default(&x->schedule[i], x->v[i], tune_bench_mat(x->bench), rows,
                              x->n_threads);
        at = x->v[i] == chosen ? i : at;
    }
    TRY(measure_compare(x->measure, x->n, &mo, trial, x));
    for (int i = 0; i < x->n; i++)
        measure_report(x->measure, i, &r[i]);
    for (int i = 0; i < x->n; i++)
        if (i != at)
            json_array_append_new(others,
                                  json_pack("{s:s, s:f, s:f}", "variant", x->v[i]->name,
                                            "gflops", 1e-9 * flop / r[i].estimate,
                                            "of_chosen", r[at].estimate / r[i].estimate));
    kern_schedule_print(&x->schedule[at], text, sizeof(text));
    gflops = 1e-9 * flop / r[at].estimate;
    json_array_append_new(
        out,
        json_pack("{s:s, s:I, s:I, s:I, s:s, s:s, s:f, s:f, s:o, s:o}", "matrix", name,
                  "n", (json_int_t)x->shape.n, "k", (json_int_t)x->shape.k, "rows",
                  (json_int_t)rows, "variant", chosen->name, "schedule", text, "gflops",
                  gflops, "us", 1e6 * r[at].estimate, "share_of_bound",
                  json_number(share_of_bound(x, gflops, flop,
                                             (double)tune_bench_mat(x->bench)->bytes)),
                  "others", others));
    return OK;
}

static int parse_rows(int64_t rows[ROWS_MAX], int *n, const char *text)
{
    const char *p = text;

    for (*n = 0; *n < ROWS_MAX; p++) {
        char *end;
        long long v = strtoll(p, &end, 10);

        if (end == p || (*end && *end != ',') || v < 1 || v > 65536)
            return err_set(ERR_ARG,
                           "--rows: expected numbers in [1, 65536] separated by commas, "
                           "found \"%.40s\"",
                           text);
        rows[(*n)++] = v;
        p = end;
        if (!*p)
            return OK;
    }
    return err_set(ERR_ARG, "--rows: expected at most %d numbers", ROWS_MAX);
}

static int explain_matrices(struct explained *x, const struct model_config *c)
{
    struct model_shape shapes[MODEL_N_MATS];
    int64_t rows[ROWS_MAX];
    int n_rows = 0;

    TRY(parse_rows(rows, &n_rows, x->f->rows));
    model_shapes(c, shapes);
    model_shapes_join(shapes);
    x->type = c->weight_type;
    TRY(model_variants_choose(&x->chosen, x->type, (enum kern_precision)x->f->precision,
                              shapes[0].n, shapes[0].k));
    find_variants(x);
    for (int i = 0; i < MODEL_N_MATS; i++) {
        if (!shapes[i].n || !shapes[i].k || i == MODEL_MAT_ROUTER)
            continue;
        x->shape = (struct tune_shape){
            .n = shapes[i].n, .k = shapes[i].k, .k_unit = shapes[i].k_unit};
        for (int r = 0; r < n_rows; r++)
            TRY(explain_rows(x, shapes[i].name, rows[r], x->all));
    }
    return OK;
}

/* "avx2 0.52, ref 0.01" */
static void put_others(char *out, size_t size, const json_t *others)
{
    size_t i, n = 0;
    json_t *o;

    out[0] = '\0';
    json_array_foreach((json_t *)others, i, o) if (n < size) n +=
        (size_t)snprintf(out + n, size - n, "%s%s %.2f", i ? ", " : "",
                         json_str_at(o, "variant", ""), json_f64_at(o, "of_chosen"));
}

static void print_matrices(const struct explained *x)
{
    static const struct table_column columns[] = {
        {"matrix", -12},
        {"rows", 5},
        {"kernel", -20},
        {"GFLOP/s", 8},
        {"% of bound", 10},
        {"others, speed of the chosen = 1", TABLE_OPEN},
        {0}};
    struct table t = {.f = stdout, .markdown = true, .columns = columns};
    char others[512];
    size_t i;
    json_t *row;

    if (*x->chosen.note)
        printf("measured when the model opens: %s\n", x->chosen.note);
    table_head(&t);
    json_array_foreach(x->all, i, row)
    {
        double share = json_f64_at(row, "share_of_bound");

        table_cell(&t, "%s", json_str_at(row, "matrix", ""));
        table_cell(&t, "%.0f", json_f64_at(row, "rows"));
        table_cell(&t, "%s", json_str_at(row, "variant", ""));
        table_cell(&t, "%.1f", json_f64_at(row, "gflops"));
        if (isfinite(share))
            table_cell(&t, "%.0f", 100 * share);
        else
            table_cell(&t, "%s", "");
        put_others(others, sizeof(others), json_object_get(row, "others"));
        table_cell(&t, "%s", others);
    }
}

static int open_bench(struct explained *x)
{
    struct cpu_budget budget;

    TRY(cpu_isa_limit(x->f->isa));
    TRY(cpu_budget_get(&budget));
    x->n_threads = x->f->threads ? (int)x->f->threads : budget.n;
    if (x->n_threads > budget.n)
        return err_set(ERR_ARG, "--threads: %d asked for, %d allowed (%s)", x->n_threads,
                       budget.n, budget.reason);
    TRY(cli_read_card(NULL, &x->card));
    TRY(measure_open(&x->measure, VARIANTS_MAX, 99));
    TRY(par_team_open(&x->team, budget.cpus, x->n_threads, 1));
    return tune_bench_open(&x->bench, x->team, &(struct tune_bench_opts){.seed = 1});
}

static int explain_model(const struct flags *f)
{
    struct explained x = {.f = f, .all = json_array()};
    struct format_file *file = NULL;
    int rc = format_open(&file, f->model);

    if (rc == OK)
        rc = open_bench(&x);
    if (rc == OK)
        rc = explain_matrices(&x, &file->config);
    if (rc == OK && f->json) {
        json_t *j = json_pack("{s:o, s:s, s:s, s:i, s:s, s:O}", "model",
                              json_string_lossy(f->model), "type", kern_type_name(x.type),
                              "precision", kern_precision_name(f->precision), "n_threads",
                              x.n_threads, "chosen_by", x.chosen.note, "products", x.all);

        rc = j ? cli_print_json(j) : ERR_NOMEM;
        json_decref(j);
    } else if (rc == OK) {
        print_matrices(&x);
    }
    format_close(&file);
    tune_bench_close(&x.bench);
    par_team_close(&x.team);
    measure_close(&x.measure);
    json_decref(x.card);
    json_decref(x.all);
    return rc;
}

static int explain(const struct verb_words *w)
{
    const struct flags *f = w->opts;

    cli_catch_interrupts();
    if (!f->model == !f->library)
        return err_set(ERR_ARG, "expected either --model or --library");
    return f->model ? explain_model(f) : explain_library(f);
}

const struct verb cli_verb_explain = {
    .name = "explain",
    .help = "Say which kernels compute a model, or which instructions a library has.",
    .place = 9,
    .usage =
        {.line = "sandwich explain --model FILE|--library FILE [options]",
         .about =
             "With --model: each matrix product with the kernel that the engine takes "
             "for it and "
             "how fast the other kernels of this processor are, measured in turn on "
             "weights that "
             "are not cached, under the cost model's schedule. With --library: which "
             "instructions "
             "for products a program contains, the widest registers they use, and the "
             "function "
             "that has most of them. What is there need not be what runs.",
         .examples =
             "  sandwich explain --model llama-160m-q4_0.gguf --precision a8\n"
             "  sandwich explain --library /usr/lib/x86_64-linux-gnu/libopenblas.so.0\n"},

    .fills = {"model"},
    .opts = {{table}},
    .opts_bytes = sizeof(struct flags),
    .run = explain,
};
