#include "datasets/build.h"

/* BurstGPT: Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type; later files
 * have further columns. Times are seconds from the trace's first day. A request that failed has
 * 0 response tokens. */
static int burstgpt_open(struct dataset *d, const struct dataset_opts *o)
{
    static const struct dataset_csv_form form = {.arrival = "Timestamp",
                                                 .prompt = "Request tokens",
                                                 .output = "Response tokens",
                                                 .needs_arrival = true};

    return dataset_read_csv(d, o, &form);
}

const struct dataset_reader dataset_reader_burstgpt = {
    .name = "burstgpt",
    .help = "BurstGPT trace (Timestamp, Request tokens, Response tokens)",
    .needs_path = true,
    .columns = "Request tokens",
    .open = burstgpt_open,
};
