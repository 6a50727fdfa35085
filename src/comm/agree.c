#include "comm/agree.h"
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { TAG = TSR_TRANSPORT_TAGS - 2, WORKERS_MAX = 4096 };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Until all are done; messages[i] is to or from worker of[i]. */
static bool wait_for(
    const tsr_transport *t, tsr_message *messages, const int *of, int count, double timeout_s,
    char *why) {
  double begin = now();
  bool done[2 * WORKERS_MAX] = {false};
  for (int left = count; left;) {
    left = 0;
    for (int i = 0; i < count; i++) {
      if (done[i]) continue;
      tsr_message_state state = t->table->test(t->state, &messages[i], why);
      if (state == TSR_MESSAGE_FAILED) return false;
      done[i] = state == TSR_MESSAGE_DONE;
      left += !done[i];
    }
    if (!left) return true;
    sched_yield();
    if (timeout_s <= 0 || now() - begin < timeout_s) continue;
    int length = snprintf(why, TSR_WHY_BYTES, "after %.0f s nothing from worker", timeout_s);
    for (int i = 0; i < count; i++)
      if (!done[i] && length < TSR_WHY_BYTES - 16)
        length += snprintf(why + length, (size_t)(TSR_WHY_BYTES - length), " %d", of[i]);
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
