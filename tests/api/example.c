/* Answer two prompts at once with the engine as a library. usage: example MODEL PROMPT PROMPT */
#include <sandwich.h>

#include <stdio.h>
#include <string.h>

#define TEXT_MAX 4096

static int fail(void)
{
    fprintf(stderr, "example: %s\n", sandwich_error());
    return 1;
}

static int answer(struct sandwich *s, char **prompts)
{
    char text[2][TEXT_MAX] = {"", ""};
    struct sandwich_token token;
    int64_t id[2];
    bool busy = true;

    for (int i = 0; i < 2; i++) {
        struct sandwich_request r = {.text = prompts[i], .max_new = 32};

        if (sandwich_submit(s, &r, &id[i]) != 0)
            return fail();
    }
    while (busy) {
        if (sandwich_step(s, &busy) != 0)
            return fail();
        while (sandwich_poll(s, &token)) {
            char *to = text[token.request == id[1]];

            if (token.finish == SANDWICH_ERROR)
                fprintf(stderr, "example: request %d: %s\n", (int)token.request,
                        token.text);
            else if (strlen(to) + token.n_text < TEXT_MAX)
                strcat(to, token.text);
        }
    }
    for (int i = 0; i < 2; i++)
        printf("%s|%s\n", prompts[i], text[i]);
    return 0;
}

int main(int argc, char **argv)
{
    struct sandwich *s;
    char options[TEXT_MAX];
    int status;

    if (argc != 4) {
        fprintf(stderr, "usage: example MODEL PROMPT PROMPT\n");
        return 2;
    }
    snprintf(options, sizeof(options),
             "{\"model\": \"%s\", \"max_seqs\": 2, \"max_tok\": 256}", argv[1]);
    if (sandwich_open(&s, options) != 0)
        return fail();
    status = answer(s, argv + 2);
    sandwich_close(&s);
    return status;
}
