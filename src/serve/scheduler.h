// SPDX-License-Identifier: Apache-2.0
/* Which texts the model continues: a queue of texts, the first of which gets a place as soon as one
 * is free (continuous batching). One thread runs the model; others submit and cancel. */
#ifndef TSR_SERVE_SCHEDULER_H
#define TSR_SERVE_SCHEDULER_H
#include "serve/job.h"
#include "serve/metrics.h"
#include "train/text_batch.h"
#include <signal.h>

typedef struct tsr_scheduler tsr_scheduler;

/* At most `queue_most` texts wait. */
tsr_scheduler *tsr_scheduler_new(
    tsr_arena *arena, tsr_text_batch *batch, int64_t queue_most, tsr_metrics *metrics);

/* All choices of the job wait from now on. False: 429 for a queue that is full, 503 for a server
 * that ends; then the job is still the caller's alone. */
bool tsr_scheduler_submit(tsr_scheduler *scheduler, tsr_serve_job *job, tsr_api_error *ret_error);
/* The caller reads the job no more. It is freed now, or when its texts have left the model. */
void tsr_scheduler_release(tsr_scheduler *scheduler, tsr_serve_job *job);

/* Runs the model until `*stop` is set; then no job is taken any more, those none of whose texts has
 * begun are refused, `stopping(context)` is called, and the others may take `grace_s`. */
void tsr_scheduler_run(
    tsr_scheduler *scheduler, const volatile sig_atomic_t *stop, double grace_s,
    void (*stopping)(void *context), void *context);

#endif
