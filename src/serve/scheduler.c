// SPDX-License-Identifier: Apache-2.0
#include "serve/scheduler.h"
#include "base/clock.h"
#include <stdio.h>
#include <time.h>

struct tsr_scheduler {
  tsr_text_batch *batch;
  tsr_metrics *metrics;
  tsr_text_choice **running; /* (rows) NULL: none; for the model's thread alone */
  int64_t rows;
  tsr_arena *arena; /* of diags, of the steps since one has failed; for that thread, too */
  tsr_diags *diags;
  pthread_mutex_t lock;    /* of all below */
  pthread_cond_t woken;    /* waits with CLOCK_MONOTONIC */
  tsr_text_choice **queue; /* a ring of queue_most, from `first` on */
  int64_t queue_most, first, count;
  bool is_ending;
};

tsr_scheduler *tsr_scheduler_new(
    tsr_arena *arena, tsr_text_batch *batch, int64_t queue_most, tsr_metrics *metrics) {
  tsr_scheduler *s = tsr_arena_alloc(arena, sizeof *s);
  pthread_condattr_t monotonic;
  s->batch = batch;
  s->metrics = metrics;
  s->rows = tsr_text_batch_rows(batch);
  s->running = tsr_arena_array(arena, tsr_text_choice *, s->rows);
  s->queue = tsr_arena_array(arena, tsr_text_choice *, queue_most);
  s->queue_most = queue_most;
  pthread_mutex_init(&s->lock, NULL);
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&s->woken, &monotonic);
  pthread_condattr_destroy(&monotonic);
  tsr_metrics_set(metrics, TSR_ROWS, s->rows);
  tsr_metrics_set(metrics, TSR_PAGES, tsr_text_batch_pages(batch));
  return s;
}

/* ---- other threads ---- */

bool tsr_scheduler_submit(tsr_scheduler *s, tsr_serve_job *job, tsr_api_error *ret_error) {
  int64_t tokens = 0;
  bool ok = true;
  job->arrived_at = tsr_seconds_now();
  pthread_mutex_lock(&s->lock);
  if (s->is_ending)
    ok = tsr_api_fail(ret_error, job->arena, 503, NULL, "server_ends", "The server ends");
  else if (s->count + job->choices_count > s->queue_most)
    ok = tsr_api_fail(
        ret_error, job->arena, 429, NULL, "queue_full",
        "%lld texts wait, and no more than %lld may", (long long)s->count,
        (long long)s->queue_most);
  for (int i = 0; ok && i < job->choices_count; i++) {
    s->queue[(s->first + s->count++) % s->queue_most] = &job->choices[i];
    const tsr_text_choice *c = &job->choices[i];
    tokens += c->number ? 0 : job->request.prompts[c->prompt].count;
  }
  if (ok) {
    job->scheduler = s;
    job->unfinished = job->choices_count;
  }
  if (ok) tsr_metrics_count(s->metrics, TSR_PROMPT_TOKENS, tokens);
  tsr_metrics_set(s->metrics, TSR_WAITING_TEXTS, s->count);
  pthread_cond_signal(&s->woken);
  pthread_mutex_unlock(&s->lock);
  return ok;
}

/* The job's choices leave the queue. */
static void drop_waiting(tsr_scheduler *s, tsr_serve_job *job) {
  int64_t kept = 0;
  for (int64_t i = 0; i < s->count; i++) {
    tsr_text_choice *c = s->queue[(s->first + i) % s->queue_most];
    if (c->job != job) s->queue[(s->first + kept++) % s->queue_most] = c;
  }
  job->unfinished -= (int)(s->count - kept);
  tsr_metrics_count(s->metrics, TSR_CANCELLED_TEXTS, s->count - kept);
  s->count = kept;
  tsr_metrics_set(s->metrics, TSR_WAITING_TEXTS, s->count);
}

void tsr_scheduler_release(tsr_scheduler *s, tsr_serve_job *job) {
  pthread_mutex_lock(&s->lock);
  drop_waiting(s, job);
  job->is_released = true;
  bool last = !job->unfinished;
  pthread_mutex_unlock(&s->lock);
  if (last) tsr_serve_job_free(job);
}

