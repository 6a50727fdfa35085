// SPDX-License-Identifier: Apache-2.0
/* The log-probabilities of a choice's tokens as JSON. */
#ifndef TSR_SERVE_LOGPROBS_JSON_H
#define TSR_SERVE_LOGPROBS_JSON_H
#include "serve/job.h"

/* The records that belong to the text: those behind a stop string do not. */
int64_t tsr_text_choice_records(const tsr_text_choice *choice);
/* "logprobs" of records [first, count): of a completion {"tokens", "token_logprobs",
 * "top_logprobs", "text_offset"}, of a chat {"content": […]}. `prompt`: a completion's, too, whose
 * first token is not predicted: null. */
void tsr_logprobs_add(
    const tsr_text_choice *choice, bool prompt, int64_t first, int64_t count, tsr_text *text);
/* The tokens of those records, as a list of numbers. */
void tsr_text_choice_add_ids(
    const tsr_text_choice *choice, int64_t first, int64_t count, tsr_text *text);

#endif
