// SPDX-License-Identifier: Apache-2.0
/* A checkpoint's model as a program that ends at the logits, on one CPU rank. */
#ifndef TSR_TESTS_CHECKPOINT_HF_SESSION_H
#define TSR_TESTS_CHECKPOINT_HF_SESSION_H
#include "base/diag.h"
#include <stdint.h>

/* The logits (rows, sequence, vocabulary) of tokens (rows, sequence), in the arena. The
 * checkpoint's own config.yaml says the model. NULL with an error when something refuses. */
float *hf_session_logits(
    tsr_arena *arena, const char *checkpoint, const int32_t *tokens, int rows, int sequence,
    int64_t *ret_vocab, tsr_diags *diags);
/* The `new_tokens` most likely tokens behind the prompt, with a cache of keys and values, in the
 * arena. NULL with an error. */
int32_t *hf_session_generate(
    tsr_arena *arena, const char *checkpoint, const int32_t *prompt, int count, int new_tokens,
    tsr_diags *diags);

#endif