/* ---- the thread of the model ---- */

/* A choice of the job neither waits nor runs any more. */
static void leave(tsr_scheduler *s, tsr_serve_job *job) {
  pthread_mutex_lock(&s->lock);
  bool last = !--job->unfinished && job->is_released;
  pthread_mutex_unlock(&s->lock);
  if (last) tsr_serve_job_free(job);
}

static bool on_token(void *context, const tsr_text_token *token) {
  tsr_text_choice *c = context;
  tsr_metrics *metrics = c->job->scheduler->metrics;
  tsr_text_choice_add_token(c, token);
  if (!token->is_drawn) return true;
  double at = tsr_seconds_now();
  tsr_histogram which = c->drawn == 1 ? TSR_FIRST_TOKEN_SECONDS : TSR_TOKEN_SECONDS;
  tsr_metrics_observe(metrics, which, at - c->last_at);
  tsr_metrics_count(metrics, TSR_DRAWN_TOKENS, 1);
  c->last_at = at;
  return !c->stream.is_stopped;
}

static void end(void *context, const int32_t *tokens, int64_t count, tsr_text_end how) {
  static const tsr_finish finishes[] = {
      [TSR_TEXT_FULL] = TSR_FINISH_LENGTH,
      [TSR_TEXT_STOPPED] = TSR_FINISH_STOP,
      [TSR_TEXT_INTERRUPTED] = TSR_FINISH_SHUTDOWN,
      [TSR_TEXT_NO_TOKEN] = TSR_FINISH_ERROR};
  tsr_text_choice *c = context;
  tsr_scheduler *s = c->job->scheduler;
  (void)tokens, (void)count; /* heard one by one */
  tsr_metrics_observe(s->metrics, TSR_REQUEST_SECONDS, tsr_seconds_now() - c->job->arrived_at);
  s->running[c->text] = NULL;
  tsr_text_choice_finish(c, finishes[how]);
  leave(s, c->job);
}

static tsr_text_request request_of(tsr_text_choice *c) {
  const tsr_request *r = &c->job->request;
  tsr_text_request q = {
      .tokens = r->prompts[c->prompt].tokens,
      .count = r->prompts[c->prompt].count,
      .sampling = r->sampling,
      .max_new_tokens = r->max_new_tokens[c->prompt],
      .wants_logprobs = r->wants_logprobs,
      .top_logprobs = r->top_logprobs,
      .scores_prompt = r->echoes && r->wants_logprobs && r->prompts[c->prompt].count > 1,
      .token = on_token,
      .ended = end,
      .context = c};
  q.sampling.stream = (uint64_t)c->number;
  if (!r->ignores_ends) {
    q.stops = c->job->model->ends;
    q.stops_count = c->job->model->ends_count;
  }
  return q;
}

static void remove_released(tsr_scheduler *s) {
  for (int64_t i = 0; i < s->rows; i++) {
    tsr_text_choice *c = s->running[i];
    if (!c) continue;
    pthread_mutex_lock(&s->lock);
    bool is_released = c->job->is_released;
    pthread_mutex_unlock(&s->lock);
    if (!is_released) continue;
    tsr_text_batch_remove(s->batch, c->text);
    tsr_metrics_count(s->metrics, TSR_CANCELLED_TEXTS, 1);
    s->running[i] = NULL;
    leave(s, c->job);
  }
}

/* Waiting texts take the free places, in their order. */
static void add_waiting(tsr_scheduler *s) {
  pthread_mutex_lock(&s->lock);
  while (s->count) {
    tsr_text_choice *c = s->queue[s->first];
    tsr_text_request q = request_of(c);
    if (!tsr_text_batch_has_room(s->batch, &q)) break;
    s->first = (s->first + 1) % s->queue_most;
    s->count--;
    c->last_at = c->job->arrived_at;
    c->text = tsr_text_batch_add(s->batch, &q);
    c->job->has_begun = true;
    s->running[c->text] = c;
  }
  tsr_metrics_set(s->metrics, TSR_WAITING_TEXTS, s->count);
  pthread_mutex_unlock(&s->lock);
}

