// SPDX-License-Identifier: Apache-2.0
/* Text from a model: several prompts at once, each as if it were alone.
 *
 * With a cache (tsr_pass_cache) a prompt's tokens go through the model in chunks, and then each new
 * token by itself. A text that has filled the window continues with its last half, which is put in
 * the cache anew: learned positions end there, and so that no model's text depends on how long the
 * run was, rotary ones do the same. Without a cache every token takes all of that once more; both
 * ways give the same tokens. */
#ifndef TSR_TRAIN_GENERATE_H
#define TSR_TRAIN_GENERATE_H
#include "runtime/process.h"
#include "train/compile.h"
#include "train/sampling.h"
#include <signal.h>

/* A model with memory. */
typedef struct {
  const tsr_compiled *generation; /* of TSR_COMPILE_GENERATE */
  tsr_executable *executable;     /* generation->programs */
  tsr_executable *decode;         /* generation->decode->programs; NULL where there is none */
  int64_t vocab_size;             /* tokens that may be drawn are below it */
} tsr_generator;

/* The programs of generation, to be put behind others of a process's; how many (1 or 2). */
int tsr_generation_programs(const tsr_compiled *generation, tsr_programs ret_programs[2]);
/* Of what tsr_process_open gave for them; `vocab_size` is the tokenizer's, of which the model may
 * know less. */
tsr_generator tsr_generator_of(
    const tsr_compiled *generation, tsr_executable *const *executable, int64_t vocab_size);

typedef struct {
  const int32_t *tokens; /* each in [0, vocab_size) */
  int64_t count;         /* at least 1; of more than the window's the last count */
} tsr_prompt;

/* A token is called when it is drawn, prompts in any order, each one's tokens in theirs. */
typedef void tsr_token_drawn(void *context, int prompt, int32_t token);

typedef struct {
  tsr_sampling sampling; /* prompt i draws from stream `sampling.stream + i` */
  int64_t max_new_tokens;
  const int32_t *stops; /* tokens that end a text and are no part of it */
  int stops_count;
  tsr_token_drawn *drawn; /* NULL: not reported */
  void *context;
  const volatile sig_atomic_t *interrupt; /* not 0: all texts end; NULL: nothing interrupts */
  /* Asked before each run of the model, by all processes alike; true: all texts end. NULL: never.
   * */
  bool (*is_over)(void *context);
  void *over_context;
} tsr_generating;

typedef enum { TSR_TEXT_FULL, TSR_TEXT_STOPPED, TSR_TEXT_INTERRUPTED } tsr_text_end;
typedef struct {
  int32_t *tokens; /* the new ones */
  int64_t count;
  tsr_text_end end; /* max_new_tokens were drawn, a stop was, or the run was interrupted */
} tsr_continuation;

/* Runs that read more than a token of some text are prefill, others decoding; drawing is a part of
 * both. */
typedef struct {
  int64_t prefill_tokens, decode_tokens;
  double prefill_seconds, decode_seconds;
} tsr_generating_speed;

/* Continues all prompts, the program's batch of them at once; the next prompt takes the place of
 * one that is done. A text is a function of its prompt, its index and the sampling alone. Fails
 * where no token can be drawn (no finite logit). `ret_texts` has one for each prompt, in `arena`.
 */
bool tsr_generate_texts(
    tsr_arena *arena, const tsr_generator *generator, const tsr_prompt *prompts, int count,
    const tsr_generating *how, tsr_continuation *ret_texts, tsr_generating_speed *ret_speed,
    tsr_diags *diags);

#endif
