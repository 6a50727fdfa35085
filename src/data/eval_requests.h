// SPDX-License-Identifier: Apache-2.0
/* From the lines of an evaluation set to the tokens whose log-probabilities a model computes, by
 * the rules of EleutherAI's lm-evaluation-harness (0.4.13), so that scores can be compared.
 *
 * Choices and completions. The context is the examples and the line's own context; with a chat
 * template it is one message of the user, rendered up to the assistant's answer. White space at its
 * end moves to the continuation. Context and continuation are encoded together, and the context
 * alone, whose tokens stand before those that both have behind as many; these are scored. Of more
 * tokens than the window the last ones are kept. An empty context is the prefix token.
 *
 * Texts. Every token is scored once, in windows that follow each other; the first token's context
 * is the prefix token, and the last window begins earlier, so that it is whole.
 *
 * The tokens that a tokenizer's template puts before a text stand before the context (and, as in
 * the harness, are scored in front of a text), unless the text begins with the prefix token. */
#ifndef TSR_DATA_EVAL_REQUESTS_H
#define TSR_DATA_EVAL_REQUESTS_H
#include "data/chat_template.h"
#include "data/eval_set.h"

typedef struct {
  int item, choice;      /* of the set; several windows of a text have one item */
  const int32_t *tokens; /* (count) */
  int64_t count;         /* at most the window + 1 */
  int64_t scored;        /* the last so many, at least 1 and less than `count` */
} tsr_eval_request;

typedef struct {
  tsr_tokenizer tokenizer;
  const tsr_chat_template *chat; /* NULL: contexts are plain texts */
  int32_t prefix;                /* the token before a text without context; -1: there is none */
  int64_t window;                /* tokens that the model reads at most */
  const char *delimiter;         /* between context and choice */
  /* Examples before each context, each with its answer, in the order of their file; which ones is a
   * function of the seed and the item's number. An example with the item's own context is left
   * out. */
  int shots;
  const tsr_eval_set *examples; /* of the set's kind */
  const char *shots_delimiter;
  uint64_t seed;
} tsr_eval_prompting;

/* The requests of all items in their order, in `arena`. Errors, at the line: a continuation without
 * a token or of more than the window, a text that the tokenizer cannot encode, a template that
 * cannot be rendered, too few examples. */
bool tsr_eval_requests(
    tsr_arena *arena, const tsr_eval_set *set, const tsr_eval_prompting *how,
    tsr_eval_request **ret_requests, int *ret_count, tsr_diags *diags);

#endif
