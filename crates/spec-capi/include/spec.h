/*
 * spec: language-model decoding with drafts, behind a C interface. `cargo xtask headers` makes this file; do not edit it.
 *
 * spec_load, spec_generate, spec_free; what else there is, serves these. Every function that can fail gives a status, and
 * spec_last_error the words. Threads: an engine may be used from any thread, by one generation at a time; spec_cancel may be
 * called beside it. Different engines work at the same time. spec_free comes when no other call is under way. The last error is
 * each thread's own. No function unwinds, and a callback must not.
 *
 * On an Ascend device the thread's current context of AscendCL is put back before a call returns.
 */

#ifndef SPEC_H
#define SPEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Version of the structures and functions of this header. A library of another one refuses its structures.
#define SPEC_ABI_VERSION 1

// How a call ended. `spec_last_error` has the words.
typedef enum spec_status {
  // It did what it was asked for.
  SPEC_STATUS_OK = 0,
  // A null pointer, text that is not UTF-8, a structure of another version, a value out of its range.
  SPEC_STATUS_INVALID_ARGUMENT = 1,
  // A file cannot be read, is no model, or two models do not go together.
  SPEC_STATUS_MODEL = 2,
  // A device, or a library of one, is missing or failed; memory is short.
  SPEC_STATUS_DEVICE = 3,
  // A generation is going on.
  SPEC_STATUS_BUSY = 4,
  // A defect of the library: a panic was caught. The engine takes no more work; free it.
  SPEC_STATUS_INTERNAL = 5,
} spec_status;

// What a token is to the draft of its round.
typedef enum spec_token_source {
  // The target's own; nothing was drafted.
  SPEC_TOKEN_SOURCE_TARGET = 0,
  // Drafted and accepted.
  SPEC_TOKEN_SOURCE_ACCEPTED = 1,
  // The target's own, in the place of a drafted token that was rejected.
  SPEC_TOKEN_SOURCE_CORRECTED = 2,
  // The target's own, behind a draft that was accepted to its end.
  SPEC_TOKEN_SOURCE_BONUS = 3,
} spec_token_source;

// Why a generation ended.
typedef enum spec_finish {
  // An end token.
  SPEC_FINISH_STOP = 0,
  // `max_tokens`, or the end of the context.
  SPEC_FINISH_LENGTH = 1,
  // `spec_cancel`, or a callback that returned false.
  SPEC_FINISH_CANCELLED = 2,
} spec_finish;

// A loaded target with its drafter.
typedef struct spec_engine spec_engine;

// How models are loaded. `spec_load_options_init` fills it in; then set `model`, and what else is wanted.
typedef struct spec_load_options {
  // `SPEC_ABI_VERSION`.
  uint32_t abi_version;
  // The target: a GGUF file, a safetensors file or one of a set, or their folder.
  const char *model;
  // A smaller model that drafts; null is none. Its tokens have to be the target's.
  const char *draft_model;
  // Who drafts: `auto` (copies of earlier text, and the draft model where there is one), `model`, `suffix`, `ngram` or `none`. Null
  // is `auto`.
  const char *draft;
  // `cpu`, `ascend`, `ascend:N` for device N, or `ascend-sim`, the simulator, which stands in for no device unless asked for. Null is
  // `cpu`.
  const char *device;
  // For an Ascend device: the file of AscendCL, or of the simulator, that the process uses; null is to look for it.
  const char *library;
  // Positions that a prompt and its answer may take; 0 is what the model was trained for, and 4096 at most.
  size_t context;
  // Threads of the CPU; 0 is one for each core.
  size_t threads;
} spec_load_options;

// One generation. `spec_request_init` fills it in; then set `prompt` or `prompt_tokens`.
typedef struct spec_request {
  // `SPEC_ABI_VERSION`.
  uint32_t abi_version;
  // UTF-8 to continue, with markers such as `<|im_start|>` read as such; null when `prompt_tokens` is given.
  const char *prompt;
  // Token ids to continue; null when `prompt` is given.
  const uint32_t *prompt_tokens;
  // How many.
  size_t prompt_token_count;
  // Tokens that may be generated, an end token included.
  size_t max_tokens;
  // Tokens drafted a round; 0 is as many as pay, measured as it goes.
  size_t draft_len;
  // 0 takes the most probable token.
  float temperature;
  // Keeps as many of the most probable tokens; 0 is off.
  size_t top_k;
  // Keeps the most probable tokens that together reach this probability; 1 is off.
  float top_p;
  // Keeps tokens that are at least this many times as probable as the most probable one; 0 is off.
  float min_p;
  // Seed of all draws: the same seed gives the same text, with drafts and without.
  uint64_t seed;
  // An acceptance rule by its name, such as `rejection` or `epsilon:0.01`; null is the lossless one that fits the temperature.
  const char *rule;
  // Token ids that end the text; null is those that the model names.
  const uint32_t *end_tokens;
  // How many.
  size_t end_token_count;
} spec_request;

