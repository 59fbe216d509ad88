/* Messages between the front and machines: their checksums. */
#include "roles/control.h"

#include "base/hash_stream.h"

static uint64_t hash_of(const void *p, size_t n)
{
    struct hash_stream h;

    hash_stream_init(&h);
    hash_stream_add(&h, p, n);
    return hash_stream_end(&h);
}

void roles_message_seal(struct roles_message *m, const void *more)
{
    m->more_hash = hash_of(more, m->n_more);
    m->hash = hash_of(m, offsetof(struct roles_message, hash));
}

int roles_message_check(const struct roles_message *m, size_t most)
{
    if (m->hash != hash_of(m, offsetof(struct roles_message, hash)))
        return err_set(ERR_FORMAT, "a message with a wrong checksum");
    if (m->type < ROLES_READY || m->type >= ROLES_N_TYPES)
        return err_set(ERR_FORMAT, "a message of type %u", m->type);
    if (m->n_more > most)
        return err_set(ERR_FORMAT,
                       "a message of type %u with %u bytes: expected at most %zu",
                       m->type, m->n_more, most);
    return OK;
}

int roles_message_check_more(const struct roles_message *m, const void *more)
{
    if (m->more_hash == hash_of(more, m->n_more))
        return OK;
    return err_set(ERR_FORMAT,
                   "a message of type %u with a wrong checksum of its %u bytes", m->type,
                   m->n_more);
}

void roles_text_clean(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || (unsigned char)*text > '~')
            *text = '?';
}
