#include "comm/agree.h"
#include "comm/peers.h"
#include <stdio.h>
#include <string.h>

enum { TAG = TSR_TRANSPORT_TAGS - 2, WORKERS_MAX = 4096 };

/* "after 60 s nothing from worker 2 on node1 (pid 7): stopped (SIGSTOP); worker 3 on …". A worker
 * that both a send and a receive wait for is named once. */
static void describe_silent(
    const tsr_transport *t, const int *of, const bool *done, int count, double timeout_s,
    char *why) {
  tsr_text text = {0};
  int before = -1;
  tsr_text_add(&text, "after %g s nothing from ", timeout_s);
  for (int i = 0; i < count; i++) {
    if (done[i] || of[i] == before) continue;
    if (before >= 0) tsr_text_add(&text, "; ");
    tsr_peer_name(t, of[i], &text);
    tsr_text_add(&text, ": ");
    tsr_peer_describe(t, of[i], &text);
    before = of[i];
  }
  snprintf(why, TSR_WHY_BYTES, "%s", text.data);
  tsr_text_free(&text);
}

/* Until all are done; messages[i] is to or from worker of[i]. */
static bool wait_for(
    const tsr_transport *t, tsr_message *messages, const int *of, int count, double timeout_s,
    char *why) {
  bool done[2 * WORKERS_MAX] = {false};
  tsr_patience patience = {0};
  for (int left = count; left;) {
    left = 0;
    for (int i = 0; i < count; i++) {
      if (done[i]) continue;
      tsr_message_state state = t->table->test(t->state, &messages[i], why);
      if (state == TSR_MESSAGE_FAILED) return false;
      done[i] = state == TSR_MESSAGE_DONE;
      left += !done[i];
    }
    if (!left) break;
    double waited = tsr_patience_round(&patience);
    if (timeout_s <= 0 || waited < timeout_s) continue;
    describe_silent(t, of, done, count, timeout_s, why);
    return false;
  }
  return true;
}

bool tsr_transport_gather(
    const tsr_transport *t, const void *mine, int64_t bytes, void *ret_all, double timeout_s,
    char *why) {
  tsr_message messages[2 * WORKERS_MAX];
  int of[2 * WORKERS_MAX], count = 0;
  memcpy((char *)ret_all + t->worker * bytes, mine, (size_t)bytes);
  for (int w = 0; w < t->workers; w++) {
    if (w == t->worker) continue;
    of[count] = of[count + 1] = w;
    if (!t->table->receive(
            t->state, w, TAG, (char *)ret_all + w * bytes, bytes, &messages[count++], why) ||
        !t->table->send(t->state, w, TAG, mine, bytes, &messages[count++], why))
      return false;
  }
  return wait_for(t, messages, of, count, timeout_s, why);
}

bool tsr_transport_share_text(
    tsr_arena *arena, const tsr_transport *t, const char *mine, const char **ret_first,
    double timeout_s, char *why) {
  int64_t length = (int64_t)strlen(mine), lengths[WORKERS_MAX];
  if (!tsr_transport_gather(t, &length, sizeof length, lengths, timeout_s, why)) return false;
  tsr_message messages[WORKERS_MAX];
  int of[WORKERS_MAX], count = 0;
  char *first = tsr_arena_alloc(arena, (size_t)lengths[0] + 1);
  *ret_first = t->worker ? first : mine;
  if (t->worker) {
    of[count] = 0;
    if (!t->table->receive(t->state, 0, TAG, first, lengths[0], &messages[count++], why))
      return false;
  }
  for (int w = 1; !t->worker && w < t->workers; w++) {
    of[count] = w;
    if (!t->table->send(t->state, w, TAG, mine, length, &messages[count++], why)) return false;
  }
  return wait_for(t, messages, of, count, timeout_s, why);
}
