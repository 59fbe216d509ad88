/* The program `sandwich`: finds the verb that was asked for and runs it. */
#include "cli/cli.h"

#include <stdbool.h>
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "cpu/program.h"

static const struct {
    const char *name, *help;
    int (*main)(int argc, char **argv);
} verbs[] = {
    {"run", "Generate text from a prompt and report the speed.", cli_run},
    {"serve", "Serve a model over HTTP with OpenAI's API.", cli_serve},
    {"bench", "Measure prefill and decode of models, as llama-bench does.", cli_bench},
    {"model", "Make a model with random weights, or inspect a model file.", cli_model},
    {"plan", "Search which CPUs prefill and decode should use.", cli_plan},
    {"tune", "Search the fastest schedule of every matrix product.", cli_tune},
    {"profile", "Time products and copies, for slices on a CPU and an accelerator.",
     cli_profile},
    {"transfer", "Time keys and values on their way from one process to another.",
     cli_transfer},
    {"explain", "Say which kernels compute a model, or which instructions a library has.",
     cli_explain},
    {"graph", "Rewrite a graph of operators into a smaller one.", cli_graph},
    {"kernel", "Raise a kernel, change its parameters, lower and time it.", cli_kernel},
    {"predictor", "Train or evaluate a predictor of output lengths.", cli_predictor},
};
#define N_VERBS ((int)(sizeof(verbs) / sizeof(verbs[0])))

volatile sig_atomic_t cli_interrupted;

static void on_interrupt(int sig)
{
    cli_interrupted = sig;
}

void cli_catch_interrupts(void)
{
    const struct sigaction act = {.sa_handler = on_interrupt, .sa_flags = SA_RESETHAND};

    struct sigaction now;

    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    if (sigaction(SIGHUP, NULL, &now) == 0 && now.sa_handler != SIG_IGN) /* nohup */
        sigaction(SIGHUP, &act, NULL);
}

int cli_print_json(const json_t *j)
{
    char *text = json_text(j, JSON_INDENT(2));

    if (!text)
        return ERR_NOMEM;
    puts(text);
    mem_free(text);
    return OK;
}

int cli_fail(const char *verb, int rc)
{
    if (rc == OK)
        return 0;
    fprintf(stderr, "sandwich %s: %s\n", verb, err_msg());
    return rc == ERR_ARG ? EXIT_USAGE : 1;
}

const struct opt_row *cli_join(struct opt_row *rows, int max, const struct opt_row *first,
                               const struct opt_row *own, int n_own)
{
    int n = 0;

    while (first[n].name)
        n++;
    assert(n + n_own < max);
    memcpy(rows, first, (size_t)n * sizeof(*rows));
    memcpy(rows + n, own, (size_t)n_own * sizeof(*rows));
    rows[n + n_own] = (struct opt_row){0};
    return rows;
}

int cli_flags(const struct opt_usage *u, const struct opt_row *table, void *s,
              const bool *help, int argc, char **argv, int n_words)
{
    int n = 0;
    int rc = opt_from_argv(table, s, argc, argv, &n);

    if (rc == OK && *help) {
        opt_help_usage(u, table, stdout);
        return 0;
    }
    if (rc == OK && n > n_words)
        rc = err_set(ERR_ARG, "unexpected argument \"%s\"", argv[n_words]);
    if (rc == OK && n < n_words)
        rc = err_set(ERR_ARG, "an argument is missing");
    if (rc == OK)
        return -1;
    fprintf(stderr, "sandwich: %s (usage: %s; --help describes the options)\n", err_msg(),
            u->line);
    return EXIT_USAGE;
}

void cli_progress(void *ctx, int64_t done_bytes, int64_t all_bytes)
{
    static uint64_t last_ns;
    uint64_t now = clock_ns();
    double frac = all_bytes > 0 ? (double)done_bytes / (double)all_bytes : 1;
    int n = (int)(frac * 30);

    if (!isatty(STDERR_FILENO) || (now - last_ns < 100000000 && done_bytes < all_bytes))
        return;
    last_ns = now;
    fprintf(stderr, "\r%s [%.*s%*s] %3.0f %% of %.2f GB", (const char *)ctx, n,
            "##############################", 30 - n, "", 100 * frac,
            (double)all_bytes * 1e-9);
    if (done_bytes >= all_bytes)
        fprintf(stderr, "\r\033[K");
    fflush(stderr);
}

static void usage(FILE *f)
{
    fputs("Usage: sandwich VERB [options]\n\n"
          "Run Llama-family language models on CPUs, with separate plans for prefill and "
          "decode.\n\nVerbs:\n",
          f);
    for (int i = 0; i < N_VERBS; i++)
        fprintf(f, "  %-9s %s\n", verbs[i].name, verbs[i].help);
    fputs("\nOptions:\n"
          "  -h, --help     Print this text. `sandwich VERB --help` describes a verb.\n"
          "  --version      Print commit, compiler and instruction sets.\n"
          "\nEnvironment:\n"
          "  SANDWICH_ISA   Highest instruction set to detect: ref, avx2, avx512, ...\n"
          "\nExamples:\n"
          "  sandwich model make --arch llama-160m --out llama-160m.gguf\n"
          "  sandwich run --model llama-160m.gguf --prompt \"Once upon a time\" -n 32\n"
          "\nExit status:\n" CLI_EXIT_STATUS,
          f);
}

static const char *verb(int i)
{
    return i < N_VERBS ? verbs[i].name : NULL;
}

static int run_verb(int i, int argc, char **argv)
{
    return verbs[i].main(argc, argv);
}

int main(int argc, char **argv)
{
    const struct cpu_program program = {.name = "sandwich",
                                        .verb = verb,
                                        .help = usage,
                                        .run = run_verb,
                                        .exit_usage = EXIT_USAGE,
                                        .exit_lost = EXIT_LOST};

    return cpu_program_main(&program, argc, argv);
}
