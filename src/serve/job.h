// SPDX-License-Identifier: Apache-2.0
/* A request that is being served: the texts of its choices, which the thread of the model writes
 * and the thread of the connection reads. */
#ifndef TSR_SERVE_JOB_H
#define TSR_SERVE_JOB_H
#include "serve/request.h"
#include <pthread.h>

typedef enum {
  TSR_FINISH_NONE,    /* it goes on */
  TSR_FINISH_STOP,    /* the model's end, or a stop string */
  TSR_FINISH_LENGTH,  /* as many tokens as were wanted */
  TSR_FINISH_ERROR,   /* the model gives no numbers */
  TSR_FINISH_SHUTDOWN /* the server ends */
} tsr_finish;

typedef struct {
  int32_t token;
  double log_probability;
  size_t begin; /* of its text in the choice's; of a prompt's token 0 */
  int64_t held; /* characters before it that were not in the choice's text yet */
} tsr_token_record;

/* One choice of one prompt. */
typedef struct tsr_text_choice {
  struct tsr_serve_job *job;
  int prompt, number;      /* number: in [0, n) */
  tsr_text prompt_text;    /* where it is echoed */
  int64_t *prompt_offsets; /* of its tokens, in characters; where these have log-probabilities */
  tsr_text_stream stream;
  /* Where log-probabilities or tokens are wanted: of the prompt's tokens but the first one if it is
   * echoed, and of the drawn ones. */
  tsr_token_record *records;
  tsr_token_logprob *top_logprobs; /* (records_count, request.top_logprobs) */
  int64_t records_count, records_capacity;
  int64_t drawn; /* tokens; one that ends the text counts */
  /* Of the scheduler alone: */
  int text;       /* its number in the batch */
  double last_at; /* when it was added, or its last token was drawn */
  tsr_finish finish;
} tsr_text_choice;

struct tsr_serve_job {
  tsr_arena *arena; /* of the request, and of the job itself */
  const tsr_served_model *model;
  tsr_request request;
  double arrived_at;
  tsr_text_choice *choices; /* (choices_count) by prompt, and of each by number */
  int choices_count;
  pthread_mutex_t lock;   /* of all below, and of the choices' texts and records */
  pthread_cond_t changed; /* waits with CLOCK_MONOTONIC */
  int finished;           /* choices */
  /* Of the scheduler, under its lock. */
  struct tsr_scheduler *scheduler; /* that has it */
  int unfinished;                  /* choices that wait or run */
  bool is_released;                /* nobody reads it: its texts are to end */
  bool has_begun;                  /* a text of it has left the queue for the model */
};
typedef struct tsr_serve_job tsr_serve_job;

/* Takes the arena, in which the request lives. */
tsr_serve_job *
tsr_serve_job_new(tsr_arena *arena, const tsr_served_model *model, const tsr_request *request);
/* Frees the job and its arena. Nobody else has it. */
void tsr_serve_job_free(tsr_serve_job *job);

/* ---- the thread of the model ---- */

void tsr_text_choice_add_token(tsr_text_choice *choice, const tsr_text_token *token);
void tsr_text_choice_finish(tsr_text_choice *choice, tsr_finish finish);

#endif
