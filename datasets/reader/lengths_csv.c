#include <math.h>

#include "datasets/build.h"
#include "datasets/csv.h"

/* Names that public traces give to the same three things. */
#define PROMPT_NAMES                                                                     \
    "num_prefill_tokens|n_prompt_tok|prompt_tokens|prompt_len|prompt_length|prompt_"     \
    "size|"                                                                              \
    "input_length|input_len|input_tokens|ContextTokens|Request tokens"
#define OUTPUT_NAMES                                                                     \
    "num_decode_tokens|n_output_tok|output_tokens|output_len|output_length|token_size|"  \
    "completion_tokens|GeneratedTokens|Response tokens"
#define ARRIVAL_NAMES "arrival_s|arrived_at|arrival_time|arrival_timestamp"

struct columns {
    int prompt, output, arrival;
    double first_s, last_s; /* NaN before the first row */
};

MUST static int find_columns(const struct dataset_csv *t, struct columns *c)
{
    int rc = dataset_csv_column(t, PROMPT_NAMES, 1, &c->prompt);

    if (rc == OK)
        rc = dataset_csv_column(t, OUTPUT_NAMES, 1, &c->output);
    if (rc == OK)
        rc = dataset_csv_column(t, ARRIVAL_NAMES, 0, &c->arrival);
    c->first_s = c->last_s = NAN;
    return rc;
}

MUST static int read_arrival(const struct dataset_csv *t, struct columns *c, double *out)
{
    double s;
    int rc;

    *out = NAN;
    if (c->arrival < 0)
        return OK;
    rc = dataset_csv_number(t, c->arrival, &s);
    if (rc != OK)
        return rc;
    if (s < c->last_s)
        return dataset_csv_refuse(t, c->arrival,
                                  "a time no earlier than the line before");
    if (isnan(c->first_s))
        c->first_s = s;
    c->last_s = s;
    *out = s - c->first_s;
    return OK;
}

MUST static int read_row(struct dataset *d, const struct dataset_csv *t,
                         struct columns *c, bool *full)
{
    struct dataset_item it = {0};
    int rc;

    rc = dataset_csv_count(t, c->prompt, DATASET_MAX_TOK, &it.n_prompt);
    if (rc == OK)
        rc = dataset_csv_count(t, c->output, DATASET_MAX_TOK, &it.n_output);
    if (rc == OK)
        rc = read_arrival(t, c, &it.arrival_s);
    if (rc != OK)
        return rc;
    if (it.n_prompt == 0 || it.n_output == 0) {
        dataset_skip(d, "a length of 0");
        return OK;
    }
    return dataset_offer(d, &it, full);
}

static int lengths_csv_open(struct dataset *d, const struct dataset_opts *o)
{
    struct dataset_csv t;
    struct columns c;
    bool full = false;
    int more, rc;

    rc = dataset_csv_init(&t, o->path);
    if (rc != OK)
        return rc;
    rc = find_columns(&t, &c);
    while (rc == OK && !full) {
        rc = dataset_csv_next(&t, &more);
        if (rc != OK || !more)
            break;
        rc = read_row(d, &t, &c, &full);
    }
    dataset_csv_fini(&t);
    return rc;
}

const struct dataset_reader dataset_reader_lengths_csv = {
    .name = "lengths_csv",
    .help = "CSV of prompt and output lengths (num_prefill_tokens, num_decode_tokens)",
    .needs_path = true,
    .open = lengths_csv_open,
};
