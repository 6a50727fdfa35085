// SPDX-License-Identifier: Apache-2.0
#include "comm/bootstrap.h"
#include "base/arena.h"
#include "base/memory.h"
#include "comm/peers.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TAG = TSR_TRANSPORT_TAGS - 2 };

/* Messages under way; message i is to or from process of[i]. */
typedef struct {
  tsr_message *messages;
  int *of, count;
  bool *done;
} pending;

static bool make_room(pending *p, int most, char *why) {
  size_t n = (size_t)most + 1;
  *p = (pending){
      tsr_memory_try_zeroed(n * sizeof *p->messages), tsr_memory_try_zeroed(n * sizeof *p->of), 0,
      tsr_memory_try_zeroed(n * sizeof *p->done)};
  if (p->messages && p->of && p->done) return true;
  snprintf(why, TSR_WHY_BYTES, "out of memory for %d messages", most);
  return false;
}

static void free_room(pending *p) {
  free(p->messages);
  free(p->of);
  free(p->done);
}

/* "after 60 s nothing from process 2 on node1 (pid 7): stopped (SIGSTOP); process 3 on …". A
 * process that both a send and a receive wait for is named once. */
static void describe_silent(const tsr_transport *t, const pending *p, double timeout_s, char *why) {
  tsr_text text = {0};
  int before = -1;
  tsr_text_add(&text, "after %g s nothing from ", timeout_s);
  for (int i = 0; i < p->count; i++) {
    if (p->done[i] || p->of[i] == before) continue;
    if (before >= 0) tsr_text_add(&text, "; ");
    tsr_peer_name(t, p->of[i], &text);
    tsr_text_add(&text, ": ");
    tsr_peer_describe(t, p->of[i], &text);
    before = p->of[i];
  }
  snprintf(why, TSR_WHY_BYTES, "%s", text.data);
  tsr_text_free(&text);
}

/* Until all are done. */
static bool wait_for(const tsr_transport *t, pending *p, double timeout_s, char *why) {
  tsr_backoff backoff = {0};
  for (int left = p->count; left;) {
    left = 0;
    for (int i = 0; i < p->count; i++) {
      if (p->done[i]) continue;
      tsr_message_state state = t->table->test(t->state, &p->messages[i], why);
      if (state == TSR_MESSAGE_FAILED) return false;
      p->done[i] = state == TSR_MESSAGE_DONE;
      left += !p->done[i];
    }
    if (!left) break;
    double waited = tsr_backoff_wait(&backoff);
    if (timeout_s <= 0 || waited < timeout_s) continue;
    describe_silent(t, p, timeout_s, why);
    return false;
  }
  return true;
}

static bool
add_receive(const tsr_transport *t, pending *p, int w, void *to, int64_t bytes, char *why) {
  p->of[p->count] = w;
  return t->table->receive(t->state, w, TAG, to, bytes, &p->messages[p->count++], why);
}

static bool
add_send(const tsr_transport *t, pending *p, int w, const void *from, int64_t bytes, char *why) {
  p->of[p->count] = w;
  return t->table->send(t->state, w, TAG, from, bytes, &p->messages[p->count++], why);
}

bool tsr_transport_gather(
    const tsr_transport *t, const void *mine, int64_t bytes, void *ret_all, double timeout_s,
    char *why) {
  pending p;
  bool ok = make_room(&p, 2 * t->processes, why);
  memcpy((char *)ret_all + t->process * bytes, mine, (size_t)bytes);
  for (int w = 0; ok && w < t->processes; w++)
    if (w != t->process)
      ok = add_receive(t, &p, w, (char *)ret_all + w * bytes, bytes, why) &&
           add_send(t, &p, w, mine, bytes, why);
  ok = ok && wait_for(t, &p, timeout_s, why);
  free_room(&p);
  return ok;
}

bool tsr_transport_collect(
    const tsr_transport *t, const void *mine, const int64_t *bytes, void *ret_all, double timeout_s,
    char *why) {
  pending p;
  bool ok = make_room(&p, t->processes, why);
  char *to = ret_all;
  if (t->process && bytes[t->process]) ok = ok && add_send(t, &p, 0, mine, bytes[t->process], why);
  for (int w = 0; ok && !t->process && w < t->processes; to += bytes[w++]) {
    if (!w && bytes[0]) memcpy(to, mine, (size_t)bytes[0]);
    if (w && bytes[w]) ok = add_receive(t, &p, w, to, bytes[w], why);
  }
  ok = ok && wait_for(t, &p, timeout_s, why);
  free_room(&p);
  return ok;
}

bool tsr_transport_share_text(
    tsr_arena *arena, const tsr_transport *t, const char *mine, const char **ret_first,
    double timeout_s, char *why) {
  int64_t length = (int64_t)strlen(mine);
  int64_t *lengths = tsr_arena_array(arena, int64_t, t->processes);
  if (!tsr_transport_gather(t, &length, sizeof length, lengths, timeout_s, why)) return false;
  pending p;
  char *first = tsr_arena_alloc(arena, (size_t)lengths[0] + 1);
  *ret_first = t->process ? first : mine;
  bool ok = make_room(&p, t->processes, why);
  if (t->process) ok = ok && add_receive(t, &p, 0, first, lengths[0], why);
  for (int w = 1; ok && !t->process && w < t->processes; w++)
    ok = add_send(t, &p, w, mine, length, why);
  ok = ok && wait_for(t, &p, timeout_s, why);
  free_room(&p);
  return ok;
}

bool tsr_peers_exchange(tsr_arena *arena, tsr_transport *t, double timeout_s, char *why) {
  tsr_peer mine, *all = tsr_arena_array(arena, tsr_peer, t->processes);
  tsr_peer_self(&mine);
  if (!tsr_transport_gather(t, &mine, sizeof mine, all, timeout_s, why)) return false;
  t->peers = all;
  t->shares_memory = true;
  return true;
}
