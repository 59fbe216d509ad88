/* experiments/record/env.h - small files of /proc and /sys as JSON. Private to env.c.
 * Threads: any. */
#ifndef RECORD_ENV_H
#define RECORD_ENV_H

#include <stddef.h>
#include <jansson.h>

/* The first `n - 1` bytes of a file without its last newline; NULL: unreadable, errno
 * set. */
const char *env_read(const char *path, char *buf, size_t n);

/* A file's text as a string, or {"unavailable": "path: why"}; NULL: out of memory. */
json_t *env_read_json(const char *path);

/* The value behind "key" and a colon in a text of "key : value" lines, or
 * {"unavailable"}. */
json_t *env_field_json(const char *path, const char *key);

/* The parameters of the kernel's command line that change what is measured: ["isolcpus=2-3"]. */
json_t *env_parameters_json(const char *command_line);

#endif
