// SPDX-License-Identifier: Apache-2.0
#include "http/connections.h"
#include "base/memory.h"
#include "base/clock.h"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

struct tsr_connection {
  tsr_connection *next, *before;
  int socket;
  double sends_since; /* 0: it is being served */
  bool is_cut;        /* shut down, but not closed yet */
};

struct tsr_connections {
  pthread_mutex_t lock;
  pthread_cond_t changed; /* of the end, and of an answer's; waits with CLOCK_MONOTONIC */
  pthread_t watcher;
  tsr_connection *first;
  double seconds;
  int most, count; /* count: of those that are not cut */
  bool is_ending;
};

/* A tenth of a second, or until something changes; the lock is held. */
static void wait_a_moment(tsr_connections *all) {
  enum { NANOSECONDS = 100000000, SECOND = 1000000000 };
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += NANOSECONDS;
  if (until.tv_nsec >= SECOND) until.tv_sec++, until.tv_nsec -= SECOND;
  pthread_cond_timedwait(&all->changed, &all->lock, &until);
}

static void cut(tsr_connections *all, tsr_connection *c) {
  shutdown(c->socket, SHUT_RDWR);
  all->count -= !c->is_cut;
  c->is_cut = true;
}

/* The client whose request is awaited longest, but not the newest one: others come, too. */
static void cut_longest(tsr_connections *all) {
  tsr_connection *longest = NULL;
  for (tsr_connection *c = all->first->next; c; c = c->next)
    if (c->sends_since > 0 && !c->is_cut && (!longest || c->sends_since <= longest->sends_since))
      longest = c;
  if (longest) cut(all, longest);
}

static void *watch(void *context) {
  tsr_connections *all = context;
  pthread_mutex_lock(&all->lock);
  while (!all->is_ending) {
    double now = tsr_seconds_now();
    for (tsr_connection *c = all->first; c; c = c->next)
      if (c->sends_since > 0 && now - c->sends_since > all->seconds) cut(all, c);
    wait_a_moment(all);
  }
  pthread_mutex_unlock(&all->lock);
  return NULL;
}

bool tsr_connections_open(
    tsr_arena *arena, double seconds_to_send, int most, tsr_connections **ret_connections) {
  tsr_connections *all = tsr_arena_alloc(arena, sizeof *all);
  pthread_condattr_t monotonic;
  all->seconds = seconds_to_send;
  all->most = most;
  pthread_mutex_init(&all->lock, NULL);
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&all->changed, &monotonic);
  pthread_condattr_destroy(&monotonic);
  *ret_connections = all;
  return !pthread_create(&all->watcher, NULL, watch, all);
}

void tsr_connections_close(tsr_connections *all) {
  pthread_mutex_lock(&all->lock);
  all->is_ending = true;
  pthread_cond_broadcast(&all->changed);
  pthread_mutex_unlock(&all->lock);
  pthread_join(all->watcher, NULL);
}

tsr_connection *tsr_connections_add(tsr_connections *all, int socket) {
  tsr_connection *c = tsr_memory_new(sizeof *c);
  c->socket = socket;
  c->sends_since = tsr_seconds_now();
  pthread_mutex_lock(&all->lock);
  c->next = all->first;
  if (c->next) c->next->before = c;
  all->first = c;
  if (++all->count >= all->most) cut_longest(all);
  pthread_mutex_unlock(&all->lock);
  return c;
}

void tsr_connections_remove(tsr_connections *all, tsr_connection *c) {
  pthread_mutex_lock(&all->lock);
  if (c->next) c->next->before = c->before;
  if (c->before) c->before->next = c->next;
  else all->first = c->next;
  all->count -= !c->is_cut;
  pthread_mutex_unlock(&all->lock);
  free(c);
}

void tsr_connection_has_sent(tsr_connections *all, tsr_connection *c) {
  pthread_mutex_lock(&all->lock);
  c->sends_since = 0;
  pthread_mutex_unlock(&all->lock);
}

void tsr_connection_may_send(tsr_connections *all, tsr_connection *c) {
  pthread_mutex_lock(&all->lock);
  c->sends_since = tsr_seconds_now();
  pthread_cond_broadcast(&all->changed);
  pthread_mutex_unlock(&all->lock);
}

static bool is_serving(const tsr_connections *all) {
  for (const tsr_connection *c = all->first; c; c = c->next)
    if (!(c->sends_since > 0)) return true;
  return false;
}

void tsr_connections_wait(tsr_connections *all, double seconds) {
  double until = tsr_seconds_now() + seconds;
  pthread_mutex_lock(&all->lock);
  while (is_serving(all) && tsr_seconds_now() < until) wait_a_moment(all);
  pthread_mutex_unlock(&all->lock);
}

bool tsr_connection_is_gone(const tsr_connection *c) {
  char byte;
  ssize_t n = recv(c->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}