// What an engine is.
typedef struct spec_description {
  // The target's name.
  const char *model;
  // Where the target runs.
  const char *device;
  // Who drafts; null is nobody.
  const char *drafter;
  // Tokens of the vocabulary; ids are below it.
  size_t vocab;
  // Positions that a prompt and its answer may take.
  size_t context;
  // The first of the token ids that end an answer; -1 when the model names none.
  int64_t end_token;
} spec_description;

// A token, as a callback gets it. Its text lives as long as the call.
typedef struct spec_token {
  // The id.
  uint32_t id;
  // Whether it belongs to the output; end tokens do not.
  bool shown;
  // What it is to the draft of its round.
  enum spec_token_source source;
  // UTF-8 that can be shown now, whole characters: empty while one is incomplete. NUL-terminated, and never null.
  const char *text;
  // Bytes of `text` without the NUL; a text may hold NULs of its own.
  size_t text_bytes;
} spec_token;

// Called for each token, in their order. Returning false ends the generation before its next pass.
typedef bool (*spec_token_callback)(void *user_data, const struct spec_token *token);

// What a generation did.
typedef struct spec_result {
  // Why it ended.
  enum spec_finish finish;
  // Tokens of the prompt.
  size_t prompt_tokens;
  // Tokens generated, an end token included.
  size_t completion_tokens;
  // Passes of the target behind the one over the prompt.
  size_t rounds;
  // Tokens drafted.
  size_t drafted;
  // Drafted tokens that were accepted and are part of the output.
  size_t accepted;
  // Seconds until the first token.
  double prefill_seconds;
  // Seconds from the first token to the last.
  double decode_seconds;
} spec_result;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The library's version, such as `0.1.0`. Never null, and valid for ever.
const char *spec_version(void);

// Why the last call on this thread failed: what, where, and what to do. Never null; empty when it succeeded. Valid until the
// next call of this library on this thread, of which `spec_version`, `spec_free` and this one are none.
const char *spec_last_error(void);

// Fills in the choices that hold when nothing else is said. Every structure that is handed over begins with this.
//
// What the caller sees to:
// `options` is null, which is an error, or valid for a write.
enum spec_status spec_load_options_init(struct spec_load_options *options);

// Fills in the choices that hold when nothing else is said: greedy, 512 tokens at most, as many drafted as pay.
//
// What the caller sees to:
// `request` is null, which is an error, or valid for a write.
enum spec_status spec_request_init(struct spec_request *request);

// Loads a target model, and a draft model where one is named. `*engine` is set, to null when it fails.
//
// Files are GGUF or safetensors, told by their content; what they are called says nothing. Takes seconds to minutes.
//
// What the caller sees to:
// `options` is null, which is an error, or points to a structure whose texts are null or NUL-terminated. `engine` is null, which is
// an error, or valid for a write.
enum spec_status spec_load(const struct spec_load_options *options,
                           struct spec_engine **engine);

// Frees an engine and all that it holds, on its device too. Null is nothing. No call on the engine may be under way, and none
// may follow.
//
// What the caller sees to:
// `engine` is null or came from `spec_load`, is not used by any thread, and was not freed.
void spec_free(struct spec_engine *engine);

// What an engine is. `description` is filled in; its texts live as long as the engine.
//
// What the caller sees to:
// `engine` is null, which is an error, or came from `spec_load` and was not freed. `description` is null, which is an error, or
// valid for a write.
enum spec_status spec_describe(const struct spec_engine *engine,
                               struct spec_description *description);

// Generates. `on_token` is called on this thread for each token, as soon as it is certain; it may be null. `result` may be null too.
//
// One generation at a time: while one goes on, others on the same engine are refused as busy, those that `on_token` begins among
// them. Different engines work at the same time.
//
// What the caller sees to:
// `engine` is null, which is an error, or came from `spec_load` and was not freed. `request` is null, which is an error, or points to a
// structure whose texts are null or NUL-terminated and whose arrays are null or as long as it says. `on_token` is null or may be
// called with `user_data`; it does not unwind. `result` is null or valid for a write.
enum spec_status spec_generate(const struct spec_engine *engine,
                               const struct spec_request *request,
                               spec_token_callback on_token,
                               void *user_data,
                               struct spec_result *result);

// Ends the generation that goes on, before its next pass; without one it does nothing. It may be called from any thread, also in a
// callback.
//
// What the caller sees to:
// `engine` is null, which is an error, or came from `spec_load` and was not freed.
enum spec_status spec_cancel(const struct spec_engine *engine);

// The `SPEC_ABI_VERSION` that the library was built with, for a caller who loads it at run time.
uint32_t spec_abi_version(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SPEC_H */
