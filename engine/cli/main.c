/* The program `sandwich`. What it can do is in verb/, one file each. */
#include "cli/cli.h"

extern const struct verb *const cli_verbs[]; /* written by make */

int main(int argc, char **argv)
{
    const struct program sandwich = {
        .name = "sandwich",
        .line = "sandwich VERB [options]",
        .about = "Run Llama-family language models on CPUs, with separate plans for "
                 "prefill and "
                 "decode.",
        .verbs = cli_verbs,
        .environment = "  SANDWICH_ISA   Highest instruction set to detect: ref, avx2, "
                       "avx512, ...\n",
        .examples = "  sandwich model make --arch llama-160m --out llama-160m.gguf\n"
                    "  sandwich run --model llama-160m.gguf --prompt \"Once upon a "
                    "time\" -n 32\n",
        .exit_status = CLI_EXIT_STATUS,
        .failed = 1,
        .names_verb = true};

    return program_main(&sandwich, argc, argv);
}
