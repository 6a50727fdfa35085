// SPDX-License-Identifier: Apache-2.0
#include "serve/metrics.h"
#include <pthread.h>

enum { BUCKETS = 14, STATUSES_MAX = 16 };
static const double bounds[BUCKETS] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                       0.25,  0.5,    1,     2.5,  5,     10,   60};

typedef struct {
  int64_t buckets[BUCKETS], count;
  double sum;
} histogram;

struct tsr_metrics {
  pthread_mutex_t lock;
  histogram histograms[TSR_HISTOGRAMS];
  int64_t counters[TSR_COUNTERS], gauges[TSR_GAUGES];
  int statuses[STATUSES_MAX], statuses_count;
  int64_t answers[STATUSES_MAX];
};

static const char *const histogram_names[TSR_HISTOGRAMS][2] = {
    {"tessera_request_seconds", "Time from a request to the end of its texts"},
    {"tessera_first_token_seconds", "Time from a request to the first token of a text"},
    {"tessera_token_seconds", "Time between tokens of a text"}};
static const char *const counter_names[TSR_COUNTERS][2] = {
    {"tessera_prompt_tokens_total", "Tokens of prompts"},
    {"tessera_generated_tokens_total", "Tokens that were drawn"},
    {"tessera_steps_total", "Runs of the model"},
    {"tessera_cancelled_texts_total", "Texts whose client has gone or whose time was over"}};
static const char *const gauge_names[TSR_GAUGES][2] = {
    {"tessera_waiting_texts", "Texts in the queue"},
    {"tessera_running_texts", "Texts that the model continues now"},
    {"tessera_rows", "Texts that the model can continue at once"},
    {"tessera_cache_pages_used", "Pages of the key/value cache that texts have"},
    {"tessera_cache_pages", "Pages of the key/value cache"}};

tsr_metrics *tsr_metrics_new(tsr_arena *arena) {
  tsr_metrics *m = tsr_arena_alloc(arena, sizeof *m);
  pthread_mutex_init(&m->lock, NULL);
  return m;
}

void tsr_metrics_answer(tsr_metrics *m, int status) {
  pthread_mutex_lock(&m->lock);
  int at = 0;
  while (at < m->statuses_count && m->statuses[at] != status) at++;
  if (at == m->statuses_count && at < STATUSES_MAX) m->statuses[m->statuses_count++] = status;
  if (at < STATUSES_MAX) m->answers[at]++;
  pthread_mutex_unlock(&m->lock);
}

void tsr_metrics_observe(tsr_metrics *m, tsr_histogram which, double seconds) {
  pthread_mutex_lock(&m->lock);
  histogram *h = &m->histograms[which];
  for (int b = 0; b < BUCKETS; b++) h->buckets[b] += seconds <= bounds[b];
  h->count++;
  h->sum += seconds;
  pthread_mutex_unlock(&m->lock);
}

void tsr_metrics_count(tsr_metrics *m, tsr_counter counter, int64_t more) {
  pthread_mutex_lock(&m->lock);
  m->counters[counter] += more;
  pthread_mutex_unlock(&m->lock);
}

void tsr_metrics_set(tsr_metrics *m, tsr_gauge gauge, int64_t value) {
  pthread_mutex_lock(&m->lock);
  m->gauges[gauge] = value;
  pthread_mutex_unlock(&m->lock);
}

static void add_head(tsr_text *text, const char *const names[2], const char *type) {
  tsr_text_add(text, "# HELP %s %s\n# TYPE %s %s\n", names[0], names[1], names[0], type);
}

void tsr_metrics_add(tsr_metrics *m, tsr_text *text) {
  static const char *const answers[2] = {"tessera_requests_total", "Answers by status"};
  pthread_mutex_lock(&m->lock);
  add_head(text, answers, "counter");
  for (int i = 0; i < m->statuses_count; i++)
    tsr_text_add(
        text, "%s{status=\"%d\"} %lld\n", answers[0], m->statuses[i], (long long)m->answers[i]);
  for (int i = 0; i < TSR_COUNTERS; i++) {
    add_head(text, counter_names[i], "counter");
    tsr_text_add(text, "%s %lld\n", counter_names[i][0], (long long)m->counters[i]);
  }
  for (int i = 0; i < TSR_GAUGES; i++) {
    add_head(text, gauge_names[i], "gauge");
    tsr_text_add(text, "%s %lld\n", gauge_names[i][0], (long long)m->gauges[i]);
  }
  for (int i = 0; i < TSR_HISTOGRAMS; i++) {
    const histogram *h = &m->histograms[i];
    const char *name = histogram_names[i][0];
    add_head(text, histogram_names[i], "histogram");
    for (int b = 0; b < BUCKETS; b++)
      tsr_text_add(text, "%s_bucket{le=\"%g\"} %lld\n", name, bounds[b], (long long)h->buckets[b]);
    tsr_text_add(text, "%s_bucket{le=\"+Inf\"} %lld\n", name, (long long)h->count);
    tsr_text_add(text, "%s_sum %.9g\n%s_count %lld\n", name, h->sum, name, (long long)h->count);
  }
  pthread_mutex_unlock(&m->lock);
}
