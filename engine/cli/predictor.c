/* sandwich predictor: trains a predictor of output lengths on answered requests, or evaluates
 * one on requests that it has not seen. */
#include "cli/predictor.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/name.h"
#include "cli/cli.h"
#include "tokenizer/tokenizer.h"

static const char *format_name(int i)
{
    return dataset_readers[i] ? dataset_readers[i]->name : NULL;
}

#define OPT_OF struct cli_predictor_flags
static const struct opt_row data_rows[] = {
    OPT_ROW(STR, data, NULL,
            "Answered requests: conversations, or instructions with their outputs. Also "
            "below $SANDWICH_DATA (without it: ../shared/data).",
            .unit = "FILE"),
    OPT_ROW(
        STR, format, "auto",
        "Format of the file. auto: recognised by its first record. It must have texts: "
        "sharegpt, lmsys, alpaca or nq.",
        .unit = "NAME", .names = format_name),
    OPT_ROW(STR, tokenizer, NULL,
            "Count tokens by the vocabulary of this model file or tokenizer. Without it "
            "four bytes of text are taken for a token.",
            .unit = "FILE"),
    OPT_ROW(
        STR, generate, NULL,
        "Model that answers the prompts. The lengths of its answers take the place of "
        "those in the data. Prompts are given as they are, without a chat template, "
        "and the most likely token is taken. Its vocabulary counts tokens; without "
        "one it needs --tokenizer.",
        .unit = "FILE"),
    OPT_ROW(INT, max_new, "512",
            "--generate: longest answer. A longer one is cut, and counts as that long.",
            .unit = "tok", .min = 1, .max = 1 << 20),
    OPT_ROW(INT, n, "20000",
            "Number of requests to take at random, the same each time. 0: all.",
            .max = 1e9),
    {0},
};

static const struct opt_row train_rows[] = {
    OPT_ROW(STR, out, NULL, "File to write.", .unit = "FILE", .letter = 'o'),
    OPT_ROW(
        INT, fold, "1",
        "Part of the conversations to hold out, from 1 to --folds, for evaluation. 0: "
        "learn from all of them.",
        .max = 1000),
    OPT_ROW(
        INT, folds, "5",
        "Number of parts. All turns and all copies of a conversation are in one part.",
        .min = 1, .max = 1000),
    OPT_HELP_ROW,
};

static const struct opt_row eval_rows[] = {
    OPT_ROW(STR, predictor, NULL,
            "Predictor that `sandwich predictor train` has written.", .unit = "FILE"),
    OPT_ROW(INT, max_tok, "0",
            "Longest sequence, prompt and output, which is the size of the large bucket; "
            "longer ones are left out. 0: the longest of the data.",
            .unit = "tok", .max = 1 << 24),
    OPT_ROW(F64, alpha, "0.5",
            "A predicted length is inflated by 1 + alpha times its uncertainty.",
            .max = 100),
    OPT_ROW(F64, tau, "1",
            "Uncertainty above which a request gets the large bucket, from 0 to 1.",
            .max = 1),
    OPT_ROW(BOOL, json, NULL, "Print JSON."),
    OPT_HELP_ROW,
};
#define N_ROWS(rows) ((int)(sizeof(rows) / sizeof((rows)[0])))

/* --- data */

static int open_set(struct cli_predictor_data *d, const struct cli_predictor_flags *f)
{
    struct dataset_opts o;
    int rc = opt_init(dataset_opt_table, &o);

    if (rc == OK)
        rc = opt_set(dataset_opt_table, &o, "path", f->data, "--data");
    if (rc == OK)
        rc = opt_set(dataset_opt_table, &o, "reader", f->format, "--format");
    o.n = f->n;
    o.turns = DATASET_TURNS_EACH;
    if (rc == OK)
        rc = dataset_open(&d->set, &o);
    opt_free(dataset_opt_table, &o);
    return rc;
}

static int open_tokenizer(struct cli_predictor_data *d, const char *path)
{
    if (!path) {
        snprintf(d->tokens, sizeof(d->tokens), "%d bytes", DATASET_BYTES_PER_TOK);
        return OK;
    }
    TRY(tok_open(&d->tok, path, NULL));
    snprintf(d->tokens, sizeof(d->tokens), "%.40s of %d", tok_kind(d->tok),
             tok_vocab(d->tok));
    return OK;
}

int cli_predictor_open(struct cli_predictor_data *d, const struct cli_predictor_flags *f,
                       const struct kv_learned_from *from)
{
    *d = (struct cli_predictor_data){0};
    if (strcmp(f->format, "auto") != 0 &&
        !name_find(dataset_readers, f->format, "format"))
        return err_prefix(ERR_NOTFOUND, "--format");
    TRY(open_tokenizer(d, f->tokenizer || !f->generate ? f->tokenizer : f->generate));
    if (f->generate) {
        size_t n = strlen(d->tokens);

        snprintf(d->tokens + n, sizeof(d->tokens) - n, ", generated");
    }
    if (from && strcmp(d->tokens, from->tokens) != 0)
        return err_set(ERR_ARG,
                       "--tokenizer or --generate: expected what %s was trained with "
                       "(%s), found %s",
                       f->predictor, from->tokens, d->tokens);
    TRY(open_set(d, f));
    TRY(dataset_examples(&d->examples, d->set, d->tok, from ? from->fold : f->fold,
                         from ? from->folds : f->folds));
    return f->generate ? cli_predictor_generate(&d->examples, f) : OK;
}

