#include "datasets/build.h"

/* Names that public traces give to the same two things. */
#define PROMPT_NAMES                                                                     \
    "num_prefill_tokens|n_prompt_tok|prompt_tokens|prompt_len|prompt_length|"            \
    "prompt_size|input_length|input_len|input_tokens|prompt"
#define OUTPUT_NAMES                                                                     \
    "num_decode_tokens|n_output_tok|output_tokens|output_len|output_length|token_size|"  \
    "completion_tokens|output"

static int lengths_csv_open(struct dataset *d, const struct dataset_opts *o)
{
    /* Files of the other readers, too, where their times do not matter. */
    static const struct dataset_csv_form form = {
        .prompt = PROMPT_NAMES "|ContextTokens|Request tokens",
        .output = OUTPUT_NAMES "|GeneratedTokens|Response tokens",
        .arrival = "arrival_s|arrived_at|arrival_time|arrival_timestamp"};

    return dataset_read_csv(d, o, &form);
}

const struct dataset_reader dataset_reader_lengths_csv = {
    .name = "lengths_csv",
    .help = "CSV of prompt and output lengths (num_prefill_tokens, num_decode_tokens)",
    .needs_path = true,
    .columns = PROMPT_NAMES,
    .open = lengths_csv_open,
};
