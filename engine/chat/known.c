/* Templates for models that carry none. A system message that has no place of its own goes into
 * the first user message, or in later Mistral models into the last. */
#include <string.h>

#include "chat/chat_impl.h"

/* Mistral's turns: `open` and `close` around a user's text, `before` an answer. */
#define MISTRAL(which, open, close, before)                                              \
    "{{ bos_token }}"                                                                    \
    "{% set system = messages[0].content if messages[0].role == 'system' else '' %}"     \
    "{% set turns = messages[1:] if system else messages %}"                             \
    "{% set last = namespace(user=0) %}"                                                 \
    "{% for m in turns if m.role == 'user' %}{% set last.user = loop.index %}"           \
    "{% endfor %}{% set at = namespace(user=0) %}"                                       \
    "{% for m in turns %}"                                                               \
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) or m.role not in "               \
    "['user', 'assistant'] %}"                                                           \
    "{{ raise_exception('expected an optional system message and then user and "         \
    "assistant in turn') }}{% endif %}"                                                  \
    "{% if m.role == 'user' %}{% set at.user = at.user + 1 %}{{ '" open "' }}"           \
    "{% if system and at.user == " which " %}{{ system ~ '\\n\\n' }}{% endif %}"         \
    "{{ m.content ~ '" close "' }}"                                                      \
    "{% else %}{{ '" before "' ~ m.content ~ eos_token }}{% endif %}{% endfor %}"

static const struct chat_known known[] = {
    {.name = "chatml",
     .source =
         "{% for m in messages %}"
         "{{ '<|im_start|>' ~ m.role ~ '\\n' ~ m.content ~ '<|im_end|>\\n' }}"
         "{% endfor %}"
         "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
     .needs = {"<|im_start|>", "<|im_end|>"}},
    {.name = "llama-2",
     .source =
         "{% set system = messages[0].content if messages[0].role == 'system' else '' %}"
         "{% set turns = messages[1:] if system else messages %}"
         "{% for m in turns %}"
         "{% if (m.role == 'user') != (loop.index0 % 2 == 0) or m.role not in "
         "['user', 'assistant'] %}"
         "{{ raise_exception('expected an optional system message and then user and "
         "assistant in turn') }}{% endif %}"
         "{% set text = m.content %}"
         "{% if loop.first and system %}"
         "{% set text = '<<SYS>>\\n' ~ system ~ '\\n<</SYS>>\\n\\n' ~ text %}{% endif %}"
         "{% if m.role == 'user' %}{{ bos_token ~ '[INST] ' ~ text.strip() ~ ' [/INST]' "
         "}}"
         "{% else %}{{ ' ' ~ text.strip() ~ ' ' ~ eos_token }}{% endif %}{% endfor %}",
     .needs = {"<s>", "</s>"}},
    {.name = "llama-3",
     .source = "{{ '<|begin_of_text|>' }}{% for m in messages %}"
               "{{ '<|start_header_id|>' ~ m.role ~ '<|end_header_id|>\\n\\n' ~ "
               "m.content | trim ~ '<|eot_id|>' }}{% endfor %}"
               "{% if add_generation_prompt %}"
               "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}",
     .needs = {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
               "<|eot_id|>"}},
    {.name = "mistral-v1",
     .source = MISTRAL("1", "[INST] ", " [/INST]", " "),
     .needs = {"<s>", "</s>"}},
    {.name = "mistral-v3",
     .source = MISTRAL("last.user", "[INST] ", "[/INST]", " "),
     .needs = {"<s>", "</s>", "[INST]", "[/INST]"}},
    {.name = "mistral-tekken",
     .source = MISTRAL("last.user", "[INST]", "[/INST]", ""),
     .needs = {"<s>", "</s>", "[INST]", "[/INST]"}},
};

const struct chat_known *chat_known_named(const char *name)
{
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(known[i].name, name) == 0)
            return &known[i];
    return NULL;
}
