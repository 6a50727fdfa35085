// SPDX-License-Identifier: Apache-2.0
/* The JSON of answers, as OpenAI's API has it. */
#ifndef TSR_SERVE_RESPONSES_H
#define TSR_SERVE_RESPONSES_H
#include "serve/job.h"

/* What a job's answers have in common. */
typedef struct {
  char id[48];
  int64_t created; /* seconds since 1970 */
} tsr_response_head;

/* How much of a choice was sent in a stream. */
typedef struct {
  bool has_begun, has_finished;
  size_t text;     /* bytes */
  int64_t records; /* of its tokens */
} tsr_sent;

tsr_response_head tsr_response_head_new(bool is_chat);

/* The answer to a job whose choices have finished. */
void tsr_response_add_whole(
    const tsr_serve_job *job, const tsr_response_head *head, tsr_text *text);
/* The events of a stream for what there is and was not sent; without its end. The job's lock is
 * held. */
void tsr_response_add_events(
    const tsr_serve_job *job, const tsr_response_head *head, tsr_sent *sent, tsr_text *text);
/* The events behind all choices: usage, if it is wanted, and [DONE]. */
void tsr_response_add_end(const tsr_serve_job *job, const tsr_response_head *head, tsr_text *text);

void tsr_response_add_model(const tsr_served_model *model, tsr_text *text);
void tsr_response_add_models(const tsr_served_model *model, tsr_text *text);
void tsr_response_add_tokens(
    const tsr_served_model *model, const tsr_prompt *tokens, tsr_text *text);
void tsr_response_add_text(const tsr_served_model *model, const tsr_prompt *tokens, tsr_text *text);

/* Whether a choice has ended without what was asked for: 500 or 503; the job's lock is held. */
bool tsr_response_find_failure(const tsr_serve_job *job, tsr_api_error *ret_error);

#endif
