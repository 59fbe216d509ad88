/* model/limits.h - among how many ranks a model can be divided. It needs a configuration, not a
 * model, so that no plan is made that cannot be opened.   Threads: any. */
#ifndef MODEL_LIMITS_H
#define MODEL_LIMITS_H

#include "format/config.h"

/* Can n_ranks ranks divide the attention output into whole blocks of quantised weights? (Units of
 * the feed-forward layer are whole blocks.) ERR_UNSUPPORTED: they cannot. */
MUST int model_ranks_check(const struct model_config *c, int n_ranks);

#endif
