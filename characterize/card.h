/* characterize/card.h - recognising a kept card. Private to characterize/. */
#ifndef CHARACTERIZE_CARD_H
#define CHARACTERIZE_CARD_H

#include <jansson.h>

/* The card in file `path` if it is of this version and of the machine that `id`
 * describes; a new reference. Else NULL, and the log says why (silent when there is no
 * file). */
json_t *machine_card_cached(const char *path, const json_t *id);

/* What a card is only true for, of this machine now. A new reference, NULL on error. */
json_t *machine_card_identity(void);

#endif