void cli_predictor_close(struct cli_predictor_data *d)
{
    dataset_examples_fini(&d->examples);
    dataset_close(&d->set);
    tok_close(&d->tok);
}

/* --- train */

static const struct opt_usage train_usage = {
    .line = "sandwich predictor train --data FILE --out FILE [options]",
    .about = "Learn from answered requests how many tokens a prompt's answer will have, "
             "and write what was learned. The same data give the same file.",
    .examples =
        "  sandwich predictor train --data chats.json --format sharegpt --out p.json\n"
        "  sandwich predictor train --data alpaca_data.json --fold 2 -o p2.json\n"
        "  sandwich predictor train --data alpaca_data.json --n 500 --generate m.gguf -o "
        "p3.json\n",
    .exit_status = CLI_EXIT_STATUS,
};

static int train(const struct cli_predictor_flags *f)
{
    struct cli_predictor_data d = {0};
    struct kv_learned *l = NULL;
    struct kv_learned_from from = {.fold = f->fold, .folds = f->folds};
    uint64_t before_ns;
    double seconds = 0;
    int rc;

    if (!f->data || !f->out)
        return err_set(
            ERR_ARG,
            "--data and --out are needed: the file to learn from and the one to write");
    rc = file_check_target(f->out, f->data);
    if (rc == OK)
        rc = cli_predictor_open(&d, f, NULL);
    if (rc == OK) {
        before_ns = clock_ns();
        rc = kv_learn(&l, d.examples.e, d.examples.n_learn);
        seconds = (double)(clock_ns() - before_ns) * 1e-9;
    }
    if (rc == OK) {
        from.n_examples = d.examples.n_learn;
        snprintf(from.format, sizeof(from.format), "%.31s", d.set->reader->name);
        snprintf(from.tokens, sizeof(from.tokens), "%s", d.tokens);
        rc = kv_learned_save(l, &from, f->out);
    }
    if (rc == OK)
        printf("learned from %lld requests (%s) in %.3f s; %lld are held out; written to "
               "%s\n",
               (long long)d.examples.n_learn, from.format, seconds,
               (long long)d.examples.n_held_out, f->out);
    kv_learned_close(&l);
    cli_predictor_close(&d);
    return rc;
}

/* --- the verb */

static const struct opt_usage eval_usage = {
    .line = "sandwich predictor eval --data FILE --predictor FILE [options]",
    .about =
        "Compare a predictor with the best constant, on the conversations that were held "
        "out from training: errors of the length, and accuracy, memory used and "
        "overflows "
        "with fixed buckets and with buckets that are learned from the lengths.",
    .examples =
        "  sandwich predictor eval --data chats.json --predictor p.json\n"
        "  sandwich predictor eval --data alpaca_data.json --predictor p2.json --json\n",
    .exit_status = CLI_EXIT_STATUS,
};

static int verb(const char *name, const struct opt_usage *u, const struct opt_row *own,
                int n_own, int (*fn)(const struct cli_predictor_flags *f), int argc,
                char **argv)
{
    struct opt_row rows[N_ROWS(data_rows) + N_ROWS(eval_rows)];
    const struct opt_row *table = cli_join(rows, N_ROWS(rows), data_rows, own, n_own);
    struct cli_predictor_flags f = {0};
    int status = cli_fail(name, opt_init(table, &f));

    if (status == 0)
        status = cli_flags(u, table, &f, &f.help, argc, argv, 0);
    if (status == -1)
        status = cli_fail(name, fn(&f));
    opt_free(table, &f);
    return status;
}

static const char help[] =
    "Usage: sandwich predictor train|eval [options]\n"
    "\n"
    "Train or evaluate a predictor of output lengths.\n"
    "\n"
    "Commands:\n"
    "  train    Learn from answered requests and write a predictor.\n"
    "  eval     Evaluate a predictor on requests that it has not seen.\n"
    "\n"
    "Options:\n"
    "  -h, --help\n"
    "        Print this text and exit. `sandwich predictor train --help` and\n"
    "        `sandwich predictor eval --help` describe the options of each.\n"
    "\n"
    "Examples:\n"
    "  sandwich predictor train --data conversations.json --out predictor.json\n"
    "  sandwich predictor eval --data conversations.json --predictor predictor.json\n"
    "\n"
    "Exit status:\n" CLI_EXIT_STATUS;

int cli_predictor(int argc, char **argv)
{
    if (argc > 0 && !strcmp(argv[0], "train"))
        return verb("predictor train", &train_usage, train_rows, N_ROWS(train_rows),
                    train, argc - 1, argv + 1);
    if (argc > 0 && !strcmp(argv[0], "eval"))
        return verb("predictor eval", &eval_usage, eval_rows, N_ROWS(eval_rows),
                    cli_predictor_evaluate, argc - 1, argv + 1);
    if (argc > 0 && (!strcmp(argv[0], "--help") || !strcmp(argv[0], "-h"))) {
        fputs(help, stdout);
        return 0;
    }
    fprintf(stderr,
            "sandwich predictor: expected train or eval, found %s%s%s (usage: sandwich "
            "predictor train|eval [options]; --help describes the options)\n",
            argc > 0 ? "\"" : "nothing", argc > 0 ? argv[0] : "", argc > 0 ? "\"" : "");
    return EXIT_USAGE;
}
