#include "experiments/study/support/agent_session.h"

#include <math.h>

static int64_t draw_tok(struct study_agent_session *s, double median, double sigma,
                        int64_t most)
{
    double x = round(median * exp(sigma * rng_normal(&s->rng)));

    return x < 1 ? 1 : x < (double)most ? (int64_t)x : most;
}

/* false: it would be longer than the longest context. */
static bool draw_turn(const struct study_agent_opts *o, struct study_agent_session *s)
{
    double within = o->pause_sigma * sqrt(1 - o->pause_between);
    bool forks = rng_f64(&s->rng) < o->fork_frac && s->number > 0, fits = true;

    s->pause_s = o->pause * exp(s->slow + within * rng_normal(&s->rng));
    s->out_tok = draw_tok(s, o->answer, o->answer_sigma, o->max_tok);
    s->add_tok = s->number > 0 ? draw_tok(s, o->add, o->add_sigma, o->max_tok)
                               : draw_tok(s, o->first, o->first_sigma, o->max_tok / 4);
    s->n_forks = forks ? (int)o->forks : 0;
    for (int i = 0; i < s->n_forks; i++) {
        s->fork_add[i] = draw_tok(s, o->add, o->add_sigma, o->max_tok);
        s->fork_out[i] = draw_tok(s, o->answer, o->answer_sigma, o->max_tok);
        s->add_tok = (i > 0 ? s->add_tok : 0) + s->fork_out[i];
        fits = fits && s->ctx_tok + s->fork_add[i] + s->fork_out[i] <= o->max_tok;
    }
    return fits && s->ctx_tok + s->add_tok + s->out_tok <= o->max_tok;
}

void study_agent_begin(const struct study_agent_opts *o, struct study_agent_session *s)
{
    do {
        s->n_turns = draw_tok(s, o->turns, o->turns_sigma, INT32_MAX);
        s->slow = o->pause_sigma * sqrt(o->pause_between) * rng_normal(&s->rng);
        s->ctx_tok = o->system_tok;
        s->number = 0;
    } while (!draw_turn(o, s));
}

bool study_agent_next(const struct study_agent_opts *o, struct study_agent_session *s)
{
    s->ctx_tok += s->add_tok + s->out_tok;
    return ++s->number < s->n_turns && draw_turn(o, s);
}
