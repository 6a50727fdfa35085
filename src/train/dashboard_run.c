// SPDX-License-Identifier: Apache-2.0
#include "train/dashboard_run.h"
#include "base/clock.h"
#include "base/terminal.h"
#include "runtime/process.h"
#include "train/trainer_internal.h"
#include "tui/painter.h"
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

struct tsr_dashboard_run {
  pthread_mutex_t lock;
  pthread_cond_t ended; /* waits with CLOCK_MONOTONIC */
  pthread_t thread;
  tsr_painter *painter; /* NULL: the terminal was given back */
  const volatile sig_atomic_t *stop;
  tsr_dashboard dashboard;
  double ideal_step_s;
  double begin, stepped; /* of the steps, and when the newest was reported */
  double eta;            /* then */
  bool is_ending;
};

/* ---- the thread ---- */

static void set_times(tsr_dashboard_run *r) {
  double now = tsr_seconds_now(), eta = r->eta - (now - r->stepped);
  if (!(r->begin > 0)) return;
  r->dashboard.elapsed_s = now - r->begin;
  r->dashboard.eta_s = eta > 0 || isnan(eta) ? eta : 0;
}

static void set_memory(tsr_dashboard_run *r, int64_t resident) {
  const double kib = 1024;
  struct rusage usage;
  if (resident > 0) r->dashboard.resident_bytes = (double)resident;
  if (!getrusage(RUSAGE_SELF, &usage)) r->dashboard.peak_bytes = (double)usage.ru_maxrss * kib;
}

static void wait_a_moment(tsr_dashboard_run *r) {
  enum { NANOSECONDS = 200000000, SECOND = 1000000000 };
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += NANOSECONDS;
  if (until.tv_nsec >= SECOND) until.tv_sec++, until.tv_nsec -= SECOND;
  pthread_cond_timedwait(&r->ended, &r->lock, &until);
}

/* Nothing else is printed before what was kept. */
static void give_back(tsr_dashboard_run *r) {
  flockfile(stdout);
  flockfile(stderr);
  fflush(stdout);
  fflush(stderr);
  tsr_painter_close(r->painter);
  r->painter = NULL;
  funlockfile(stderr);
  funlockfile(stdout);
}

static void *draw(void *context) {
  tsr_dashboard_run *r = context;
  pthread_mutex_lock(&r->lock);
  while (!r->is_ending && !*r->stop) {
    pthread_mutex_unlock(&r->lock);
    int64_t resident = tsr_process_resident_bytes();
    pthread_mutex_lock(&r->lock);
    set_times(r);
    set_memory(r, resident);
    tsr_painter_draw(r->painter, &r->dashboard);
    pthread_mutex_unlock(&r->lock);
    tsr_painter_write(r->painter); /* which may wait for the terminal; the run does not */
    pthread_mutex_lock(&r->lock);
    if (!r->is_ending) wait_a_moment(r);
  }
  pthread_mutex_unlock(&r->lock);
  give_back(r); /* a run that was asked to stop may take long for it, and may be killed meanwhile */
  return NULL;
}

/* Signals are the other threads'. */
static bool start(tsr_dashboard_run *r) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  bool ok = !pthread_create(&r->thread, NULL, draw, r);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return ok;
}

tsr_dashboard_run *tsr_dashboard_run_open(
    tsr_arena *arena, const char *title, double ideal_step_s, const volatile sig_atomic_t *stop) {
  tsr_dashboard_run *r = tsr_arena_alloc(arena, sizeof *r);
  pthread_condattr_t monotonic;
  *r = (tsr_dashboard_run){.ideal_step_s = ideal_step_s, .eta = NAN, .stop = stop};
  pthread_mutex_init(&r->lock, NULL);
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&r->ended, &monotonic);
  pthread_condattr_destroy(&monotonic);
  tsr_dashboard_init(&r->dashboard);
  snprintf(r->dashboard.title, sizeof r->dashboard.title, "%s", title);
  if (!tsr_painter_open(&r->painter)) return NULL;
  if (start(r)) return r;
  tsr_painter_close(r->painter);
  return NULL;
}

void tsr_dashboard_run_close(tsr_dashboard_run *r) {
  if (!r) return;
  pthread_mutex_lock(&r->lock);
  r->is_ending = true;
  pthread_cond_broadcast(&r->ended);
  pthread_mutex_unlock(&r->lock);
  pthread_join(r->thread, NULL);
}

/* ---- what the run reports ---- */

static tsr_dashboard_run *lock_run(const tsr_trainer *t) {
  tsr_dashboard_run *r = t->o->dashboard;
  if (r) pthread_mutex_lock(&r->lock);
  return r;
}

void tsr_dashboard_run_begin(tsr_trainer *t, double now) {
  tsr_dashboard_run *r = lock_run(t);
  if (!r) return;
  r->begin = r->stepped = now;
  r->dashboard.step = t->step;
  r->dashboard.steps = t->steps;
  pthread_mutex_unlock(&r->lock);
}

void tsr_dashboard_run_step(tsr_trainer *t, const tsr_metrics_step *step, double now) {
  tsr_dashboard_run *r = lock_run(t);
  if (!r) return;
  tsr_terminal_trim(); /* the thread that draws may wait for the terminal */
  tsr_dashboard *d = &r->dashboard;
  int64_t done = step->step - t->first_step, left = t->steps - step->step;
  d->step = step->step;
  d->steps = t->steps;
  d->loss = step->loss;
  d->grad_norm = step->grad_norm;
  d->lr = step->lr;
  d->tokens = (double)step->tokens;
  d->tokens_per_s = step->tokens_per_s;
  d->is_samples = t->o->data->dataset.kind != TSR_DATASET_TEXT;
  d->step_ms = step->ms;
  d->mfu = r->ideal_step_s > 0 && step->ms > 0 ? r->ideal_step_s * 1e3 / step->ms : NAN;
  d->is_saving = step->saving;
  d->checkpoint_step = tsr_checkpoint_manager_taken(t->manager);
  tsr_curve_add(&d->losses, step->step, step->loss);
  r->stepped = now;
  r->eta = done > 0 ? (now - r->begin) / (double)done * (double)left : NAN;
  pthread_mutex_unlock(&r->lock);
}

void tsr_dashboard_run_eval(tsr_trainer *t, const tsr_metrics_eval *evaluation) {
  tsr_dashboard_run *r = lock_run(t);
  if (!r) return;
  tsr_dashboard_set_validation(&r->dashboard, evaluation->step, evaluation->loss);
  if (evaluation->has_accuracy) r->dashboard.accuracy = evaluation->accuracy;
  pthread_mutex_unlock(&r->lock);
}

void tsr_dashboard_run_sample(tsr_trainer *t, const char *text, size_t length) {
  tsr_dashboard_run *r = lock_run(t);
  if (!r) return;
  tsr_dashboard_set_sample(&r->dashboard, t->step, text, length);
  pthread_mutex_unlock(&r->lock);
}
