/* A prediction that was made before the run: admitted when it begins, scored when it ends. */
#include "experiments/run/session.h"

#include "base/json.h"
#include "base/text.h"
#include "experiments/record/prediction.h"

int run_prediction_begin(struct run_session *s)
{
    const size_t n_attempts = journal_n_attempts(s->journal);
    size_t n_interrupted = 0;
    json_t *header, *given = NULL;
    int rc = OK;

    TRY(journal_read(journal_path(s->journal), NULL, NULL, &header, &n_interrupted));
    s->prediction = json_incref(json_object_get(header, "prediction"));
    if (s->o->prediction)
        rc = prediction_read(&given, s->o->prediction);
    if (given)
        rc =
            prediction_admit(given, header, n_attempts + n_interrupted, s->o->prediction);
    if (rc == OK && given && !s->prediction) {
        s->prediction = json_incref(given);
        rc = journal_note(s->journal, json_pack("{s:O}", "prediction", given));
    }
    json_decref(given);
    json_decref(header);
    /* A run without a cell does not begin; the next one is given its own time. */
    if (rc != OK && n_attempts + n_interrupted == 0 && journal_remove(&s->journal) != OK)
        return ERR_IO;
    return rc;
}

int run_prediction_end(struct run_session *s, const struct run_summary *summary)
{
    const json_t *headline = json_object_get(s->prediction, "headline");
    struct prediction_score score = {0};
    struct text t = {0};
    json_t *note;
    int rc;

    if (!s->prediction)
        return OK;
    for (int k = 0; k < s->job->n_headlines; k++) {
        const struct record_headline *h = &summary->headlines[k];

        prediction_score_add(&score, json_object_get(headline, h->name), h->value);
    }
    note = prediction_note(s->prediction, &score);
    prediction_put(&t, note);
    fprintf(s->o->report, "\nprediction: %.*s\n", (int)t.n, t.n ? t.p : "");
    rc = t.rc;
    text_fini(&t);
    if (rc == OK)
        return journal_note(s->journal, note);
    json_decref(note);
    return rc;
}