static void set_gauges(tsr_scheduler *s) {
  tsr_metrics_set(s->metrics, TSR_RUNNING_TEXTS, tsr_text_batch_texts(s->batch));
  tsr_metrics_set(s->metrics, TSR_PAGES_USED, tsr_text_batch_pages_used(s->batch));
}

/* A model that gives no numbers gives none for any text that runs. */
static void fail_running(tsr_scheduler *s, tsr_diags *diags) {
  tsr_diags_print(diags, stderr);
  for (int64_t i = 0; i < s->rows; i++) {
    tsr_text_choice *c = s->running[i];
    if (!c) continue;
    tsr_text_batch_remove(s->batch, c->text);
    s->running[i] = NULL;
    tsr_text_choice_finish(c, TSR_FINISH_ERROR);
    leave(s, c->job);
  }
}

static void step(tsr_scheduler *s) {
  if (!s->diags) {
    s->arena = tsr_arena_new();
    s->diags = tsr_diags_new(s->arena);
  }
  tsr_metrics_count(s->metrics, TSR_STEPS, 1);
  if (tsr_text_batch_step(s->batch, s->diags)) return;
  fail_running(s, s->diags);
  tsr_arena_free(s->arena);
  s->diags = NULL;
  s->arena = NULL;
}

static void wait_for_work(tsr_scheduler *s) {
  enum { NANOSECONDS = 50000000, SECOND = 1000000000 }; /* a signal only sets a flag */
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += NANOSECONDS;
  if (until.tv_nsec >= SECOND) until.tv_sec++, until.tv_nsec -= SECOND;
  pthread_mutex_lock(&s->lock);
  if (!s->count) pthread_cond_timedwait(&s->woken, &s->lock, &until);
  pthread_mutex_unlock(&s->lock);
}

/* What waits or runs ends now. */
static void end_all(tsr_scheduler *s) {
  for (;;) {
    pthread_mutex_lock(&s->lock);
    tsr_text_choice *c = s->count ? s->queue[s->first] : NULL;
    if (c) s->first = (s->first + 1) % s->queue_most, s->count--;
    pthread_mutex_unlock(&s->lock);
    if (!c) break;
    tsr_text_choice_finish(c, TSR_FINISH_SHUTDOWN);
    leave(s, c->job);
  }
  tsr_text_batch_interrupt(s->batch);
  tsr_arena_free(s->arena);
}

/* Requests none of whose texts has begun are refused now: others may still end. */
static void refuse_waiting(tsr_scheduler *s) {
  pthread_mutex_lock(&s->lock);
  s->is_ending = true;
  for (int64_t left = s->count; left > 0 && s->count; left--) {
    tsr_text_choice *c = s->queue[s->first];
    s->first = (s->first + 1) % s->queue_most;
    if (c->job->has_begun) {
      s->queue[(s->first + s->count - 1) % s->queue_most] = c;
      continue;
    }
    s->count--;
    pthread_mutex_unlock(&s->lock);
    tsr_text_choice_finish(c, TSR_FINISH_SHUTDOWN);
    leave(s, c->job);
    pthread_mutex_lock(&s->lock);
  }
  pthread_mutex_unlock(&s->lock);
}

void tsr_scheduler_run(
    tsr_scheduler *s, const volatile sig_atomic_t *stop, double grace_s,
    void (*stopping)(void *context), void *context) {
  double ends_at = 0;
  for (;;) {
    if (*stop && !ends_at) {
      refuse_waiting(s);
      stopping(context);
      ends_at = tsr_seconds_now() + grace_s;
    }
    remove_released(s);
    add_waiting(s);
    set_gauges(s);
    if (tsr_text_batch_texts(s->batch)) step(s);
    else if (ends_at) break;
    else wait_for_work(s);
    if (ends_at && tsr_seconds_now() > ends_at) break;
  }
  end_all(s);
}
