// SPDX-License-Identifier: Apache-2.0
/* A step as one captured graph of the device's work. The first step is begun task by task, which
 * leaves all that a task makes once; the next ones are captured, one for each of the two sets of
 * inputs, and launched again in each step. A step is captured if it is nothing but work that
 * devices begin, the same in every step; messages between processes are such work where devices
 * send them. Then all processes capture, or none: a library may exchange addresses inside a
 * capture. */
#include "runtime/executable_internal.h"
#include <stdio.h>

static void give_up(tsr_executable *b, const char *why) {
  b->uncapturable = true;
  if (*why) snprintf(b->capture_note, sizeof b->capture_note, "%s", why);
}

/* The host waits for the device before such a task. */
static bool has_host_task(tsr_executable *b) {
  char why[TSR_DEVICE_WHY_BYTES];
  for (int s = 0; s < b->programs->pipeline->stages; s++) {
    const tsr_program *p = b->programs->of_stage[s];
    for (int i = 0; i < p->tasks_count; i++) {
      const tsr_task *t = &p->tasks[i];
      if (!t->on_host) continue;
      snprintf(
          why, sizeof why, "the host runs '%s' (%s)", p->graph->nodes[t->node].name,
          tsr_op_name(t->op));
      return give_up(b, why), true;
    }
  }
  return false;
}

static bool has_host_messages(tsr_executable *b) {
  if (tsr_executable_is_alone(b)) return false;
  if (!b->communicator_uses)
    return give_up(b, "messages between processes go through the host"), true;
  if (tsr_device_has_all_transfers(b)) return false;
  return give_up(b, "two stages have their messages in other orders"), true;
}

static bool is_capturable(tsr_executable *b) {
  const tsr_device *d = b->process->device;
  if (!d->begin_capture || b->recording || b->digests || b->trace || b->uncapturable) return false;
  return !has_host_task(b) && !has_host_messages(b);
}

static void capture(tsr_executable *b, void **graph, tsr_run_stages *run, const void *step) {
  const tsr_device *d = b->process->device;
  char why[TSR_DEVICE_WHY_BYTES] = "";
  bool begins = d->begin_capture(d->state, why);
  bool all_begin = !tsr_executable_agree(b, !begins);
  if (all_begin) run(step);
  if (begins) *graph = d->end_capture(d->state, why);
  if (!tsr_executable_agree(b, !*graph)) return;
  if (*graph) {
    d->destroy_graph(d->state, *graph);
    snprintf(why, sizeof why, "another process has not captured it");
  }
  *graph = NULL;
  give_up(b, why);
}

bool tsr_executable_run_captured(tsr_executable *b, tsr_run_stages *run, const void *step) {
  const tsr_device *d = b->process->device;
  if (!is_capturable(b) || !b->device_steps++) return false;
  void **graph = &b->graphs[tsr_inputs_set(b)];
  if (!*graph) capture(b, graph, run, step);
  if (*graph) d->launch(d->state, *graph);
  return *graph;
}

const char *tsr_executable_take_capture_note(tsr_executable *b) {
  bool is_new = *b->capture_note && !b->capture_noted;
  b->capture_noted |= is_new;
  return is_new ? b->capture_note : NULL;
}
