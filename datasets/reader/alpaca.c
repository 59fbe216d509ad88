#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "datasets/build.h"

/* Stanford Alpaca: {instruction, input, output}. The prompt is the instruction and, on a line
 * of its own, the input; the sentences that Alpaca's training puts round them are not. */
static int offer(struct dataset *d, const struct dataset_opts *o, const char *text,
                 size_t n, const char *where, bool *full)
{
    const char *instruction, *input = "", *output;
    struct text prompt = {0};
    json_t *record;
    int rc = json_read_text(&record, text, n, where);

    (void)o;
    if (rc == OK)
        rc = json_get_str(record, "instruction", &instruction, where);
    if (rc == OK)
        rc = json_opt_str(record, "input", &input, where);
    if (rc == OK)
        rc = json_get_str(record, "output", &output, where);
    if (rc != OK)
        goto out;
    text_puts(&prompt, instruction);
    text_puts(&prompt, input[0] ? "\n" : "");
    text_puts(&prompt, input);
    rc = prompt.rc;
    if (rc != OK)
        goto out;
    if (prompt.n == 0 || !output[0])
        dataset_skip(d, "no instruction or no output");
    else
        rc = dataset_offer(d,
                           &(struct dataset_item){.text = prompt.p,
                                                  .text_bytes = prompt.n,
                                                  .n_prompt = -1,
                                                  .n_output = -1,
                                                  .reply = output,
                                                  .reply_bytes = strlen(output),
                                                  .arrival_s = NAN},
                           full);
out:
    text_fini(&prompt);
    json_decref(record);
    return rc;
}

static int alpaca_open(struct dataset *d, const struct dataset_opts *o)
{
    return dataset_read_records(d, o, offer);
}

const struct dataset_reader dataset_reader_alpaca = {
    .name = "alpaca",
    .help = "instructions as {instruction, input, output}, a JSON list or JSONL",
    .needs_path = true,
    .keys = "instruction",
    .open = alpaca_open,
};
