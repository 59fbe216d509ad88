/* step/stored.h - the report that a layer's keys and values are stored, while the step goes on: a
 * caller that sends them elsewhere need not wait for its end.   Paper: Splitwise IV-C. */
#ifndef STEP_STORED_H
#define STEP_STORED_H

/* The keys and values of all the step's tokens in layer `layer` are stored, by all ranks. Called
 * once for each layer, in order, on one of the step's threads, for which the others may be
 * waiting: it must not block. Where each rank is a process, it is called for all layers at the
 * end of the step. Not called for layers that a failed step did not reach. */
typedef void (*model_stored_fn)(void *ctx, int layer);

#endif
