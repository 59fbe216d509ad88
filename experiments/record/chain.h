/* experiments/record/chain.h - the chain of hashes through a record.
 *
 * Each of these has the attribute "sha256": of every cell attributes_json, requests, tokens,
 * summary and series, then /headline, then the root with its documents. It is the digest of the
 * one before it, of the object's own name, and of all its attributes and datasets in the order
 * of their names. So the root's, which the head has too, stands for every number of the file.
 * Only in a process of its own. Private to h5.c and verify.c. Threads: one (serial HDF5). */
#ifndef RECORD_CHAIN_H
#define RECORD_CHAIN_H

#include <hdf5.h>

#include "base/err.h"
#include "base/sha256.h"

#define RECORD_CHAIN_ATTRIBUTE "sha256"

/* The next link: `chain` becomes that of the group or dataset `object`, called `name`. ERR_FORMAT:
 * it cannot be read. */
MUST int record_chain_next(char chain[SHA256_TEXT], hid_t object, const char *name);

#endif
