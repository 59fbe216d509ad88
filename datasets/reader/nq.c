#include <math.h>
#include <string.h>

#include "base/json.h"
#include "datasets/build.h"

/* Natural Questions, as the open-domain task has them: {question, answer: [...]}. The answers
 * are names of one thing, of a few words; the first one is the reply. */
static int offer(struct dataset *d, const struct dataset_opts *o, const char *text,
                 size_t n, const char *where, bool *full)
{
    const char *question, *answer = NULL;
    const json_t *answers;
    json_t *record;
    int rc = json_read_text(&record, text, n, where);

    (void)o;
    if (rc == OK)
        rc = json_get_str(record, "question", &question, where);
    if (rc == OK)
        rc = json_get_arr(record, "answer", &answers, where);
    if (rc == OK && json_array_size(answers) > 0) {
        answer = json_string_value(json_array_get(answers, 0));
        if (!answer)
            rc = err_set(ERR_FORMAT, "%s: answer: expected a list of texts", where);
    }
    if (rc == OK && (!answer || !answer[0] || !question[0]))
        dataset_skip(d, "no question or no answer");
    else if (rc == OK)
        rc = dataset_offer(d,
                           &(struct dataset_item){.text = question,
                                                  .text_bytes = strlen(question),
                                                  .n_prompt = -1,
                                                  .n_output = -1,
                                                  .reply = answer,
                                                  .reply_bytes = strlen(answer),
                                                  .arrival_s = NAN},
                           full);
    json_decref(record);
    return rc;
}

static int nq_open(struct dataset *d, const struct dataset_opts *o)
{
    return dataset_read_records(d, o, offer);
}

const struct dataset_reader dataset_reader_nq = {
    .name = "nq",
    .help = "questions as {question, answer: [...]}, JSONL or a JSON list, as Natural "
            "Questions",
    .needs_path = true,
    .keys = "question",
    .open = nq_open,
};
