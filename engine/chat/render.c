/* A rendering from its variables to the prompt. */
#include "chat/exec.h"

#include <string.h>

#include "base/mem.h"

/* Texts that may hold control tokens. */
static void trust(struct chat_run *r, struct chat_value *v)
{
    if (v->kind == CHAT_STR)
        v->s = chat_own(r, v->s.p, v->s.n);
}

/* The roles of the API are its own words, from which many templates make a control token. */
static void trust_roles(struct chat_run *r, struct chat_value messages)
{
    static const char *const roles[] = {"system", "user",      "assistant",
                                        "tool",   "developer", "function"};

    for (size_t i = 0; messages.kind == CHAT_LIST && i < messages.list->n; i++) {
        const struct chat_value *m = &messages.list->v[i];
        struct chat_pair *p =
            m->kind == CHAT_DICT ? chat_find_str(r, m->dict, "role", 4) : NULL;

        for (size_t k = 0; p && k < sizeof(roles) / sizeof(roles[0]); k++)
            if (chat_is_str(p->value, roles[k]))
                trust(r, &p->value);
    }
}

static struct chat_value put_variables(struct chat_run *r, struct chat_input *in)
{
    struct chat_value messages = chat_none(), v;

    for (int i = 0; i < in->n_variables && r->rc == OK; i++) {
        const struct chat_variable *var = &in->variables[i];
        int name = chat_name_of(r->t, var->name, strlen(var->name));

        if (name < 0 && strcmp(var->name, "messages") != 0)
            continue;
        v = chat_from_json(r, var->value);
        if (var->trusted)
            trust(r, &v);
        if (strcmp(var->name, "messages") == 0) {
            trust_roles(r, v);
            messages = v;
        }
        if (name >= 0)
            chat_assign(r, name, v);
    }
    return messages;
}

static void note_reads(struct chat_run *r, struct chat_input *in)
{
    for (int i = 0; i < in->n_variables; i++) {
        int name =
            chat_name_of(r->t, in->variables[i].name, strlen(in->variables[i].name));

        for (int k = 0; k < r->root->n; k++)
            if (r->root->var[k].name == name)
                in->variables[i].read = r->root->var[k].read;
    }
}

static bool says_nothing(struct chat_value v)
{
    return v.kind == CHAT_NONE || (v.kind == CHAT_BOOL && !v.i) ||
           (v.kind == CHAT_STR && v.s.n == 0) ||
           (v.kind == CHAT_LIST && v.list->n == 0) ||
           (v.kind == CHAT_DICT && v.dict->n == 0);
}

/* Every member of a message that says something was read. */
static int check_members(struct chat_value messages)
{
    for (size_t i = 0; messages.kind == CHAT_LIST && i < messages.list->n; i++) {
        const struct chat_value *m = &messages.list->v[i];

        for (size_t k = 0; m->kind == CHAT_DICT && k < m->dict->n; k++) {
            const struct chat_pair *p = &m->dict->pair[k];

            /* An id of a call says what the order of the messages says. */
            if (p->read || says_nothing(p->value) || chat_is_str(p->key, "tool_call_id"))
                continue;
            return err_set(
                ERR_ARG,
                "messages: %zu: %.80s: the model's chat template does not read it "
                "in this conversation",
                i, p->key.s.p);
        }
    }
    return OK;
}

/* ---- the prompt ---- */

static int put_part(struct chat_prompt *p, size_t n, bool special)
{
    struct tok_part *grown;

    if (p->n_parts == p->capacity) {
        grown = mem_resize(MEM_OTHER, p->parts, 2 * p->capacity + 8, sizeof(*grown));
        if (!grown)
            return ERR_NOMEM;
        p->parts = grown;
        p->capacity = 2 * p->capacity + 8;
    }
    p->parts[p->n_parts++] = (struct tok_part){n, special};
    return OK;
}

static int put_prompt(struct chat_prompt *p, const struct chat_builder *o)
{
    size_t from = 0;

    if (o->n > 0)
        text_put(&p->text, o->p, o->n);
    for (size_t i = 1; i <= o->n; i++) {
        if (i < o->n && o->own[i] == o->own[from])
            continue;
        TRY(put_part(p, i - from, o->own[from]));
        from = i;
    }
    return p->text.rc;
}

void chat_prompt_fini(struct chat_prompt *p)
{
    text_fini(&p->text);
    mem_free(p->parts);
    *p = (struct chat_prompt){0};
}

int chat_template_render(const struct chat_template *t, struct chat_input *in,
                         struct chat_prompt *out)
{
    struct chat_run r = {.t = t, .in = in, .arena = {.max = CHAT_BYTES_MAX}};
    struct chat_builder written = {.r = &r};
    struct chat_value messages = chat_none();

    for (int i = 0; i < in->n_variables; i++)
        in->variables[i].read = false;
    r.out = &written;
    chat_enter(&r, NULL);
    r.root = r.scope;
    if (r.rc == OK)
        messages = put_variables(&r, in);
    if (r.rc == OK)
        chat_exec(&r, t->body);
    if (r.rc == OK) {
        note_reads(&r, in);
        r.rc = in->refuse_unread ? check_members(messages) : OK;
    }
    if (r.rc == OK)
        r.rc = put_prompt(out, &written);
    in->n_steps = r.n_steps;
    chat_arena_fini(&r.arena);
    return r.rc;
}
