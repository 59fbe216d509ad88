/* experiments/conformance/answer.h - reads what a server sent into an answer. Private.
 * Threads: none of its own. */
#ifndef CONFORM_ANSWER_H
#define CONFORM_ANSWER_H

#include "experiments/conformance/client.h"

/* One event of a stream. What is wrong with it is kept in the answer. ERR_NOMEM. */
MUST int conform_answer_event(struct conform_answer *a, const char *data, size_t n);
/* A whole answer: its body. */
MUST int conform_answer_body(struct conform_answer *a, const char *body, size_t n);

#endif
