// SPDX-License-Identifier: Apache-2.0
/* The tables of a profile. */
#include "report/profile.h"

enum { RANKS_SHOWN = 64, OPS_SHOWN = 24 };

static double share(double part, double whole) { return whole > 0 ? part / whole : 0; }

static void print_rank(const tsr_profile *p, int rank, tsr_text *text) {
  const tsr_profile_rank *r = &p->ranks[rank];
  tsr_text_add(
      text, "  %4d  %5d  %10.6f  %10.6f  %13.6f  %10.6f  %10.6f  %10.6f", rank,
      tsr_parallel_coord(p->record.parallel, rank, TSR_PP), r->compute, r->input, r->communication,
      r->overlapped, r->waiting, r->idle);
  if (r->compute > 0) tsr_text_add(text, "  %7.3f\n", r->communication / r->compute);
  else tsr_text_add(text, "  %7s\n", "-");
}

static void print_ranks(const tsr_profile *p, tsr_text *text) {
  int ranks = p->record.parallel->ranks, shown = ranks < RANKS_SHOWN ? ranks : RANKS_SHOWN;
  tsr_text_add(
      text, "  %4s  %5s  %10s  %10s  %13s  %10s  %10s  %10s  %7s\n", "rank", "stage", "compute s",
      "input s", "communication", "overlapped", "waiting s", "idle s", "ratio");
  for (int r = 0; r < shown; r++) print_rank(p, r, text);
  if (shown < ranks) tsr_text_add(text, "  … %s in all\n", tsr_text_count(ranks).text);
  tsr_text_add(
      text, "ratio: communication over compute; waiting, for another stage, is a part of idle\n");
  if (ranks > p->record.threads)
    tsr_text_add(
        text, "idle holds what the %d thread%s did for other ranks: %d ranks share them\n",
        p->record.threads, p->record.threads == 1 ? "" : "s", ranks);
  tsr_text_add(
      text, "overlapped: %.1f %% of communication\n",
      100 * share(p->all.overlapped, p->all.communication));
  tsr_text_add(
      text, "no rank does anything: %.6f s, %.1f %% of the time, between tasks\n", p->unused,
      100 * share(p->unused, p->seconds));
}

/* ---- ops ---- */

static void print_rate(double work, double seconds, tsr_text *text) {
  if (work > 0 && seconds > 0) tsr_text_add(text, "  %9.3f", 1e-9 * work / seconds);
  else tsr_text_add(text, "  %9s", "-");
}

static int processes_of(const tsr_record *r) { return r->processes > 1 ? r->processes : 1; }

/* Ranks side by side have the limits of their process in common: what each did took all of them so
 * long. Each process does its part of the whole. */
static double share_of_limit(const tsr_profile *p, const tsr_profile_op *op) {
  int ranks = p->record.parallel->ranks, threads = p->record.threads;
  double beside = ranks < threads ? ranks : threads, processes = processes_of(&p->record);
  if (op->kind != TSR_EVENT_COMPUTE) return 0;
  return tsr_peak_rates_share(
      &p->limits, op->flops / processes, op->bytes / processes, op->seconds / beside);
}

static void
print_op(const char *name, const tsr_profile *p, const tsr_profile_op *op, tsr_text *text) {
  double whole = p->all.compute + p->all.input + p->all.communication;
  tsr_text_add(
      text, "  %-24s  %9s  %10.6f  %5.1f %%", name, tsr_text_count(op->count).text, op->seconds,
      100 * share(op->seconds, whole));
  print_rate(op->flops, op->seconds, text);
  print_rate(op->bytes, op->seconds, text);
  double limit = share_of_limit(p, op);
  if (limit > 0) tsr_text_add(text, "  %6.1f %%", 100 * limit);
  tsr_text_add(text, "\n");
}

