#include "base/map.h"

#include "base/hash.h"
#include "base/mem.h"

bool map_find(const struct map *m, uint64_t key, int64_t *value)
{
    key += key == 0;
    for (size_t i = hash_u64(key) & (m->size - 1); m->size; i = (i + 1) & (m->size - 1)) {
        if (m->keys[i] == key) {
            *value = m->values[i];
            return true;
        }
        if (!m->keys[i])
            break;
    }
    return false;
}

static void place(struct map *m, uint64_t key, int64_t value)
{
    size_t i = hash_u64(key) & (m->size - 1);

    while (m->keys[i] && m->keys[i] != key)
        i = (i + 1) & (m->size - 1);
    m->n += !m->keys[i];
    m->keys[i] = key;
    m->values[i] = value;
}

int map_put(struct map *m, uint64_t key, int64_t value)
{
    struct map wider = {.size = m->size ? m->size * 2 : 1024};

    if (2 * (m->n + 1) > m->size) {
        wider.keys = mem_new(MEM_OTHER, wider.size, sizeof(*wider.keys));
        wider.values = mem_new(MEM_OTHER, wider.size, sizeof(*wider.values));
        if (!wider.keys || !wider.values) {
            map_fini(&wider);
            return ERR_NOMEM;
        }
        for (size_t i = 0; i < m->size; i++)
            if (m->keys[i])
                place(&wider, m->keys[i], m->values[i]);
        map_fini(m);
        *m = wider;
    }
    place(m, key + (key == 0), value);
    return OK;
}

void map_fini(struct map *m)
{
    mem_free(m->keys);
    mem_free(m->values);
    *m = (struct map){0};
}
