#include "datasets/examples.h"

#include "base/mem.h"
#include "tokenizer/tokenizer.h"

static int count_tokens(const struct tok *t, const char *text, size_t bytes,
                        int64_t *n_tok)
{
    int32_t *ids;
    size_t n = (bytes + DATASET_BYTES_PER_TOK - 1) / DATASET_BYTES_PER_TOK;

    if (t) {
        TRY(tok_encode(t, text, bytes, 0, &ids, &n));
        mem_free(ids);
    }
    *n_tok = n ? (int64_t)n : 1;
    return OK;
}

static int make_example(struct kv_example *e, const struct dataset_item *it,
                        const struct tok *t)
{
    size_t n = it->question_bytes ? it->question_bytes : it->text_bytes;

    e->text = it->text + it->text_bytes - n;
    e->text_bytes = n;
    TRY(count_tokens(t, it->text, it->text_bytes, &e->prompt_tok));
    return count_tokens(t, it->reply, it->reply_bytes, &e->output_tok);
}

static bool is_held_out(const struct dataset_item *it, int64_t fold, int64_t folds)
{
    uint64_t mixed = (it->conversation ^ it->conversation >> 32) * 0x9e3779b97f4a7c15u;

    return (int64_t)((mixed >> 32) % (uint64_t)folds) + 1 == fold;
}

/* Add the items that are held out, or those that are not. */
static int add(struct dataset_examples *x, int64_t *n, const struct dataset *d,
               const struct tok *t, int64_t fold, int64_t folds, bool held_out)
{
    for (int64_t i = 0; i < d->n_items; i++)
        for (const struct dataset_item *it = &d->items[i]; it; it = it->later)
            if (is_held_out(it, fold, folds) == held_out)
                TRY(make_example(&x->e[x->n_learn + (*n)++], it, t));
    return OK;
}

int dataset_examples(struct dataset_examples *out, const struct dataset *d,
                     const struct tok *t, int64_t fold, int64_t folds)
{
    int64_t n = 0, n_all = 0;

    *out = (struct dataset_examples){0};
    if (folds < 1 || fold < 0 || fold > folds)
        return err_set(ERR_ARG, "fold: expected 0 to %lld, found %lld", (long long)folds,
                       (long long)fold);
    for (int64_t i = 0; i < d->n_items; i++) {
        if (!d->items[i].text || !d->items[i].reply)
            return err_set(ERR_ARG,
                           "%s: request %lld: expected a text and its answer, found only "
                           "lengths",
                           d->source, (long long)i + 1);
        for (const struct dataset_item *it = &d->items[i]; it; it = it->later)
            n_all++;
    }
    out->e = mem_new(MEM_DATASET, (size_t)n_all, sizeof(*out->e));
    if (!out->e)
        return ERR_NOMEM;
    TRY(add(out, &n, d, t, fold, folds, false));
    out->n_learn = n;
    n = 0;
    TRY(add(out, &n, d, t, fold, folds, true));
    out->n_held_out = n;
    return OK;
}

void dataset_examples_fini(struct dataset_examples *x)
{
    mem_free(x->e);
    *x = (struct dataset_examples){0};
}
