// SPDX-License-Identifier: Apache-2.0
/* Requests of OpenAI's API as this server reads them (docs/serving.md lists the keys). Keys that
 * are not known are ignored, as such servers do; what is known and cannot be done is refused by
 * name. */
#ifndef TSR_SERVE_REQUEST_H
#define TSR_SERVE_REQUEST_H
#include "data/chat_template.h"
#include "serve/api_error.h"
#include "serve/text_stream.h"
#include "train/generate.h"

/* The model that all requests are for. Never changes: any number of threads may read it. */
typedef struct {
  const char *name;
  int64_t created; /* seconds since 1970 */
  const tsr_tokenizer *tokenizer;
  const tsr_chat_template *template;
  int64_t vocab_size;  /* tokens of a request are below it */
  int64_t context;     /* tokens of a prompt and its continuation */
  const int32_t *ends; /* (ends_count) tokens that end a text */
  int ends_count;
  int64_t texts_most; /* of one request */
} tsr_served_model;

/* A prompt that was given as a text. */
typedef struct {
  const char *bytes; /* NULL: it was given as tokens */
  int64_t *begins;   /* (tokens of the prompt) the byte where each begins */
} tsr_prompt_text;

enum { TSR_REQUEST_TOP_LOGPROBS_MAX = 20, TSR_REQUEST_CHOICES_MAX = 128 };

/* Lives in the arena that it was read into. */
typedef struct {
  bool is_chat, streams, includes_usage, echoes, returns_ids;
  bool wants_logprobs;
  int top_logprobs;       /* of each token */
  int n;                  /* choices of each prompt */
  tsr_prompt *prompts;    /* (prompts_count) */
  tsr_prompt_text *texts; /* (prompts_count) of completions */
  int prompts_count;
  int64_t *max_new_tokens; /* (prompts_count) */
  tsr_sampling sampling;   /* choice i of a prompt draws from its stream i */
  bool ignores_ends;       /* the model's tokens that end a text do not */
  tsr_stop_string *stops;  /* (stops_count) */
  int stops_count;
} tsr_request;

/* The body of /v1/completions and of /v1/chat/completions; false: the error. Several threads may
 * read requests. */
bool tsr_request_read(
    tsr_arena *arena, const tsr_served_model *model, bool is_chat, const char *body, size_t length,
    tsr_request *ret_request, tsr_api_error *ret_error);

/* The bodies of /tokenize, {"prompt": …} or {"messages": […]}, and /detokenize, {"tokens": […]}. */
bool tsr_request_read_tokenize(
    tsr_arena *arena, const tsr_served_model *model, const char *body, size_t length,
    tsr_prompt *ret_tokens, tsr_api_error *ret_error);
bool tsr_request_read_detokenize(
    tsr_arena *arena, const tsr_served_model *model, const char *body, size_t length,
    tsr_prompt *ret_tokens, tsr_api_error *ret_error);

#endif
