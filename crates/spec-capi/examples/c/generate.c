/*
 * Text from a model, in C:
 *
 *     cc -std=c11 -I crates/spec-capi/include crates/spec-capi/examples/c/generate.c -L target/release -lspec -o generate
 *     LD_LIBRARY_PATH=target/release ./generate MODEL.gguf 'Once upon a time' [SMALLER.gguf]
 *
 * The text goes to standard output while it comes; what drafting did, to standard error.
 */
#include <stdio.h>

#include "spec.h"

static bool show(void *user_data, const spec_token *token)
{
    FILE *out = (FILE *)user_data;
    if (token->shown) {
        fwrite(token->text, 1, token->text_bytes, out);
        fflush(out);
    }
    /* False would end the generation: here, when nobody reads any more. */
    return !ferror(out);
}

static int failed(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, spec_last_error());
    return 1;
}

int main(int argc, char **argv)
{
    if (argc < 3 || argc > 4) {
        fprintf(stderr, "usage: %s MODEL PROMPT [DRAFT_MODEL]\n", argv[0]);
        return 2;
    }
    spec_load_options options;
    spec_load_options_init(&options);
    options.model = argv[1];
    options.draft_model = argc > 3 ? argv[3] : NULL;
    spec_engine *engine = NULL;
    if (spec_load(&options, &engine) != SPEC_STATUS_OK)
        return failed("loading");

    spec_request request;
    spec_request_init(&request);
    request.prompt = argv[2];
    request.max_tokens = 64;
    spec_result result;
    int code = 0;
    if (spec_generate(engine, &request, show, stdout, &result) == SPEC_STATUS_OK) {
        printf("\n");
        fprintf(stderr, "spec %s: %zu tokens in %zu rounds, %zu of %zu drafted tokens accepted\n", spec_version(),
                result.completion_tokens, result.rounds, result.accepted, result.drafted);
    } else {
        code = failed("generating");
    }
    spec_free(engine);
    return code;
}
