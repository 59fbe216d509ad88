#include "datasets/build.h"
#include "datasets/input.h"

/* LMSYS-Chat-1M as JSONL: {conversation_id, model, conversation: [{content, role}], ...}.
 * A line ends at LF only: U+2028 and similar characters occur inside strings. */
static const struct dataset_chat_form form = {
    .turns = "conversation",
    .role = "role",
    .text = "content",
    .asks = "user|human",
    .answers = "assistant|gpt",
};

static int lmsys_open(struct dataset *d, const struct dataset_opts *o)
{
    struct dataset_input *in = NULL;
    bool full = false;
    char *line;
    size_t n;
    int rc;

    rc = dataset_input_open(&in, o->path);
    while (rc == OK && !full) {
        rc = dataset_input_line(in, &line, &n);
        if (rc != OK || !line)
            break;
        if (n > 0)
            rc = dataset_offer_chat(d, &form, line, n, dataset_input_where(in), &full);
    }
    dataset_input_close(&in);
    return rc;
}

const struct dataset_reader dataset_reader_lmsys = {
    .name = "lmsys",
    .help = "LMSYS-Chat-1M conversations, JSONL; the first answered question of each",
    .needs_path = true,
    .open = lmsys_open,
};
