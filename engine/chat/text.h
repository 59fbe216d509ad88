/* chat/text.h - texts that keep the origin of each byte, and values as texts. */
#ifndef CHAT_TEXT_H
#define CHAT_TEXT_H

#include "chat/value.h"

struct chat_args;

void chat_add(struct chat_builder *b, struct chat_str s);
void chat_add_own(struct chat_builder *b, const char *s);
void chat_add_user(struct chat_builder *b, const char *s, size_t n);
/* n bytes of the origin of `like`, which begins at the byte that they replace. */
void chat_add_like(struct chat_builder *b, const char *s, size_t n, bool own);
struct chat_str chat_built(struct chat_builder *b);

struct chat_str chat_str_of(struct chat_run *r, struct chat_value v); /* Python's str() */
/* The filter of this name: as JSON. */
struct chat_value chat_tojson(struct chat_run *r, struct chat_value v,
                              const struct chat_args *a);

int32_t chat_code_at(struct chat_str s, size_t at, size_t *len);
size_t chat_n_codes(struct chat_run *r, struct chat_str s);
bool chat_is_space(int32_t code);
bool chat_is_letter(int32_t code, bool or_number);
enum chat_case { CHAT_UPPER, CHAT_LOWER, CHAT_TITLE, CHAT_CAPITALIZE, CHAT_TITLE_FILTER };
struct chat_str chat_case(struct chat_run *r, struct chat_str s, enum chat_case how);
enum { CHAT_LEFT = 1, CHAT_RIGHT = 2, CHAT_BOTH = 3 };
/* s without the characters of `set` (NULL: whitespace) at its ends. r NULL: of a template's own
 * text, without a set. */
struct chat_str chat_strip(struct chat_run *r, struct chat_str s,
                           const struct chat_str *set, int sides);
struct chat_list *chat_lines(struct chat_run *r, struct chat_str s);
/* The first place of `part` at or after `from`; SIZE_MAX: none. */
size_t chat_search(struct chat_run *r, struct chat_str s, struct chat_str part,
                   size_t from);
/* The last place of `part` that ends at or before `end`; SIZE_MAX: none. */
size_t chat_search_back(struct chat_run *r, struct chat_str s, struct chat_str part,
                        size_t end);
struct chat_str chat_replace(struct chat_run *r, struct chat_str s, struct chat_str from,
                             struct chat_str to, int64_t count);
struct chat_list *chat_chars(struct chat_run *r, struct chat_str s);
struct chat_str chat_join(struct chat_run *r, struct chat_list *items,
                          struct chat_str between, bool convert);

#endif
