// SPDX-License-Identifier: Apache-2.0
/* Answers that a model gives: at once, or as a stream of events. */
#include "base/clock.h"
#include "serve/http_internal.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef enum { NEWS, CLIENT_GONE, TOO_LATE } waited;
enum { CLIENT_CLOSED = 499 }; /* a status that RFC 9110 does not have, as nginx uses it */

/* A request that is being answered. */
typedef struct {
  tsr_exchange *exchange; /* it may be gone when the answer is freed */
  tsr_http_server *server;
  tsr_serve_job *job;
  tsr_response_head head;
  tsr_sent *sent; /* (choices_count), in the job's arena */
  tsr_text out;   /* events that were not sent yet, from out_at on */
  size_t out_at;
  bool has_ended;
} answer;

static bool has_finished(const tsr_serve_job *job) { return job->finished == job->choices_count; }

/* Some of the job's texts have changed, or a tenth of a second is over. The job's lock is held. */
static void wait_for_change(tsr_serve_job *job) {
  enum { NANOSECONDS = 100000000, SECOND = 1000000000 };
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += NANOSECONDS;
  if (until.tv_nsec >= SECOND) until.tv_sec++, until.tv_nsec -= SECOND;
  pthread_cond_timedwait(&job->changed, &job->lock, &until);
}

/* Until is_ready(a), with the job's lock. */
static waited wait_until(answer *a, bool (*is_ready)(answer *a)) {
  tsr_exchange *e = a->exchange;
  tsr_serve_job *job = a->job;
  double timeout = a->server->settings.timeout_s;
  waited how = NEWS;
  tsr_exchange_begin_wait(e);
  pthread_mutex_lock(&job->lock);
  while (how == NEWS && !is_ready(a)) {
    wait_for_change(job);
    if (tsr_connection_is_gone(e->client)) how = CLIENT_GONE;
    else if (tsr_seconds_now() - job->arrived_at > timeout) how = TOO_LATE;
  }
  pthread_mutex_unlock(&job->lock);
  tsr_exchange_end_wait(e);
  return how;
}

/* A client that has only closed its sending side reads why it has no answer. To the server it looks
 * as one that has gone, whose texts are not to be made. */
static void fail_waiting(const answer *a, waited how, tsr_api_error *ret_error) {
  if (how == CLIENT_GONE)
    tsr_api_fail(
        ret_error, a->job->arena, CLIENT_CLOSED, NULL, "client_closed_request",
        "The client has closed its sending side, which ends its request: it has to stay open until "
        "the answer is there");
  if (how == TOO_LATE)
    tsr_api_fail(
        ret_error, a->job->arena, 504, NULL, "timeout", "The request took longer than %g seconds",
        a->server->settings.timeout_s);
}

/* ---- at once ---- */

static bool is_whole(answer *a) { return has_finished(a->job); }

static enum MHD_Result answer_whole(answer *a) {
  tsr_api_error error = {0};
  tsr_text text = {0};
  waited how = wait_until(a, is_whole);
  fail_waiting(a, how, &error);
  if (how == NEWS) tsr_response_find_failure(a->job, &error);
  if (error.status) return tsr_http_answer_error(a->exchange, &error);
  tsr_response_add_whole(a->job, &a->head, &text);
  return tsr_http_answer_json(a->exchange, &text);
}

/* ---- as a stream ---- */

static void add_failure(answer *a, const tsr_api_error *error) {
  tsr_text_add(&a->out, "data: ");
  tsr_api_error_add(error, &a->out);
  tsr_text_add(&a->out, "\n\n");
  a->has_ended = true;
}

static bool has_events(answer *a) {
  tsr_api_error error = {0};
  if (tsr_response_find_failure(a->job, &error)) {
    add_failure(a, &error);
    return true;
  }
  tsr_response_add_events(a->job, &a->head, a->sent, &a->out);
  if (has_finished(a->job)) {
    tsr_response_add_end(a->job, &a->head, &a->out);
    a->has_ended = true;
  }
  return a->out.length > 0;
}

static ssize_t read_stream(void *context, uint64_t at, char *to, size_t most) {
  answer *a = context;
  (void)at;
  if (a->out_at == a->out.length) {
    a->out.length = a->out_at = 0;
    if (a->has_ended) return MHD_CONTENT_READER_END_OF_STREAM;
    waited how = wait_until(a, has_events);
    tsr_api_error error = {0};
    fail_waiting(a, how, &error);
    if (error.status) add_failure(a, &error);
  }
  size_t left = a->out.length - a->out_at, count = left < most ? left : most;
  memcpy(to, a->out.data + a->out_at, count);
  a->out_at += count;
  return (ssize_t)count;
}

static void free_answer(void *context) {
  answer *a = context;
  tsr_text_free(&a->out);
  tsr_scheduler_release(a->server->scheduler, a->job);
  free(a);
}

/* The answer lives as long as the response. */
static enum MHD_Result answer_stream(const answer *of) {
  enum { BLOCK_BYTES = 1 << 14 };
  answer *a = calloc(1, sizeof *a);
  struct MHD_Response *r = NULL;
  if (a) {
    *a = *of;
    r = MHD_create_response_from_callback(
        MHD_SIZE_UNKNOWN, BLOCK_BYTES, read_stream, a, free_answer);
  }
  if (!r) {
    free(a);
    tsr_scheduler_release(of->server->scheduler, of->job);
    return MHD_NO;
  }
  MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, "text/event-stream; charset=utf-8");
  MHD_add_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
  tsr_metrics_answer(of->server->metrics, 200);
  enum MHD_Result result = MHD_queue_response(of->exchange->connection, 200, r);
  MHD_destroy_response(r);
  return result;
}

enum MHD_Result tsr_http_generate(tsr_exchange *e, bool is_chat) {
  tsr_http_server *server = tsr_http_server_of(e);
  tsr_arena *arena = tsr_arena_new();
  tsr_api_error error = {0};
  tsr_request request;
  answer a = {e, server, .head = tsr_response_head_new(is_chat)};
  bool ok = tsr_request_read(
      arena, server->model, is_chat, e->body.data ? e->body.data : "", e->body.length, &request,
      &error);
  tsr_text_free(&e->body);
  if (ok) {
    a.job = tsr_serve_job_new(arena, server->model, &request);
    a.sent = tsr_arena_array(arena, tsr_sent, a.job->choices_count);
    ok = tsr_scheduler_submit(server->scheduler, a.job, &error);
  }
  if (!ok) {
    enum MHD_Result result = tsr_http_answer_error(e, &error);
    if (a.job) tsr_serve_job_free(a.job);
    else tsr_arena_free(arena);
    return result;
  }
  if (request.streams) return answer_stream(&a);
  enum MHD_Result result = answer_whole(&a);
  tsr_scheduler_release(server->scheduler, a.job);
  return result;
}
