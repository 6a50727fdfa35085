// SPDX-License-Identifier: Apache-2.0
/* Text from a model: a closed list of prompts, each as if it were alone (train/text_batch.h). */
#ifndef TSR_TRAIN_GENERATE_H
#define TSR_TRAIN_GENERATE_H
#include "train/text_batch.h"
#include <signal.h>

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

typedef struct {
  int32_t *tokens; /* the new ones */
  int64_t count;
  tsr_text_end end; /* never TSR_TEXT_NO_TOKEN */
} tsr_continuation;

/* Continues all prompts, the program's batch of them at once; the next prompt takes the place of
 * one that is done. A text is a function of its prompt, its index and the sampling alone. Fails
 * where no token can be drawn (no finite logit). `ret_texts` has one for each prompt, in `arena`.
 */
bool tsr_generate_texts(
    tsr_arena *arena, const tsr_generator *generator, const tsr_prompt *prompts, int count,
    const tsr_generating *how, tsr_continuation *ret_texts, tsr_generating_speed *ret_speed,
    tsr_diags *diags);

#endif