static void print_ops(const tsr_profile *p, tsr_text *text) {
  tsr_profile_op others = {.op = "others"};
  tsr_text_add(
      text, "  %-24s  %9s  %10s  %7s  %9s  %9s%s\n", "op, all ranks", "count", "seconds", "share",
      "GFLOP/s", "GB/s", p->limits.flops > 0 ? "  of limit" : "");
  for (int i = 0; i < p->ops_count; i++) {
    const tsr_profile_op *op = &p->ops[i];
    char name[64];
    if (i >= OPS_SHOWN) {
      others.count += op->count;
      others.seconds += op->seconds;
      continue;
    }
    if (op->axis < 0) snprintf(name, sizeof name, "%s", op->op);
    else snprintf(name, sizeof name, "%s over %s", op->op, tsr_axis_name(op->axis));
    print_op(name, p, op, text);
  }
  if (!others.count) return;
  char name[64];
  snprintf(name, sizeof name, "%d others", p->ops_count - OPS_SHOWN);
  print_op(name, p, &others, text);
}

static void print_limits(const tsr_profile *p, tsr_text *text) {
  const tsr_peak_rates *l = &p->limits;
  if (l->flops <= 0) return;
  tsr_text_add(
      text,
      "limits, measured: %.1f GFLOP/s, %.1f GB/s read from memory%s; what caches hold may go "
      "beyond\n",
      1e-9 * l->flops, 1e-9 * l->bytes,
      processes_of(&p->record) > 1 ? ", on process 0 while all measure" : "");
}

/* How exactly events of different processes can be compared. */
static void print_clocks(const tsr_record *r, tsr_text *text) {
  if (processes_of(r) == 1) return;
  if (!r->clock_error) tsr_text_add(text, "clocks: all processes have the clock of one host\n");
  else
    tsr_text_add(
        text,
        "clocks: those of other hosts are aligned to that of process 0 within %.3f ms, by "
        "messages before and after the steps\n",
        1e-6 * (double)r->clock_error);
}

/* ---- the pipeline ---- */

static void print_stage(const tsr_profile *p, int virtual_stage, tsr_text *text) {
  const tsr_pipeline *o = p->record.programs->pipeline;
  const tsr_profile_actions *a = &p->actions[virtual_stage];
  int stage, chunk;
  tsr_pipeline_locate(o, virtual_stage, &stage, &chunk);
  tsr_text_add(
      text, "  %5d  %5d  %10.3f  %11.3f", virtual_stage, stage, 1e3 * a->forward,
      1e3 * a->backward);
  if (o->splits_backward) tsr_text_add(text, "  %10.3f", 1e3 * a->weights);
  tsr_text_add(text, "\n");
}

static void print_pipeline(const tsr_profile *p, tsr_text *text) {
  const tsr_pipeline *o = p->record.programs->pipeline;
  double sum = 0;
  if (o->stages == 1) return;
  tsr_text_add(
      text, "pipeline %s: %d stages, %d microbatch%s; a receive takes %.3f ms\n", o->name,
      o->stages, o->microbatches, o->microbatches == 1 ? "" : "es", 1e3 * p->send);
  tsr_text_add(
      text, "  %5s  %5s  %10s  %11s%s\n", "part", "stage", "forward ms", "backward ms",
      o->splits_backward ? "  weights ms" : "");
  for (int v = 0; v < o->stages * o->chunks; v++) print_stage(p, v, text);
  for (int s = 0; s < o->stages; s++) sum += p->busy[s];
  tsr_text_add(text, "busy stages, of their mean:");
  for (int s = 0; s < o->stages; s++)
    tsr_text_add(text, " %.2f", share(p->busy[s] * o->stages, sum));
  tsr_text_add(
      text,
      "\nbubble: %.1f %% by these times, each stage on devices of its own; %.1f %% if all were "
      "alike\n",
      100 * p->bubble, 100 * p->bubble_even);
}

void tsr_profile_print(const tsr_profile *p, tsr_text *text) {
  const tsr_record *r = &p->record;
  tsr_text_add(
      text, "profile of %d step%s, %.6f s: %.3f ms a step; %d rank%s on %d thread%s",
      r->steps_count, r->steps_count == 1 ? "" : "s", p->seconds, 1e3 * p->seconds / r->steps_count,
      r->parallel->ranks, r->parallel->ranks == 1 ? "" : "s", r->threads,
      r->threads == 1 ? "" : "s");
  if (processes_of(r) > 1) tsr_text_add(text, " of %d processes", processes_of(r));
  tsr_text_add(text, "\n");
  print_ranks(p, text);
  print_clocks(r, text);
  print_ops(p, text);
  print_limits(p, text);
  print_pipeline(p, text);
}
