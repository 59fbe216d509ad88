/* What is computed or waits, in the form of llama-server: --max-seqs slots, of which the oldest
 * sequences are said to have one each. Which of them a step computes is the policy's choice. */
#include "http/route.h"

static void fill(json_t *slots, const struct http_seq *q, int64_t i)
{
    json_t *slot = json_array_get(slots, (size_t)i);

    json_object_set_new(slot, "is_processing", json_true());
    json_object_set_new(slot, "id_task", json_integer(q->id));
    json_object_set_new(slot, "n_prompt_tokens", json_integer(q->n_prompt));
    json_object_set_new(slot, "n_decoded", json_integer(q->now.n - q->n_echo));
}

/* With the server's lock held; the list begins with the latest request. */
static void fill_all(json_t *slots, const struct http *h)
{
    int64_t n = 0, at;

    for (struct http_gen *g = h->gens; g; g = g->next)
        n += g->n_seqs;
    at = n;
    for (struct http_gen *g = h->gens; g; g = g->next) {
        pthread_mutex_lock(&g->lock);
        for (int i = g->n_seqs - 1; i >= 0; i--)
            if (--at < h->max_seqs && g->seqs[i].now.finish == HTTP_RUNNING)
                fill(slots, &g->seqs[i], at);
        pthread_mutex_unlock(&g->lock);
    }
}

static enum MHD_Result answer(struct http_exchange *x)
{
    struct http *h = x->h;
    json_t *slots = json_array();

    for (int64_t i = 0; i < h->max_seqs; i++)
        json_array_append_new(slots,
                              json_pack("{s:I, s:I, s:b}", "id", (json_int_t)i, "n_ctx",
                                        (json_int_t)h->s->max_tok, "is_processing", 0));
    pthread_mutex_lock(&h->lock);
    fill_all(slots, h);
    pthread_mutex_unlock(&h->lock);
    return http_respond_json(x, MHD_HTTP_OK, slots);
}

const struct http_route http_route_slots = {
    .urls = {"/slots"}, .key = true, .answer = answer};
