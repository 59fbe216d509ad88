#include "datasets/build.h"
#include "datasets/input.h"

/* ShareGPT_V3: one JSON list of {id, conversations: [{from, value}]}. Conversations were
 * cut to pieces by their collectors, so many begin with the model's turn. */
static const struct dataset_chat_form form = {
    .turns = "conversations",
    .role = "from",
    .text = "value",
    .asks = "human|user",
    .answers = "gpt|chatgpt|assistant|bing|bard",
};

static int sharegpt_open(struct dataset *d, const struct dataset_opts *o)
{
    struct dataset_input *in = NULL;
    bool full = false;
    char *text;
    size_t n;
    int rc;

    rc = dataset_input_open(&in, o->path);
    while (rc == OK && !full) {
        rc = dataset_input_element(in, &text, &n);
        if (rc != OK || !text)
            break;
        rc = dataset_offer_chat(d, &form, text, n, dataset_input_where(in), &full);
    }
    dataset_input_close(&in);
    return rc;
}

const struct dataset_reader dataset_reader_sharegpt = {
    .name = "sharegpt",
    .help = "ShareGPT conversations, one JSON list; the first answered question of each",
    .needs_path = true,
    .open = sharegpt_open,
};
