// SPDX-License-Identifier: Apache-2.0
/* Texts that a model continues together. Texts come and go between the steps of the model, and each
 * is as if it were alone: it is a function of its request.
 *
 * With a cache (tsr_pass_cache) a prompt's tokens go through the model in chunks, and then each new
 * token by itself. A text that has filled the window continues with its last half, which is put in
 * the cache anew: learned positions end there, and so that no model's text depends on how long the
 * run was, rotary ones do the same. Without a cache every token takes all of that once more; both
 * ways give the same tokens. */
#ifndef TSR_TRAIN_TEXT_BATCH_H
#define TSR_TRAIN_TEXT_BATCH_H
#include "runtime/process.h"
#include "train/compile.h"
#include "train/sampling.h"

/* A program of generation, with memory. */
typedef struct {
  const tsr_compiled *compiled;
  tsr_executable *executable;
} tsr_text_program;

/* A model with memory. */
typedef struct {
  const tsr_compiled *generation; /* of TSR_COMPILE_GENERATE */
  /* Reading chunks, and decoding: for most texts at once, then for fewer and fewer. Without a cache
   * nothing decodes, and the one that reads takes whole windows. */
  tsr_text_program read[TSR_TEXT_COUNTS_MAX], decode[TSR_TEXT_COUNTS_MAX];
  int read_count, decode_count;
  tsr_text_program score; /* `executable` NULL: there is none */
  int64_t vocab_size;     /* tokens that may be drawn are below it */
  int64_t vocab_rows;     /* of the model, which may have more: log-probabilities are over all */
} tsr_generator;

/* The programs of generation, to be put behind others of a process's; how many. */
int tsr_generation_programs(
    const tsr_compiled *generation, tsr_programs ret_programs[TSR_GENERATION_PROGRAMS_MAX]);
/* Of what tsr_process_open gave for them; `vocab_size` is the tokenizer's, of which the model may
 * know less. */
tsr_generator tsr_generator_of(
    const tsr_compiled *generation, tsr_executable *const *executable, int64_t vocab_size);

typedef struct {
  int32_t token;
  double log_probability; /* of the logits alone: no penalty, no temperature */
} tsr_token_logprob;

/* What is reported of a token: one that was drawn, or one of a prompt that is scored. */
typedef struct {
  int64_t index; /* in the text; the prompt's tokens count, too */
  bool is_drawn;
  bool is_end;               /* it is one of the stops, and no part of the text, which ends */
  tsr_token_logprob logprob; /* the probability is that at this place; 0 where none is wanted */
  /* (top_logprobs_count) falling; of equal ones the lower token first. They last until the function
   * returns. */
  const tsr_token_logprob *top_logprobs;
  int top_logprobs_count;
} tsr_text_token;

typedef enum {
  TSR_TEXT_FULL,    /* max_new_tokens were drawn */
  TSR_TEXT_STOPPED, /* a stop was drawn, or `token` said so */
  TSR_TEXT_INTERRUPTED,
  TSR_TEXT_NO_TOKEN /* no token could be drawn or scored: no logit is finite */
} tsr_text_end;

typedef struct {
  const int32_t *tokens; /* of the prompt, each in [0, vocab_size): copied */
  int64_t count;         /* at least 1; of more than the window's the last count */
  tsr_sampling sampling; /* drawn_from is not read: it is `count` */
  int64_t max_new_tokens;
  const int32_t *stops; /* tokens that end a text and are no part of it; they outlast it */
  int stops_count;
  bool wants_logprobs; /* log-probabilities */
  int top_logprobs;    /* of the likeliest tokens at each place so many are reported as well */
  bool scores_prompt;  /* tokens of the prompt are reported, but for the first one, which nothing
                         predicts; the prompt must fit into the window, and the generation must have
                         a program for it (tsr_compile_options.scores) or no cache */
  /* A token, in the order of the text; false: the text ends with it. NULL: not reported. */
  bool (*token)(void *context, const tsr_text_token *token);
  /* The text has ended and its place is free; `tokens` are the new ones, and last until the
   * function returns. Not called for a text that is removed. */
  void (*ended)(void *context, const int32_t *tokens, int64_t count, tsr_text_end end);
  void *context;
} tsr_text_request;

enum { TSR_TOP_LOGPROBS_MAX = 64 };

/* Steps that read more than a token of some text are prefill, others decoding; drawing is a part of
 * both. */
typedef struct {
  int64_t prefill_tokens, decode_tokens;
  double prefill_seconds, decode_seconds;
} tsr_generating_speed;

typedef struct tsr_text_batch tsr_text_batch;

/* Without texts. It belongs to the arena, is for one thread, and is freed with the arena. */
tsr_text_batch *tsr_text_batch_new(tsr_arena *arena, const tsr_generator *generator);
/* Memory for texts of so many tokens from now on; longer ones get more when they are that long. */
void tsr_text_batch_reserve(tsr_text_batch *batch, int64_t tokens);
int64_t tsr_text_batch_rows(const tsr_text_batch *batch); /* texts at once */
int64_t tsr_text_batch_window(const tsr_text_batch *batch);
int64_t tsr_text_batch_texts(const tsr_text_batch *batch); /* that are there now */
tsr_generating_speed tsr_text_batch_speed(const tsr_text_batch *batch);
/* Pages of the cache, and those that texts have now; 0 where there is no cache. */
int64_t tsr_text_batch_pages(const tsr_text_batch *batch);
int64_t tsr_text_batch_pages_used(const tsr_text_batch *batch);

/* Whether this text could be added now: there is a row for it, and there are all pages of the cache
 * that it may need. A text always has room in a batch without texts. */
bool tsr_text_batch_has_room(const tsr_text_batch *batch, const tsr_text_request *request);
/* Adds a text where there is room for it; the number by which it can be removed until it has ended.
 * Other texts may have that number later. A text that has nothing to do ends in the next step. */
int tsr_text_batch_add(tsr_text_batch *batch, const tsr_text_request *request);
void tsr_text_batch_remove(tsr_text_batch *batch, int text);
/* All texts end as TSR_TEXT_INTERRUPTED. */
void tsr_text_batch_interrupt(tsr_text_batch *batch);

/* Each text reads tokens of its prompt, or has a new one drawn: one run of the model over those
 * that read, and one over the others. False where the model gives no numbers for any of them
 * (tsr_check_scores). */
bool tsr_text_batch_step(tsr_text_batch *batch, tsr_diags *diags);

#endif
