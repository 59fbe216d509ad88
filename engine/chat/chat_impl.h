/* chat/chat_impl.h - shared by source.c, known.c and conversation.c. */
#ifndef CHAT_CHAT_IMPL_H
#define CHAT_CHAT_IMPL_H

#include "chat/chat.h"

struct chat {
    struct chat_template *usual, *tool_use; /* tool_use: NULL where there is none */
    json_t *tokens;                         /* object: bos_token ... by name */
    bool typed;     /* contents are lists of parts for it, never texts */
    bool developer; /* it knows this role */
    char origin[300];
};

/* What a model's files hold for chats. */
struct chat_source {
    char *usual, *tool_use; /* mem_free(); NULL: none */
    json_t *tokens;
};
/* source.c. `name` is the template to look for; NULL: "default". ERR_NOTFOUND: `path` has none,
 * but tokens may be set. Given back in any case. */
MUST int chat_source_read(struct chat_source *s, const char *path, const char *name,
                          const struct tok *tok);
void chat_source_fini(struct chat_source *s);

struct chat_known {
    const char *name, *source;
    const char *needs[4]; /* control tokens */
};
/* known.c; NULL: there is none of this name. */
const struct chat_known *chat_known_named(const char *name);

#endif
