#include "datasets/build.h"

/* LMSYS-Chat-1M: {conversation_id, model, conversation: [{content, role}], ...}. */
static const struct dataset_chat_form form = {
    .id = "conversation_id",
    .turns = "conversation",
    .role = "role",
    .text = "content",
    .asks = "user|human",
    .answers = "assistant|gpt",
};

static int offer(struct dataset *d, const struct dataset_opts *o, const char *text,
                 size_t n, const char *where, bool *full)
{
    return dataset_offer_chat(d, o, &form, text, n, where, full);
}

static int lmsys_open(struct dataset *d, const struct dataset_opts *o)
{
    return dataset_read_records(d, o, offer);
}

const struct dataset_reader dataset_reader_lmsys = {
    .name = "lmsys",
    .help =
        "conversations as {conversation: [{content, role}]}, JSONL or a JSON list, as "
        "LMSYS-Chat-1M",
    .needs_path = true,
    .keys = "conversation",
    .open = lmsys_open,
};
