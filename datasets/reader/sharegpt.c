#include "datasets/build.h"

/* ShareGPT_V3: a list of {id, conversations: [{from, value}]}. The collectors
 * split long conversations, so that many begin with the model's answer. */
static const struct dataset_chat_form form = {
    .id = "id",
    .part = "_",
    .turns = "conversations",
    .role = "from",
    .text = "value",
    .asks = "human|user",
    .answers = "gpt|chatgpt|assistant|bing|bard",
};

static int offer(struct dataset *d, const struct dataset_opts *o, const char *text,
                 size_t n, const char *where, bool *full)
{
    return dataset_offer_chat(d, o, &form, text, n, where, full);
}

static int sharegpt_open(struct dataset *d, const struct dataset_opts *o)
{
    return dataset_read_records(d, o, offer);
}

const struct dataset_reader dataset_reader_sharegpt = {
    .name = "sharegpt",
    .help = "conversations as {conversations: [{from, value}]}, a JSON list or JSONL",
    .needs_path = true,
    .keys = "conversations",
    .open = sharegpt_open,
};
